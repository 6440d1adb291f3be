/* tiff.c: the first image of a TIFF file as RGB, by libtiff.
 *
 * Of 16 bits a channel, grey or RGB, whole numbers: strip by strip, or tile by tile. All else, palettes, fewer bits, CMYK,
 * YCbCr …, comes as libtiff makes bytes of it.
 *
 * Limits: no real numbers and no 32 bits: volumes take those. */
#include "config.h"
#include "datasets/formats.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

#define SIDE_LIMIT   65535
#define PIXEL_LIMIT  ((uint64_t)1 << 28)
#define TIFF_PIXELS  (8 * 1032 * 16)    /* a byte of TIFF holds at most so many: deflate's most, of bits, with room to spare */
#define MEMORY_LIMIT ((tmsize_t)1 << 31)

struct tiff {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    bool told;                          /* the first thing that is wrong */
    TIFF *file;
    uint32_t width, height;
    uint16_t bits, samples, format, planar, photometric;
};

/* ---- a file in memory ---- */

static tmsize_t take(thandle_t handle, void *to, tmsize_t count) {
    struct tiff *t = handle;
    const size_t left = t->at < t->size ? t->size - t->at : 0, n = (size_t)count < left ? (size_t)count : left;
    memcpy(to, t->data + t->at, n);
    t->at += n;
    return (tmsize_t)n;
}
static tmsize_t refuse(thandle_t handle, void *from, tmsize_t count) { return (void)handle, (void)from, (void)count, 0; }
static toff_t seek(thandle_t handle, toff_t offset, int from) {
    struct tiff *t = handle;
    t->at = (size_t)(from == SEEK_SET ? offset : from == SEEK_CUR ? t->at + offset : t->size + offset);
    return t->at;
}
static int leave(thandle_t handle) { return (void)handle, 0; }
static toff_t size_of(thandle_t handle) { return ((struct tiff *)handle)->size; }

/* Warnings, of unknown tags most often, are none of ours. */
static int hear_warning(TIFF *file, void *arg, const char *module, const char *format, va_list list) {
    return (void)file, (void)arg, (void)module, (void)format, (void)list, 1;
}
static int hear_error(TIFF *file, void *arg, const char *module, const char *format, va_list list) {
    struct tiff *t = arg;
    char why[256];
    (void)file, (void)module;
    vsnprintf(why, sizeof why, format, list);
    if (!t->told && t->name) sgrad_fail(SGRAD_EFORMAT, "tiff: %s: %s", t->name, why);
    t->told = true;
    return 1;
}

static int wrong(struct tiff *t, const char *what) {
    if (!t->told && t->name) sgrad_fail(SGRAD_EFORMAT, "tiff: %s: %s", t->name, what);
    return SGRAD_EFORMAT;
}

static int open_tiff(struct tiff *t) {
    TIFFOpenOptions *how = TIFFOpenOptionsAlloc();
    TIFFOpenOptionsSetErrorHandlerExtR(how, hear_error, t);
    TIFFOpenOptionsSetWarningHandlerExtR(how, hear_warning, t);
    TIFFOpenOptionsSetMaxSingleMemAlloc(how, MEMORY_LIMIT);
    t->file = TIFFClientOpenExt(t->name ? t->name : "", "rm", t, take, refuse, seek, leave, size_of, NULL, NULL, how);
    TIFFOpenOptionsFree(how);
    if (!t->file) return wrong(t, "is no TIFF file, or a damaged one");
    TIFFGetField(t->file, TIFFTAG_IMAGEWIDTH, &t->width);
    TIFFGetField(t->file, TIFFTAG_IMAGELENGTH, &t->height);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_BITSPERSAMPLE, &t->bits);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_SAMPLESPERPIXEL, &t->samples);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_SAMPLEFORMAT, &t->format);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_PLANARCONFIG, &t->planar);
    TIFFGetField(t->file, TIFFTAG_PHOTOMETRIC, &t->photometric);
    return 0;
}

static bool is_grey(const struct tiff *t) {
    return t->photometric == PHOTOMETRIC_MINISBLACK || t->photometric == PHOTOMETRIC_MINISWHITE;
}

static bool is_deep(const struct tiff *t) {
    return t->bits == 16 && (is_grey(t) ? t->samples >= 1 : t->photometric == PHOTOMETRIC_RGB && t->samples >= 3);
}

/* Before anything is allocated. */
static int check(struct tiff *t) {
    if (t->width < 1 || t->height < 1 || t->width > SIDE_LIMIT || t->height > SIDE_LIMIT ||
        (uint64_t)t->width * t->height > PIXEL_LIMIT)
        return wrong(t, "sides are 1 to 65535, 2^28 pixels in all");
    if ((uint64_t)t->width * t->height > (uint64_t)t->size * TIFF_PIXELS) return wrong(t, "the file is too short for its image");
    if (t->format != SAMPLEFORMAT_UINT || t->bits > 16 || (t->bits == 16 && !is_deep(t)))
        return wrong(t, "takes whole numbers without sign, of 16 bits grey or RGB, of up to 8 bits any");
    return 0;
}

/* ---- 16 bits ---- */

/* Where a part of the image lies, of one plane or of all samples. */
struct part {
    uint32_t x, y, width, height, stride;       /* STRIDE: pixels from row to row */
    uint16_t plane;
};

/* ROOM (part's height,stride,samples), or of one sample; TO (height,width,3). Grey goes to all three. */
static void place(const struct tiff *t, const struct part *p, const uint16_t *room, uint16_t *to) {
    const bool whole = t->planar == PLANARCONFIG_CONTIG, grey = is_grey(t);
    const size_t samples = whole ? t->samples : 1;
    const uint16_t flip = t->photometric == PHOTOMETRIC_MINISWHITE ? UINT16_MAX : 0;
    for (uint32_t h = 0; h < p->height && p->y + h < t->height; h++)
        for (uint32_t w = 0; w < p->width && p->x + w < t->width; w++) {
            const uint16_t *from = room + ((size_t)h * p->stride + w) * samples;
            uint16_t *at = to + ((size_t)(p->y + h) * t->width + p->x + w) * 3;
            for (int c = 0; c < 3; c++)
                if (whole || grey || c == p->plane) at[c] = from[whole && !grey ? c : 0] ^ flip;
        }
}

static int read_strips(struct tiff *t, uint16_t plane, uint16_t *to) {
    uint32_t rows = t->height;
    TIFFGetFieldDefaulted(t->file, TIFFTAG_ROWSPERSTRIP, &rows);
    if (rows > t->height) rows = t->height;
    const tmsize_t size = TIFFStripSize(t->file), line = TIFFScanlineSize(t->file);
    const size_t samples = t->planar == PLANARCONFIG_CONTIG ? t->samples : 1;
    if (!rows || size <= 0 || line < (tmsize_t)((size_t)t->width * samples * 2) || size > MEMORY_LIMIT)
        return wrong(t, "its strips are none");
    uint16_t *room = sgrad_alloc(1, (size_t)size);
    int error = 0;
    for (uint32_t y = 0; y < t->height && !error; y += rows) {
        const struct part part = { 0, y, t->width, rows, t->width, plane };
        const uint32_t wanted = rows < t->height - y ? rows : t->height - y;
        const tmsize_t got = TIFFReadEncodedStrip(t->file, TIFFComputeStrip(t->file, y, plane), room, size);
        if (got < (tmsize_t)wanted * line) error = wrong(t, "a strip ends early");
        else place(t, &part, room, to);
    }
    free(room);
    return error;
}

static int read_tiles(struct tiff *t, uint16_t plane, uint16_t *to) {
    uint32_t width = 0, height = 0;
    TIFFGetField(t->file, TIFFTAG_TILEWIDTH, &width);
    TIFFGetField(t->file, TIFFTAG_TILELENGTH, &height);
    const tmsize_t size = TIFFTileSize(t->file);
    const size_t samples = t->planar == PLANARCONFIG_CONTIG ? t->samples : 1;
    if (!width || !height || size <= 0 || size > MEMORY_LIMIT || (uint64_t)width * height > (uint64_t)size / samples / 2)
        return wrong(t, "its tiles are none");
    uint16_t *room = sgrad_alloc(1, (size_t)size);
    int error = 0;
    for (uint32_t y = 0; y < t->height && !error; y += height)
        for (uint32_t x = 0; x < t->width && !error; x += width) {
            const struct part part = { x, y, width, height, width, plane };
            if (TIFFReadTile(t->file, room, x, y, 0, plane) < size) error = wrong(t, "a tile ends early");
            else place(t, &part, room, to);
        }
    free(room);
    return error;
}

static int read_deep(struct tiff *t, uint16_t **pixels) {
    const int planes = t->planar == PLANARCONFIG_CONTIG || is_grey(t) ? 1 : 3;
    uint16_t *to = sgrad_alloc((size_t)t->height * t->width, 3 * sizeof *to);
    int error = 0;
    for (int plane = 0; plane < planes && !error; plane++)
        error = (TIFFIsTiled(t->file) ? read_tiles : read_strips)(t, (uint16_t)plane, to);
    if (error) free(to);
    else *pixels = to;
    return error;
}

/* ---- bytes ---- */

static int read_bytes(struct tiff *t, uint8_t **pixels) {
    const size_t count = (size_t)t->height * t->width;
    uint32_t *raster = sgrad_alloc(count, sizeof *raster);
    if (!TIFFReadRGBAImageOriented(t->file, t->width, t->height, raster, ORIENTATION_TOPLEFT, 1) || t->told) {
        free(raster);
        return wrong(t, "its pixels cannot be read");
    }
    uint8_t *to = *pixels = sgrad_alloc(count, 3);
    for (size_t i = 0; i < count; i++, to += 3)
        to[0] = TIFFGetR(raster[i]), to[1] = TIFFGetG(raster[i]), to[2] = TIFFGetB(raster[i]);
    free(raster);
    return 0;
}

int sgrad__tiff_read(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct tiff t = { .name = name, .data = data, .size = size };
    struct sgrad__image is = { 0 };
    int error = open_tiff(&t);
    if (!error) error = check(&t);
    if (!error) {
        is = (struct sgrad__image){ .height = (int)t.height, .width = (int)t.width, .grey = is_grey(&t), .deep = is_deep(&t),
                                    .animated = !TIFFLastDirectory(t.file) };
        if (pixels) error = is.deep ? read_deep(&t, &is.rgb16) : read_bytes(&t, &is.rgb);
    }
    if (t.file) TIFFClose(t.file);
    if (!error) *image = is;
    return error;
}
