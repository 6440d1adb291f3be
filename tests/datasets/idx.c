/* idx files: plain or gzipped, with either spelling of their names; malformed files are refused with the position of the
 * error. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "tests/scratch.h"

#include <zlib.h>

enum { N = 5, H = 3, W = 4, IMAGES = 16 + N * H * W, LABELS = 8 + N };

static uint8_t images[IMAGES], labels[LABELS];

static int make_files(void **state) {
    static const uint8_t image_header[16] = { 0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, H, 0, 0, 0, W },
                         label_header[8] = { 0, 0, 8, 1, 0, 0, 0, N };
    memcpy(images, image_header, 16);
    memcpy(labels, label_header, 8);
    for (int i = 0; i < N * H * W; i++) images[16 + i] = (uint8_t)(4 * i);
    for (int i = 0; i < N; i++) labels[8 + i] = (uint8_t)(i % 4);
    return scratch_open(state);
}

static size_t gzip(const void *data, size_t size, uint8_t *to, size_t room) {
    z_stream z = { .next_in = (uint8_t *)data, .avail_in = (uInt)size, .next_out = to, .avail_out = (uInt)room };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static void write_gzip(const char *name, const void *data, size_t size) {
    uint8_t packed[1000];
    scratch_write(name, packed, gzip(data, size, packed, sizeof packed));
}

static int open_split(enum sgrad_split split, struct sgrad_dataset **dataset) {
    char text[600];
    snprintf(text, sizeof text, "idx:%s", scratch_root);
    return sgrad_dataset_open(text, split, NULL, dataset);
}

static void check_good(enum sgrad_split split) {
    struct sgrad_dataset *dataset;
    uint8_t pixels[2 * H * W];
    int32_t label[2];
    assert_done(open_split(split, &dataset));
    assert_int_equal(dataset->count, N);
    assert_int_equal(dataset->field[0].shape.dim[0], H);
    assert_int_equal(dataset->field[0].shape.dim[1], W);
    assert_int_equal(dataset->classes, 4);
    const struct sgrad_sample sample[] = { { .index = 3 }, { .index = 0 } };
    assert_done(sgrad_dataset_read(dataset, sample, 2, (void *[]){ pixels, label }));
    assert_memory_equal(pixels, images + 16 + 3 * H * W, H * W);
    assert_memory_equal(pixels + H * W, images + 16, H * W);
    assert_int_equal(label[0], 3);
    assert_int_equal(label[1], 0);
    sgrad_dataset_close(dataset);
}

static void good(void **state) {
    (void)state;
    scratch_write("train-images-idx3-ubyte", images, IMAGES);
    write_gzip("train-labels.idx1-ubyte.gz", labels, LABELS);
    write_gzip("t10k-images-idx3-ubyte.gz", images, IMAGES);
    scratch_write("t10k-labels.idx1-ubyte", labels, LABELS);
    check_good(SGRAD_TRAIN);
    check_good(SGRAD_TEST);
    unlink(scratch_path("train-labels.idx1-ubyte.gz"));
    check_good(SGRAD_TEST);
}

static void labels_that_do_not_fit(void **state) {
    (void)state;
    struct sgrad_dataset *none;
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EIO, "has no train-images-idx3-ubyte, plain or .gz; give idx:DIR");
    scratch_write("train-images-idx3-ubyte", images, IMAGES);
    assert_fails(open_split(SGRAD_TRAIN, &none), SGRAD_EIO, "has no train-labels-idx1-ubyte");
    scratch_write("t10k-images-idx3-ubyte", images, IMAGES);
    scratch_write("train-labels-idx1-ubyte", labels, LABELS);
    uint8_t other[LABELS];
    memcpy(other, labels, LABELS);
    other[7] = N - 1;
    scratch_write("t10k-labels-idx1-ubyte", other, LABELS - 1);
    assert_fails(open_split(SGRAD_TEST, &none), SGRAD_EFORMAT,
                 "t10k-labels-idx1-ubyte: byte 4: has 4 labels, but there are 5 images");
    other[7] = N;
    other[10] = 4;
    scratch_write("t10k-labels-idx1-ubyte", other, LABELS);
    assert_fails(open_split(SGRAD_TEST, &none), SGRAD_EFORMAT,
                 "t10k-labels-idx1-ubyte: byte 10: record 2 has label 4, but there are 4 classes");
}

static int parse(const void *data, size_t size) {
    uint8_t *copy = malloc(size + !size); /* so that a sanitizer sees a step beyond it */
    struct sgrad__idx idx;
    memcpy(copy, data, size);
    int error = sgrad__idx_parse("file", copy, size, 3, &idx);
    free(copy);
    if (error) return error;
    assert_int_equal(idx.count, idx.dim[0] * idx.dim[1] * idx.dim[2]);
    free(idx.data);
    return 0;
}

/* Every shortened or lengthened file is refused, every damaged byte survived. */
static void damaged(void **state) {
    (void)state;
    uint8_t longer[IMAGES + 1] = { 0 }, packed[1000], changed[1000];
    memcpy(longer, images, IMAGES);
    assert_fails(parse(longer, IMAGES + 1), SGRAD_EFORMAT, "file: byte 76: bytes follow the last element");
    assert_fails(parse(images, 40), SGRAD_EFORMAT, "file: byte 40: the file ends early; its header requires 76 bytes");
    const size_t size = gzip(images, IMAGES, packed, sizeof packed);
    assert_fails(parse(packed, size - 1), SGRAD_EFORMAT, "file: byte 76 of the uncompressed data: the compressed data end early");
    for (size_t n = 0; n < IMAGES; n++) assert_false(survives(parse(images, n)));
    for (size_t n = 0; n < size; n++) assert_false(survives(parse(packed, n)));
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(changed, packed, size);
            changed[i] ^= (uint8_t)(1 << bit);
            struct sgrad__idx idx;
            if (!survives(sgrad__idx_parse("file", changed, size, 3, &idx))) continue;
            assert_memory_equal(idx.data, images + 16, IMAGES - 16); /* gzip's check sum lets nothing else pass */
            free(idx.data);
        }
    for (size_t i = 0; i < IMAGES; i++) {
        memcpy(changed, images, IMAGES);
        changed[i] ^= 0x80;
        assert_true(survives(parse(changed, IMAGES)) == (i >= 16));
    }
    const size_t twice = gzip(images, 30, changed, 500), rest = gzip(images + 30, IMAGES - 30, changed + twice, 500);
    assert_done(parse(changed, twice + rest)); /* two gzip files joined are one */
}

static void headers(void **state) {
    (void)state;
    static const struct {
        uint8_t byte[16];
        const char *reason;
    } header[] = {
        { { 0, 0, 8, 1, 0, 0, 0, 1 }, "byte 0: 00 00 08 01 is invalid; it must be 00 00 08 03 for" },
        { { 0, 0, 9, 3 }, "byte 0: 00 00 09 03" },
        { { 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1 }, "byte 4: dimension 0 is 0" },
        { { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0 }, "byte 12: dimension 2 is 0" },
        { { 0, 0, 8, 3, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1 }, "byte 8: dimension 1 is 65536" },
        { { 0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255 }, "byte 8: dimension 1 is 65535" },
        { { 0, 0, 8, 3, 0, 1, 0, 0, 0, 0, 255, 255, 0, 0, 0, 2 },
          "byte 16: the file ends early; its header requires 8589803536 bytes" },
    };
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        uint8_t packed[100];
        assert_fails(parse(header[i].byte, 16), SGRAD_EFORMAT, header[i].reason);
        survives(parse(packed, gzip(header[i].byte, 16, packed, sizeof packed)));
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence_with("idx files are read, gzipped or not", good, make_files, scratch_close),
        sentence_with("labels that do not fit their images are refused", labels_that_do_not_fit, make_files, scratch_close),
        sentence_with("a truncated or damaged idx file is refused", damaged, make_files, scratch_close),
        sentence("a wrong idx header is refused with its byte", headers),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
