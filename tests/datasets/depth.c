/* TIFF images of every layout, and images with 16 bits a channel: pixels, statistics, augmentation, damaged files. */
#include "config.h"
#include "datasets/colours.h"
#include "datasets/formats.h"
#include "tests/scratch.h"

#if defined(SGRAD_HAVE_TIFF) && defined(SGRAD_HAVE_PNG)
#include <math.h>
#include <png.h>
#include <tiffio.h>

enum { H = 21, W = 19 };

static uint16_t planted(int y, int x, int c) { return (uint16_t)(257 * (y * 7 + x * 3) + 4001 * c + y * x); }

struct form {
    int bits, samples, planar, photometric, compression;
    bool tiled;
};

static uint16_t value_of(const struct form *form, int y, int x, int c) {
    return form->bits == 16 ? planted(y, x, c) : planted(y, x, c) >> 8;
}

static char *write_tiff(const char *name, const struct form *form) {
    char *path = sgrad_format("%s", scratch_write(name, "", 0));
    TIFF *file = TIFFOpen(path, "w");
    const int planes = form->planar == PLANARCONFIG_SEPARATE ? form->samples : 1, each = form->samples / planes, side = 16;
    const int height = form->tiled ? side : 4, width = form->tiled ? side : W;
    assert_non_null(file);
    TIFFSetField(file, TIFFTAG_IMAGEWIDTH, W);
    TIFFSetField(file, TIFFTAG_IMAGELENGTH, H);
    TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, form->bits);
    TIFFSetField(file, TIFFTAG_SAMPLESPERPIXEL, form->samples);
    TIFFSetField(file, TIFFTAG_PLANARCONFIG, form->planar);
    TIFFSetField(file, TIFFTAG_PHOTOMETRIC, form->photometric);
    TIFFSetField(file, TIFFTAG_COMPRESSION, form->compression);
    if (form->tiled) TIFFSetField(file, TIFFTAG_TILEWIDTH, side), TIFFSetField(file, TIFFTAG_TILELENGTH, side);
    else TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, height);
    for (int plane = 0; plane < planes; plane++)
        for (int top = 0; top < H; top += height)
            for (int left = 0; left < W; left += width) {
                uint16_t room[16 * 19 * 4] = { 0 };
                uint8_t *bytes = (uint8_t *)room;
                const int rows = form->tiled || top + height <= H ? height : H - top;
                for (int i = 0; i < rows * width * each; i++) {
                    const int value = value_of(form, top + i / each / width, left + i / each % width, plane + i % each);
                    if (form->bits == 16) room[i] = (uint16_t)value;
                    else bytes[i] = (uint8_t)value;
                }
                const tmsize_t size = rows * width * each * form->bits / 8;
                const uint32_t strip = form->tiled ? 0 : TIFFComputeStrip(file, (uint32_t)top, (uint16_t)plane);
                if (form->tiled)
                    assert_true(TIFFWriteTile(file, room, (uint32_t)left, (uint32_t)top, 0, (uint16_t)plane) >= size);
                else assert_int_equal(TIFFWriteEncodedStrip(file, strip, room, size), size);
            }
    TIFFClose(file);
    return path;
}

static void layouts(void **state) {
    (void)state;
    static const struct form form[] = {
        { 8, 1, PLANARCONFIG_CONTIG, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, false },
        { 8, 3, PLANARCONFIG_CONTIG, PHOTOMETRIC_RGB, COMPRESSION_LZW, false },
        { 8, 3, PLANARCONFIG_SEPARATE, PHOTOMETRIC_RGB, COMPRESSION_LZW, true },
        { 16, 1, PLANARCONFIG_CONTIG, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, false },
        { 16, 1, PLANARCONFIG_CONTIG, PHOTOMETRIC_MINISWHITE, COMPRESSION_ADOBE_DEFLATE, true },
        { 16, 3, PLANARCONFIG_CONTIG, PHOTOMETRIC_RGB, COMPRESSION_NONE, false },
        { 16, 3, PLANARCONFIG_CONTIG, PHOTOMETRIC_RGB, COMPRESSION_LZW, true },
        { 16, 3, PLANARCONFIG_SEPARATE, PHOTOMETRIC_RGB, COMPRESSION_ADOBE_DEFLATE, false },
        { 16, 3, PLANARCONFIG_SEPARATE, PHOTOMETRIC_RGB, COMPRESSION_NONE, true },
        { 16, 4, PLANARCONFIG_CONTIG, PHOTOMETRIC_RGB, COMPRESSION_NONE, false },
    };
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        const struct form *f = &form[i];
        char *path = write_tiff("one.tif", f);
        struct sgrad_map map;
        struct sgrad__image deep, plain;
        assert_done(sgrad_map_open(path, 1 << 20, &map));
        assert_done(sgrad__image_header(path, map.data, map.size, &plain));
        assert_int_equal(plain.deep, f->bits == 16);
        assert_done(sgrad__image_decode_deep(path, map.data, map.size, &deep));
        assert_done(sgrad__image_decode(path, map.data, map.size, &plain));
        assert_equal(deep.height, H);
        assert_equal(deep.width, W);
        assert_equal(deep.grey, (f->samples == 1));
        assert_equal(deep.deep, (f->bits == 16));
        assert_true(!deep.rgb && !plain.rgb16 && !deep.animated);
        for (int k = 0; k < H * W * 3; k++) {
            int wanted = value_of(f, k / 3 / W, k / 3 % W, f->samples == 1 ? 0 : k % 3);
            if (f->photometric == PHOTOMETRIC_MINISWHITE) wanted = 65535 - wanted;
            assert_int_equal(deep.rgb16[k], f->bits == 16 ? wanted : 257 * wanted);
            assert_int_equal(plain.rgb[k], f->bits == 16 ? (int)rint(wanted / 257.0) : wanted);
        }
        for (size_t size = 0; size < map.size; size += 1 + size / 4) {      /* what ends early is refused, or was whole before */
            struct sgrad__image part;
            if (sgrad__image_decode(path, map.data, size, &part)) continue;
            assert_memory_equal(part.rgb, plain.rgb, H * W * 3);
            free(part.rgb);
        }
        free(deep.rgb16);
        free(plain.rgb);
        sgrad_map_close(&map);
        remove(path);
        free(path);
    }
}

static void refused(void **state) {
    (void)state;
    struct sgrad__image image;
    struct sgrad_map map;
    const struct form real = { 32, 1, PLANARCONFIG_CONTIG, PHOTOMETRIC_MINISBLACK, COMPRESSION_NONE, false };
    char *path = write_tiff("real.tif", &real);
    assert_done(sgrad_map_open(path, 1 << 20, &map));
    assert_fails(sgrad__image_decode(path, map.data, map.size, &image), SGRAD_EFORMAT,
                 "real.tif: its pixels must be unsigned integers");
    sgrad_map_close(&map);
    assert_fails(sgrad__image_decode("x", "II*\0\377\377\377\377", 8, &image), SGRAD_EFORMAT, "tiff: x: ");
    assert_fails(sgrad__image_decode("x", "BM", 2, &image), SGRAD_EFORMAT,
                 "its first bytes match no supported image format (JPEG, PNG, TIFF, ");
    free(path);
}

/* Of 16 bits: exact sums, as doubles have them; scaled; augmented in their own range. */
static void at_full_depth(void **state) {
    (void)state;
    const struct form f = { 16, 3, PLANARCONFIG_CONTIG, PHOTOMETRIC_RGB, COMPRESSION_NONE, false };
    const char *const file[] = { "train/a/1.tif", "train/b/1.tiff", "train/b/2.TIF", "val/b/1.tif" };
    for (int i = 0; i < 4; i++) free(write_tiff(file[i], &f));
    struct sgrad_dataset *train, *test;
    char *text = sgrad_format("folder:%s", scratch_root);
    assert_done(sgrad_dataset_open(text, SGRAD_TRAIN, NULL, &train));
    assert_done(sgrad_dataset_open(text, SGRAD_TEST, NULL, &test));
    assert_equal(train->field[0].dtype, SGRAD_U16);
    assert_equal(test->field[0].dtype, SGRAD_U16);
    assert_equal(train->full_scale, 65535);
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    assert_done(sgrad_dataset_statistics(train, mean, deviation));
    uint16_t pixels[H * W * 3], drawn[H * W * 3];
    int32_t label;
    assert_done(sgrad_dataset_read(train, &(struct sgrad_sample){ .index = 2 }, 1, (void *[]){ pixels, &label }));
    for (int c = 0; c < 3; c++) {
        double sum = 0, squares = 0;
        for (int i = c; i < H * W * 3; i += 3) sum += pixels[i];
        for (int i = c; i < H * W * 3; i += 3) squares += pow(pixels[i] - sum / (H * W), 2);
        assert_near(mean[c], sum / (H * W) / 65535, 1e-12);
        assert_near(deviation[c], sqrt(squares / (H * W)) / 65535, 1e-9);
    }
    struct sgrad_drawing how = { .seed = 3 };
    assert_done(sgrad_augmentations_parse("flip,autocontrast,cutout:4", H, W, &how.augmentations));
    bool flipped = false, spread = false;
    for (how.epoch = 0; how.epoch < 16; how.epoch++) {
        assert_done(sgrad_dataset_draw(train, &(struct sgrad_sample){ .index = 0 }, 1, &how, (void *[]){ drawn, &label }));
        int most = 0;
        for (int i = 0; i < H * W * 3; i++) most = drawn[i] > most ? drawn[i] : most;
        flipped |= drawn[3] == planted(0, W - 2, 0);
        spread |= most == 65535;
    }
    assert_true(flipped && spread);

    enum { GAP = 2, ZOOM = 4 };         /* show.c's, of an image of this size */
    const char *shown = scratch_path("shown.png");
    png_image png = { .version = PNG_IMAGE_VERSION };
    uint8_t rgb[(2 * GAP + ZOOM * H) * (2 * GAP + ZOOM * W)][3];
    how.augmentations.count = 0;
    assert_done(sgrad_dataset_show(train, &(struct sgrad_sample){ .index = 2 }, 1, &how, shown, stderr));
    assert_true(png_image_begin_read_from_file(&png, shown) && png.width * png.height == sizeof rgb / 3);
    png.format = PNG_FORMAT_RGB;
    assert_true(png_image_finish_read(&png, NULL, rgb, 0, NULL));
    for (int i = 0; i < H * W; i++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(rgb[(GAP + i / W * ZOOM) * (int)png.width + GAP + i % W * ZOOM][c],
                             (int)rint(pixels[3 * i + c] / 257.0));
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);
    free(text);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("TIFFs of every layout and depth are read exactly", layouts),
        sentence("a TIFF of real numbers is refused", refused),
        sentence("images of 16 bits keep their depth in statistics and augmentation", at_full_depth),
    };
    TIFFSetWarningHandler(NULL);
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
#else
SKIPPED_WITHOUT("libtiff or no libpng")
#endif
