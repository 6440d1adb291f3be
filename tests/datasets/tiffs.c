/* TIFF images: orientation, alpha, unusual tiles and tags, and damaged files. */
#include "config.h"
#include "datasets/formats.h"
#include "tests/scratch.h"

#ifdef SGRAD_HAVE_TIFF
#include <tiffio.h>

enum { H = 3, W = 5 };

/* The picture of all files below. */
static int planted(int y, int x, int c) { return c == 0 ? 40 * x : c == 1 ? 100 * y : (x + y) % 2 ? 200 : 10; }

static void assert_picture(const char *what, const struct sgrad__image *image) {
    if (image->height != H || image->width != W) fail_msg("%s: is %dx%d", what, image->width, image->height);
    for (int i = 0; i < H * W * 3; i++)
        if (image->rgb[i] != planted(i / 3 / W, i / 3 % W, i % 3)) fail_msg("%s: value %d is %d", what, i, image->rgb[i]);
}

struct form {
    int bits, samples, extra, orientation, photometric, tile;      /* extra: of the last sample; -1: there is none */
    const char *mode;
};

static uint8_t *write_tiff(const struct form *form, const uint8_t *value, int height, int width, size_t *size) {
    const char *path = scratch_write("one.tif", "", 0);
    TIFF *file = TIFFOpen(path, form->mode);
    const int tile = form->tile, bytes = form->bits / 8;
    TIFFSetField(file, TIFFTAG_IMAGEWIDTH, width);
    TIFFSetField(file, TIFFTAG_IMAGELENGTH, height);
    TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, form->bits);
    TIFFSetField(file, TIFFTAG_SAMPLESPERPIXEL, form->samples);
    TIFFSetField(file, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(file, TIFFTAG_PHOTOMETRIC, form->photometric);
    TIFFSetField(file, TIFFTAG_ORIENTATION, form->orientation);
    if (form->extra >= 0) TIFFSetField(file, TIFFTAG_EXTRASAMPLES, 1, (uint16_t[]){ (uint16_t)form->extra });
    if (tile) TIFFSetField(file, TIFFTAG_TILEWIDTH, tile), TIFFSetField(file, TIFFTAG_TILELENGTH, tile);
    else TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, 2);
    const int high = tile ? tile : 2, wide = tile ? tile : width;
    for (int top = 0; top < height; top += high)
        for (int left = 0; left < width; left += wide) {
            uint16_t room[16 * 16 * 4] = { 0 };
            const int rows = !tile && top + high > height ? height - top : high;
            for (int i = 0; i < rows * wide * form->samples; i++) {
                const int y = top + i / form->samples / wide, x = left + i / form->samples % wide;
                if (y >= height || x >= width) continue;
                const int is = value[(y * width + x) * form->samples + i % form->samples];
                if (form->bits == 16) room[i] = (uint16_t)(257 * is);
                else ((uint8_t *)room)[i] = (uint8_t)is;
            }
            const tmsize_t count = rows * wide * form->samples * bytes;
            if (tile) TIFFWriteTile(file, room, (uint32_t)left, (uint32_t)top, 0, 0);
            else TIFFWriteEncodedStrip(file, TIFFComputeStrip(file, (uint32_t)top, 0), room, count);
        }
    TIFFClose(file);
    FILE *from = fopen(path, "rb");
    uint8_t *data = malloc(100000);
    *size = fread(data, 1, 100000, from);
    fclose(from);
    return data;
}

/* Row and column of the stored picture that pixel (y,x) of the upright one, H x W, lies at. */
static void stored_at(int orientation, int y, int x, int *row, int *column) {
    static const int rows[9][3] = { [1] = { 1 }, { 1 }, { -1 }, { -1 }, { 0, 1 }, { 0, -1 }, { 0, -1 }, { 0, 1 } };
    static const int columns[9][3] = { [1] = { 0, 1 }, { 0, -1 }, { 0, -1 }, { 0, 1 }, { 1 }, { 1 }, { -1 }, { -1 } };
    const int *r = rows[orientation], *c = columns[orientation];
    *row = r[0] ? (r[0] > 0 ? y : H - 1 - y) : r[1] > 0 ? x : W - 1 - x;
    *column = c[0] ? (c[0] > 0 ? y : H - 1 - y) : c[1] > 0 ? x : W - 1 - x;
}

static void orientations(void **state) {
    (void)state;
    static const char *const mode[] = { "wl", "wb", "wl8", "wb8" };
    for (int orientation = 1; orientation <= 8; orientation++)
        for (int way = 0; way < 8; way++) {
            const int height = orientation > 4 ? W : H, width = orientation > 4 ? H : W;
            const struct form form = { way % 2 ? 16 : 8, 3, -1, orientation, PHOTOMETRIC_RGB, way / 2 % 2 ? 16 : 0,
                                       mode[way / 2] };
            uint8_t value[H * W * 3];
            size_t size;
            for (int i = 0; i < H * W; i++) {
                int row, column;
                stored_at(orientation, i / W, i % W, &row, &column);
                for (int c = 0; c < 3; c++) value[(row * width + column) * 3 + c] = (uint8_t)planted(i / W, i % W, c);
            }
            uint8_t *data = write_tiff(&form, value, height, width, &size);
            struct sgrad__image image, header;
            assert_done(sgrad__image_decode("tiff", data, size, &image));
            assert_picture("tiff", &image);
            assert_int_equal(image.deep, form.bits == 16);
            assert_done(sgrad__image_header("tiff", data, size, &header));
            assert_equal(header.height, H);
            assert_equal(header.width, W);
            free(image.rgb);
            free(data);
        }
}

static void alphas(void **state) {
    (void)state;
    static const int extra[] = { EXTRASAMPLE_UNASSALPHA, EXTRASAMPLE_ASSOCALPHA, EXTRASAMPLE_UNSPECIFIED };
    for (int i = 0; i < 3; i++)
        for (int bits = 8; bits <= 16; bits += 8)
            for (int colours = 1; colours <= 3; colours += 2) {
                const struct form f = { bits, colours + 1, extra[i], 1, colours == 1 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB,
                                        0, "w" };
                uint8_t value[2 * 2 * 4];       /* of 100, half transparent, and of 100, not at all, and of nothing */
                size_t size;
                const int alpha[] = { 128, 255, 0, 128 }, colour[] = { 100, 100, 0, 100 };
                for (int k = 0; k < 4 * (colours + 1); k++)
                    value[k] = (uint8_t)(k % (colours + 1) == colours ? alpha[k / (colours + 1)] : colour[k / (colours + 1)]);
                uint8_t *data = write_tiff(&f, value, 2, 2, &size);
                struct sgrad__image image;
                assert_done(sgrad__image_decode("tiff", data, size, &image));
                for (int k = 0; k < 12; k++) {
                    const int half = extra[i] == EXTRASAMPLE_ASSOCALPHA ? 100 * 255 / 128 : 100;
                    assert_int_equal(image.rgb[k], k / 3 % 3 == 0 ? half : k / 3 == 1 ? 100 : 0);
                }
                free(image.rgb);
                free(data);
            }
}

/* Pixels that a decoder of libtiff guesses, and channels that are no colours. */
static void damaged_tiffs(void **state) {
    (void)state;
    static const int packing[] = { COMPRESSION_JPEG, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4 };
    uint8_t value[64 * 64 * 3];
    size_t size;
    struct sgrad__image image;
    for (int i = 0; i < 64 * 64 * 3; i++) value[i] = (uint8_t)(i * i * 7 + i / 64);
    for (int k = 0; k < 3; k++) {
        const char *path = scratch_write("packed.tif", "", 0);
        TIFF *file = TIFFOpen(path, "w");
        static const int tag[] = { TIFFTAG_IMAGEWIDTH, TIFFTAG_IMAGELENGTH, TIFFTAG_ROWSPERSTRIP };
        for (int i = 0; i < 3; i++) TIFFSetField(file, (uint32_t)tag[i], 64);
        TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, k ? 1 : 8);
        TIFFSetField(file, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
        TIFFSetField(file, TIFFTAG_COMPRESSION, packing[k]);
        assert_true(TIFFWriteEncodedStrip(file, 0, value, k ? 512 : 4096) > 0);
        TIFFClose(file);
        uint8_t data[20000];
        FILE *from = fopen(path, "rb");
        size = fread(data, 1, sizeof data, from);
        fclose(from);
        assert_int_equal(sgrad__image_decode("packed", data, size, &image), 0);
        free(image.rgb);
        file = TIFFOpen(path, "r");
        const size_t at = (size_t)TIFFGetStrileOffset(file, 0), bytes = (size_t)TIFFGetStrileByteCount(file, 0);
        TIFFClose(file);
        memset(data + at + bytes / 2, 0, bytes - bytes / 2);
        assert_fails(sgrad__image_decode("packed", data, size, &image), SGRAD_EFORMAT, "tiff: packed: ");
    }
    const struct form several = { 8, 3, -1, 1, PHOTOMETRIC_MINISBLACK, 0, "w" };
    uint8_t *data = write_tiff(&several, value, 20, 20, &size);
    assert_fails(sgrad__image_decode("several", data, size, &image), SGRAD_EFORMAT, "tiff: several: has several grey channels");
    free(data);
}

/* Tiles whose size is no multiple of 1,024 bytes, with an orientation that there is not; inks. */
static void other_tiffs(void **state) {
    (void)state;
    struct sgrad__image image;
    uint8_t value[20 * 20 * 4];
    size_t size;
    for (int i = 0; i < 20 * 20 * 4; i++) value[i] = (uint8_t)(i * 7);
    const struct form tiled = { 8, 1, -1, 1, PHOTOMETRIC_MINISBLACK, 16, "wl" };
    const struct form inks = { 8, 4, -1, 1, PHOTOMETRIC_SEPARATED, 0, "w" };
    uint8_t *data = write_tiff(&tiled, value, 20, 20, &size);
    ((uint8_t *)memmem(data, size, "\x12\1\3\0\1\0\0\0", 8))[8] = 0;
    scratch_listen();
    assert_int_equal(sgrad__image_decode("tiff", data, size, &image), 0);
    assert_string_equal(scratch_said(), "");
    for (int i = 0; i < 400; i++) assert_int_equal(image.rgb[3 * i + 1], value[i]);
    free(image.rgb), free(data);
    data = write_tiff(&inks, value, 20, 20, &size);
    assert_done(sgrad__image_decode("tiff", data, size, &image));
    for (int i = 0; i < 400; i++)
        for (int c = 0, white = 255 - value[4 * i + 3]; c < 3; c++)
            assert_int_equal(image.rgb[3 * i + c], white - (value[4 * i + c] * white + 127) / 255);
    free(image.rgb), free(data);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a TIFF of any orientation is read upright", orientations),
        sentence("a TIFF keeps its colours, whatever its alpha means", alphas),
        sentence("TIFFs of odd tiles, of odd tags and of inks are read", other_tiffs),
        sentence("a TIFF whose decoder guesses pixels is refused", damaged_tiffs),
    };
    TIFFSetWarningHandler(NULL);
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
#else
SKIPPED_WITHOUT("libtiff")
#endif
