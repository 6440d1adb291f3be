/* scale.c: an image to another size with Lanczos's filter of three lobes, then to grey, by the arithmetic of Pillow: weights are
 * whole numbers over 2^22, columns come before rows, and each is rounded to 8 bits. Whose bits hashes are compared with.
 *
 *     height x width x 3      a strip of 32 rows,          columns weighed,         rows weighed           in grey
 *                             turned: pixels of a column   turned back
 *     RGBRGBRGB…              lie side by side:            rrrr gggg bbbb           rrrr gggg bbbb         llll
 *                             rr… gg… bb…                  (height,3,to)            (to,3,to)              (to,to)
 *
 * So every loop that costs something runs over neighbours in memory. */
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
    taps->first = sgrad_alloc((size_t)to, sizeof *taps->first);
    taps->count = sgrad_alloc((size_t)to, sizeof *taps->count);
    taps->weight = sgrad_alloc((size_t)to * (size_t)taps->most, sizeof *taps->weight);
    double *weight = sgrad_alloc((size_t)taps->most, sizeof *weight);
    for (int i = 0; i < to; i++) {
        const double centre = (i + 0.5) * scale;
        int first = from == to ? i : (int)(centre - reach + 0.5), end = from == to ? i + 1 : (int)(centre + reach + 0.5);
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
    int planes;             /* 3 of colours, 1 of grey */
    uint8_t *strip;         /* (width,planes,STRIP) */
    uint8_t *narrow;        /* (height,planes,to), a row in LINE bytes */
    size_t line;
    uint8_t *grey;
};

SGRAD_ALWAYS_INLINE uint8_t clip(int32_t sum) {
    const int32_t x = sum >> PRECISION;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Sums COUNT neighbours, a multiple of LANES, over TAPS rows that lie STRIDE bytes apart; LANES sums stay in registers. */
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

SGRAD_ALWAYS_INLINE void weigh_columns(const struct work *w) {
    const struct sgrad_picture *p = w->picture;
    const int to = w->columns->to, channels = p->channels, planes = w->planes;
    for (int top = 0; top < p->height; top += STRIP) {
        const int rows = p->height - top < STRIP ? p->height - top : STRIP;
        for (int y = 0; y < rows; y++) {
            const uint8_t *row = p->pixels + (size_t)(top + y) * (size_t)p->width * (size_t)channels;
            for (int x = 0; x < p->width; x++)
                for (int c = 0; c < planes; c++) w->strip[(x * planes + c) * STRIP + y] = row[x * channels + c];
        }
        for (int x = 0; x < to; x++) {
            uint8_t sum[3 * STRIP];
            const int first = w->columns->first[x];
            weigh(w->strip + (size_t)first * (size_t)(planes * STRIP), (size_t)(planes * STRIP), planes * STRIP,
                  w->columns->weight + (size_t)x * (size_t)w->columns->most, w->columns->count[x], sum);
            for (int c = 0; c < planes; c++)
                for (int y = 0; y < rows; y++) w->narrow[(size_t)(top + y) * w->line + (size_t)(c * to + x)] = sum[c * STRIP + y];
        }
    }
}

SGRAD_ALWAYS_INLINE void weigh_rows(const struct work *w) {
    const int width = w->columns->to;
    for (int y = 0; y < w->rows->to; y++) {
        uint8_t sum[3 * WIDTH + LANES], *grey = w->grey + (size_t)y * (size_t)width;
        const uint8_t *red = sum, *green = sum + width, *blue = green + width;
        weigh(w->narrow + (size_t)w->rows->first[y] * w->line, w->line, (int)w->line,
              w->rows->weight + (size_t)y * (size_t)w->rows->most, w->rows->count[y], sum);
        if (w->planes == 1)
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
    return sgrad_alloc(*have = want, 1);
}

void sgrad__scale(struct sgrad__scaler *scaler, const struct sgrad_picture *picture, int width, int height, uint8_t *grey) {
    const int planes = picture->channels >= 3 ? 3 : 1;
    const size_t line = ((size_t)(planes * width) + LANES - 1) / LANES * LANES;
    taps_make(&scaler->columns, picture->width, width);
    taps_make(&scaler->rows, picture->height, height);
    scaler->strip = room(scaler->strip, &scaler->strip_size, (size_t)picture->width * (size_t)planes * STRIP);
    scaler->narrow = room(scaler->narrow, &scaler->narrow_size, (size_t)picture->height * line);
    const struct work work = { picture, &scaler->columns, &scaler->rows, planes, scaler->strip, scaler->narrow, line, grey };
    scale(&(struct sgrad_args){ .attrs = &work });
}

void sgrad__scaler_free(struct sgrad__scaler *scaler) {
    taps_free(&scaler->columns);
    taps_free(&scaler->rows);
    free(scaler->strip);
    free(scaler->narrow);
}
