/* Images of every format: pixels, orientation, transparency, unusual files that are valid, and damaged files. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/libraries.h"
#include "tests/scratch.h"

#include <zlib.h>
#ifdef SGRAD_HAVE_JPEG
#include <jpeglib.h>
#endif
#ifdef SGRAD_HAVE_PNG
#include <png.h>
#endif

enum { H = 3, W = 5 };

/* The picture of all files below. */
static int planted(int y, int x, int c) { return c == 0 ? 40 * x : c == 1 ? 100 * y : (x + y) % 2 ? 200 : 10; }

static const uint8_t webp[] = {
    82, 73, 70, 70, 82, 0, 0, 0, 87, 69, 66, 80, 86, 80, 56, 76, 69, 0, 0, 0, 47, 4, 128, 0, 0, 119, 64, 144, 109, 83, 172,
    195, 30, 104, 136, 4, 217, 54, 69, 28, 234, 113, 142, 67, 38, 109, 147, 187, 178, 38, 124, 218, 230, 63, 104, 16, 131,
    8, 126, 131, 17, 126, 132, 240, 49, 96, 42, 146, 141, 247, 30, 254, 164, 84, 65, 1, 21, 228, 211, 64, 162, 136, 254,
    199, 180, 255, 229, 86, 0, 0
};
static const uint8_t animated_webp[] = {
    82, 73, 70, 70, 216, 0, 0, 0, 87, 69, 66, 80, 86, 80, 56, 88, 10, 0, 0, 0, 18, 0, 0, 0, 4, 0, 0, 2, 0, 0, 65, 78, 73,
    77, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 65, 78, 77, 70, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 2, 0, 0, 0, 0, 0, 2, 86, 80,
    56, 76, 55, 0, 0, 0, 47, 4, 128, 0, 0, 119, 64, 144, 109, 115, 172, 1, 213, 223, 226, 14, 131, 34, 22, 76, 254, 176, 6,
    30, 219, 252, 119, 97, 202, 160, 3, 86, 238, 0, 6, 1, 32, 17, 168, 88, 82, 72, 33, 184, 20, 86, 24, 53, 162, 255, 225,
    33, 199, 190, 0, 0, 65, 78, 77, 70, 84, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 2, 0, 0, 0, 0, 0, 0, 86, 80, 56, 76, 60, 0,
    0, 0, 47, 4, 128, 0, 16, 119, 64, 16, 8, 50, 214, 64, 193, 238, 181, 196, 160, 144, 73, 219, 236, 158, 172, 8, 175, 182,
    249, 175, 66, 76, 60, 129, 14, 144, 102, 230, 71, 0, 138, 25, 73, 130, 230, 128, 155, 239, 96, 44, 212, 42, 172, 194,
    114, 70, 244, 63, 126, 124, 213, 134
};
static const uint8_t gif[] = {
    71, 73, 70, 56, 55, 97, 5, 0, 3, 0, 131, 0, 0, 120, 200, 200, 160, 200, 10, 80, 200, 10, 40, 200, 200, 0, 200, 10, 160,
    100, 200, 120, 100, 10, 80, 100, 200, 0, 100, 200, 40, 100, 10, 120, 0, 200, 160, 0, 10, 80, 0, 10, 40, 0, 200, 0, 0,
    10, 0, 0, 0, 44, 0, 0, 0, 0, 5, 0, 3, 0, 0, 8, 20, 0, 29, 52, 96, 160, 96, 1, 130, 4, 7, 12, 20, 32, 48, 64, 0, 128, 0,
    1, 1, 0, 59
};
static const uint8_t animated_gif[] = {
    71, 73, 70, 56, 55, 97, 5, 0, 3, 0, 131, 0, 0, 120, 200, 200, 160, 200, 10, 80, 200, 10, 40, 200, 200, 0, 200, 10, 160,
    100, 200, 120, 100, 10, 80, 100, 200, 0, 100, 200, 40, 100, 10, 120, 0, 200, 160, 0, 10, 80, 0, 10, 40, 0, 200, 0, 0,
    10, 0, 0, 0, 44, 0, 0, 0, 0, 5, 0, 3, 0, 0, 8, 20, 0, 29, 52, 96, 160, 96, 1, 130, 4, 7, 12, 20, 32, 48, 64, 0, 128, 0,
    1, 1, 0, 33, 249, 4, 1, 0, 0, 15, 0, 44, 0, 0, 0, 0, 5, 0, 3, 0, 131, 120, 200, 200, 160, 200, 10, 80, 200, 10, 40, 200,
    200, 0, 200, 10, 160, 100, 200, 120, 100, 10, 80, 100, 200, 0, 100, 200, 40, 100, 10, 120, 0, 200, 160, 0, 10, 80, 0,
    10, 40, 0, 200, 0, 0, 10, 0, 0, 0, 8, 20, 0, 3, 0, 16, 48, 128, 64, 1, 3, 15, 18, 32, 88, 160, 128, 65, 3, 7, 1, 1, 0,
    59
};

static void assert_picture(const char *what, const struct sgrad__image *image) {
    if (image->height != H || image->width != W) fail_msg("%s: is %dx%d", what, image->width, image->height);
    for (int i = 0; i < H * W * 3; i++)
        if (image->rgb[i] != planted(i / 3 / W, i / 3 % W, i % 3)) fail_msg("%s: value %d is %d", what, i, image->rgb[i]);
}

/* DATA is the picture; what is shorter is refused, or the same; what is damaged is survived. */
static void assert_file(const char *what, const void *data, size_t size, bool animated) {
    struct sgrad__image image, header;
    assert_done(sgrad__image_decode(what, data, size, &image));
    assert_picture(what, &image);
    assert_int_equal(image.animated, animated);
    assert_done(sgrad__image_header(what, data, size, &header));
    assert_true(header.height == H && header.width == W && !header.rgb && header.animated == animated);
    for (size_t n = 0; n < size; n++) {
        uint8_t *shorter = malloc(n + !n);
        memcpy(shorter, data, n);
        if (survives(sgrad__image_decode(what, shorter, n, &header))) assert_picture(what, &header), free(header.rgb);
        free(shorter);
    }
    uint8_t *wrong = malloc(size);
    for (size_t i = 0; i < size && i < 200; i++) {
        memcpy(wrong, data, size);
        wrong[i] ^= (uint8_t)(1 << i % 8);
        if (survives(sgrad__image_decode(what, wrong, size, &header))) free(header.rgb);
    }
    free(wrong);
    free(image.rgb);
}

static void put(uint8_t *to, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* A bitmap of BITS, rows from above or below. */
static size_t make_bmp(int bits, bool down, uint32_t packing, uint8_t *to) {
    const int colours = bits <= 8 ? 1 << bits : 0, masks = packing == 3 ? 12 : 0;
    const size_t begin = 54 + (size_t)(4 * colours + masks), stride = (size_t)(W * bits + 31) / 32 * 4;
    memset(to, 0, begin + stride * H);
    memcpy(to, "BM", 2);
    put(to + 10, (uint32_t)begin, 4), put(to + 14, 40, 4), put(to + 18, W, 4), put(to + 22, (uint32_t)(down ? -H : H), 4);
    put(to + 26, 1, 2), put(to + 28, (uint32_t)bits, 2), put(to + 30, packing, 4);
    for (int c = 0; c < 3 && masks; c++) put(to + 54 + 4 * c, 0xffu << 8 * c, 4);        /* red is the lowest byte */
    for (int i = 0; i < H * W; i++) {
        const int y = i / W, x = i % W;
        uint8_t *row = to + begin + (size_t)(down ? y : H - 1 - y) * stride;
        for (int c = 0; c < 3; c++) {
            if (bits <= 8) to[54 + 4 * i + 2 - c] = (uint8_t)planted(y, x, c);
            else row[x * bits / 8 + (masks ? c : 2 - c)] = (uint8_t)planted(y, x, c);
        }
        if (bits == 8) row[x] = (uint8_t)i;
        if (bits == 4) row[x / 2] |= (uint8_t)(i << (x % 2 ? 0 : 4));
    }
    return begin + stride * H;
}

static void bitmaps(void **state) {
    (void)state;
    uint8_t data[4096];
    struct sgrad__image image;
    for (int down = 0; down < 2; down++) {
        static const int bits[] = { 4, 8, 24, 32 };
        for (int i = 0; i < 4; i++) assert_file("bmp", data, make_bmp(bits[i], down, 0, data), false);
        assert_file("masked.bmp", data, make_bmp(32, down, 3, data), false);
    }
    size_t size = make_bmp(8, false, 1, data);
    assert_fails(sgrad__image_decode("a.bmp", data, size, &image), SGRAD_EFORMAT, "bmp: a.bmp: RLE compression is not supported");
    size = make_bmp(16, true, 0, data);
    put(data + 54, 0x7fff, 2), put(data + 56, 13 << 10 | 7 << 5 | 30, 2);              /* five bits each, as Pillow has them */
    assert_int_equal(sgrad__image_decode("c.bmp", data, size, &image), 0);
    assert_memory_equal(image.rgb, ((uint8_t[]){ 255, 255, 255, 106, 57, 246 }), 6);
    free(image.rgb);
    size = make_bmp(1, false, 0, data);
    put(data + 54, 0x000000, 4), put(data + 58, 0xffffff, 4), data[62] = 0xa8;         /* the last row: 1 0 1 0 1 */
    assert_done(sgrad__image_decode("b.bmp", data, size, &image));
    for (int x = 0; x < W; x++) assert_int_equal(image.rgb[3 * ((H - 1) * W + x)], x % 2 ? 0 : 255);
    assert_true(image.grey);
    free(image.rgb);
}

static void netpbm(void **state) {
    (void)state;
    struct sgrad__image image;
    char text[2048];
    int used = sprintf(text, "P3\n# a comment\n%d # another\n%d\n255\n", W, H);
    for (int i = 0; i < H * W * 3; i++) used += sprintf(text + used, "%d\n", planted(i / 3 / W, i / 3 % W, i % 3));
    assert_done(sgrad__image_decode("p3", text, (size_t)used, &image));
    assert_picture("p3", &image);
    free(image.rgb);
    assert_fails(sgrad__image_decode("p3", text, (size_t)used - 5, &image), SGRAD_EFORMAT, "the file ends early");
    used = sprintf(text, "P6 %d %d 255\n", W, H);
    for (int i = 0; i < H * W * 3; i++) text[used++] = (char)planted(i / 3 / W, i / 3 % W, i % 3);
    assert_file("p6", text, (size_t)used, false);

    static const struct { const char *file; int size, value[4]; bool deep; } grey[] = {     /* 4x1 */
        { "P1 4 1 0110", 11, { 255, 0, 0, 255 }, false },   { "P1\n4 1\n0 1 1 0\n", 15, { 255, 0, 0, 255 }, false },
        { "P2 4 1 51 0 1 50 51", 19, { 0, 5, 250, 255 }, false }, { "P4 4 1\n\x60", 8, { 255, 0, 0, 255 }, false },
        { "P5 4 1 255\n\0\1\2\377", 15, { 0, 1, 2, 255 }, false },
        { "P5 4 1 65535\n\0\0\1\1\2\2\377\377", 21, { 0, 1, 2, 255 }, true },
    };
    for (size_t i = 0; i < sizeof grey / sizeof *grey; i++) {
        assert_done(sgrad__image_decode("grey", grey[i].file, (size_t)grey[i].size, &image));
        assert_true(image.width == 4 && image.height == 1 && image.grey && image.deep == grey[i].deep);
        for (int k = 0; k < 12; k++) assert_int_equal(image.rgb[k], grey[i].value[k / 3]);
        free(image.rgb);
    }
    assert_fails(sgrad__image_decode("x", "P6 1 1 70000\n", 13, &image), SGRAD_EFORMAT, "a width, a height and a largest value");
    assert_fails(sgrad__image_decode("x", "P2 1 1 9 x", 10, &image), SGRAD_EFORMAT, "a number is expected here");
}

static void webps(void **state) {
    (void)state;
    assert_file("webp", webp, sizeof webp, false);
    assert_file("animated webp", animated_webp, sizeof animated_webp, true);
}

static void gifs(void **state) {
    (void)state;
    assert_file("gif", gif, sizeof gif, false);
    assert_file("animated gif", animated_gif, sizeof animated_gif, true);
    uint8_t other[sizeof gif];
    struct sgrad__image image;
    memcpy(other, gif, sizeof gif);
    uint8_t *frame = memchr(other + 13 + 48, ',', sizeof other - 13 - 48);
    frame[9] |= 0x40;           /* interlaced: rows 0, 2, 1 */
    assert_done(sgrad__image_decode("gif", other, sizeof other, &image));
    for (int i = 0; i < H * W * 3; i++)
        assert_int_equal(image.rgb[i], planted((int[]){ 0, 2, 1 }[i / 3 / W], i / 3 % W, i % 3));
    free(image.rgb);
    other[6] = 7, frame[9] = 0, frame[1] = 2;   /* a screen of 7 columns, of which the image has the last five */
    assert_done(sgrad__image_decode("gif", other, sizeof other, &image));
    for (int i = 0; i < H * 7; i++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(image.rgb[3 * i + c], i % 7 < 2 ? other[13 + c] : planted(i / 7, i % 7 - 2, c));
    free(image.rgb);
}

/* ---- formats whose library this build lacks ----------------------------------------------------------------------- */

static void lacking(void **state) {
    (void)state;
    static const struct { const char *option, *begin, *says; } rows[] = {
        { "gif", "GIF89a__________", "no giflib; install libgif-dev, then configure --with-gif=yes" },
        { "jpeg", "\xff\xd8\xff_____________", "no libjpeg; install libjpeg-dev, then configure --with-jpeg=yes" },
        { "png", "\x89PNG\r\n\x1a\n________", "no libpng; install libpng-dev, then configure --with-png=yes" },
        { "tiff", "II*\0____________", "no libtiff; install libtiff-dev, then configure --with-tiff=yes" },
        { "webp", "RIFF____WEBP____", "no libwebp; install libwebp-dev, then configure --with-webp=yes" },
    };
    struct sgrad__image image;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!sgrad_library_has(rows[i].option)) {
            scratch_listen();
            assert_int_equal(sgrad__image_decode("x", rows[i].begin, 16, &image), SGRAD_ELIBRARY);
            const char *said = scratch_said();
            assert_true(scratch_one_line(said));
            assert_contains(said, rows[i].says);
        }
}

/* ---- whole, though a library warns ------------------------------------------------------------------------------- */

enum { SIDE = 32 };

#if defined(SGRAD_HAVE_JPEG) || defined(SGRAD_HAVE_PNG)
/* Inserts N bytes at AT. */
static size_t insert(uint8_t *data, size_t size, size_t at, const void *more, size_t n) {
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, more, n);
    return size + n;
}

static void assert_as(const char *what, const uint8_t *data, size_t size, const uint8_t *rgb) {
    struct sgrad__image image;
    scratch_listen();
    const int error = sgrad__image_decode(what, data, size, &image);
    const char *said = scratch_said();
    if (error || *said) fail_msg("%s: %s", what, said);
    assert_memory_equal(image.rgb, rgb, SIDE * SIDE * 3);
    free(image.rgb);
}
#endif

#ifdef SGRAD_HAVE_JPEG
static size_t make_jpeg(bool progressive, bool arithmetic, uint8_t *to, size_t room) {
    struct jpeg_compress_struct encoder;
    struct jpeg_error_mgr errors;
    unsigned long size = (unsigned long)room;
    uint8_t row[SIDE * 3];
    encoder.err = jpeg_std_error(&errors);
    jpeg_create_compress(&encoder);
    jpeg_mem_dest(&encoder, &to, &size);
    encoder.image_height = encoder.image_width = SIDE;
    encoder.in_color_space = JCS_RGB;
    encoder.input_components = 3;
    jpeg_set_defaults(&encoder);
    if (progressive) jpeg_simple_progression(&encoder);
    encoder.arith_code = arithmetic;
    jpeg_start_compress(&encoder, TRUE);
    for (int y = 0; y < SIDE; y++) {
        for (int i = 0; i < SIDE * 3; i++) row[i] = (uint8_t)(i * 37 + y * y * 11);
        jpeg_write_scanlines(&encoder, &(JSAMPROW){ row }, 1);
    }
    jpeg_finish_compress(&encoder);
    jpeg_destroy_compress(&encoder);
    return size;
}

static void odd_jpegs(void **state) {
    (void)state;
    uint8_t good[2][8000], odd[9000];
    const size_t size[2] = { make_jpeg(false, false, good[0], 8000), make_jpeg(true, false, good[1], 8000) };
    struct sgrad__image image, part;
    for (int kind = 0; kind < 2; kind++) {
        assert_done(sgrad__image_decode("jpeg", good[kind], size[kind], &image));
        const uint8_t *frame = memmem(good[kind], size[kind], kind ? "\xff\xc2" : "\xff\xc0", 2);
        const size_t at = (size_t)(frame - good[kind]);
        memcpy(odd, good[kind], size[kind]);
        assert_as("bytes before a marker", odd, insert(odd, size[kind], at, "\1\2\3", 3), image.rgb);
        memcpy(odd, good[kind], size[kind]);
        odd[11] = 2;            /* JFIF 2.01 */
        assert_as("JFIF 2", odd, size[kind], image.rgb);
        memcpy(odd, good[kind], size[kind]);
        memset(odd + size[kind], 0, 100);
        assert_as("bytes behind the end", odd, size[kind] + 100, image.rgb);
        memcpy(odd, good[kind], size[kind]);
        if (kind == 0) {
            uint8_t *scan = memmem(odd, size[kind], "\xff\xda", 2);
            scan[2 + 2 + 1 + 2 * 3] = 1;        /* the first coefficient, of which a baseline scan has none but 0 */
            assert_as("parameters of a scan", odd, size[kind], image.rgb);
            assert_as("no marker of an end", good[kind], size[kind] - 2, image.rgb);
        }
        for (size_t n = size[kind] / 2; n + 20 < size[kind]; n += 7)
            if (survives(sgrad__image_decode("jpeg", good[kind], n, &part)))
                fail_msg("%d: %zu bytes of %zu", kind, n, size[kind]);
        free(image.rgb);
    }
    for (int kind = 0; kind < 2; kind++) {              /* a coder that goes on with zeros behind the end */
        const size_t bytes = make_jpeg(kind, true, good[0], 8000);
        assert_int_equal(sgrad__image_decode("arithmetic", good[0], bytes, &image), 0);
        free(image.rgb);
        for (size_t cut = 3; cut < bytes / 2; cut += 11)
            assert_fails(sgrad__image_decode("arithmetic", good[0], bytes - cut, &part), SGRAD_EFORMAT,
                         "jpeg: arithmetic: byte ");
    }
}
#else
TEST_WITHOUT("jpeg", odd_jpegs)
#endif

#ifdef SGRAD_HAVE_PNG
/* A chunk; returns its bytes. */
static size_t make_chunk(const char *type, const void *data, size_t size, uint8_t *to) {
    const uint32_t length = (uint32_t)size;
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(length >> (24 - 8 * i));
    memcpy(to + 4, type, 4);
    memcpy(to + 8, data, size);
    const uint32_t sum = (uint32_t)crc32(crc32(0, NULL, 0), to + 4, (unsigned)size + 4);
    for (int i = 0; i < 4; i++) to[8 + size + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    return size + 12;
}

static void odd_pngs(void **state) {
    (void)state;
    uint8_t pixels[SIDE * SIDE], rgb[SIDE * SIDE * 3], good[4000], odd[5000], chunk[100];
    for (int i = 0; i < SIDE * SIDE * 3; i++) rgb[i] = pixels[i / 3] = (uint8_t)(i / 3 * 7);
    png_image png = { .version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_GRAY };
    size_t size = sizeof good;
    struct sgrad__image image;
    assert_true(png_image_write_to_memory(&png, good, &size, 0, pixels, 0, NULL));
    assert_as("png", good, size, rgb);
    const size_t begin = (size_t)((uint8_t *)memmem(good, size, "IDAT", 4) - good) - 4;
    memcpy(odd, good, size);
    assert_as("a palette of grey", odd, insert(odd, size, begin, chunk, make_chunk("PLTE", "abc", 3, chunk)), rgb);
    memcpy(odd, good, size);
    assert_as("more IDAT", odd, insert(odd, size, size - 12, chunk, make_chunk("IDAT", "xyzxyz", 6, chunk)), rgb);
    memcpy(odd, good, size);
    const size_t timed = insert(odd, size, begin, chunk, make_chunk("tIME", "1234567", 7, chunk));
    assert_as("a time twice", odd, insert(odd, timed, begin, chunk, 19), rgb);
    for (size_t cut = 1; cut <= 12; cut++) assert_as("a PNG without its end", good, size - cut, rgb);
    for (size_t cut = 13; cut < 40; cut++)              /* of the last IDAT's check sum on */
        assert_fails(sgrad__image_decode("x", good, size - cut, &image), SGRAD_EFORMAT, "png: x: byte ");
    memcpy(odd, good, size);
    const size_t commented = insert(odd, size, size - 12, chunk, make_chunk("tEXt", "a\0b", 3, chunk));
    odd[size - 12 + 9] ^= 1;
    assert_as("a wrong check sum behind the pixels", odd, commented, rgb);
    memcpy(odd, good, size);
    size_t longer = insert(odd, size, begin, chunk, make_chunk("tEXt", "a\0b", 3, chunk));
    odd[begin + 9] ^= 1;        /* its check sum is wrong */
    assert_fails(sgrad__image_decode("x", odd, longer, &image), SGRAD_EFORMAT, "png: x: byte ");
}
#else
TEST_WITHOUT("png", odd_pngs)
#endif

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("BMP images of every depth are read", bitmaps),
        sentence("Netpbm images of every kind are read", netpbm),
        sentence("WebP images are read, and of an animation the first frame", webps),
        sentence("GIF images are read, and of an animation the first frame", gifs),
        sentence("an image whose library is missing is refused with the package and the option", lacking),
        sentence("an unusual but valid JPEG is read, and a truncated one is refused", odd_jpegs),
        sentence("an unusual but valid PNG is read, and one with a wrong checksum is refused", odd_pngs),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
