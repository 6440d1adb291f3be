/* rrc.c: random resized crop: crops a rectangle of random area and aspect ratio, and scales it to the size of the image. */
#include "config.h"
#include "datasets/datasets.h"

#include <math.h>

enum { TRIES = 10 };

static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    double h = height, w = width, top = 0, left = 0;
    for (int i = 0; i < TRIES; i++) {
        const double area = (*number + (1 - *number) * sgrad_chance(chances)) * height * width;
        const double ratio = exp((2 * sgrad_chance(chances) - 1) * log(4.0 / 3));
        const double down = sgrad_chance(chances), right = sgrad_chance(chances);
        if (sqrt(area / ratio) > height || sqrt(area * ratio) > width) continue;
        h = sqrt(area / ratio), w = sqrt(area * ratio);
        top = down * (height - h), left = right * (width - w);
        break;
    }
    map->yy = h / height, map->y0 = top + map->yy / 2 - 0.5;
    map->xx = w / width, map->x0 = left + map->xx / 2 - 0.5;
}

const struct sgrad_augmentation sgrad_rrc_augmentation = {
    .name = "rrc",
    .argument = "A",
    .summary = "random resized crop: A to 1 of the area, aspect ratio 3/4 to 4/3, resized to the original size [0.08]",
    .source = "Szegedy et al., Going deeper with convolutions, 2014, section 6",
    .numbers = 1,
    .number = { { .usual = 0.08, .low = 0.01, .high = 1 } },
    .move = move,
};
