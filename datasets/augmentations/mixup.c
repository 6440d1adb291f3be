/* mixup.c: replaces the image by a weighted mean of it and another training image. Their classes have the same weights. */
#include "config.h"
#include "datasets/colours.h"

#include <math.h>

/* Mixing two samples with weights S and 1-S gives the same pairs as with 1-S and S, so the larger weight is the sample's own. */
static double mix(const double *number, struct sgrad_chances *chances, const struct sgrad_pixels *other,
                  struct sgrad_pixels *image) {
    const double drawn = sgrad__beta(*number, chances), share = fmax(drawn, 1 - drawn);
    const int64_t values = (int64_t)image->height * image->width * image->channels;
    for (int64_t i = 0; i < values; i++)
        image->value[i] = (float)rint(share * image->value[i] + (1 - share) * other->value[i]);
    return share;
}

const struct sgrad_augmentation sgrad_mixup_augmentation = {
    .name = "mixup",
    .argument = "A",
    .summary = "blend of two images and their labels, in proportions drawn from Beta(A,A) [0.2]",
    .source = "Zhang et al., mixup: beyond empirical risk minimization, 2017",
    .numbers = 1,
    .number = { { .usual = 0.2, .low = 0.01, .high = 4 } },
    .mix = mix,
};
