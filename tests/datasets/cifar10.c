/* CIFAR-10 files: planes become pixels; malformed files are refused with the position of the error. */
#include "config.h"
#include "datasets/datasets.h"
#include "tests/scratch.h"

enum { PLANE = 1024, RECORD = 1 + 3 * PLANE };

/* COUNT records whose bytes follow from their number; label = (first + number) mod 10. */
static const char *write_batch(const char *name, int first, int count, size_t size) {
    static uint8_t bytes[8 * RECORD];
    for (int i = 0; i < count; i++) {
        bytes[i * RECORD] = (uint8_t)((first + i) % 10);
        for (int j = 0; j < 3 * PLANE; j++)
            bytes[i * RECORD + 1 + j] = (uint8_t)((first + i) * 31 + j / PLANE * 100 + j % PLANE % 89);
    }
    return scratch_write(name, bytes, size ? size : (size_t)count * RECORD);
}

static void write_all(const char *folder) {
    char name[100];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "%sdata_batch_%d.bin", folder, i);
        write_batch(name, 2 * i, i == 5 ? 3 : 2, 0);
    }
    snprintf(name, sizeof name, "%stest_batch.bin", folder);
    write_batch(name, 50, 4, 0);
}

static int open_split(enum sgrad_split split, struct sgrad_dataset **dataset) {
    char text[600];
    snprintf(text, sizeof text, "cifar10:%s", scratch_root);
    return sgrad_dataset_open(text, split, NULL, dataset);
}

static void check_good(void) {
    struct sgrad_dataset *train, *test;
    uint8_t pixels[3 * PLANE];
    int32_t label;
    assert_done(open_split(SGRAD_TRAIN, &train));
    assert_done(open_split(SGRAD_TEST, &test));
    assert_int_equal(train->count, 11);
    assert_int_equal(test->count, 4);
    assert_string_equal(train->class_name[9], "truck");
    for (int64_t i = 0; i < 11; i++) {
        assert_done(sgrad_dataset_read(train, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixels, &label }));
        assert_int_equal(label, (2 + i) % 10);
        for (int j = 0; j < PLANE; j++)
            for (int c = 0; c < 3; c++) assert_int_equal(pixels[3 * j + c], (uint8_t)((2 + i) * 31 + c * 100 + j % 89));
    }
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
}

static void good(void **state) {
    (void)state;
    write_all("");
    check_good();
}

static void publishers_folder(void **state) {
    (void)state;
    write_all("cifar-10-batches-bin/");
    check_good();
}

static void malformed(void **state) {
    (void)state;
    struct sgrad_dataset *none;
    write_all("");
    write_batch("data_batch_3.bin", 0, 2, RECORD + 17);
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EFORMAT,
                 "data_batch_3.bin: byte 3090: the file ends within a record, after 1 complete");
    write_batch("data_batch_3.bin", 0, 2, 1);
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EFORMAT, "data_batch_3.bin: byte 1: the file ends within a record");
    scratch_write("data_batch_3.bin", "", 0);
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EFORMAT, "data_batch_3.bin: the file is empty");
    uint8_t bytes[2 * RECORD] = { 0 };
    bytes[RECORD] = 10;
    scratch_write("data_batch_3.bin", bytes, sizeof bytes);
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EFORMAT,
                 "data_batch_3.bin: byte 3073: record 1 has label 10, but there are 10 classes");
    unlink(scratch_path("data_batch_3.bin"));
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EIO, "has no data_batch_3.bin; give cifar10:DIR, where DIR contains");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence_with("CIFAR-10 files give pixels, labels and class names", good, scratch_open, scratch_close),
        sentence_with("CIFAR-10 is found in the folder that its publisher packs", publishers_folder, scratch_open, scratch_close),
        sentence_with("a malformed CIFAR-10 file is refused with the byte of its error", malformed, scratch_open, scratch_close),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
