/* jitter.c: changes brightness, contrast and saturation, each by a random factor. */
#include "config.h"
#include "datasets/colours.h"

static double factor(double most, struct sgrad_chances *chances) { return 1 + most * (2 * sgrad_chance(chances) - 1); }

static void change(const double *number, struct sgrad_chances *chances, struct sgrad_pixels *image) {
    sgrad__brighten(image, factor(*number, chances));
    sgrad__contrast(image, factor(*number, chances));
    sgrad__saturate(image, factor(*number, chances));
}

const struct sgrad_augmentation sgrad_jitter_augmentation = {
    .name = "jitter",
    .argument = "X",
    .summary = "brightness, contrast and saturation, each multiplied by 1-X to 1+X [0.2]",
    .source = "torchvision.transforms.ColorJitter",
    .numbers = 1,
    .number = { { .usual = 0.2, .low = 0, .high = 1 } },
    .change = change,
};
