/* autocontrast.c: scales the values of each channel to the full scale, with probability 1/2. */
#include "config.h"
#include "datasets/colours.h"

static void change(const double *number, struct sgrad_chances *chances, struct sgrad_pixels *image) {
    (void)number;
    if (sgrad_chance(chances) < 0.5) sgrad__autocontrast(image);
}

const struct sgrad_augmentation sgrad_autocontrast_augmentation = {
    .name = "autocontrast",
    .summary = "stretch of each channel to the full range, with probability 1/2",
    .source = "torchvision.transforms.RandomAutocontrast",
    .change = change,
};
