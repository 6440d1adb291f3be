/* whash.c: wavelet hash: a bit is 1 if its block is at least as bright as the median (D. Petrov, "Wavelet image hash in Python",
 * fullstackml.com, 2016).
 *
 *     256 x 256 pixels    ──Haar wavelet, until side x side are left──>    means of 32 x 32 pixels    at least the median
 *
 * The remaining coefficients of the Haar wavelet are the means of blocks, up to a factor, so sums of integers are sufficient. */
#include "duplicates/duplicates.h"

#include <stdlib.h>
#include <string.h>

enum { PIXELS = 256 };

static void size(int side, int *width, int *height) { (void)side, *width = *height = PIXELS; }

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void bits(const uint8_t *grey, int side, uint8_t *bit) {
    const int block = PIXELS / side, count = side * side;
    int sum[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE] = { 0 }, sorted[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE];
    for (int y = 0; y < PIXELS; y++)
        for (int x = 0; x < side; x++) {
            int part = 0;
            for (int i = 0; i < block; i++) part += grey[y * PIXELS + x * block + i];
            sum[y / block * side + x] += part;
        }
    memcpy(sorted, sum, sizeof sum);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    const int middle = sorted[count / 2 - 1] + sorted[count / 2];
    for (int i = 0; i < count; i++) bit[i] = 2 * sum[i] >= middle;
}

const struct sgrad_hash_kind sgrad_whash_hash = {
    .name = "whash",
    .summary = "a bit is 1 if one of 8x8 blocks of 256x256 pixels is brighter than the median: slow, many collisions",
    .size = size,
    .bits = bits,
};
