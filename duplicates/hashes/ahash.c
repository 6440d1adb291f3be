/* ahash.c: average hash: a bit is 1 if its pixel is at least as bright as the mean (N. Krawetz, "Looks like it",
 * hackerfactor.com, 2011).
 *
 *     side x side pixels     9 1      mean 5      1 0
 *                            2 8                  0 1 */
#include "duplicates/duplicates.h"

static void size(int side, int *width, int *height) { *width = *height = side; }

static void bits(const uint8_t *grey, int side, uint8_t *bit) {
    const int count = side * side;
    int sum = 0;
    for (int i = 0; i < count; i++) sum += grey[i];
    for (int i = 0; i < count; i++) bit[i] = grey[i] * count >= sum;
}

const struct sgrad_hash_kind sgrad_ahash_hash = {
    .name = "ahash",
    .summary = "a bit is 1 if one of 8x8 pixels is brighter than the mean: fast, most collisions",
    .size = size,
    .bits = bits,
};
