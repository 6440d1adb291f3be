/* crop.c: pads the image with black, and crops it at random to its size. Uses the first block of a sample's random words, with
 * flip:
 *
 *     x                     . . . . .
 *     a b c    pad by 1     . a b c .    down = 1     d e f            f e d
 *     d e f       ->        . d e f .    right = 0    g h i    flip    i h g
 *     g h i                 . g h i .       ->        . . .     ->     . . .
 *                           . . . . . */
#include "config.h"
#include "datasets/datasets.h"
#include "runtime/philox.h"

static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    const struct sgrad_random r = sgrad_philox(chances->seed, SGRAD_STREAM_AUGMENT, chances->epoch, chances->sample, 0);
    const int pad = (int)*number;
    (void)height, (void)width;
    map->y0 = (double)((uint64_t)r.word[0] * (uint32_t)(2 * pad + 1) >> 32) - pad;
    map->x0 = (double)((uint64_t)r.word[1] * (uint32_t)(2 * pad + 1) >> 32) - pad;
}

const struct sgrad_augmentation sgrad_crop_augmentation = {
    .name = "crop",
    .argument = "N",
    .summary = "padding by N black pixels, or by 1/N of the shorter side, then a random crop to the original size",
    .source = "Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012, section 4.1",
    .numbers = 1,
    .number = { { .low = 1, .high = 8192, .pixels = true } },
    .move = move,
};
