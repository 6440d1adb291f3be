/* phash.c: which low frequencies are stronger than most (C. Zauner, "Implementation and benchmarking of perceptual image hash
 * functions", 2010; N. Krawetz, 2011).
 *
 *     4 side x 4 side pixels   ──cosine transform, type II──>   side x side lowest frequencies    at least their median, but for
 *                                                               0 . .                             the mean's, 0
 *                                                               . . .
 *
 * Cosines are rounded to whole numbers over 2^18 and 2^15, so that all sums are exact in doubles: what is flat, or mirrors
 * itself, has frequencies of exactly 0, and its hash depends on no machine. Half of the bits are 1, so distances are even. */
#include "duplicates/duplicates.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { PIXELS = 4 * SGRAD_HASH_SIDE };

/* cosine[s][k][y]: frequency k at pixel y, of 4s pixels */
static double coarse[2][SGRAD_HASH_SIDE][PIXELS], fine[2][SGRAD_HASH_SIDE][PIXELS];

static void make_cosines(void) {
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < SGRAD_HASH_SIDE; k++)
            for (int y = 0; y < PIXELS >> (1 - s); y++) {
                const double cosine = cos(M_PI * k * (2 * y + 1) / (2.0 * (PIXELS >> (1 - s))));
                fine[s][k][y] = rint(cosine * (1 << 18));
                coarse[s][k][y] = rint(cosine * (1 << 15));
            }
}

static void size(int side, int *width, int *height) { *width = *height = 4 * side; }

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bits(const uint8_t *grey, int side, uint8_t *bit) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_cosines);
    const int s = side == SGRAD_HASH_SIDE, pixels = 4 * side, count = side * side;
    double column[PIXELS], strength[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE], sorted[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE];
    for (int k = 0; k < side; k++) {
        for (int x = 0; x < pixels; x++) column[x] = 0;
        for (int y = 0; y < pixels; y++)
            for (int x = 0; x < pixels; x++) column[x] += fine[s][k][y] * grey[y * pixels + x];
        for (int l = 0; l < side; l++) {
            double sum = 0;
            for (int x = 0; x < pixels; x++) sum += column[x] * coarse[s][l][x];
            strength[k * side + l] = sorted[k * side + l] = sum;
        }
    }
    qsort(sorted + 1, (size_t)count - 1, sizeof *sorted, by_value);
    const double median = sorted[count / 2];
    for (int i = 0; i < count; i++) bit[i] = strength[i] >= median;
}

const struct sgrad_hash_kind sgrad_phash_hash = {
    .name = "phash",
    .summary = "which of the 8x8 lowest frequencies are strong, of 32x32 pixels: the fewest images collide",
    .size = size,
    .bits = bits,
};
