/* NumPy arrays: reading them, and errors in their files. */
#include "config.h"

#include "datasets/datasets.h"
#include "datasets/shards/shards.h"
#include "tests/scratch.h"

#include <math.h>

/* Returns a file of *BYTES bytes, of which DATA are the last SIZE. The caller must free it. */
static unsigned char *make_array(const char *type, const char *shape, const char *fortran, const void *data, size_t size,
                                 size_t *bytes) {
    char *header = sgrad_format("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n", type, fortran, shape);
    const size_t length = strlen(header);
    unsigned char *file = sgrad_xcalloc(10 + length + size, 1);
    memcpy(file, "\x93NUMPY\x01", 8);
    file[8] = (unsigned char)length;
    memcpy(file + 10, header, length);
    memcpy(file + 10 + length, data, size);
    free(header);
    *bytes = 10 + length + size;
    return file;
}

static void put_array_in(const char *name, const char *type, const char *shape, const char *fortran, const void *data,
                         size_t size) {
    size_t bytes;
    unsigned char *file = make_array(type, shape, fortran, data, size, &bytes);
    scratch_write(name, file, bytes);
    free(file);
}

static void put_array(const char *name, const char *type, const char *shape, const void *data, size_t size) {
    put_array_in(name, type, shape, "False", data, size);
}

static struct sgrad_dataset *open_arrays(enum sgrad_split split) {
    char *data = sgrad_format("npy:%s", scratch_root);
    struct sgrad_dataset *d = NULL;
    assert_done(sgrad_dataset_open(data, split, NULL, &d));
    free(data);
    return d;
}

static void arrays(void **state) {
    (void)state;
    const uint8_t pixels[2 * 2 * 3] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255 };
    put_array("x_train.npy", "|u1", "(2, 2, 3)", pixels, sizeof pixels);
    put_array("x_test.npy", "|u1", "(1, 2, 3)", pixels, 6);
    put_array("y_train.npy", "<i8", "(2,)", (int64_t[]){ 1, 0 }, 16);
    put_array("y_test.npy", "|u1", "(1,)", (uint8_t[]){ 4 }, 1);
    struct sgrad_dataset *d = open_arrays(SGRAD_TRAIN);
    assert_equal(d->count, 2);
    assert_equal(d->classes, 5);
    assert_equal(d->full_scale, 255);
    assert_equal(sgrad_dataset_channels(d), 1);
    assert_memory_equal(d->field[0].data, pixels, sizeof pixels);
    assert_int_equal(((const int32_t *)d->field[1].data)[0], 1);
    sgrad_dataset_close(d);

    put_array("y_train.npy", "|b1", "(2, 2, 3)", (uint8_t[12]){ 1 }, 12);       /* classes of pixels */
    put_array("y_test.npy", "|b1", "(1, 2, 3)", (uint8_t[6]){ 0 }, 6);
    d = open_arrays(SGRAD_TRAIN);
    assert_equal(sgrad_dataset_image(d)->shape.rank, 4);
    assert_equal(sgrad_dataset_target(d)->shape.rank, 3);
    assert_equal(d->classes, 2);
    sgrad_dataset_close(d);

    put_array("x_train.npy", "<u2", "(2, 2)", (uint16_t[]){ 1, 65535, 3, 65535 }, 8);      /* numbers */
    put_array("x_test.npy", ">u2", "(1, 2)", (uint8_t[]){ 0, 5, 255, 255 }, 4);
    put_array("y_test.npy", "<f2", "(1, 2)", (uint16_t[]){ 0x3c00, 0xc000 }, 4);
    put_array("y_train.npy", "<f2", "(2, 2)", (uint16_t[]){ 0x3c00, 0xc000, 1, 0x7bff }, 8);
    d = open_arrays(SGRAD_TRAIN);
    assert_true(!d->classes && d->field[0].dtype == SGRAD_F32);
    assert_memory_equal(d->field[0].data, ((float[]){ -1, 0, 1, 0 }), 16);      /* normalised; what never changes is 0 */
    const float *y = d->field[1].data;
    assert_equal(y[0], 1);
    assert_equal(y[1], -2);
    assert_equal(y[2], ldexpf(1, -24));
    assert_equal(y[3], 65504);
    sgrad_dataset_close(d);
    d = open_arrays(SGRAD_TEST);
    assert_memory_equal(d->field[0].data, ((float[]){ 3, 0 }), 8);              /* by the training samples' */
    sgrad_dataset_close(d);
}

/* The same numbers in either order of bytes and of dimensions. */
static void orders(void **state) {
    (void)state;
    struct sgrad_dataset *d[4];
    const char *const type[] = { "<f4", "<f4", ">f4", ">f4" };
    put_array("y_train.npy", "|u1", "(2,)", (uint8_t[]){ 0, 1 }, 2);
    put_array("y_test.npy", "|u1", "(2,)", (uint8_t[]){ 0, 1 }, 2);
    for (int i = 0; i < 4; i++) {
        unsigned char bytes[48];
        for (int n = 0; n < 12; n++) {                  /* (2,2,3), of which number n is n² */
            const int place = i % 2 ? n / 6 + n / 3 % 2 * 2 + n % 3 * 4 : n;
            const float number = (float)(n * n);
            for (int b = 0; b < 4; b++) bytes[4 * place + b] = ((const unsigned char *)&number)[i < 2 ? b : 3 - b];
        }
        put_array_in("x_train.npy", type[i], "(2, 2, 3)", i % 2 ? "True" : "False", bytes, sizeof bytes);
        d[i] = open_arrays(SGRAD_TRAIN);
        assert_int_equal(d[i]->field[0].shape.rank, 2);
        assert_memory_equal(d[i]->field[0].data, d[0]->field[0].data, 48);
    }
    for (int i = 0; i < 4; i++) sgrad_dataset_close(d[i]);
}

static struct sgrad_dataset *open_with(const char *more, enum sgrad_split split, struct sgrad_dataset_options how) {
    char *data = sgrad_format("npy:%s%s", scratch_root, more);
    struct sgrad_dataset *d = NULL;
    assert_done(sgrad_dataset_open(data, split, &how, &d));
    free(data);
    return d;
}

/* Grey images of floats have one mean. Without test arrays, a part of the training samples is held out, and does not affect the
 * mean; the arrays val precede the arrays test. */
static void images_and_splits(void **state) {
    (void)state;
    float x[10 * 4];
    uint8_t y[10];
    double mean = 0;
    for (int i = 0; i < 40; i++) x[i] = (float)(i * i % 17);
    for (int i = 0; i < 10; i++) y[i] = i % 2;
    put_array("x_train.npy", "<f4", "(10, 2, 2)", x, sizeof x);
    put_array("y_train.npy", "|u1", "(10,)", y, sizeof y);
    remove(scratch_path("x_test.npy"));
    const struct sgrad_dataset_options how = { .split = 0.2, .seed = 1 };
    struct sgrad_dataset *train = open_with(",images", SGRAD_TRAIN, how), *test = open_with(",images,classes", SGRAD_TEST, how);
    assert_true(train->count == 8 && test->count == 2 && train->held_out == 2 && train->classes == 2);
    const int32_t *label = test->field[1].data;
    assert_true(label[0] != label[1] && train->field[0].shape.rank == 3 && train->field[0].shape.dim[2] == 1);
    assert_true(train->origin->groups == 1 && *train->origin->mean == *test->origin->mean);
    for (int64_t i = 0; i < 8; i++) {
        const int64_t row = train->kept[i];
        for (int64_t k = 0; k < 4; k++) mean += (double)x[4 * row + k] / 32;
        assert_int_equal(((const int32_t *)train->field[1].data)[i], y[row]);
        assert_equal(((const float *)train->field[0].data)[4 * i + 1],
                     (float)((x[4 * row + 1] - *train->origin->mean) / *train->origin->deviation));
    }
    assert_true(fabs(mean - *train->origin->mean) < 1e-9);
    sgrad_dataset_close(test);
    put_array("x_test.npy", "<f4", "(3, 2, 2)", x, 48);
    put_array("y_test.npy", "|u1", "(3,)", y, 3);
    put_array("x_val.npy", "<f4", "(1, 2, 2)", x, 16);
    put_array("y_val.npy", "|u1", "(1,)", y, 1);
    test = open_with("", SGRAD_TEST, (struct sgrad_dataset_options){ .split = 0.2, .origin = train->origin });
    assert_true(test->count == 1 && test->field[0].shape.rank == 3 && !test->held_out);
    sgrad_dataset_close(test);
    test = open_with("", SGRAD_TEST, (struct sgrad_dataset_options){ .third = true, .origin = train->origin });
    assert_equal(test->count, 3);
    sgrad_dataset_close(test);
    sgrad_dataset_close(train);
    remove(scratch_path("x_val.npy"));
    remove(scratch_path("y_val.npy"));
}

/* What y is: as it looks, or as the argument wants it. */
static void meanings(void **state) {
    (void)state;
    static const struct {
        const char *type, *shape, *more, *note;
        int classes;                    /* -1: refused */
        float y[4];                     /* bytes where the type is u1 */
    } rows[] = {
        { "|u1", "(2, 1)", "", "y contains classes", 3, { 1, 2 } },
        { "|u1", "(2,)", ",numbers", "y contains numbers", 0, { 1, 2 } },
        { "|u1", "(2, 2)", "", "y contains classes, as one-hot rows", 2, { 0, 1, 1, 0 } },
        { "<f4", "(2, 2)", "", "y contains classes, as one-hot rows", 2, { 0, 1, 1, 0 } },
        { "<f4", "(2, 2)", ",numbers", "y contains numbers", 0, { 0, 1, 1, 0 } },
        { "<f4", "(2, 2)", "", "y contains numbers", 0, { 0, 1, 1, 1 } },
        { "<f4", "(2, 2)", "", "y contains numbers", 0, { 0, .5f, 1, 0 } },
        { "<f4", "(2, 1)", "", "y contains numbers", 0, { 1, 2 } },
        { "<f4", "(2,)", ",classes", "y contains classes", 3, { 1, 2 } },
        { "<f4", "(2,)", ",classes", "number 1 is 1.5, but classes must be whole numbers", -1, { 1, 1.5f } },
        { "<f4", "(2, 2)", ",classes", ",classes requires one class per sample, or one-hot rows", -1, { 0, 1, 1, 1 } },
        { "|u1", "(2, 2)", "", "y contains numbers", 0, { 3, 1, 1, 1 } },
    };
    put_array("x_train.npy", "<f4", "(2, 2)", (float[]){ 1, 2, 3, 4 }, 16);
    put_array("x_test.npy", "<f4", "(2, 2)", (float[]){ 1, 2, 3, 4 }, 16);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int numbers = strstr(rows[i].shape, "2, 2") ? 4 : 2;
        uint8_t bytes[4];
        for (int n = 0; n < 4; n++) bytes[n] = (uint8_t)rows[i].y[n];
        const bool whole = rows[i].type[1] == 'u';
        for (int part = 0; part < 2; part++)
            put_array(part ? "y_test.npy" : "y_train.npy", rows[i].type, rows[i].shape, whole ? (const void *)bytes : rows[i].y,
                      (size_t)numbers * (whole ? 1 : sizeof(float)));
        char *data = sgrad_format("npy:%s%s", scratch_root, rows[i].more), said[512];
        struct sgrad_dataset *d = NULL;
        sgrad_log_capture(said, sizeof said);
        const int error = sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &d);
        sgrad_log_capture(NULL, 0);
        if (error ? rows[i].classes >= 0 || !strstr(said, rows[i].note)
                  : d->classes != rows[i].classes || strcmp(d->note, rows[i].note))
            fail_msg("row %zu: %s, %s", i, error ? said : "", error ? "" : d->note);
        if (d && d->classes == 2) assert_memory_equal(d->field[1].data, ((int32_t[]){ 1, 0 }), 8);
        sgrad_dataset_close(d);
        free(data);
    }
}

/* Labels of images and of their pixels in the forms that programs write, and what is said of them. */
static void odd_labels(void **state) {
    (void)state;
    static const struct {
        const char *shape, *test_shape;
        uint8_t y[8];
        int classes;                    /* -1: refused */
        const char *says;               /* NULL: nothing */
    } rows[] = {
        { "(2, 2, 2)", "(2, 2, 2)", { 0, 1, 2, 0, 1, 1, 1, 0 }, 3, NULL },
        { "(2, 2, 2, 1)", "(2, 2, 2, 1)", { 0, 1, 2, 0, 1, 1, 1, 0 }, 3, NULL },
        { "(2, 2, 2)", "(2, 2, 2, 1)", { 0, 255, 255, 0, 0, 255, 255, 0 }, 2, NULL },
        { "(2, 1, 1)", "(2,)", { 0, 1, 0, 1 }, 2, NULL },
        { "(2L, 1L)", "(2,)", { 0, 1, 0, 1 }, 2, NULL },
        { "(2, 1, 2)", "(2, 2)", { 1, 0, 0, 1 }, 2, NULL },
        { "(2, 2, 1)", "(2, 1, 2)", { 1, 0, 0, 1 }, 2, NULL },
        { "(2,)", "(2, 1)", { 1, 2 }, 3, "of 3 classes, these have no training sample: 0; classes are counted from 0" },
        { "(2,)", "(2,)", { 0, 9 }, 10, "have no training sample: 1, 2, 3, 4, 5, …; classes are counted from 0" },
        { "(2, 4)", "(2, 2)", { 0, 0, 0, 1, 0, 1, 0, 0 }, -1, "y_train.npy and " },
        { "(2, 2)", "(2,)", { 0, 1, 1, 0 }, -1, "have targets of different shapes" },
        { "(2,)", "(2, 2)", { 0, 1, 1, 0 }, -1, "have targets of different shapes" },
    };
    put_array("x_train.npy", "|u1", "(2, 2, 2)", (uint8_t[8]){ 1 }, 8);
    put_array("x_test.npy", "|u1", "(2, 2, 2)", (uint8_t[8]){ 1 }, 8);
    char *data = sgrad_format("npy:%s", scratch_root), said[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const shape[] = { rows[i].shape, rows[i].test_shape };
        for (int part = 0; part < 2; part++) {
            size_t bytes = 1;
            for (const char *c = shape[part]; *c; c++) bytes *= *c > '0' && *c <= '9' ? (size_t)(*c - '0') : 1;
            put_array(part ? "y_test.npy" : "y_train.npy", "|u1", shape[part], rows[i].y, bytes);
        }
        struct sgrad_dataset *d = NULL;
        sgrad_log_capture(said, sizeof said);
        const int error = sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &d);
        sgrad_log_capture(NULL, 0);
        if (error ? rows[i].classes >= 0 : d->classes != rows[i].classes) fail_msg("row %zu: %s", i, said);
        if (rows[i].says ? !strstr(said, rows[i].says) : *said) fail_msg("row %zu: '%s'", i, said);
        for (int n = 0; !error && rows[i].classes == 2 && n < 2; n++)
            assert_int_equal(((const int32_t *)d->field[1].data)[n], n);
        sgrad_dataset_close(d);
    }
    /* Samples that look as if their channels came first. */
    put_array("y_train.npy", "|u1", "(2,)", (uint8_t[]){ 0, 1 }, 2);
    put_array("y_test.npy", "|u1", "(2,)", (uint8_t[]){ 0, 1 }, 2);
    put_array("x_train.npy", "|u1", "(2, 3, 4, 4)", (uint8_t[96]){ 1 }, 96);
    struct sgrad_dataset *d = NULL;
    sgrad_log_capture(said, sizeof said);
    assert_int_equal(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &d), 0);
    sgrad_log_capture(NULL, 0);
    assert_non_null(strstr(said, "(3,4,4) are read as (height,width,channels)"));
    sgrad_dataset_close(d);
    free(data);
}

static void wrong_arrays(void **state) {
    (void)state;
    char *data = sgrad_format("npy:%s", scratch_root);
    struct sgrad_dataset *none;
    static const struct {
        const char *type, *shape, *says;
        size_t size;
    } rows[] = {
        { "<f4", "(2, 2)", "x_train.npy: byte ", 15 },
        { "|S4", "(2, 2)", "has values of type '|S4', but they must be", 16 },
        { "<c8", "(1, 2)", "has values of type '<c8', but they must be", 16 },
        { "|O", "(2, 2)", "has values of type '|O', but they must be", 16 },
        { "<f4", "(2147483647, 2147483647, 2147483647)", "which do not match the shape in the header", 16 },
        { "<f4", "(-2, 2)", "its shape is invalid", 16 },
        { "<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "its shape is invalid", 16 },
        { "<f4", "()", "has no samples", 4 },
        { "<f4", "(0, 3)", "has no samples", 0 },
        { "<f4", "(4,)", "has 4 samples", 16 },
    };
    put_array("y_train.npy", "|u1", "(2,)", (uint8_t[]){ 0, 1 }, 2);
    put_array("y_test.npy", "|u1", "(1,)", (uint8_t[]){ 0 }, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_array("x_train.npy", rows[i].type, rows[i].shape, (float[4]){ 0 }, rows[i].size);
        assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT, rows[i].says);
    }
    put_array("x_train.npy", "<f4", "(2,)", (float[]){ 1, INFINITY }, 8);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT,
                 "x_train.npy: feature 0 of sample 1 (both counted from 0) is inf");
    put_array("x_train.npy", "<f4", "(2,)", (float[]){ 1, 2 }, 8);
    put_array("y_train.npy", "|i1", "(2,)", (int8_t[]){ 0, -1 }, 2);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT,
                 "number 1 is -1, but classes must be whole numbers, counted from 0");
    scratch_write("x_train.npy", "PK\3\4 is a zip file", 18);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT, "x_train.npy: byte 0: is not a NumPy array");
    remove(scratch_path("x_train.npy"));
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EIO, "x_train.npy");
    free(data);
}

/* The array of the shape DIM, with pixels or labels. */
#define ARRAY(values, kind, ...)                                                                                             \
    { .data = (values), .type = (kind), .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t),                         \
      .dim = (int64_t[]){ __VA_ARGS__ } }

static void in_memory(void **state) {
    (void)state;
    const uint8_t pixels[2 * 2 * 3] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255 };
    const int64_t labels[] = { 1, 4 };
    put_array("x_train.npy", "|u1", "(2, 2, 3)", pixels, sizeof pixels);
    put_array("x_test.npy", "|u1", "(2, 2, 3)", pixels, sizeof pixels);
    put_array("y_train.npy", "<i8", "(2,)", labels, sizeof labels);
    put_array("y_test.npy", "<i8", "(2,)", labels, sizeof labels);
    const struct sgrad_arrays arrays = { .x = { ARRAY(pixels, "u1", 2, 2, 3), ARRAY(pixels, "u1", 2, 2, 3) },
                                         .y = { ARRAY(labels, "i8", 2), ARRAY(labels, "i8", 2) } };
    struct sgrad_dataset *filed = open_arrays(SGRAD_TRAIN), *d;
    assert_done(sgrad_dataset_open("arrays", SGRAD_TRAIN, &(struct sgrad_dataset_options){ .arrays = &arrays }, &d));
    assert_null(d->field[0].data);      /* not copied */
    assert_equal(d->count, 2);
    assert_equal(d->classes, filed->classes);
    assert_true(sgrad_shape_equal(&d->field[0].shape, &filed->field[0].shape));
    for (int i = 0; i < 2; i++) {
        const struct sgrad_sample sample = { .index = i };
        uint8_t image[2][6];
        int32_t label[2];
        assert_done(sgrad_dataset_read(filed, &sample, 1, (void *[]){ image[0], &label[0] }));
        assert_done(sgrad_dataset_read(d, &sample, 1, (void *[]){ image[1], &label[1] }));
        assert_memory_equal(image[0], image[1], sizeof *image);
        assert_equal(label[0], label[1]);
    }
    sgrad_dataset_close(filed);
    sgrad_dataset_close(d);
}

/* Files of one array each, as members of archives are. */
struct files {
    const char *type, *shape;
    int count, fetches;
};

static int fetch_file(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    struct files *files = (struct files *)of;
    const float numbers[] = { 3.1f * (float)i, -(float)(i * i) };
    files->fetches++;
    bytes->name = sgrad_format("%lld.npy", (long long)i);
    bytes->data = make_array(files->type, files->shape, "False", numbers, sizeof numbers, &bytes->size);
    return 0;
}

static void release_file(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    (void)of, (void)i;
    free(bytes->name);
    free((void *)bytes->data);
}

/* Measures FILES, and returns mean and deviation of both features; NULL: they are known, or FILES are images. */
static struct sgrad_origin *measure_files(struct files *files, bool slow, const struct sgrad_origin *known) {
    struct sgrad__npy_members members = { .used = true, .slow = slow };
    struct sgrad_dataset dataset = { .split = SGRAD_TRAIN };
    const struct sgrad__source source = { files, files->count, fetch_file, release_file };
    files->fetches = 0;
    assert_done(sgrad__npy_members_measure(&members, &source, false, known, &dataset));
    free(members.where);
    free(dataset.note);
    if (!known) return dataset.origin;
    sgrad_origin_free(dataset.origin);
    return NULL;
}

static void measured_once(void **state) {
    (void)state;
    struct files files = { "<f4", "(2,)", 50, 0 }, images = { "|u1", "(2, 4)", 50, 0 };
    struct sgrad_origin *again = measure_files(&files, false, NULL), *once = measure_files(&files, true, NULL);
    assert_int_equal(files.fetches, 50);
    for (int k = 0; k < 2; k++) {
        assert_true(once->mean[k] == again->mean[k]);
        assert_true(once->deviation[k] == again->deviation[k] && once->deviation[k] > 1);
    }
    measure_files(&files, true, once);
    assert_int_equal(files.fetches, 1);
    assert_null(measure_files(&images, true, NULL));
    assert_int_equal(images.fetches, 1);
    sgrad_origin_free(once);
    sgrad_origin_free(again);
}

static void wrong_in_memory(void **state) {
    (void)state;
    const float x[6] = { 0 };
    const int32_t y[3] = { 0 };
    struct sgrad_dataset *none = NULL;
    struct sgrad_arrays arrays = { .x = { ARRAY(x, "f4", 3, 2), ARRAY(x, "f4", 3, 2) }, .y = { ARRAY(y, "i4", 3) } };
    const struct sgrad_dataset_options options = { .arrays = &arrays };
    assert_fails(sgrad_dataset_open("arrays", SGRAD_TRAIN, NULL, &none), SGRAD_EINVAL, "arrays: ");
    assert_fails(sgrad_dataset_open("arrays", SGRAD_TRAIN, &options, &none), SGRAD_EINVAL, "y_test: is missing");
    arrays.y[SGRAD_TEST] = arrays.y[SGRAD_TRAIN];
    arrays.y[SGRAD_TRAIN].type = "c8";
    assert_fails(sgrad_dataset_open("arrays", SGRAD_TRAIN, &options, &none), SGRAD_EFORMAT, "y_train: has values of type c8");
    arrays.y[SGRAD_TRAIN].type = "i4";
    arrays.x[SGRAD_TRAIN].dim = (int64_t[]){ 2, 3 };
    assert_fails(sgrad_dataset_open("arrays", SGRAD_TRAIN, &options, &none), SGRAD_EFORMAT,
                 "x_train has 2 samples, y_train has 3");
    arrays.x[SGRAD_TRAIN].dim = (int64_t[]){ 0, 2 };
    assert_fails(sgrad_dataset_open("arrays", SGRAD_TRAIN, &options, &none), SGRAD_EFORMAT, "x_train: has no samples");
    arrays.x[SGRAD_TRAIN].name = "x of mine";
    char said[512];
    sgrad_log_capture(said, sizeof said);
    assert_int_equal(sgrad_dataset_open("arrays", SGRAD_TRAIN, &options, &none), SGRAD_EFORMAT);
    sgrad_log_capture(NULL, 0);
    assert_string_equal(said, "x of mine: has no samples");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("NumPy arrays of every type give samples", arrays),
        sentence("a malformed NumPy array is refused", wrong_arrays),
        sentence("NumPy arrays in any order of bytes and dimensions give the same numbers", orders),
        sentence("float images have one mean, and arrays are divided as folders are", images_and_splits),
        sentence("y is read as classes or as numbers, by its values or by an option", meanings),
        sentence("labels of images and pixels are read in every form, and those without samples are reported", odd_labels),
        sentence("arrays in memory give the samples of files, and images are not copied", in_memory),
        sentence("arrays in a compressed archive are read once to be measured, and only the first one if none is measured",
                 measured_once),
        sentence("arrays in memory that do not match are refused", wrong_in_memory),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
