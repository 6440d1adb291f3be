/* phash.c: perceptual hash: a bit is 1 if its low frequency is at least as strong as the median (C. Zauner, "Implementation and
 * benchmarking of perceptual image hash functions", 2010; N. Krawetz, 2011).
 *
 *     4 side x 4 side pixels   ──cosine transform, type II──>   side x side lowest frequencies    at least the median of all
 *                                                               0 . .                             except frequency 0, the mean
 *                                                               . . .
 *
 * Cosines are rounded to integers over 2^18 and 2^15, so that all sums are exact in doubles. Flat or symmetric images therefore
 * have frequencies of exactly 0, and a hash does not depend on the machine. Half of the bits are 1, so distances are even. */
#include "codelets/kernels.h"
#include "duplicates/duplicates.h"

#include <math.h>
#include <pthread.h>

enum { PIXELS = 4 * SGRAD_HASH_SIDE, LANES = 8, GROUPS = SGRAD_HASH_SIDE / LANES };

/* Cosines for 4s pixels, s being 8 or 16: [s == 16][pixel][frequency] */
static double coarse[2][PIXELS][SGRAD_HASH_SIDE], fine[2][PIXELS][SGRAD_HASH_SIDE];

static void make_cosines(void) {
    for (int s = 0; s < 2; s++)
        for (int y = 0; y < PIXELS >> (1 - s); y++)
            for (int k = 0; k < SGRAD_HASH_SIDE; k++) {
                const double cosine = cos(M_PI * k * (2 * y + 1) / (2.0 * (PIXELS >> (1 - s))));
                fine[s][y][k] = rint(cosine * (1 << 18));
                coarse[s][y][k] = rint(cosine * (1 << 15));
            }
}

static void size(int side, int *width, int *height) { *width = *height = 4 * side; }

struct work {
    const uint8_t *grey;
    int side;
    uint8_t *bit;
};

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

/* Computes the frequencies STRENGTH (side,side): those of each row of pixels, and from these the frequencies along columns. */
SGRAD_ALWAYS_INLINE void transform(const uint8_t *grey, int side, double *strength) {
    const int s = side == SGRAD_HASH_SIDE, pixels = 4 * side, groups = side / LANES;
    lanes sum[SGRAD_HASH_SIDE * GROUPS] = { 0 }, cosine[GROUPS];
    for (int y = 0; y < pixels; y++) {
        lanes row[GROUPS] = { 0 };
        for (int x = 0; x < pixels; x++) {
            memcpy(cosine, coarse[s][x], sizeof cosine);
            for (int g = 0; g < groups; g++) row[g] += (double)grey[y * pixels + x] * cosine[g];
        }
        for (int k = 0; k < side; k++)
            for (int g = 0; g < groups; g++) sum[k * groups + g] += fine[s][y][k] * row[g];
    }
    memcpy(strength, sum, (size_t)(side * side) * sizeof *strength);
}

/* Returns the N-th smallest of COUNT integers, from 0: at most N are below it, and more than N are not above it. */
SGRAD_ALWAYS_INLINE double find_smallest(const double *value, int count, int n) {
    int64_t whole[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE];
    for (int i = 0; i < count; i++) whole[i] = (int64_t)value[i];
    for (int i = 0; i < count; i++) {
        int64_t below = 0, above = 0;
        for (int j = 0; j < count; j++) below += whole[j] < whole[i], above += whole[j] > whole[i];
        if (below <= n && n < count - above) return value[i];
    }
    return 0;
}

SGRAD_VECTOR(make_bits)(const struct sgrad_args *args) {
    const struct work *w = args->attrs;
    const int count = w->side * w->side;
    double strength[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE];
    if (w->side == SGRAD_HASH_SIDE) transform(w->grey, SGRAD_HASH_SIDE, strength);
    else transform(w->grey, SGRAD_HASH_SIDE / 2, strength);
    const double median = find_smallest(strength + 1, count - 1, count / 2 - 1);
    for (int i = 0; i < count; i++) w->bit[i] = strength[i] >= median;
}

static void bits(const uint8_t *grey, int side, uint8_t *bit) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_cosines);
    make_bits(&(struct sgrad_args){ .attrs = &(struct work){ grey, side, bit } });
}

const struct sgrad_hash_kind sgrad_phash_hash = {
    .name = "phash",
    .summary = "a bit is 1 if one of the 8x8 lowest frequencies of 32x32 pixels is above the median: fewest collisions",
    .size = size,
    .bits = bits,
};
