/* rotate.c: rotates the image about its centre by a random angle. */
#include "config.h"
#include "datasets/datasets.h"

#include <math.h>

static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    const double angle = (2 * sgrad_chance(chances) - 1) * *number * M_PI / 180, y = (height - 1) / 2.0, x = (width - 1) / 2.0;
    *map = (struct sgrad_affine){ .yy = cos(angle), .yx = -sin(angle), .xy = sin(angle), .xx = cos(angle) };
    map->y0 = y - map->yy * y - map->yx * x;
    map->x0 = x - map->xy * y - map->xx * x;
}

const struct sgrad_augmentation sgrad_rotate_augmentation = {
    .name = "rotate",
    .argument = "DEGREES",
    .summary = "rotation by up to DEGREES in either direction; volumes: about the axis of the slices [180]",
    .volumes = true,
    .numbers = 1,
    .number = { { .usual = 180, .low = 0, .high = 180 } },
    .move = move,
};
