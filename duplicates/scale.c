/* scale.c: scales an image with Lanczos's filter of three lobes and converts it to grey, with the arithmetic of Pillow: weights
 * are integers over 2^22, columns are scaled before rows, and results are rounded to 8 bits. Hashes therefore have the same bits
 * as those of images that Pillow scaled.
 *
 *     height x width x 3      a strip of 32 rows,          columns weighted,        transposed back,          in grey
 *                             transposed: pixels of a      one plane per colour     rows weighted
 *     RGBRGBRGB…              column are contiguous:       rr… rr… gg… gg… bb…      rrrr gggg bbbb            llll
 *                             rr… gg… bb…                  (3,to,32)                (to,3,to)                 (to,to)
 *
 * So every expensive loop runs over contiguous memory. */
#include "codelets/kernels.h"
#include "duplicates/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRIP = 32, PRECISION = 22, LOBES = 3, LANES = 32, WIDTH = 256 };

static double sinc(double x) { return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x); }

static double lanczos(double x) { return x >= -LOBES && x < LOBES ? sinc(x) * sinc(x / LOBES) : 0; }

static void taps_free(struct sgrad__taps *taps) {
    free(taps->first);
    free(taps->count);
    free(taps->weight);
}

/* Pixel I of TO is the sum over j < count[i] of weight[i*most + j] times pixel first[i] + j of FROM. */
static void taps_make(struct sgrad__taps *taps, int from, int to) {
    if (taps->from == from && taps->to == to) return;
    taps_free(taps);
    const double scale = (double)from / to, wide = scale < 1 ? 1 : scale, reach = LOBES * wide;
    *taps = (struct sgrad__taps){ .from = from, .to = to, .most = 2 * (int)ceil(reach) + 1 };
    taps->first = sgrad_xcalloc((size_t)to, sizeof *taps->first);
    taps->count = sgrad_xcalloc((size_t)to, sizeof *taps->count);
    taps->weight = sgrad_xcalloc((size_t)to * (size_t)taps->most, sizeof *taps->weight);
    double *weight = sgrad_xcalloc((size_t)taps->most, sizeof *weight);
    for (int i = 0; i < to; i++) {
        const double centre = (i + 0.5) * scale;
        int first = i, end = i + 1;
        if (from != to) first = (int)(centre - reach + 0.5), end = (int)(centre + reach + 0.5);
        if (first < 0) first = 0;
        if (end > from) end = from;
        double sum = 0;
        for (int j = 0; j < end - first; j++) sum += weight[j] = lanczos((j + first - centre + 0.5) * (1 / wide));
        for (int j = 0; j < end - first; j++) {
            const double w = sum != 0 ? weight[j] / sum : weight[j];
            taps->weight[(size_t)i * (size_t)taps->most + (size_t)j] = (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << PRECISION));
        }
        taps->first[i] = first;
        taps->count[i] = end - first;
    }
    free(weight);
}

struct work {
    const struct sgrad_picture *picture;
    const struct sgrad__taps *columns, *rows;
    int planes;             /* 3 for colours, 1 for grey */
    uint8_t *strip;         /* (width,channels,STRIP) */
    uint8_t *narrow;        /* (height,planes,to), a row in LINE bytes; height rounded up to strips */
    size_t line;
    uint8_t *grey;
};

/* ---- transposition -------------------------------------------------------------------------------------------------- */

typedef uint8_t sixteen __attribute__((vector_size(16)));

/* A perfect shuffle, one step of a transposition: the position of byte C of row R, 16 R + C, is rotated by one bit. */
SGRAD_ALWAYS_INLINE void shuffle(const sixteen from[16], sixteen to[16]) {
    for (int i = 0; i < 8; i++) {
        const sixteen a = from[i], b = from[i + 8];
        to[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        to[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
}

/* Transposes 16 x 16 bytes: rows are STRIDE bytes apart, resulting rows TO_STRIDE. If ROWS is below 16, the last row is
 * repeated. */
SGRAD_ALWAYS_INLINE void turn(const uint8_t *from, size_t stride, int rows, uint8_t *to, size_t to_stride) {
    sixteen one[16], other[16];
    for (int i = 0; i < 16; i++) memcpy(&one[i], from + (size_t)(i < rows ? i : rows - 1) * stride, sizeof *one);
    shuffle(one, other);
    shuffle(other, one);
    shuffle(one, other);
    shuffle(other, one);
    for (int i = 0; i < 16; i++) memcpy(to + (size_t)i * to_stride, &one[i], sizeof *one);
}

/* Transposes ROWS rows of COUNT bytes to (COUNT,STRIP). */
SGRAD_ALWAYS_INLINE void turn_strip(const uint8_t *from, int count, int rows, uint8_t *strip) {
    for (int y = 0; y < rows; y += 16) {
        const uint8_t *row = from + (size_t)y * (size_t)count;
        int x = 0;
        for (; x + 16 <= count; x += 16) turn(row + x, (size_t)count, rows - y, strip + x * STRIP + y, STRIP);
        for (; x < count; x++)
            for (int i = 0; i < 16 && y + i < rows; i++) strip[x * STRIP + y + i] = row[(size_t)i * (size_t)count + (size_t)x];
    }
}

/* ---- weighted sums -------------------------------------------------------------------------------------------------- */

SGRAD_ALWAYS_INLINE uint8_t clip(int32_t sum) {
    int32_t x = sum >> PRECISION;
    x = x < 0 ? 0 : x;
    return (uint8_t)(x > 255 ? 255 : x);
}

/* Computes COUNT adjacent sums, a multiple of LANES, over TAPS rows that are STRIDE bytes apart. LANES sums stay in registers. */
SGRAD_ALWAYS_INLINE void weigh(const uint8_t *from, size_t stride, int count, const int32_t *weight, int taps, uint8_t *to) {
    for (int at = 0; at < count; at += LANES, from += LANES, to += LANES) {
        int32_t sum[LANES];
        const uint8_t *row = from;
        for (int i = 0; i < LANES; i++) sum[i] = 1 << (PRECISION - 1);
        for (int j = 0; j < taps; j++, row += stride)
            for (int i = 0; i < LANES; i++) sum[i] += weight[j] * row[i];
        for (int i = 0; i < LANES; i++) to[i] = clip(sum[i]);
    }
}

SGRAD_ALWAYS_INLINE void weigh_columns(const struct work *work) {
    const struct sgrad_picture *p = work->picture;
    const struct sgrad__taps *taps = work->columns;
    const int to = taps->to, channels = p->channels, bytes = p->width * channels;
    uint8_t turned[3 * WIDTH * STRIP]; /* (planes,to,STRIP) */
    for (int top = 0; top < p->height; top += STRIP) {
        turn_strip(p->pixels + (size_t)top * (size_t)bytes, bytes, p->height - top < STRIP ? p->height - top : STRIP,
                   work->strip);
        for (int x = 0; x < to; x++)
            for (int c = 0; c < work->planes; c++)
                weigh(work->strip + (size_t)(taps->first[x] * channels + c) * STRIP, (size_t)channels * STRIP, STRIP,
                      taps->weight + (size_t)x * (size_t)taps->most, taps->count[x], turned + (c * to + x) * STRIP);
        for (size_t x = 0; x < work->line; x += 16)
            for (size_t y = 0; y < STRIP; y += 16)
                turn(turned + x * STRIP + y, STRIP, 16, work->narrow + ((size_t)top + y) * work->line + x, work->line);
    }
}

SGRAD_ALWAYS_INLINE void weigh_rows(const struct work *work) {
    const int width = work->columns->to;
    for (int y = 0; y < work->rows->to; y++) {
        uint8_t sum[3 * WIDTH + LANES], *grey = work->grey + (size_t)y * (size_t)width;
        const uint8_t *red = sum, *green = sum + width, *blue = green + width;
        weigh(work->narrow + (size_t)work->rows->first[y] * work->line, work->line, (int)work->line,
              work->rows->weight + (size_t)y * (size_t)work->rows->most, work->rows->count[y], sum);
        if (work->planes == 1)
            memcpy(grey, sum, (size_t)width);
        else /* ITU-R 601-2 */
            for (int x = 0; x < width; x++)
                grey[x] = (uint8_t)((19595 * red[x] + 38470 * green[x] + 7471 * blue[x] + 0x8000) >> 16);
    }
}

SGRAD_VECTOR(scale)(const struct sgrad_args *args) {
    weigh_columns(args->attrs);
    weigh_rows(args->attrs);
}

static uint8_t *room(uint8_t *old, size_t *have, size_t want) {
    if (*have >= want) return old;
    free(old);
    return sgrad_xcalloc(*have = want, 1);
}

void sgrad__scale(struct sgrad__scaler *scaler, const struct sgrad_picture *picture, int width, int height, uint8_t *grey) {
    const int planes = picture->channels >= 3 ? 3 : 1;
    const size_t line = ((size_t)(planes * width) + LANES - 1) / LANES * LANES;
    taps_make(&scaler->columns, picture->width, width);
    taps_make(&scaler->rows, picture->height, height);
    const size_t strips = ((size_t)picture->height + STRIP - 1) / STRIP;
    scaler->strip = room(scaler->strip, &scaler->strip_size, (size_t)picture->width * (size_t)picture->channels * STRIP);
    scaler->narrow = room(scaler->narrow, &scaler->narrow_size, strips * STRIP * line);
    const struct work work = { picture, &scaler->columns, &scaler->rows, planes, scaler->strip, scaler->narrow, line, grey };
    scale(&(struct sgrad_args){ .attrs = &work });
}

void sgrad__scaler_free(struct sgrad__scaler *scaler) {
    taps_free(&scaler->columns);
    taps_free(&scaler->rows);
    free(scaler->strip);
    free(scaler->narrow);
}
