/* Properties of all data sets: names, reading, statistics, fingerprints. If STARGRAD_DATA names a folder with fashion-mnist/
 * and cifar-10-batches-bin/, also the published data sets. */
#include "config.h"

#include "datasets/datasets.h"
#include "tests/scratch.h"

#include <math.h>

static const uint8_t *pixels_of(const struct sgrad_dataset *dataset) { return dataset->field[0].data; }
static const int32_t *labels_of(const struct sgrad_dataset *dataset) { return dataset->field[1].data; }

static struct sgrad_dataset *open_good(const char *text, enum sgrad_split split) {
    struct sgrad_dataset *dataset;
    assert_done(sgrad_dataset_open(text, split, NULL, &dataset));
    return dataset;
}

static void names(void **state) {
    (void)state;
    struct sgrad_dataset *none;
    for (int i = 0; sgrad_readers[i]; i++) assert_true(strlen(sgrad_readers[i]->summary) > 20);
    assert_fails(sgrad_dataset_open("cifar:/data", SGRAD_TRAIN, NULL, &none), SGRAD_ENAME, "did you mean 'cifar10'?");
    assert_fails(sgrad_dataset_open("", SGRAD_TRAIN, NULL, &none), SGRAD_ENAME, "unknown dataset ''");
    assert_fails(sgrad_dataset_open("mnist-from-the-net:x", SGRAD_TRAIN, NULL, &none), SGRAD_ENAME, "stargrad list datasets");
    assert_fails(sgrad_dataset_open("cifar10", SGRAD_TRAIN, NULL, &none), SGRAD_EINVAL, "cifar10:DIR");
    assert_fails(sgrad_dataset_open("idx:", SGRAD_TRAIN, NULL, &none), SGRAD_EINVAL, "idx:DIR");
    assert_fails(sgrad_dataset_open("digits:8", SGRAD_TRAIN, NULL, &none), SGRAD_EINVAL, "accepts no argument");
    sgrad_dataset_close(NULL);
}

static void digits(void **state) {
    (void)state;
    struct sgrad_dataset *train = open_good("digits", SGRAD_TRAIN), *test = open_good("digits", SGRAD_TEST);
    assert_int_equal(train->count, 1437);
    assert_int_equal(test->count, 360);
    assert_int_equal(sgrad_field_bytes(&train->field[0]), 64);
    assert_int_equal(train->classes, 10);
    assert_equal(train->full_scale, 16);

    uint8_t pixels[2][64];
    int32_t labels[2];
    const struct sgrad_sample sample[] = { { .index = 1 }, { .index = 0 } };
    assert_done(sgrad_dataset_read(train, sample, 2, (void *[]){ pixels[0], labels }));
    assert_int_equal(labels[0], 1);
    assert_int_equal(labels[1], 0);
    static const uint8_t zero[64] = { 0, 0,  5, 13, 9,  1, 0,  0, 0,  0,  13, 15, 10, 15, 5, 0,  0,  3, 15, 2, 0,  11,
                                      8, 0,  0, 4,  12, 0, 0,  8, 8,  0,  0,  5,  8,  0,  0, 9,  8,  0, 0,  4, 11, 0,
                                      1, 12, 7, 0,  0,  2, 14, 5, 10, 12, 0,  0,  0,  0,  6, 13, 10, 0, 0,  0 };
    assert_memory_equal(pixels[1], zero, 64);
    for (int64_t i = 0; i < train->count; i++) assert_in_range(labels_of(train)[i], 0, 9);
    for (int64_t i = 0; i < train->count * 64; i++) assert_in_range(pixels_of(train)[i], 0, 16);
    assert_true(sgrad_dataset_fingerprint(train) != sgrad_dataset_fingerprint(test));
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
}

/* Against the definition, in the plainest way. */
/* The statistics are those of a part of many samples that are computed on each request; of all samples in memory, or of few. */
static void measured(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t measured;
    } is[] = { { "digits", 0 }, { "synthetic:8x8x3,10,20000", 20000 }, { "synthetic:512x512x3,10,1000", 1000 },
               { "synthetic:224x224x3,1000,1281167", SGRAD_MEASURED } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct sgrad_dataset *dataset;
        assert_done(sgrad_dataset_open(is[i].text, SGRAD_TRAIN, NULL, &dataset));
        if (i) assert_int_equal(sgrad_dataset_measured(dataset), is[i].measured);
        else assert_int_equal(sgrad_dataset_measured(dataset), dataset->count);
        sgrad_dataset_close(dataset);
    }
}

static void statistics(void **state) {
    (void)state;
    struct sgrad_dataset *dataset = open_good("synthetic:7x5x3,4,500", SGRAD_TRAIN);
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    assert_done(sgrad_dataset_statistics(dataset, mean, deviation));
    for (int c = 0; c < 3; c++) {
        const int n = 500 * 7 * 5;
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++) sum += pixels_of(dataset)[3 * i + c] / 255.0;
        for (int i = 0; i < n; i++) squares += pow(pixels_of(dataset)[3 * i + c] / 255.0 - sum / n, 2);
        assert_near(mean[c], sum / n, 1e-12);
        assert_near(deviation[c], sqrt(squares / n), 1e-12);
    }
    /* In parts, as ranks do it: the same bits. */
    struct sgrad_dataset_sums all = { { 0 }, { 0 }, { 0 } }, part;
    for (int64_t from = 0, to; from < 500; from = to) {
        to = from + 187 < 500 ? from + 187 : 500;
        assert_done(sgrad_dataset_sums(dataset, from, to - from, &part));
        for (int c = 0; c < 3; c++) all.sum[c] += part.sum[c], all.squares[c] += part.squares[c];
    }
    double again[2][SGRAD_MAX_CHANNELS];
    sgrad_dataset_moments(dataset, &all, again[0], again[1]);
    assert_memory_equal(again[0], mean, 3 * sizeof *mean);
    assert_memory_equal(again[1], deviation, 3 * sizeof *deviation);

    for (int i = 0; i < 500 * 7 * 5; i++) ((uint8_t *)dataset->field[0].data)[3 * i + 1] = 51;
    assert_done(sgrad_dataset_statistics(dataset, mean, deviation));
    assert_near(mean[1], 0.2, 1e-12);
    assert_equal(deviation[1], 1);
    sgrad_dataset_release(dataset);
    assert_null(dataset->field[0].data);
    assert_int_equal(dataset->count, 500);
    sgrad_dataset_close(dataset);
}

/* A data set whose every reading is counted; sample 150 is damaged. */
enum { COUNTED = 200, DAMAGED = 150 };
static _Atomic int read_count[COUNTED];
static int read_counted(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const int64_t index = sample.index;
    (void)dataset;
    read_count[index]++;
    *(uint8_t *)data[0] = (uint8_t)index;
    return index == DAMAGED ? sgrad_log_error(SGRAD_EFORMAT, "sample %d is damaged", DAMAGED) : 0;
}

/* Were the samples from FROM to before TO read, each once, and no other? */
static void assert_read(int from, int to) {
    for (int i = 0; i < COUNTED; i++) assert_int_equal(read_count[i], i >= from && i < to);
    memset((void *)read_count, 0, sizeof read_count);
}

static void ranges(void **state) {
    (void)state;
    struct sgrad_reader reader = { .name = "counted", .read = read_counted };
    struct sgrad_dataset dataset = { .reader = &reader, .count = COUNTED, .classes = 1, .full_scale = 255,
                                     .field = { { "pixels", SGRAD_U8, { 3, { 1, 1, 1 } }, NULL },
                                                { "label", SGRAD_I32, { 0 }, (int32_t[COUNTED]){ 0 } } } };
    struct sgrad_dataset_sums sums;
    assert_done(sgrad_dataset_check(&dataset, 0, DAMAGED));
    assert_read(0, DAMAGED);
    assert_done(sgrad_dataset_check(&dataset, DAMAGED + 1, COUNTED - DAMAGED - 1));
    assert_read(DAMAGED + 1, COUNTED);
    assert_done(sgrad_dataset_check(&dataset, 70, 0));
    assert_read(0, 0);
    assert_fails(sgrad_dataset_check(&dataset, DAMAGED, 1), SGRAD_EFORMAT, "sample 150 is damaged");
    assert_read(DAMAGED, DAMAGED + 1);
    assert_done(sgrad_dataset_sums(&dataset, 7, 100, &sums));
    assert_read(7, 107);
    assert_int_equal(sums.sum[0], (7 + 106) * 100 / 2);
    assert_fails(sgrad_dataset_sums(&dataset, DAMAGED, 1, &sums), SGRAD_EFORMAT, "sample 150 is damaged");
    assert_read(DAMAGED, DAMAGED + 1);

    reader.measures = 40;               /* at equal distances: 0, 5, … 195 */
    assert_int_equal(sgrad_dataset_measured(&dataset), 40);
    assert_done(sgrad_dataset_sums(&dataset, 10, 20, &sums));
    for (int i = 0; i < COUNTED; i++) assert_int_equal(read_count[i], i >= 50 && i < 150 && i % 5 == 0);
    memset((void *)read_count, 0, sizeof read_count);
    assert_int_equal(sums.sum[0], (50 + 145) * 20 / 2);
    reader.measures = 0;

    reader.computes = true;             /* nothing to be damaged: nothing is read */
    assert_done(sgrad_dataset_check(&dataset, 0, COUNTED));
    reader.computes = false;
    dataset.field[0].data = (uint8_t[COUNTED]){ 1 };
    assert_done(sgrad_dataset_check(&dataset, 0, COUNTED));
    assert_done(sgrad_dataset_sums(&dataset, 0, COUNTED, &sums));
    assert_int_equal(sums.sum[0], 1);
    assert_read(0, 0);
}

static void fingerprint(void **state) {
    (void)state;
    struct sgrad_dataset *a = open_good("digits", SGRAD_TRAIN), *b = open_good("digits", SGRAD_TRAIN);
    const uint64_t before = sgrad_dataset_fingerprint(a);
    assert_equal(before, sgrad_dataset_fingerprint(b));
    ((uint8_t *)b->field[0].data)[1437 * 64 - 1] ^= 1;
    assert_true(before != sgrad_dataset_fingerprint(b));
    ((uint8_t *)b->field[0].data)[1437 * 64 - 1] ^= 1;
    ((int32_t *)b->field[1].data)[700] ^= 1;
    assert_true(before != sgrad_dataset_fingerprint(b));
    ((int32_t *)b->field[1].data)[700] ^= 1;
    assert_equal(before, sgrad_dataset_fingerprint(b));
    b->field[0].shape.dim[0] = 16, b->field[0].shape.dim[1] = 4;
    assert_true(before != sgrad_dataset_fingerprint(b));
    sgrad_dataset_close(a);
    sgrad_dataset_close(b);
}

/* Patterns must distinguish the classes of a split, even those of a split that was never seen. */
static void synthetic_can_be_learnt(void **state) {
    (void)state;
    enum { SIZE = 8 * 8 * 3, CLASSES = 10 };
    struct sgrad_dataset *train = open_good("synthetic:8x8x3,10,400", SGRAD_TRAIN),
                         *test = open_good("synthetic:8x8x3,10,400", SGRAD_TEST);
    assert_int_equal(test->count, 40);
    static double mean[CLASSES][SIZE];
    for (int i = 0; i < 400; i++)
        for (int j = 0; j < SIZE; j++) mean[labels_of(train)[i]][j] += pixels_of(train)[i * SIZE + j] / 40.0;
    for (int i = 0; i < test->count; i++) {
        int best = 0;
        double least = INFINITY;
        for (int k = 0; k < CLASSES; k++) {
            double distance = 0;
            for (int j = 0; j < SIZE; j++) distance += pow(pixels_of(test)[i * SIZE + j] - mean[k][j], 2);
            if (distance < least) least = distance, best = k;
        }
        assert_int_equal(best, labels_of(test)[i]);
    }
    assert_memory_not_equal(pixels_of(train), pixels_of(test), SIZE);
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
}

static void synthetic_seed_and_size(void **state) {
    (void)state;
    struct sgrad_dataset *one = open_good("synthetic:4x4x1,3,12", SGRAD_TRAIN), *two, *large, *small;
    const struct sgrad_dataset_options seed = { .seed = 2 };
    assert_done(sgrad_dataset_open("synthetic:4x4x1,3,12", SGRAD_TRAIN, &seed, &two));
    assert_memory_not_equal(pixels_of(one), pixels_of(two), 16);
    small = open_good("synthetic:64x64x3,3,12", SGRAD_TRAIN);     /* kept in memory */
    large = open_good("synthetic:64x64x3,3,100000", SGRAD_TRAIN); /* made when read: the same samples */
    assert_non_null(pixels_of(small));
    assert_null(pixels_of(large));
    static uint8_t pixels[2 * 64 * 64 * 3];
    int32_t labels[2];
    const struct sgrad_sample sample[] = { { .index = 11 }, { .index = 99999 } };
    assert_done(sgrad_dataset_read(large, sample, 2, (void *[]){ pixels, labels }));
    assert_memory_equal(pixels, pixels_of(small) + 11 * 64 * 64 * 3, 64 * 64 * 3);
    assert_int_equal(labels[0], 2);
    assert_true(sgrad_dataset_fingerprint(one) != sgrad_dataset_fingerprint(two));
    assert_true(sgrad_dataset_fingerprint(large) != sgrad_dataset_fingerprint(small));
    sgrad_dataset_close(one);
    sgrad_dataset_close(two);
    sgrad_dataset_close(small);
    sgrad_dataset_close(large);
}

static void synthetic_arguments(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "1",           "1x1",       "1x1x1",     "1x1x1,1",    "1x1x1,1,",   "1x1x1,1,0",  "0x1x1,1,1",
        "1x-1x1,1,1",  "1x1x5,1,1", "1x1x1,0,1", "1x1x1,1,1,", "1x1x1,1,1x", " 1x1x1,1,1", "1x1x1,1,99999999999999999999",
        "8193x1x1,1,1"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sgrad_dataset *none;
        char text[100];
        snprintf(text, sizeof text, "synthetic:%s", wrong[i]);
        assert_fails(sgrad_dataset_open(text, SGRAD_TRAIN, NULL, &none), SGRAD_EINVAL, "must be HxWxC,CLASSES,COUNT");
    }
}

/* ---- fields of other kinds, from a reader of one's own: the middle one is in memory, the others are read ---- */

enum { MEASURED = 5 };

static int read_measured(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const int64_t index = sample.index;
    assert_int_equal(dataset->split, SGRAD_TRAIN);
    for (int i = 0; i < 3; i++) ((float *)data[0])[i] = (float)(10 * index + i);
    *(float *)data[2] = (float)-index;
    return 0;
}

static int open_measured(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    (void)options;
    int32_t *kind = sgrad_xcalloc(2 * MEASURED, sizeof *kind);
    for (int i = 0; i < 2 * MEASURED; i++) kind[i] = 100 + i;
    dataset->field[0] = (struct sgrad_field){ "features", SGRAD_F32, sgrad_shape(1, 3), NULL };
    dataset->field[1] = (struct sgrad_field){ "kind", SGRAD_I32, sgrad_shape(1, 2), kind };
    dataset->field[2] = (struct sgrad_field){ "target", SGRAD_F32, { 0 }, NULL };
    dataset->count = MEASURED;
    dataset->identity = (uint64_t)argument[0];
    return 0;
}

static void fields(void **state) {
    (void)state;
    const struct sgrad_reader reader = { .name = "measured", .argument = "NAME", .summary = "numbers of a test",
                                         .open = open_measured, .read = read_measured };
    const struct sgrad_dataset_options how = { .custom = &reader };
    struct sgrad_dataset *a, *b;
    assert_fails(sgrad_dataset_open("measured:a", SGRAD_TRAIN, NULL, &a), SGRAD_ENAME, "unknown dataset 'measured'");
    assert_done(sgrad_dataset_open("measured:a", SGRAD_TRAIN, &how, &a));
    assert_done(sgrad_dataset_open("measured:b", SGRAD_TRAIN, &how, &b));
    assert_int_equal(sgrad_dataset_fields(a), 3);
    assert_ptr_equal(sgrad_dataset_target(a), &a->field[2]);
    assert_null(sgrad_dataset_image(a));
    assert_int_equal(sgrad_dataset_sample_bytes(a), 3 * 4 + 2 * 4 + 4);
    assert_true(sgrad_dataset_fingerprint(a) != sgrad_dataset_fingerprint(b));

    float features[2][3], target[2];
    int32_t kind[2][2];
    const struct sgrad_sample sample[] = { { .index = 4 }, { .index = 1 } };
    assert_done(sgrad_dataset_read(a, sample, 2, (void *[]){ features, kind, target }));
    assert_equal(features[0][0], 40);
    assert_equal(features[0][2], 42);
    assert_equal(features[1][1], 11);
    assert_int_equal(kind[0][1], 109);
    assert_int_equal(kind[1][0], 102);
    assert_equal(target[0], -4);
    assert_equal(target[1], -1);

    double mean[SGRAD_MAX_CHANNELS] = { 7 }, deviation[SGRAD_MAX_CHANNELS] = { 7 };     /* of images, which there are none */
    assert_done(sgrad_dataset_statistics(a, mean, deviation));
    assert_equal(mean[0], 7);
    assert_equal(deviation[0], 7);
    assert_done(sgrad_dataset_check(a, 0, MEASURED));
    sgrad_dataset_close(a);
    sgrad_dataset_close(b);
}

/* Something else than the folder that a reader wants. */
static void no_folders(void **state) {
    (void)state;
    static const char *const kinds[][2] = {
        { "idx", "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte" },
        { "cifar10", "data_batch_1.bin to data_batch_5.bin and test_batch.bin" },
        { "folder", "images in train/CLASS/ and val/CLASS/" },
    };
    const char *const paths[][2] = { { scratch_write("file", "", 0), "is a file, not a folder" },
                                     { scratch_path("nowhere"), "No such file or directory" } };
    for (size_t i = 0; i < 6; i++) {
        const char *kind = kinds[i / 2][0], *path = paths[i % 2][0];
        char text[640], begins[2048];
        struct sgrad_dataset *none;
        snprintf(text, sizeof text, "%s:%s", kind, path);
        snprintf(begins, sizeof begins, "stargrad: data set %s:%s: %s; give %s:DIR, where DIR contains ", kind, path,
                 paths[i % 2][1], kind);
        assert_fails(sgrad_dataset_open(text, SGRAD_TRAIN, NULL, &none), SGRAD_EIO, begins);
        assert_fails(sgrad_dataset_open(text, SGRAD_TEST, NULL, &none), SGRAD_EIO, kinds[i / 2][1]);
    }
}

static void check_published(const char *kind, const char *folder, int64_t count, int channels, const double *mean,
                            const double *deviation) {
    const char *data = getenv("STARGRAD_DATA");
    char text[1024];
    snprintf(text, sizeof text, "%s:%s/%s", kind, data ? data : "", folder);
    if (!data || access(strchr(text, ':') + 1, F_OK)) {
        print_message("skipped: STARGRAD_DATA is %s, and must name a folder that holds %s/\n", data ? data : "not set", folder);
        skip();
    }
    double m[SGRAD_MAX_CHANNELS], d[SGRAD_MAX_CHANNELS];
    struct sgrad_dataset *train = open_good(text, SGRAD_TRAIN), *test = open_good(text, SGRAD_TEST);
    assert_int_equal(train->count, count);
    assert_int_equal(test->count, 10000);
    assert_int_equal(train->classes, 10);
    assert_int_equal(train->field[0].shape.dim[2], channels);
    assert_done(sgrad_dataset_statistics(train, m, d));
    for (int c = 0; c < channels; c++) {
        assert_near(m[c], mean[c], 5e-5);
        assert_near(d[c], deviation[c], 5e-5);
    }
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
}

static void cifar10(void **state) {
    (void)state;
    check_published("cifar10", "cifar-10-batches-bin", 50000, 3, (double[]){ .4914, .4822, .4465 },
                    (double[]){ .2470, .2435, .2616 });
}

static void fashion_mnist(void **state) {
    (void)state;
    check_published("idx", "fashion-mnist", 60000, 1, (double[]){ .2860 }, (double[]){ .3530 });
}

/* "0123…" in windows of 4; the last tenth is the test set. */
static void text_windows(void **state) {
    (void)state;
    char bytes[100];
    for (int i = 0; i < 100; i++) bytes[i] = (char)i;
    char *data = sgrad_format("text:%s,4", scratch_write("text", bytes, 100));
    struct sgrad_dataset *train = open_good(data, SGRAD_TRAIN), *test = open_good(data, SGRAD_TEST);
    assert_int_equal(train->count, 22);     /* of 90 bytes; the last window's last target is byte 88 */
    assert_int_equal(test->count, 2);
    assert_int_equal(train->classes, 256);
    assert_int_equal(train->shifts, 4);
    int32_t tokens[2][4], next[2][4];
    const struct sgrad_sample sample[] = { { .index = 3 }, { .index = 21, .shift = 3 } };
    assert_done(sgrad_dataset_read(train, sample, 2, (void *[]){ tokens, next }));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tokens[0][i], 12 + i);
        assert_int_equal(next[0][i], 13 + i);
        assert_int_equal(tokens[1][i], 85 + i);     /* not 87, from where its target would lie beyond the end */
        assert_int_equal(next[1][i], 86 + i);
    }
    assert_done(sgrad_dataset_read(test, &(struct sgrad_sample){ .index = 0 }, 1, (void *[]){ tokens, next }));
    assert_int_equal(tokens[0][0], 90);
    assert_true(sgrad_dataset_fingerprint(train) != sgrad_dataset_fingerprint(test));
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
    free(data);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a wrong name of a data set is refused with a hint", names),
        sentence("the digits have their published number and pixels", digits),
        sentence("statistics of a large computed set are measured on a part of it", measured),
        sentence("mean and deviation equal their definitions, in one part or in several", statistics),
        sentence("checks and sums read each sample of their range once, and no other; sums may be of a part", ranges),
        sentence("the fingerprint changes with any pixel, label or shape", fingerprint),
        sentence("synthetic classes can be told apart, also in the test set", synthetic_can_be_learnt),
        sentence("synthetic samples depend on the seed, not on the size of the set", synthetic_seed_and_size),
        sentence("wrong arguments of a synthetic set are refused", synthetic_arguments),
        sentence("a custom reader gives fields of any kind", fields),
        sentence("a path that is not a folder is refused, with the files that it must contain", no_folders),
        sentence("a text gives windows of bytes and the bytes that follow them", text_windows),
        sentence("the published CIFAR-10 has the known mean and deviation", cifar10),
        sentence("the published Fashion-MNIST has the known mean and deviation", fashion_mnist),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
