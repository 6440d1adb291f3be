/* Token files and texts that are read on demand: fingerprint, cache of complete passes, files that change, and more files
 * than are open at a time. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "datasets/numbers.h"
#include "tests/scratch.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

enum { LARGE = (1 << 20) + 999, T = 16 };       /* tokens of more than one block; length of a sample */

static uint16_t *tokens_of(size_t count, int seed) {
    uint16_t *tokens = sgrad_xcalloc(count, sizeof *tokens);
    for (size_t i = 0; i < count; i++) tokens[i] = (uint16_t)((i * 7919 + (size_t)seed * 31) % 1000);
    return tokens;
}

/* Sets the time of the last change to a minute before the start of the test and SECONDS, so that results are cached. */
static void age(const char *path, int seconds) {
    static time_t start;
    if (!start) start = time(NULL);
    const struct timeval past = { start - 60 - seconds, 0 };
    assert_int_equal(utimes(path, (const struct timeval[]){ past, past }), 0);
}

static const char *put(const char *name, const uint16_t *tokens, size_t count, int seconds) {
    const char *path = scratch_write(name, tokens, count * sizeof *tokens);
    age(path, seconds);
    return path;
}

static struct sgrad_dataset *open_split(const char *folder, enum sgrad_split split) {
    char *text = sgrad_format("tokens:%s,%d", scratch_path(folder), T);
    struct sgrad_dataset *dataset = NULL;
    assert_done(sgrad_dataset_open(text, split, NULL, &dataset));
    free(text);
    return dataset;
}

/* Asserts that a sample is the window of TOKENS. */
static void assert_window(const struct sgrad_dataset *d, int64_t index, int64_t shift, const uint16_t *tokens) {
    const struct sgrad_sample sample = { .index = index, .shift = shift };
    int32_t now[T], next[T];
    assert_done(sgrad_dataset_read(d, &sample, 1, (void *[]){ now, next }));
    for (int i = 0; i < T; i++) {
        assert_int_equal(now[i], tokens[i]);
        assert_int_equal(next[i], tokens[i + 1]);
    }
}

static void fingerprint(void **state) {
    (void)state;
    uint16_t *tokens = tokens_of(LARGE, 1);
    put("print/train.bin", tokens, LARGE, 0);
    put("print/val.bin", tokens, 100, 0);
    struct sgrad_dataset *d = open_split("print", SGRAD_TRAIN);
    assert_true(d->identity == sgrad__fingerprint_add(1, tokens, LARGE * sizeof *tokens));
    assert_int_equal(d->classes, 1000);
    assert_int_equal(d->count, (LARGE - 1) / T);
    assert_window(d, 0, 0, tokens);
    assert_window(d, 5, 3, tokens + 5 * T + 3);
    assert_window(d, d->count - 1, T - 1, tokens + LARGE - 1 - T);
    sgrad_dataset_close(d);
    d = open_split("print", SGRAD_TEST);
    assert_true(d->identity == sgrad__fingerprint_add(1, tokens, 100 * sizeof *tokens));
    sgrad_dataset_close(d);
    free(tokens);
}

static uint64_t identity_of(const char *folder) {
    struct sgrad_dataset *d = open_split(folder, SGRAD_TRAIN);
    const uint64_t identity = d->identity;
    sgrad_dataset_close(d);
    return identity;
}

#define PASSES ".starpu/stargrad/passes"

/* Returns the size of the file of cached results, to which each pass adds a line. */
static off_t cached_bytes(void) {
    struct stat is;
    assert_int_equal(stat(scratch_path(PASSES), &is), 0);
    return is.st_size;
}

/* Writes LARGE tokens with the time of put, later than the file BEFORE. Times have steps. */
static void put_later(const char *name, const uint16_t *tokens, const struct stat *before) {
    struct stat is;
    do {
        put(name, tokens, LARGE, 0);
        assert_int_equal(stat(scratch_path(name), &is), 0);
    } while (before->st_ctim.tv_sec == is.st_ctim.tv_sec && before->st_ctim.tv_nsec == is.st_ctim.tv_nsec);
}

static void cached(void **state) {
    (void)state;
    uint16_t *one = tokens_of(LARGE, 1), *two = tokens_of(LARGE, 2);
    struct stat before;
    put("cached/val.bin", one, 100, 0);
    put("cached/train.bin", one, LARGE, 0);
    const uint64_t first = identity_of("cached");
    const off_t bytes = cached_bytes();
    assert_true(identity_of("cached") == first);
    assert_int_equal(cached_bytes(), bytes);                                    /* no pass */
    assert_int_equal(stat(scratch_path("cached/train.bin"), &before), 0);
    put_later("cached/train.bin", two, &before);                                /* the same size, time and inode */
    const uint64_t second = identity_of("cached");
    assert_true(second != first && cached_bytes() > bytes);
    put("cached/train.bin", one, LARGE, 5);
    assert_true(identity_of("cached") == first);

    const off_t whole = cached_bytes();
    FILE *file = fopen(scratch_path(PASSES), "r+");          /* a flipped bit in the check of each line */
    assert_non_null(file);
    for (int c; (c = fgetc(file)) != EOF;)
        if (c == '\n') {
            fseek(file, -2, SEEK_CUR);
            c = fgetc(file);
            fseek(file, -1, SEEK_CUR);
            fputc(c == '0' ? '1' : '0', file);
            fseek(file, 1, SEEK_CUR);
        }
    fclose(file);
    assert_true(identity_of("cached") == first && cached_bytes() > whole);
    assert_int_equal(utimes(scratch_path("cached/train.bin"), NULL), 0);        /* changed now: not cached */
    assert_true(identity_of("cached") == first);
    scratch_write("cached/train.bin", two, LARGE * sizeof *two);
    assert_true(identity_of("cached") == second);
    free(one);
    free(two);
}

static void changed(void **state) {
    (void)state;
    uint16_t *tokens = tokens_of(LARGE, 1);
    const struct sgrad_sample sample = { .index = 3 };
    int32_t now[T], next[T];
    put("changed/val.bin", tokens, 100, 0);
    put("changed/train.bin", tokens, LARGE, 0);
    struct sgrad_dataset *d = open_split("changed", SGRAD_TRAIN);
    tokens[3 * T + 2] = 1000;
    put("changed/train.bin", tokens, LARGE, 0);
    assert_fails(sgrad_dataset_read(d, &sample, 1, (void *[]){ now, next }), SGRAD_EFORMAT,
                 "changed/train.bin: number 50 is 1000, but was below 1000 when the file was checked");
    sgrad_dataset_close(d);
    d = open_split("changed", SGRAD_TRAIN);
    put("changed/train.bin", tokens, LARGE - 1, 0);
    assert_fails(sgrad_dataset_read(d, &sample, 1, (void *[]){ now, next }), SGRAD_EIO,
                 "changed/train.bin: the file has changed since the data set was opened; restore it");
    sgrad_dataset_close(d);
    free(tokens);
}

/* Files that are replaced by others of the same size, before they are read and while they are open. */
static void replaced(void **state) {
    (void)state;
    uint16_t *tokens = tokens_of(LARGE, 1);
    const struct sgrad_sample sample = { .index = 3 };
    int32_t now[T], next[T];
    struct stat before;
    put("replaced/val.bin", tokens, 100, 0);
    for (int is_open = 0; is_open < 2; is_open++) {
        char *path = sgrad_format("%s", put("replaced/train.bin", tokens, LARGE, 0));
        assert_int_equal(stat(path, &before), 0);
        struct sgrad_dataset *d = open_split("replaced", SGRAD_TRAIN);
        if (is_open) assert_window(d, 3, 0, tokens + 3 * T);
        assert_int_equal(chmod(path, 0600), 0);                                 /* the content is the same */
        if (is_open) assert_window(d, 3, 0, tokens + 3 * T);
        put_later("other.bin", tokens, &before);                                /* the same size and time */
        assert_int_equal(rename(scratch_path("other.bin"), path), 0);
        assert_fails(sgrad_dataset_read(d, &sample, 1, (void *[]){ now, next }), SGRAD_EIO,
                     "replaced/train.bin: the file has changed since the data set was opened");
        sgrad_dataset_close(d);
        free(path);
    }
    free(tokens);
}

static void texts(void **state) {
    (void)state;
    char letters[1000];
    for (int i = 0; i < 1000; i++) letters[i] = (char)('a' + i * 7 % 26);
    char *text = sgrad_format("text:%s,%d", scratch_write("letters.txt", letters, sizeof letters), T);
    for (int split = 0; split < 2; split++) {
        const char *from = split ? letters + 900 : letters;
        const struct sgrad_sample sample = { .index = 1, .shift = 2 };
        struct sgrad_dataset *d;
        int32_t now[T], next[T];
        assert_done(sgrad_dataset_open(text, split, NULL, &d));
        assert_true(d->identity == sgrad__fingerprint_add(1, from, split ? 100 : 900));
        assert_int_equal(d->count, ((split ? 100 : 900) - 1) / T);
        assert_done(sgrad_dataset_read(d, &sample, 1, (void *[]){ now, next }));
        for (int i = 0; i < T; i++) assert_true(now[i] == from[T + 2 + i] && next[i] == from[T + 3 + i]);
        sgrad_dataset_close(d);
    }
    free(text);
}

/* Sources with 6 and 4 windows of training in two files and one, and 6 and 3 of test. */
static void mixture(void **state) {
    (void)state;
    uint16_t *tokens = tokens_of(2000, 3);
    put("a/x_train_0.bin", tokens, 2 * T + 1, 0);
    put("a/x_train_1.bin", tokens + 100, 4 * T + 9, 0);
    put("a/x_val.bin", tokens + 300, 6 * T + 1, 0);
    put("b/train.bin", tokens + 500, 4 * T + 1, 0);
    put("b/val.bin", tokens + 700, 3 * T + 1, 0);
    char *a = sgrad_format("%s", scratch_path("a"));
    char *text = sgrad_format("tokens:%s*0.9,%s*0.3,%d", a, scratch_path("b"), T);
    struct sgrad_dataset_options how = { .exclude = scratch_write("exclude.txt", "0\n7\n", 4) };
    struct sgrad_dataset *d;
    assert_done(sgrad_dataset_open(text, SGRAD_TRAIN, NULL, &d));
    assert_true(d->count == 10 && d->sources == 2 && d->source[0].first == 0 && d->source[1].first == 6);
    assert_true(d->source[0].count == 6 && d->source[1].count == 4);
    assert_true(d->source[0].quota == 8 && d->source[1].quota == 2);     /* 7.5 and 2.5: the first one of equal fractions */
    assert_string_equal(d->source[0].name, a);
    assert_window(d, 1, 0, tokens + T);
    assert_window(d, 2, 5, tokens + 100 + 5);
    assert_window(d, 5, T - 1, tokens + 100 + 3 * T + 8);                       /* at the end of its file */
    assert_window(d, 6, 0, tokens + 500);
    const uint64_t identity = d->identity;
    sgrad_dataset_close(d);
    assert_done(sgrad_dataset_open(text, SGRAD_TRAIN, &how, &d));
    assert_true(d->count == 8 && d->source[0].count == 5 && d->source[1].first == 5 && d->source[1].count == 3);
    assert_true(d->source[0].quota == 6 && d->source[1].quota == 2 && d->identity == identity);
    assert_window(d, 0, 0, tokens + T);
    assert_window(d, 6, 0, tokens + 500 + 2 * T);
    sgrad_dataset_close(d);
    assert_done(sgrad_dataset_open(text, SGRAD_TEST, NULL, &d));                /* 6 and 2 */
    assert_true(d->count == 8 && d->source[0].count == 6 && d->source[1].count == 2);
    for (int i = 0; i < 6; i++) assert_window(d, i, 0, tokens + 300 + i * T);
    assert_window(d, 6, 0, tokens + 700);
    assert_window(d, 7, 0, tokens + 700 + T);
    sgrad_dataset_close(d);
    free(text);
    free(a);
    free(tokens);
}

/* ---- many files ---- */

enum { FILES = 150, BYTES = 64, THREADS = 4, READS = 4000 };
static struct sgrad__numbers many[FILES];
static struct sgrad__open_files *pool;
static _Atomic int wrong;

static void *read_many(void *argument) {
    uint32_t random = (uint32_t)(intptr_t)argument;
    for (int i = 0; i < READS; i++) {
        random = random * 1664525 + 1013904223;
        const int f = (int)(random >> 8) % FILES, at = (int)(random >> 20) % (BYTES - 8);
        unsigned char data[8];
        if (sgrad__open_files_read(pool, &many[f], (size_t)at, 8, data)) wrong++;
        for (int k = 0; k < 8; k++) wrong += data[k] != (unsigned char)(f + at + k);
    }
    return NULL;
}

static void many_files(void **state) {
    (void)state;
    pthread_t thread[THREADS];
    for (int f = 0; f < FILES; f++) {
        unsigned char data[BYTES];
        char name[32];
        for (int k = 0; k < BYTES; k++) data[k] = (unsigned char)(f + k);
        snprintf(name, sizeof name, "many/%d", f);
        many[f] = (struct sgrad__numbers){ sgrad_format("%s", scratch_write(name, data, BYTES)), { 0 }, 0, BYTES, 1, false };
        assert_done(sgrad__version_read(-1, many[f].path, &many[f].version));
    }
    pool = sgrad__open_files_create();
    for (intptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, read_many, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(wrong, 0);
    sgrad__open_files_free(pool);
    for (int f = 0; f < FILES; f++) free(many[f].path);
}

static int set_up(void **state) {
    const int failed = scratch_open(state);
    unsetenv("XDG_CACHE_HOME");
    return failed ? failed : setenv("STARPU_HOME", scratch_root, 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the fingerprint of a token file is that of its bytes", fingerprint),
        sentence("a file is checked once, and again after a change or a damaged cache", cached),
        sentence("a file that changes during a run is an error", changed),
        sentence("a file that is replaced by one of the same size and time during a run is an error", replaced),
        sentence("a text is read on demand, and its last tenth is the test set", texts),
        sentence("a mixture has the samples of its sources, and a test set in proportion", mixture),
        sentence("more files than are open at a time are read by several threads", many_files),
    };
    return run_sentences(argc, argv, tests, set_up, scratch_close);
}
