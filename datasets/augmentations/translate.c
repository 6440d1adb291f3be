/* translate.c: shifts the image by a random number of pixels along each axis. The image is reflected at its edges. */
#include "config.h"
#include "datasets/datasets.h"

#include <math.h>

static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    const double places = 2 * *number + 1;
    (void)height, (void)width;
    map->y0 = floor(sgrad_chance(chances) * places) - *number;
    map->x0 = floor(sgrad_chance(chances) * places) - *number;
    map->reflect = true;
}

const struct sgrad_augmentation sgrad_translate_augmentation = {
    .name = "translate",
    .argument = "N",
    .summary = "random shift by up to N pixels, or 1/N of the shorter side, along each axis, with reflection at the edges",
    .source = "torchvision.transforms.RandomCrop, padding_mode reflect",
    .numbers = 1,
    .number = { { .low = 1, .high = 8192, .pixels = true } },
    .move = move,
};
