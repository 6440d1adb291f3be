/* brightness.c: contrast and brightness of volumes, implemented by volume.c. */
#include "config.h"
#include "datasets/datasets.h"

const struct sgrad_augmentation sgrad_brightness_augmentation = {
    .name = "brightness",
    .summary = "contrast of volumes by up to a fifth, brightness by up to a tenth",
    .volumes = true,
};
