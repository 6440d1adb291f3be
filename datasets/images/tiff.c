/* tiff.c: the first image of a TIFF file, read with libtiff.
 *
 * Samples of grey, palette, RGB and CMYK images, of 1, 2, 4, 8 or 16 bits, are read as stored, strip by strip or tile by tile.
 * Colours that are premultiplied by alpha are divided by it; alpha of other kinds is ignored. All other images (YCbCr, CIELab)
 * are converted to RGB by libtiff. The result is upright, as the tag Orientation states, for all depths.
 *
 * Limits: no floating-point, no signed and no 32-bit samples; volumes support these. */
#include "config.h"
#include "datasets/formats.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifdef SGRAD_HAVE_TIFF
#include <tiffio.h>

#define TIFF_PIXELS  (8 * 1032 * 16)    /* maximum pixels per byte: deflate's expansion, one bit per pixel, and a margin */
#define MEMORY_LIMIT ((tmsize_t)1 << 31)

struct tiff {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    char why[256];                      /* the first error; empty: none */
    TIFF *file;
    uint32_t width, height;
    uint16_t bits, samples, format, planar, photometric, orientation;
    int colours;                        /* samples of a pixel's colour: 1, 3 or 4; 0: libtiff converts to RGB */
    bool times_alpha;                   /* the next sample is alpha, and colours are multiplied by it */
    uint16_t *map[3];                   /* the palette; NULL: none */
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
    if (from == SEEK_CUR) offset += t->at;
    else if (from != SEEK_SET) offset += t->size;
    return t->at = (size_t)offset;
}
/* libtiff reads a mapped file without copying; this includes some data that it would refuse to copy. */
static int map_file(thandle_t handle, void **base, toff_t *size) {
    struct tiff *t = handle;
    *base = (void *)t->data;
    *size = t->size;
    return 1;
}
static void unmap_file(thandle_t handle, void *base, toff_t size) { (void)handle, (void)base, (void)size; }
static int leave(thandle_t handle) { return (void)handle, 0; }
static toff_t size_of(thandle_t handle) { return ((struct tiff *)handle)->size; }

static int hear_error(TIFF *file, void *arg, const char *module, const char *format, va_list list) {
    struct tiff *t = arg;
    (void)file, (void)module;
    if (!*t->why) vsnprintf(t->why, sizeof t->why, format, list);
    return 1;
}

/* Most warnings are about unknown tags, and are ignored. Decoders of JPEG and fax only warn of missing pixels, and guess them;
 * these warnings are errors. */
static int hear_warning(TIFF *file, void *arg, const char *module, const char *format, va_list list) {
    char why[256];
    va_list copy;
    va_copy(copy, list);
    vsnprintf(why, sizeof why, format, copy);
    va_end(copy);
    const bool damaged = (strstr(why, "Corrupt JPEG data") && !strstr(why, "extraneous")) || strstr(why, "Premature E") ||
                         strstr(why, "Premature end") || strstr(why, "Line length mismatch");
    return damaged && module ? hear_error(file, arg, module, format, list) : 1;
}

static int wrong(const struct tiff *tiff, const char *what) {
    return sgrad_log_error(SGRAD_EFORMAT, "tiff: %s: %s", tiff->name, *tiff->why ? tiff->why : what);
}

static bool is_grey(const struct tiff *tiff) {
    return tiff->photometric == PHOTOMETRIC_MINISBLACK || tiff->photometric == PHOTOMETRIC_MINISWHITE;
}

static void find_colours(struct tiff *tiff) {
    uint16_t extras = 0, *extra = NULL, inks = INKSET_CMYK;
    const bool split = tiff->bits == 1 || tiff->bits == 2 || tiff->bits == 4 || tiff->bits == 8 || tiff->bits == 16;
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_INKSET, &inks);
    if (is_grey(tiff)) tiff->colours = 1;
    else if (tiff->photometric == PHOTOMETRIC_RGB) tiff->colours = 3;
    else if (tiff->photometric == PHOTOMETRIC_SEPARATED && inks == INKSET_CMYK) tiff->colours = 4;
    else if (tiff->photometric == PHOTOMETRIC_PALETTE && tiff->bits <= 8 &&
             TIFFGetField(tiff->file, TIFFTAG_COLORMAP, &tiff->map[0], &tiff->map[1], &tiff->map[2]))
        tiff->colours = 1;
    if (tiff->samples < tiff->colours || !split) tiff->colours = 0;
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_EXTRASAMPLES, &extras, &extra);
    tiff->times_alpha =
        tiff->colours && !tiff->map[0] && tiff->samples > tiff->colours && extras && extra[0] == EXTRASAMPLE_ASSOCALPHA;
}

static int open_tiff(struct tiff *tiff) {
    TIFFOpenOptions *how = TIFFOpenOptionsAlloc();
    TIFFOpenOptionsSetErrorHandlerExtR(how, hear_error, tiff);
    TIFFOpenOptionsSetWarningHandlerExtR(how, hear_warning, tiff);
    TIFFOpenOptionsSetMaxSingleMemAlloc(how, MEMORY_LIMIT);
    tiff->file = TIFFClientOpenExt(tiff->name, "r", tiff, take, refuse, seek, leave, size_of, map_file, unmap_file, how);
    TIFFOpenOptionsFree(how);
    if (!tiff->file) return wrong(tiff, "is not a TIFF file, or is damaged");
    *tiff->why = 0;     /* invalid tags that libtiff ignores, such as an orientation of 0 */
    TIFFGetField(tiff->file, TIFFTAG_IMAGEWIDTH, &tiff->width);
    TIFFGetField(tiff->file, TIFFTAG_IMAGELENGTH, &tiff->height);
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_BITSPERSAMPLE, &tiff->bits);
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_SAMPLESPERPIXEL, &tiff->samples);
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_SAMPLEFORMAT, &tiff->format);
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_PLANARCONFIG, &tiff->planar);
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_ORIENTATION, &tiff->orientation);
    if (!TIFFGetField(tiff->file, TIFFTAG_PHOTOMETRIC, &tiff->photometric))
        tiff->photometric = tiff->samples >= 3 ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK;
    find_colours(tiff);
    return 0;
}

static bool is_deep(const struct tiff *tiff) { return tiff->bits == 16 && tiff->colours; }

/* Must be called before memory for pixels is allocated. SGRAD_EFORMAT: the size or the kind of samples is not supported. */
static int check(struct tiff *tiff) {
    SGRAD_TRY(sgrad__image_check_size("tiff", tiff->name, tiff->width, tiff->height, (uint64_t)tiff->size * TIFF_PIXELS));
    const bool whole = tiff->format == SAMPLEFORMAT_UINT || tiff->format == SAMPLEFORMAT_VOID;
    if (!whole || tiff->bits > 16 || (tiff->bits > 8 && !is_deep(tiff)))
        return wrong(tiff, "its pixels must be unsigned integers of up to 8 bits, or of 16 bits if grey, RGB or CMYK");
    if (is_grey(tiff) && tiff->samples > 2)
        return wrong(tiff, "has several grey channels, but must have one, with or without alpha; split its channels into files");
    if (!tiff->colours && tiff->photometric == PHOTOMETRIC_SEPARATED)
        return wrong(tiff, "has inks other than cyan, magenta, yellow and black, which are not supported");
    return 0;
}

/* ---- samples as they are stored ---- */

/* A strip or tile: its position in the image, its size, the bytes per row, and its plane, if planes are stored separately. */
struct part {
    uint32_t x, y, width, height;
    size_t stride;
    uint16_t plane;
};

static inline uint16_t sample_at(const uint8_t *row, size_t i, int bits) {
    if (bits == 8) return row[i];
    if (bits == 16) return ((const uint16_t *)(const void *)row)[i];
    return (uint16_t)(row[i * (size_t)bits / 8] >> (8 - bits - (int)(i * (size_t)bits % 8)) & ((1 << bits) - 1));
}

/* Copies the samples of strip or tile PART from ROOM to TO, (height,width,kept). */
static void place(const struct tiff *tiff, const struct part *part, const uint8_t *room, uint16_t *to, size_t kept) {
    const bool whole = tiff->planar == PLANARCONFIG_CONTIG;
    for (uint32_t h = 0; h < part->height && part->y + h < tiff->height; h++)
        for (uint32_t w = 0; w < part->width && part->x + w < tiff->width; w++) {
            const uint8_t *row = room + h * part->stride;
            uint16_t *at = to + ((size_t)(part->y + h) * tiff->width + part->x + w) * kept;
            if (!whole) at[part->plane] = sample_at(row, w, tiff->bits);
            for (size_t c = 0; whole && c < kept; c++) at[c] = sample_at(row, (size_t)w * tiff->samples + c, tiff->bits);
        }
}

/* Returns the bytes of a row of WIDTH pixels. */
static tmsize_t row_bytes(const struct tiff *tiff, uint32_t width) {
    const uint64_t samples = tiff->planar == PLANARCONFIG_CONTIG ? tiff->samples : 1;
    return (tmsize_t)((width * samples * tiff->bits + 7) / 8);
}

static int read_strips(struct tiff *tiff, uint16_t plane, uint16_t *to, size_t kept) {
    uint32_t rows = tiff->height;
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_ROWSPERSTRIP, &rows);
    if (rows > tiff->height) rows = tiff->height;
    const tmsize_t size = TIFFStripSize(tiff->file), line = TIFFScanlineSize(tiff->file);
    if (!rows || size <= 0 || line < row_bytes(tiff, tiff->width) || size > MEMORY_LIMIT)
        return wrong(tiff, "its strips are invalid");
    uint8_t *room = sgrad_xcalloc(1, (size_t)size);
    int error = 0;
    for (uint32_t y = 0; y < tiff->height && !error; y += rows) {
        const struct part part = { 0, y, tiff->width, rows, (size_t)line, plane };
        const uint32_t wanted = rows < tiff->height - y ? rows : tiff->height - y;
        const tmsize_t got = TIFFReadEncodedStrip(tiff->file, TIFFComputeStrip(tiff->file, y, plane), room, size);
        if (got < (tmsize_t)wanted * line) error = wrong(tiff, "a strip ends early");
        else place(tiff, &part, room, to, kept);
    }
    free(room);
    return error;
}

static int read_tiles(struct tiff *tiff, uint16_t plane, uint16_t *to, size_t kept) {
    uint32_t width = 0, height = 0;
    TIFFGetField(tiff->file, TIFFTAG_TILEWIDTH, &width);
    TIFFGetField(tiff->file, TIFFTAG_TILELENGTH, &height);
    const tmsize_t size = TIFFTileSize(tiff->file), line = TIFFTileRowSize(tiff->file);
    if (!width || !height || size <= 0 || size > MEMORY_LIMIT || line < row_bytes(tiff, width) || size / height < line)
        return wrong(tiff, "its tiles are invalid");
    uint8_t *room = sgrad_xcalloc(1, (size_t)size);
    int error = 0;
    for (uint32_t y = 0; y < tiff->height && !error; y += height)
        for (uint32_t x = 0; x < tiff->width && !error; x += width) {
            const struct part part = { x, y, width, height, (size_t)line, plane };
            const tmsize_t got = TIFFReadEncodedTile(tiff->file, TIFFComputeTile(tiff->file, x, y, 0, plane), room, size);
            if (got < size) error = wrong(tiff, "a tile ends early");
            else place(tiff, &part, room, to, kept);
        }
    free(room);
    return error;
}

/* ---- colours -------------- */

/* Converts the samples VALUE of a pixel, 0 to MOST each, to RGB of the same range; with a palette, of 0 to 65535. */
static void find_colour(const struct tiff *tiff, const uint16_t *value, unsigned most, uint16_t rgb[3]) {
    uint16_t own[4];
    for (int c = 0; c < tiff->colours; c++) {
        const unsigned alpha = tiff->times_alpha ? value[tiff->colours] : most;
        const uint64_t pure = alpha ? (uint64_t)value[c] * most / alpha : 0;
        own[c] = (uint16_t)(pure < most ? pure : most);
        if (tiff->photometric == PHOTOMETRIC_MINISWHITE) own[c] = (uint16_t)(most - own[c]);
    }
    if (tiff->colours == 4) sgrad__image_of_inks(own, most, rgb);
    else
        for (int c = 0; c < 3; c++)
            if (tiff->map[0]) rgb[c] = tiff->map[c][own[0]];
            else rgb[c] = own[tiff->colours == 3 ? c : 0];
}

/* Returns the largest value of the palette's range: some writers store bytes. */
static unsigned palette_most(const struct tiff *tiff) {
    for (int i = 0; i < 3 << tiff->bits; i++)
        if (tiff->map[i % 3][i / 3] > 255) return 65535;
    return 255;
}

static void convert(const struct tiff *tiff, const uint16_t *value, size_t kept, struct sgrad__image *image) {
    const size_t count = (size_t)tiff->height * tiff->width;
    const unsigned most = (1u << tiff->bits) - 1, range = tiff->map[0] ? palette_most(tiff) : most;
    void *to = sgrad_xcalloc(count, image->deep ? 6 : 3);
    uint16_t rgb[3];
    for (size_t i = 0; i < count; i++, value += kept) {
        find_colour(tiff, value, most, rgb);
        for (size_t c = 0; c < 3; c++)
            if (image->deep) ((uint16_t *)to)[3 * i + c] = rgb[c];
            else ((uint8_t *)to)[3 * i + c] = (uint8_t)(range == 65535 ? rgb[c] >> 8 : rgb[c] * 255u / range);
    }
    if (image->deep) image->rgb16 = to;
    else image->rgb = to;
}

static int read_samples(struct tiff *tiff, struct sgrad__image *image) {
    const size_t kept = (size_t)tiff->colours + tiff->times_alpha;
    const int planes = tiff->planar == PLANARCONFIG_CONTIG ? 1 : (int)kept;
    uint16_t *value = sgrad_xcalloc((size_t)tiff->height * tiff->width, kept * sizeof *value);
    int error = 0;
    for (int plane = 0; plane < planes && !error; plane++)
        error = (TIFFIsTiled(tiff->file) ? read_tiles : read_strips)(tiff, (uint16_t)plane, value, kept);
    if (!error && *tiff->why) error = wrong(tiff, NULL);
    if (!error) convert(tiff, value, kept, image);
    free(value);
    return error;
}

/* Reads the pixels by libtiff's conversion to RGB, in the order in which they are stored. */
static int read_converted(struct tiff *tiff, struct sgrad__image *image) {
    const size_t count = (size_t)tiff->height * tiff->width;
    uint32_t *raster = sgrad_xcalloc(count, sizeof *raster);
    if (!TIFFReadRGBAImageOriented(tiff->file, tiff->width, tiff->height, raster, tiff->orientation, 1) || *tiff->why) {
        free(raster);
        return wrong(tiff, "its pixels cannot be read");
    }
    uint8_t *to = image->rgb = sgrad_xcalloc(count, 3);
    for (size_t i = 0; i < count; i++, to += 3)
        to[0] = TIFFGetR(raster[i]), to[1] = TIFFGetG(raster[i]), to[2] = TIFFGetB(raster[i]);
    free(raster);
    return 0;
}

static int read_tiff(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct tiff t = { .name = name, .data = data, .size = size };
    struct sgrad__image is = { 0 };
    int error = open_tiff(&t);
    if (!error) error = check(&t);
    if (!error) {
        is = (struct sgrad__image){ .height = (int)t.height, .width = (int)t.width, .grey = is_grey(&t), .deep = is_deep(&t),
                                    .animated = !TIFFLastDirectory(t.file) };
        if (pixels) error = (t.colours ? read_samples : read_converted)(&t, &is);
    }
    if (t.file) TIFFClose(t.file);
    if (error) return error;
    sgrad__image_orient(&is, t.orientation);
    *image = is;
    return 0;
}

#endif

/* Returns true for classic TIFF and BigTIFF, in both byte orders. */
static bool is_tiff(const unsigned char *data, size_t size) {
    static const char *const begins[] = { "II*\0", "MM\0*", "II+\0", "MM\0+" };
    bool is = false;
    for (int i = 0; i < 4 && size >= 4; i++) is |= !memcmp(data, begins[i], 4);
    return is;
}

const struct sgrad__image_format sgrad__tiff_image = {
    .name = "TIFF", .library = "tiff", .endings = ".tif .tiff", .is = is_tiff,
#ifdef SGRAD_HAVE_TIFF
    .read = read_tiff,
#endif
};
