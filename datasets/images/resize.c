/* resize.c: scales and crops an image to a square, as torchvision's Resize and CenterCrop do with Pillow.
 *
 * The shorter side is scaled to the side of the square, or, as is usual in evaluations of ImageNet, to more (256 for 224).
 *
 *     h x w       columns weighted      h x side       rows weighted      side x side
 *                                                                                        shown for w > h: the dots are
 *     ########    ------------------>   .####.         ---------------->  .##.           columns cut off on both sides,
 *     ########                          .####.                            .##.           never computed
 *     ########                          .####.
 *
 * Each output pixel is a weighted mean of input pixels; the weights are a triangle. If the image shrinks, the triangle is two
 * output pixels wide, to avoid aliasing. If it grows, the triangle is two input pixels wide (bilinear interpolation). The axes
 * are processed one after the other, with rounding to integers in between. Rows are scaled when the first row of the result needs
 * them; only as many are stored as one row of the result needs. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With GCC, the loops of this file are vectorised regardless of the build's flags. Without fused multiply-add, the result is the
 * same on all processors. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif
#define INLINE static inline __attribute__((always_inline))

/* Output pixel i is the sum over j < taps of weight[i*taps + j] times input pixel first[i] + j. The input must be followed by
 * TAPS zeros: their weights are 0. */
struct filter {
    int taps, *first;
    float *weight;
};

/* LENGTH pixels, scaled to SCALED, of which the SIDE pixels in the middle are the output. */
struct axis {
    int length, side;
    double scale, reach;        /* input pixels per output pixel; half of the width of the triangle */
    int64_t cut;                /* pixels of SCALED before the output */
};

static struct axis axis_of(int length, int64_t scaled, int side) {
    const double scale = (double)length / (double)scaled;
    const int64_t cut = (scaled - side) / 2 + ((scaled - side) % 4 == 3);      /* torchvision rounds halves to even */
    return (struct axis){ .length = length, .side = side, .scale = scale, .reach = fmax(scale, 1), .cut = cut };
}

static double centre_of(const struct axis *axis, int i) { return ((double)(axis->cut + i) + 0.5) * axis->scale; }
/* Output pixel I depends on the input pixels first_of to end_of - 1. */
static int first_of(const struct axis *axis, int i) { return (int)fmax(centre_of(axis, i) - axis->reach + 0.5, 0); }
static int end_of(const struct axis *axis, int i) { return (int)fmin(centre_of(axis, i) + axis->reach + 0.5, axis->length); }

static struct filter filter_create(const struct axis *axis) {
    const int side = axis->side;
    struct filter filter = { .first = sgrad_xcalloc((size_t)side, sizeof *filter.first) };
    for (int i = 0; i < side; i++) {
        filter.first[i] = first_of(axis, i);
        if (filter.taps < end_of(axis, i) - filter.first[i]) filter.taps = end_of(axis, i) - filter.first[i];
    }
    filter.weight = sgrad_xcalloc((size_t)side * (size_t)filter.taps, sizeof *filter.weight);
    for (int i = 0; i < side; i++) {
        const double centre = centre_of(axis, i);
        float *weight = filter.weight + (size_t)i * (size_t)filter.taps;
        const int count = end_of(axis, i) - filter.first[i];
        double sum = 0;
        for (int j = 0; j < count; j++)
            sum += weight[j] = (float)fmax(1 - fabs((filter.first[i] + j + 0.5 - centre) / axis->reach), 0);
        for (int j = 0; j < count; j++) weight[j] = (float)(weight[j] / sum);
    }
    return filter;
}

static void filter_destroy(struct filter *filter) {
    free(filter->first);
    free(filter->weight);
}

enum { PART = 32 };     /* numbers of a row of the result that are computed at a time */

/* An image that is being scaled. Numbers are integers, stored as floats, three per pixel. */
struct fitting {
    struct filter columns, rows;
    size_t side, width;
    size_t pitch;       /* numbers from a row of NARROW to the next: at least 3*side + PART - 1 */
    const void *from;   /* (height,width,3) */
    float *line;        /* a row of FROM */
    float *narrow;      /* the last rows.taps rows that were scaled: row y at (y % rows.taps)*pitch */
};

/* Vector registers: three channels of a pixel and one unused number; and eight numbers. Addresses need the alignment of a float
 * only. */
typedef float pixel __attribute__((vector_size(4 * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef float eight __attribute__((vector_size(8 * sizeof(float)), aligned(sizeof(float)), may_alias));

/* Scales a line of pixels to SIDE pixels at TO. TAPS is a constant in the most frequent cases. */
INLINE void fit_pixels(const struct filter *columns, int taps, size_t side, const float *line, float *to) {
    const float *weight = columns->weight;
    for (size_t i = 0; i < side; i++, weight += taps) {
        const float *x = line + 3 * columns->first[i];
        pixel sum = { 0.5f, 0.5f, 0.5f };
        for (int j = 0; j < taps; j++) sum += weight[j] * *(const pixel *)(x + 3 * j);
        *(pixel *)(to + 3 * i) = sum;
    }
}

/* Discards the fraction of X, which includes 0.5 for rounding, and limits it to MOST. Written for vectorisation. */
INLINE int rounded(float x, int most) {
    const int whole = (int)x, above = (most - whole) >> 31;     /* ABOVE has all bits set if WHOLE > MOST */
    return (whole & ~above) | (most & above);
}

/* Scales row Y. */
INLINE void fit_row(struct fitting *f, int y, bool deep) {
    const struct filter *columns = &f->columns;
    const size_t begin = 3 * (size_t)columns->first[0], row = 3 * f->width, first = (size_t)y * row;
    const size_t end = 3 * ((size_t)columns->first[f->side - 1] + (size_t)columns->taps);
    float *to = f->narrow + (size_t)(y % f->rows.taps) * f->pitch;
    if (deep)
        for (size_t i = begin; i < end && i < row; i++) f->line[i] = ((const uint16_t *)f->from)[first + i];
    else
        for (size_t i = begin; i < end && i < row; i++) f->line[i] = ((const uint8_t *)f->from)[first + i];
    switch (columns->taps) {
    case 2: fit_pixels(columns, 2, f->side, f->line, to); break;
    case 3: fit_pixels(columns, 3, f->side, f->line, to); break;
    case 4: fit_pixels(columns, 4, f->side, f->line, to); break;
    default: fit_pixels(columns, columns->taps, f->side, f->line, to);
    }
    for (size_t k = 0; k < 3 * f->side; k++) to[k] = (float)rounded(to[k], deep ? 65535 : 255);
}

/* Adds WEIGHT times PART numbers to SUM. WIDE selects the registers. */
INLINE void add_part(float weight, const float *x, float *sum, bool wide) {
    for (int n = 0; n < PART / 8 && wide; n++) ((eight *)sum)[n] += weight * ((const eight *)x)[n];
    for (int n = 0; n < PART / 4 && !wide; n++) ((pixel *)sum)[n] += weight * ((const pixel *)x)[n];
}

/* Computes row I of the result, in parts that fit in registers. */
INLINE void fit_column(struct fitting *f, int i, void *to, bool deep, bool wide) {
    const int taps = f->rows.taps, oldest = f->rows.first[i] % taps;
    const size_t stride = 3 * f->side, at = (size_t)i * stride;
    const float *weight = f->rows.weight + (size_t)i * (size_t)taps;
    for (size_t k = 0; k < stride; k += PART) {
        const size_t count = stride - k < PART ? stride - k : PART;
        float sum[PART];
        for (int n = 0; n < PART; n++) sum[n] = 0.5f;
        for (int j = 0; j < taps; j++) {
            const int place = oldest + j < taps ? oldest + j : oldest + j - taps;
            add_part(weight[j], f->narrow + (size_t)place * f->pitch + k, sum, wide);
        }
        if (deep)
            for (size_t n = 0; n < count; n++) ((uint16_t *)to)[at + k + n] = (uint16_t)rounded(sum[n], 65535);
        else
            for (size_t n = 0; n < count; n++) ((uint8_t *)to)[at + k + n] = (uint8_t)rounded(sum[n], 255);
    }
}

/* Writes the result (side,side,3) to TO. The image and TO are of 16 bits if DEEP is set. WIDE selects registers of eight numbers
 * instead of four. Both are constants in each call. */
INLINE void fit_rows(struct fitting *f, int height, void *to, bool deep, bool wide) {
    int next = f->rows.first[0];
    for (int i = 0; i < (int)f->side; i++) {
        for (; next < f->rows.first[i] + f->rows.taps && next < height; next++) fit_row(f, next, deep);
        fit_column(f, i, to, deep, wide);
    }
}

static void fit(struct fitting *f, int height, void *to, bool deep) {
    if (deep) fit_rows(f, height, to, true, false);
    else fit_rows(f, height, to, false, false);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void fit_avx2(struct fitting *f, int height, void *to, bool deep) {
    if (deep) fit_rows(f, height, to, true, true);
    else fit_rows(f, height, to, false, true);
}
#else
#define fit_avx2 fit
#endif

/* Sets the axes of an image of HEIGHT x WIDTH. */
static void find_axes(int height, int width, int scaled, int side, struct axis *columns, struct axis *rows) {
    const int least = height < width ? height : width;
    *columns = axis_of(width, (int64_t)width * scaled / least, side);
    *rows = axis_of(height, (int64_t)height * scaled / least, side);
}

void sgrad__image_columns(int height, int width, int scaled, int side, int *from, int *to) {
    struct axis columns, rows;
    find_axes(height, width, scaled, side, &columns, &rows);
    *from = first_of(&columns, 0);
    *to = end_of(&columns, side - 1);
}

void sgrad__image_fit(const struct sgrad__image *image, int scaled, int side, void *to) {
    const bool deep = image->rgb16 != NULL;
    const int height = image->height, width = image->width;
    struct axis columns, rows;
    struct fitting f = { .side = (size_t)side, .width = (size_t)width, .pitch = 3 * (size_t)side + PART,
                         .from = deep ? (const void *)image->rgb16 : image->rgb };
    if (height == side && width == side && scaled == side) {
        memcpy(to, f.from, 3 * f.side * f.side * (deep ? 2 : 1));
        return;
    }
    find_axes(height, width, scaled, side, &columns, &rows);
    f.columns = filter_create(&columns);
    f.rows = filter_create(&rows);
    f.line = sgrad_xcalloc(3 * (f.width + (size_t)f.columns.taps) + 1, sizeof *f.line);
    f.narrow = sgrad_xcalloc((size_t)f.rows.taps * f.pitch, sizeof *f.narrow);
    (sgrad_isa() >= SGRAD_AVX2 ? fit_avx2 : fit)(&f, height, to, deep);
    free(f.narrow);
    free(f.line);
    filter_destroy(&f.columns);
    filter_destroy(&f.rows);
}
