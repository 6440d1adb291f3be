/* dhash.c: difference hash: a bit is 1 if the next pixel to the right is brighter (N. Krawetz, "Kind of like that",
 * hackerfactor.com, 2013).
 *
 *     side + 1 by side pixels     1 5 2      1 0
 *                                 3 3 4      0 1 */
#include "duplicates/duplicates.h"

static void size(int side, int *width, int *height) { *width = side + 1, *height = side; }

static void bits(const uint8_t *grey, int side, uint8_t *bit) {
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            const uint8_t *at = grey + y * (side + 1) + x;
            bit[y * side + x] = at[1] > at[0];
        }
}

const struct sgrad_hash_kind sgrad_dhash_hash = {
    .name = "dhash",
    .summary = "a bit is 1 if one of 9x8 pixels is darker than the next to the right: fast, sensitive to edges",
    .size = size,
    .bits = bits,
};
