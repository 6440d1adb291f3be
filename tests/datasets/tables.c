/* Data that are no images: lines of numbers, and arrays of NumPy's; and what is wrong with files of either. */
#include "config.h"

#include "datasets/datasets.h"
#include "tests/scratch.h"

#include <math.h>

static char *written(const char *name, const void *data, size_t size) {
    char *path = sgrad_format("%s/%s", scratch_root, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    return path;
}

/* ---- lines of numbers ---- */

static struct sgrad_dataset *open_lines(const char *text, const char *more, enum sgrad_split split) {
    char *path = written("lines.csv", text, strlen(text)), *data = sgrad_format("csv:%s%s", path, more);
    struct sgrad_dataset *d = NULL;
    const int error = sgrad_dataset_open(data, split, NULL, &d);
    free(path);
    free(data);
    return error ? NULL : d;
}

static void classes(void **state) {
    (void)state;
    const char *text = "length,width,\"kind, of flower\"\n1,5,rose\n3,5,lily\n\n1,5,rose\r\n3,5,\"a \"\"tulip\"\"\"\n9,7,rose\n";
    struct sgrad_dataset *train = open_lines(text, "", SGRAD_TRAIN), *test = open_lines(text, "", SGRAD_TEST);
    assert_true(train->count == 4 && test->count == 1 && train->classes == 3 && test->classes == 3);
    assert_string_equal(train->class_name[0], "a \"tulip\"");
    assert_string_equal(test->class_name[2], "rose");
    const float *x = train->field[0].data, *other = test->field[0].data;
    const int32_t *label = train->field[1].data;
    const float wanted[] = { -1, 0, 1, 0, -1, 0, 1, 0 };        /* a feature that never changes has a deviation of 1 */
    assert_memory_equal(x, wanted, sizeof wanted);
    assert_true(other[0] == 7 && other[1] == 2);                /* by the training lines' */
    assert_true(label[0] == 2 && label[1] == 1 && label[3] == 0);
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);

    train = open_lines("1;10;2\n0;9;2\n1;9;4\n0;10;4\n0;10;5\n", ",1,classes", SGRAD_TRAIN);
    assert_true(train->classes == 2 && sgrad_field_bytes(&train->field[0]) == 8);
    assert_int_equal(((const int32_t *)train->field[1].data)[0], 1);
    sgrad_dataset_close(train);
}

static void numbers(void **state) {
    (void)state;
    const char *text = "a,b,c\n1,10,2\n0,9,2\n1,9,4\n0,10,4\n0,10,5\n";
    struct sgrad_dataset *train = open_lines(text, ",b", SGRAD_TRAIN), *test = open_lines(text, ",2", SGRAD_TEST);
    assert_true(!train->classes && train->field[1].dtype == SGRAD_F32);
    assert_true(((const float *)train->field[1].data)[1] == 9 && ((const float *)test->field[1].data)[0] == 10);
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);

    assert_int_equal(mkdir(scratch_path("two"), 0700), 0);
    free(written("two/train.csv", "1,2\n3,4\n", 8));
    free(written("two/test.csv", "5,6\n", 4));
    char *data = sgrad_format("csv:%s", scratch_path("two"));
    assert_int_equal(sgrad_dataset_open(data, SGRAD_TEST, NULL, &test), 0);
    assert_true(test->count == 1 && ((const float *)test->field[0].data)[0] == 3 && ((const float *)test->field[1].data)[0] == 6);
    sgrad_dataset_close(test);
    free(written("two/test.csv", "5,6,7\n", 6));
    assert_fails(sgrad_dataset_open(data, SGRAD_TEST, NULL, &test), SGRAD_EFORMAT, "test.csv: has 3 columns");
    free(data);
}

static void wrong_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *more, *says;
        int error;
    } rows[] = {
        { "a,b\n1,2\n3\n", "", "lines.csv: line 3: has 1 columns, the first has 2", SGRAD_EFORMAT },
        { "a,b\n1,\"2\n3,4\n", "", "line 2: a quote is not closed", SGRAD_EFORMAT },
        { "a,b\n\"1\"2,3\n", "", "line 2: goes on behind a quote", SGRAD_EFORMAT },
        { "a,b\n", "", "has no line of numbers", SGRAD_EFORMAT },
        { "a,b,c\n1,x,3\n1,2,3\n1,2,3\n1,2,3\n1,2,3\n", "", "record 1, column 2 (b): 'x' is no number", SGRAD_EFORMAT },
        { "a,b,c\n1,2,3\n1,nan,3\n1,2,3\n1,2,3\n1,2,3\n", "", "record 2, column 2 (b): 'nan' is no number", SGRAD_EFORMAT },
        { "a,b\n1,2\n3,4\n", ",d", "has no column 'd'", SGRAD_EINVAL },
        { "a,b\n1,2\n3,4\n", ",3", "has no column '3'", SGRAD_EINVAL },
        { "a,b\n1,2\n3,4\n", ",b,class", "takes FILE, FILE,COLUMN or FILE,COLUMN,classes", SGRAD_EINVAL },
        { "1\n2\n", "", "has one column", SGRAD_EFORMAT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = written("lines.csv", rows[i].text, strlen(rows[i].text));
        char *data = sgrad_format("csv:%s%s", path, rows[i].more);
        struct sgrad_dataset *none;
        assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), rows[i].error, rows[i].says);
        free(path);
        free(data);
    }
    struct sgrad_dataset *none;
    char *data = sgrad_format("csv:%s/nowhere.csv", scratch_root), *path = written("few.csv", "1,2\n3,4\n", 8);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EIO, "nowhere.csv");
    free(data);
    data = sgrad_format("csv:%s", path);
    assert_fails(sgrad_dataset_open(data, SGRAD_TEST, NULL, &none), SGRAD_EFORMAT, "has 2 lines: every fifth is for testing");
    free(data);
    free(path);
}

/* ---- arrays ---- */

static void put_array(const char *name, const char *type, const char *shape, const void *data, size_t size) {
    char *header = sgrad_format("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", type, shape);
    const size_t length = strlen(header);
    unsigned char *file = sgrad_alloc(10 + length + size, 1);
    memcpy(file, "\x93NUMPY\x01", 8);
    file[8] = (unsigned char)length;
    memcpy(file + 10, header, length);
    memcpy(file + 10 + length, data, size);
    free(written(name, file, 10 + length + size));
    free(file);
    free(header);
}

static struct sgrad_dataset *open_arrays(enum sgrad_split split) {
    char *data = sgrad_format("npy:%s", scratch_root);
    struct sgrad_dataset *d = NULL;
    assert_int_equal(sgrad_dataset_open(data, split, NULL, &d), 0);
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
    assert_true(d->count == 2 && d->classes == 5 && d->full_scale == 255 && sgrad_dataset_channels(d) == 1);
    assert_memory_equal(d->field[0].data, pixels, sizeof pixels);
    assert_int_equal(((const int32_t *)d->field[1].data)[0], 1);
    sgrad_dataset_close(d);

    put_array("y_train.npy", "|b1", "(2, 2, 3)", (uint8_t[12]){ 1 }, 12);       /* classes of pixels */
    put_array("y_test.npy", "|b1", "(1, 2, 3)", (uint8_t[6]){ 0 }, 6);
    d = open_arrays(SGRAD_TRAIN);
    assert_true(sgrad_dataset_image(d)->shape.rank == 4 && sgrad_dataset_target(d)->shape.rank == 3 && d->classes == 2);
    sgrad_dataset_close(d);

    put_array("x_train.npy", "<u2", "(2, 2)", (uint16_t[]){ 1, 65535, 3, 4 }, 8);       /* numbers */
    put_array("y_train.npy", "<f2", "(2, 2)", (uint16_t[]){ 0x3c00, 0xc000, 1, 0x7bff }, 8);
    d = open_arrays(SGRAD_TRAIN);
    assert_true(!d->classes && d->field[0].dtype == SGRAD_F32 && ((const float *)d->field[0].data)[1] == 65535);
    const float *y = d->field[1].data;
    assert_true(y[0] == 1 && y[1] == -2 && y[2] == ldexpf(1, -24) && y[3] == 65504);
    sgrad_dataset_close(d);
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
        { ">f4", "(2, 2)", "has numbers '>f4'", 16 },
        { "|O", "(2, 2)", "has numbers '|O'", 16 },
        { "<f4", "(2147483647, 2147483647, 2147483647)", "which its shape says otherwise", 16 },
        { "<f4", "(-2, 2)", "its shape is none", 16 },
        { "<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "its shape is none", 16 },
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
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT, "x_train.npy: number 1 is none");
    put_array("x_train.npy", "<f4", "(2,)", (float[]){ 1, 2 }, 8);
    put_array("y_train.npy", "|i1", "(2,)", (int8_t[]){ 0, -1 }, 2);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT, "number 1 is -1: classes are counted from 0");
    free(written("x_train.npy", "PK\3\4 is a zip file", 18));
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EFORMAT, "x_train.npy: byte 0: is no NumPy array");
    remove(scratch_path("x_train.npy"));
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EIO, "x_train.npy");
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes), cmocka_unit_test(numbers), cmocka_unit_test(wrong_lines),
        cmocka_unit_test(arrays),  cmocka_unit_test(wrong_arrays),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
