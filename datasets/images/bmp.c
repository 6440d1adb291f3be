/* bmp.c: Windows bitmaps: 1, 2, 4 and 8 bits with a palette; 16, 24 and 32 bits with colours; rows from the bottom or from the
 * top.
 *
 *     byte 0     "BM", size of the file, two words, offset of the pixels
 *     byte 14    size of the header, width, height, planes, bits, compression, …; masks of colours; palette
 *
 * Limits: compressed files (RLE, JPEG, PNG) are refused; alpha is dropped. */
#include "config.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40, RGB = 0, BITFIELDS = 3, ALPHA_BITFIELDS = 6 };

struct bmp {
    const unsigned char *data;
    size_t size, begin, stride;         /* begin: offset of the pixels; stride: bytes per row */
    int64_t width, height;              /* height: negative if the first row is the top row */
    int bits;
    uint32_t mask[3];                   /* of red, green and blue, with 16 and 32 bits */
    const unsigned char *palette;       /* blue, green, red, and, except in old files, one more byte: ENTRY bytes each */
    size_t entry, colours;
};

static uint32_t number(const unsigned char *at, int bytes) {
    uint32_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) n = n << 8 | at[i];
    return n;
}

static int wrong(const char *name, const char *what) { return sgrad_log_error(SGRAD_EFORMAT, "bmp: %s: %s", name, what); }

static int read_header(const char *name, struct bmp *bmp) {
    const unsigned char *data = bmp->data;
    if (bmp->size < FILE_HEADER + CORE_HEADER) return wrong(name, "the file ends early");
    const size_t header = number(data + FILE_HEADER, 4);
    const bool core = header == CORE_HEADER;
    if ((!core && header < INFO_HEADER) || header > bmp->size - FILE_HEADER)
        return wrong(name, "byte 14: the size of the header is invalid");
    bmp->begin = number(data + 10, 4);
    bmp->width = core ? (int64_t)number(data + 18, 2) : (int32_t)number(data + 18, 4);
    bmp->height = core ? (int64_t)number(data + 20, 2) : (int32_t)number(data + 22, 4);
    bmp->bits = (int)number(data + (core ? 24 : 28), 2);
    const uint32_t packing = core ? RGB : number(data + 30, 4), used = core ? 0 : number(data + 46, 4);
    const bool fields = packing == BITFIELDS || packing == ALPHA_BITFIELDS;
    if (packing == 1 || packing == 2) return wrong(name, "RLE compression is not supported; save it uncompressed, or as PNG");
    if (packing != RGB && !(fields && (bmp->bits == 16 || bmp->bits == 32)))
        return wrong(name, "its compression is not supported; save it uncompressed, or as PNG");
    if (bmp->bits != 1 && bmp->bits != 2 && bmp->bits != 4 && bmp->bits != 8 && bmp->bits != 16 && bmp->bits != 24 &&
        bmp->bits != 32)
        return wrong(name, "pixels must have 1, 2, 4, 8, 16, 24 or 32 bits");
    const int five = bmp->bits == 16 ? 5 : 8;
    for (int c = 0; c < 3; c++) bmp->mask[c] = ((1u << five) - 1) << ((2 - c) * five);
    if (fields && bmp->size < FILE_HEADER + INFO_HEADER + 12) return wrong(name, "the file ends early");
    for (int c = 0; c < 3 && fields; c++) bmp->mask[c] = number(data + FILE_HEADER + INFO_HEADER + 4 * c, 4);
    size_t masks = 0;
    if (fields && header == INFO_HEADER) masks = packing == BITFIELDS ? 12 : 16;
    bmp->entry = core ? 3 : 4;
    bmp->palette = data + FILE_HEADER + header + masks;
    if (bmp->bits <= 8) {
        const size_t most = (size_t)1 << bmp->bits, room = (size_t)(data + bmp->size - bmp->palette) / bmp->entry;
        bmp->colours = used && used < most ? used : most;
        const size_t before =
            bmp->begin > (size_t)(bmp->palette - data) ? (bmp->begin - (size_t)(bmp->palette - data)) / bmp->entry : 0;
        if (bmp->colours > before) bmp->colours = before;   /* the pixels follow the palette */
        if (bmp->colours > room || !bmp->colours) return wrong(name, "its palette is missing");
    }
    return 0;
}

/* Returns the bits of PIXEL in MASK, scaled to 0 to 255 and rounded down, as in Pillow. */
static uint8_t field(uint32_t pixel, uint32_t mask) {
    if (!mask) return 0;
    const int low = __builtin_ctz(mask);
    const uint32_t most = mask >> low;
    return (uint8_t)((uint64_t)((pixel & mask) >> low) * 255 / most);
}

static void read_row(const struct bmp *bmp, const unsigned char *row, uint8_t *rgb) {
    for (size_t x = 0; x < (size_t)bmp->width; x++, rgb += 3) {
        if (bmp->bits <= 8) {
            const size_t bit = x * (size_t)bmp->bits,
                         i = row[bit / 8] >> (8 - bmp->bits - (int)(bit % 8)) & ((1 << bmp->bits) - 1);
            for (size_t c = 0; c < 3; c++) rgb[c] = i < bmp->colours ? bmp->palette[i * bmp->entry + 2 - c] : 0;
        } else if (bmp->bits == 24) {
            for (size_t c = 0; c < 3; c++) rgb[c] = row[3 * x + 2 - c];
        } else {
            const uint32_t pixel = number(row + x * (size_t)(bmp->bits / 8), bmp->bits / 8);
            for (size_t c = 0; c < 3; c++) rgb[c] = field(pixel, bmp->mask[c]);
        }
    }
}

/* Returns true if all colours of the palette are grey; false without a palette. */
static bool is_grey(const struct bmp *bmp) {
    bool grey = bmp->bits <= 8;
    for (size_t i = 0; grey && i < bmp->colours; i++) {
        const unsigned char *entry = bmp->palette + i * bmp->entry;
        grey = entry[0] == entry[1] && entry[1] == entry[2];
    }
    return grey;
}

static int read_bmp(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct bmp b = { .data = data, .size = size };
    SGRAD_TRY(read_header(name, &b));
    const uint64_t width = b.width < 0 ? 0 : (uint64_t)b.width, height = (uint64_t)(b.height < 0 ? -b.height : b.height);
    SGRAD_TRY(sgrad__image_check_size("bmp", name, width, height, (uint64_t)size * 8));
    b.stride = (size_t)((width * (uint64_t)b.bits + 31) / 32 * 4);
    const size_t last = (size_t)((width * (uint64_t)b.bits + 7) / 8);   /* some writers do not pad the last row */
    if (b.begin > size || (height - 1) * b.stride + last > size - b.begin) return wrong(name, "the file ends early");
    struct sgrad__image is = { .height = (int)height, .width = (int)width, .grey = is_grey(&b) };
    if (pixels) is.rgb = sgrad_xcalloc((size_t)(height * width), 3);
    for (size_t y = 0; y < height && pixels; y++)
        read_row(&b, b.data + b.begin + (b.height < 0 ? y : (size_t)height - 1 - y) * b.stride, is.rgb + y * (size_t)width * 3);
    *image = is;
    return 0;
}

static bool is_bmp(const unsigned char *data, size_t size) { return size >= FILE_HEADER && !memcmp(data, "BM", 2); }

const struct sgrad__image_format sgrad__bmp_image = { .name = "BMP", .endings = ".bmp .dib", .is = is_bmp, .read = read_bmp };
