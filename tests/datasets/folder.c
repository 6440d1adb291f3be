/* Folders of JPEG and PNG images: order, sizes, grey and transparent images, parallel readers, and damaged files. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "tests/scratch.h"

#if defined(SGRAD_HAVE_JPEG) && defined(SGRAD_HAVE_PNG)
#include <jpeglib.h>
#include <png.h>
#include <pthread.h>

enum { H = 12, W = 16 };

static int open_with(const char *suffix, enum sgrad_split split, struct sgrad_dataset_options options,
                     struct sgrad_dataset **dataset) {
    char text[600];
    snprintf(text, sizeof text, "folder:%s%s", scratch_root, suffix);
    return sgrad_dataset_open(text, split, &options, dataset);
}

static int open_split(const char *suffix, enum sgrad_split split, struct sgrad_dataset **dataset) {
    return open_with(suffix, split, (struct sgrad_dataset_options){ 0 }, dataset);
}

static size_t make_png(int format, const void *pixels, int height, int width, uint8_t *to, size_t room) {
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = (unsigned)width, .height = (unsigned)height, .format = (unsigned)format
    };
    assert_true(png_image_write_to_memory(&image, to, &room, 0, pixels, 0, NULL));
    return room;
}

static void write_png(const char *name, int format, const void *pixels, int height, int width) {
    uint8_t bytes[5000];
    scratch_write(name, bytes, make_png(format, pixels, height, width, bytes, sizeof bytes));
}

static size_t make_jpeg(J_COLOR_SPACE space, const uint8_t *pixels, int height, int width, uint8_t *to, size_t room) {
    struct jpeg_compress_struct encoder;
    struct jpeg_error_mgr errors;
    unsigned long size = (unsigned long)room;
    encoder.err = jpeg_std_error(&errors);
    jpeg_create_compress(&encoder);
    jpeg_mem_dest(&encoder, &to, &size);
    encoder.image_height = (unsigned)height;
    encoder.image_width = (unsigned)width;
    encoder.in_color_space = space;
    encoder.input_components = space == JCS_GRAYSCALE ? 1 : space == JCS_CMYK ? 4 : 3;
    jpeg_set_defaults(&encoder);
    jpeg_set_quality(&encoder, 95, TRUE);
    jpeg_start_compress(&encoder, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = (JSAMPROW)pixels + y * width * encoder.input_components;
        jpeg_write_scanlines(&encoder, &row, 1);
    }
    jpeg_finish_compress(&encoder);
    jpeg_destroy_compress(&encoder);
    return size;
}

static void write_jpeg(const char *name, J_COLOR_SPACE space, const uint8_t *pixels) {
    uint8_t bytes[5000];
    scratch_write(name, bytes, make_jpeg(space, pixels, H, W, bytes, sizeof bytes));
}

/* A smooth picture of CHANNELS channels, which JPEG keeps well. */
static const uint8_t *picture(int channels, int tint) {
    static uint8_t pixels[H * W * 4];
    for (int i = 0; i < H * W; i++)
        for (int c = 0; c < channels; c++) pixels[channels * i + c] = (uint8_t)(tint + 3 * (i / W) + 2 * (i % W) + 40 * c);
    return pixels;
}

static void assert_pixels(const uint8_t *a, const uint8_t *b, int n, int tolerance) {
    for (int i = 0; i < n; i++)
        if (abs(a[i] - b[i]) > tolerance) fail_msg("value %d is %d, not %d", i, a[i], b[i]);
}

static void order_and_formats(void **state) {
    (void)state;
    uint8_t expected[H * W * 3], pixels[H * W * 3], rgba[H * W * 4], cmyk[H * W * 4];
    memcpy(expected, picture(3, 10), sizeof expected);
    for (int i = 0; i < H * W; i++) {
        memcpy(rgba + 4 * i, expected + 3 * i, 3);
        rgba[4 * i + 3] = (uint8_t)i;
        for (int c = 0; c < 3; c++) cmyk[4 * i + c] = expected[3 * i + c]; /* Adobe's: 255 is no ink */
        cmyk[4 * i + 3] = 255;
    }
    write_png("train/b/z.png", PNG_FORMAT_RGB, expected, H, W);
    write_png("train/b/y.PNG", PNG_FORMAT_RGBA, rgba, H, W);
    write_jpeg("train/b/2.JPEG", JCS_RGB, expected);
    write_jpeg("train/b/10.jpg", JCS_RGB, expected);
    write_jpeg("train/b/c.jpg", JCS_CMYK, cmyk);
    write_jpeg("train/a/grey.jpeg", JCS_GRAYSCALE, picture(1, 30));
    write_png("train/a/grey.png", PNG_FORMAT_GRAY, picture(1, 30), H, W);
    write_png("val/b/0.png", PNG_FORMAT_RGB, expected, H, W);
    scratch_write("train/a/notes.txt", "x", 1);
    scratch_write("train/a/.hidden.png", "x", 1);
    scratch_write("train/readme.png", "x", 1);

    struct sgrad_dataset *train, *test;
    int32_t label;
    assert_done(open_split("", SGRAD_TRAIN, &train));
    assert_done(open_split("", SGRAD_TEST, &test));
    assert_int_equal(train->count, 7);
    assert_int_equal(train->classes, 2);
    assert_int_equal(train->field[0].shape.dim[0], H);
    assert_int_equal(train->field[0].shape.dim[1], W);
    assert_string_equal(train->class_name[0], "a");
    assert_string_equal(train->class_name[1], "b");
    assert_int_equal(test->count, 1);
    assert_int_equal(test->classes, 2);
    assert_int_equal(((const int32_t *)test->field[1].data)[0], 1);
    for (int64_t i = 2; i < 7; i++) { /* 10.jpg 2.JPEG c.jpg y.PNG z.png */
        assert_done(sgrad_dataset_read(train, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixels, &label }));
        assert_int_equal(label, 1);
        assert_pixels(pixels, expected, sizeof expected, i < 5 ? 4 : 0);
    }
    const uint8_t *grey = picture(1, 30);
    for (int64_t i = 0; i < 2; i++) {
        assert_done(sgrad_dataset_read(train, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixels, &label }));
        assert_int_equal(label, 0);
        for (int j = 0; j < H * W; j++)
            assert_pixels(pixels + 3 * j, (uint8_t[]){ grey[j], grey[j], grey[j] }, 3, i == 0 ? 4 : 0);
    }
    assert_true(sgrad_dataset_fingerprint(train) != sgrad_dataset_fingerprint(test));
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
}

static void sizes(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    write_png("train/a/1.png", PNG_FORMAT_RGB, picture(3, 0), H, W);
    write_png("train/a/2.png", PNG_FORMAT_RGB, picture(3, 0), W, H);
    write_png("train/b/1.png", PNG_FORMAT_RGB, picture(3, 0), 1, 1);
    assert_done(open_split("", SGRAD_TRAIN, &dataset));     /* looks at the first alone */
    assert_int_equal(dataset->field[0].shape.dim[0] * 100 + dataset->field[0].shape.dim[1], H * 100 + W);
    assert_done(sgrad_dataset_check(dataset, 0, 1));
    assert_fails(sgrad_dataset_check(dataset, 0, 2), SGRAD_ESHAPE,
                 "a/2.png: is 12x16, but others are 16x12; give folder:DIR,SIZE to resize");
    sgrad_dataset_close(dataset);
    assert_fails(open_split(",0", SGRAD_TRAIN, &dataset), SGRAD_EINVAL, "the size must be 1 to 8192");
    assert_fails(open_split(",8193", SGRAD_TRAIN, &dataset), SGRAD_EINVAL, "the size must be 1 to 8192");
    assert_fails(open_split(",6x", SGRAD_TRAIN, &dataset), SGRAD_EIO, "No such file");

    uint8_t pixels[3 * 12 * 12];
    int32_t labels[3];
    assert_done(open_with("", SGRAD_TRAIN, (struct sgrad_dataset_options){ .size = 6 }, &dataset));
    assert_int_equal(dataset->field[0].shape.dim[0], 6);
    sgrad_dataset_close(dataset);
    assert_done(open_with(",12", SGRAD_TRAIN, (struct sgrad_dataset_options){ .size = 6 }, &dataset));
    assert_int_equal(dataset->field[0].shape.dim[0], 12);
    assert_done(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 0 }, 1, (void *[]){ pixels, labels }));
    const uint8_t *all = picture(3, 0);
    for (int y = 0; y < H; y++)
        assert_memory_equal(pixels + 36 * y, all + 3 * (y * W + 2), 36); /* only cut: 2 columns each side */
    assert_done(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 2 }, 1, (void *[]){ pixels, labels }));
    for (int i = 0; i < 12 * 12; i++) assert_memory_equal(pixels + 3 * i, all, 3);
    sgrad_dataset_close(dataset);
}

/* Halving averages over a triangle of four pixels: 1/8 3/8 3/8 1/8, and the border's missing pixels weigh nothing. */
static void resize(void **state) {
    (void)state;
    uint8_t rgb[2 * 8 * 3], to[3];
    static const uint8_t line[8] = { 0, 0, 80, 160, 40, 0, 0, 0 };
    for (int i = 0; i < 2 * 8 * 3; i++) rgb[i] = line[i / 3 % 8];
    sgrad__image_fit(&(struct sgrad__image){ .height = 2, .width = 8, .rgb = rgb }, 1, 1, to);
    /* scaled to 4 x 1, cut to column 2 (of 0…3), as torchvision rounds 1.5: pixels 3 to 6 */
    assert_int_equal(to[0], (int)((160 * 1 + 40 * 3 + 0 * 3 + 0 * 1) / 8.0 + 0.5));
    assert_int_equal(to[0], to[1]);
    assert_int_equal(to[0], to[2]);

    uint8_t flat[5 * 9 * 3], square[20 * 20 * 3];
    memset(flat, 255, sizeof flat);
    for (int side = 1; side <= 20; side++) {
        sgrad__image_fit(&(struct sgrad__image){ .height = 9, .width = 5, .rgb = flat }, side, side, square);
        for (int i = 0; i < 3 * side * side; i++) assert_int_equal(square[i], 255);
    }
}

static void classes(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    assert_fails(open_split("", SGRAD_TRAIN, &dataset), SGRAD_EIO, "has no folder train; give folder:DIR, where DIR contains");
    scratch_write("train/file.png", "x", 1);
    assert_fails(open_split("", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "has no class folders; give folder:DIR, where DIR");
    write_png("train/b/1.png", PNG_FORMAT_RGB, picture(3, 0), H, W);
    scratch_write("train/c/1.txt", "x", 1);
    assert_fails(open_split("", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "train/c: has no image (.jpg, .jpeg, ");
    assert_fails(open_split("", SGRAD_TEST, &dataset), SGRAD_EIO, "has no folder val; give folder:DIR, where DIR");
    scratch_write("val/c/1.txt", "x", 1);
    assert_fails(open_split("", SGRAD_TEST, &dataset), SGRAD_EFORMAT, ".gif) in its folders");
    write_png("val/bb/1.png", PNG_FORMAT_RGB, picture(3, 0), H, W);
    assert_fails(open_split("", SGRAD_TEST, &dataset), SGRAD_EFORMAT, "val/bb: the training split has no such class");
}

/* Every image without all its pixels is refused, every damaged byte survived. What lacks its end alone is whole. */
static void damaged(void **state) {
    (void)state;
    uint8_t good[2][5000], bytes[5000];
    const size_t size[2] = { make_jpeg(JCS_RGB, picture(3, 0), H, W, good[0], 5000),
                             make_png(PNG_FORMAT_RGB, picture(3, 0), H, W, good[1], 5000) };
    struct sgrad__image image;
    for (int kind = 0; kind < 2; kind++) {
        for (size_t n = 0; n < size[kind]; n++) {
            uint8_t *shorter = malloc(n + !n); /* so that a sanitizer sees a step beyond it */
            memcpy(shorter, good[kind], n);
            const bool whole = survives(sgrad__image_decode("file", shorter, n, &image));
            if (whole) assert_true(n + (kind == 0 ? 2 : 12) >= size[kind]), free(image.rgb); /* the end alone */
            free(shorter);
        }
        for (size_t i = 0; i < size[kind]; i++)
            for (int bit = 0; bit < 8; bit += 3) {
                memcpy(bytes, good[kind], size[kind]);
                bytes[i] ^= (uint8_t)(1 << bit);
                bool read = survives(sgrad__image_decode("file", bytes, size[kind], &image));
                if (read) free(image.rgb);
                if (kind == 1) assert_true(!read || i + 12 >= size[kind]);     /* PNG has check sums */
            }
    }
    memcpy(bytes, good[1], size[1]);
    bytes[size[1] - 20] ^= 1;
    assert_fails(sgrad__image_decode("file", bytes, size[1], &image), SGRAD_EFORMAT, "png: file: byte ");
    assert_fails(sgrad__image_decode("file", good[0], size[0] / 2, &image), SGRAD_EFORMAT, "remature end of ");
    assert_fails(sgrad__image_decode("file", "GIF99a__________", 16, &image), SGRAD_EFORMAT,
                 "image: file: its first bytes match no supported image format");
    uint8_t *frame = memmem(good[0], size[0], "\xff\xc0", 2);
    memcpy(frame + 5, "\xff\x00\xff\x00", 4); /* 65280 x 65280 */
    assert_fails(sgrad__image_decode("file", good[0], size[0], &image), SGRAD_EFORMAT,
                 "65280x65280 pixels is not supported; sides must be");
    memcpy(frame + 5, "\x20\x00\x20\x00", 4); /* 8192 x 8192 */
    assert_fails(sgrad__image_decode("file", good[0], size[0], &image), SGRAD_EFORMAT, "too short for its image of 8192x8192");
}

/* ---- many readers at once ------------------------------------------------------------------------------------------ */

enum { THREADS = 4, IMAGES = 40 };

struct visit {
    const struct sgrad_dataset *dataset;
    int step, errors;
    uint8_t seen[IMAGES]; /* first pixel of each image */
};

static void *read_all(void *argument) {
    struct visit *visit = argument;
    uint8_t pixels[H * W * 3];
    int32_t label;
    for (int n = 0; n < 3 * IMAGES; n++) {
        const int64_t i = n * visit->step % IMAGES;
        if (sgrad_dataset_read(visit->dataset, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixels, &label }))
            visit->errors++;
        else
            visit->seen[i] = pixels[0];
    }
    return NULL;
}

static void read_in_threads(size_t memory, int expected_errors) {
    struct sgrad_dataset *dataset;
    assert_done(open_with("", SGRAD_TRAIN, (struct sgrad_dataset_options){ .memory = memory }, &dataset));
    assert_int_equal(dataset->count, IMAGES);
    pthread_t thread[THREADS];
    struct visit visit[THREADS];
    scratch_listen();
    for (int t = 0; t < THREADS; t++) {
        visit[t] = (struct visit){ .dataset = dataset, .step = 2 * t + 1 - (t == 2) * 2 }; /* 1 3 3 7: two collide */
        assert_int_equal(pthread_create(&thread[t], NULL, read_all, &visit[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    const int error = sgrad_dataset_statistics(dataset, mean, deviation);
    scratch_said();
    assert_int_equal(error, expected_errors ? SGRAD_EFORMAT : 0);
    for (int t = 0; t < THREADS; t++) {
        assert_int_equal(visit[t].errors, expected_errors);
        for (int i = 0; i < IMAGES - !!expected_errors; i++) assert_int_equal(visit[t].seen[i], 5 * i);
    }
    sgrad_dataset_close(dataset);
}

static void many_readers(void **state) {
    (void)state;
    char name[100];
    for (int i = 0; i < IMAGES; i++) {
        snprintf(name, sizeof name, "train/a/%02d.png", i);
        write_png(name, PNG_FORMAT_RGB, picture(3, 5 * i), H, W);
    }
    read_in_threads(1 << 20, 0); /* all are kept */
    read_in_threads(1, 0);       /* none is */
    uint8_t bytes[5000];
    size_t size = make_png(PNG_FORMAT_RGB, picture(3, 0), H, W, bytes, sizeof bytes);
    bytes[size - 20] ^= 1;
    scratch_write(name, bytes, size);
    read_in_threads(1 << 20, 3);
    read_in_threads(1, 3);
}

static void changed_since(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    uint8_t pixels[H * W * 3];
    int32_t label;
    write_png("train/a/1.png", PNG_FORMAT_RGB, picture(3, 0), H, W);
    assert_done(open_split("", SGRAD_TRAIN, &dataset));
    write_png("train/a/1.png", PNG_FORMAT_RGB, picture(3, 0), 2, 2);
    assert_fails(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 0 }, 1, (void *[]){ pixels, &label }), SGRAD_ESHAPE,
                 "a/1.png: is 2x2, but others are 16x12");
    unlink(scratch_path("train/a/1.png"));
    assert_fails(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 0 }, 1, (void *[]){ pixels, &label }), SGRAD_EIO,
                 "a/1.png: No such file");
    sgrad_dataset_close(dataset);
}

/* A smooth picture of 100x140, scaled to 24 pixels: decoded at full size, and at a half and a quarter of it. */
static void reduced(void **state) {
    (void)state;
    enum { HEIGHT = 100, WIDTH = 140, SIDE = 24 };
    static uint8_t picture[HEIGHT * WIDTH * 3], bytes[20000], whole[SIDE * SIDE * 3], fraction[SIDE * SIDE * 3];
    static const struct { int least, height, width; } cases[] = {
        { 0, 100, 140 }, { 51, 100, 140 }, { 50, 50, 70 }, { 26, 50, 70 }, { 24, 25, 35 }, { 1, 13, 18 },
    };
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++) picture[i] = (uint8_t)(i / (3 * WIDTH) + i / 3 % WIDTH / 2 + 30 * (i % 3));
    const size_t size = make_jpeg(JCS_RGB, picture, HEIGHT, WIDTH, bytes, sizeof bytes);
    struct sgrad__image image;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sgrad__image_use use = { .least = cases[i].least };
        assert_done(sgrad__image_decode_for("file", bytes, size, false, &use, &image));
        assert_int_equal(image.height, cases[i].height);
        assert_int_equal(image.width, cases[i].width);
        if (image.height >= SIDE) sgrad__image_fit(&image, SIDE, SIDE, cases[i].least ? fraction : whole);
        if (image.height >= SIDE && cases[i].least) assert_pixels(fraction, whole, SIDE * SIDE * 3, 3);
        free(image.rgb);
    }
    uint8_t other[5000];
    const size_t length = make_png(PNG_FORMAT_RGB, picture, 20, 20, other, sizeof other);
    assert_done(sgrad__image_decode_for("file", other, length, false, &(struct sgrad__image_use){ .least = 5 }, &image));
    assert_int_equal(image.height, 20);         /* only JPEG has fractions */
    free(image.rgb);
    const struct sgrad__image_use use = { .least = 24 };
    assert_int_equal(survives(sgrad__image_decode_for("file", bytes, size / 2, false, &use, &image)), false);
}

/* Noise, decoded as a whole and for a square in the middle. */
static void cropped(void **state) {
    (void)state;
    enum { MOST = 200 };
    static uint8_t noise[MOST * MOST * 3], bytes[MOST * MOST * 4], whole[MOST * MOST * 3], part[MOST * MOST * 3];
    unsigned random = 1;
    for (int i = 0; i < MOST * MOST * 3; i++) noise[i] = (uint8_t)((random = random * 1103515245 + 12345) >> 16);
    for (int height = 8; height <= MOST; height += 32)
        for (int width = 11; width <= MOST; width += 27)
            for (int side = 1; side <= MOST / 2; side += 33) {
                const struct sgrad__image_use use = { .scaled = side + side / 8, .side = side };
                const J_COLOR_SPACE space = side % 2 ? JCS_RGB : JCS_GRAYSCALE;
                const size_t size = make_jpeg(space, noise, height, width, bytes, sizeof bytes);
                struct sgrad__image all, columns;
                assert_done(sgrad__image_decode("file", bytes, size, &all));
                assert_done(sgrad__image_decode_for("file", bytes, size, false, &use, &columns));
                sgrad__image_fit(&all, use.scaled, side, whole);
                sgrad__image_fit(&columns, use.scaled, side, part);
                assert_memory_equal(whole, part, (size_t)side * (size_t)side * 3);
                free(all.rgb);
                free(columns.rgb);
            }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence_with("images of a folder come in the order of their names, whatever their format",
                      order_and_formats, scratch_open, scratch_close),
        sentence_with("images of several sizes are refused without a size, and scaled and cut with one",
                      sizes, scratch_open, scratch_close),
        sentence("an image is scaled as torchvision scales it", resize),
        sentence("a JPEG is decoded at the smallest fraction of its size that is not below the wanted size", reduced),
        sentence("a JPEG that is decoded only where it is used has the same pixels there", cropped),
        sentence_with("a folder without images of each class is refused", classes, scratch_open, scratch_close),
        sentence("a truncated image is refused, and a damaged one does no harm", damaged),
        sentence_with("several threads read one folder at the same time", many_readers, scratch_open, scratch_close),
        sentence_with("an image that has changed since its folder was opened is refused",
                      changed_since, scratch_open, scratch_close),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
#else
SKIPPED_WITHOUT("libjpeg or no libpng")
#endif
