/* Samples that a list excludes: from data in memory and in files, by name, by number, listed twice, and invalid lists. */
#include "config.h"
#include "datasets/datasets.h"
#include "tests/scratch.h"

static int exclude(const char *text, const char *lines, struct sgrad_dataset **dataset) {
    const struct sgrad_dataset_options how = { .exclude = lines ? scratch_write("list", lines, strlen(lines)) : NULL };
    return sgrad_dataset_open(text, SGRAD_TRAIN, &how, dataset);
}

/* LINES may be NULL. */
static struct sgrad_dataset *open_set(const char *text, const char *lines) {
    struct sgrad_dataset *dataset;
    assert_done(exclude(text, lines, &dataset));
    return dataset;
}

/* Every sample of LESS is that of WHOLE that WHICH says, in every field. */
static void assert_samples(const struct sgrad_dataset *less, const struct sgrad_dataset *whole, const int64_t *which, int n) {
    const size_t size = sgrad_field_bytes(&less->field[0]);
    uint8_t *a = malloc(size), *b = malloc(size);
    assert_int_equal(less->count, n);
    for (int64_t i = 0; i < n; i++) {
        int32_t one, other;
        assert_done(sgrad_dataset_read(less, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ a, &one }));
        assert_done(sgrad_dataset_read(whole, &(struct sgrad_sample){ .index = which[i] }, 1, (void *[]){ b, &other }));
        assert_memory_equal(a, b, size);
        assert_int_equal(one, other);
        char *name = sgrad_dataset_sample_name(less, i), *old = sgrad_dataset_sample_name(whole, which[i]);
        assert_string_equal(name, old);
        assert_int_equal(sgrad_dataset_stamp(less, i), sgrad_dataset_stamp(whole, which[i]));
        free(name);
        free(old);
    }
    free(a);
    free(b);
}

/* Small synthetic sets lie in memory; the larger one is drawn when it is read. */
static void kinds(void **state) {
    (void)state;
    static const char *const sets[] = { "synthetic:4x4x3,3,10", "synthetic:4096x4096x3,3,11" };
    for (int i = 0; i < 2; i++) {
        struct sgrad_dataset *whole = open_set(sets[i], NULL), *less = open_set(sets[i], "# two\r\n3\r\n\n1\n1");
        assert_samples(less, whole, (int64_t[]){ 0, 2, 4, 5, 6, 7, 8, 9, 10 }, (int)whole->count - 2);
        assert_int_equal(less->excluded, 2);
        assert_true(sgrad_dataset_fingerprint(less) != sgrad_dataset_fingerprint(whole));
        sgrad_dataset_close(less);
        sgrad_dataset_close(whole);
    }
}

/* The list is the content: order, comments and repetitions do not distinguish sets. */
static void fingerprints(void **state) {
    (void)state;
    uint64_t print[3];
    static const char *const lists[] = { "5\n7\n", "7\n#\n5\n7", "5\n8\n" };
    for (int i = 0; i < 3; i++) {
        struct sgrad_dataset *set = open_set("digits", lists[i]);
        print[i] = sgrad_dataset_fingerprint(set);
        sgrad_dataset_close(set);
    }
    assert_true(print[0] == print[1] && print[0] != print[2]);
}

static void nothing(void **state) {
    (void)state;
    static const char *const lists[] = { "", "# nothing\n" };
    struct sgrad_dataset *whole = open_set("digits", NULL);
    for (int i = 0; i < 2; i++) {
        struct sgrad_dataset *set = open_set("digits", lists[i]);
        assert_int_equal(sgrad_dataset_fingerprint(set), sgrad_dataset_fingerprint(whole));
        sgrad_dataset_close(set);
    }
    sgrad_dataset_close(whole);
}

static void bad_lists(void **state) {
    (void)state;
    static const char set[] = "synthetic:4x4x3,3,10";
    const struct sgrad_dataset_options how = { .exclude = scratch_path("none") };
    struct sgrad_dataset *none = NULL;
    assert_fails(exclude(set, "1\n10\n", &none), SGRAD_EFORMAT,
                 "line 2: '10' is not one of the 10 samples; give its number, from 0");
    assert_fails(exclude(set, "1 \n", &none), SGRAD_EFORMAT, "line 1: '1 '");
    assert_fails(exclude(set, "train/a/1.jpg\n", &none), SGRAD_EFORMAT, "line 1: 'train/a/1.jpg'");
    assert_fails(exclude(set, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9", &none), SGRAD_EFORMAT, "excludes every sample");
    assert_fails(sgrad_dataset_open(set, SGRAD_TRAIN, &how, &none), SGRAD_EIO, "none: No such file");
    assert_null(none);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("an exclusion list leaves out its samples, in memory or not", kinds),
        sentence("the fingerprint depends on which samples are excluded, not on how the list is written", fingerprints),
        sentence("an empty exclusion list changes nothing", nothing),
        sentence("a bad exclusion list is refused with its line", bad_lists),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
