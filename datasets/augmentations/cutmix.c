/* cutmix.c: replaces a rectangle of the image by that of another training image. The weight of that image's class is the fraction
 * of the area. */
#include "config.h"
#include "datasets/colours.h"

#include <math.h>
#include <string.h>

/* Draws an interval of SIZE pixels, with its centre anywhere from 0 to LIMIT, and clips it to that range. */
static void place(double size, int limit, struct sgrad_chances *chances, int *from, int *to) {
    const double middle = sgrad_chance(chances) * limit;
    *from = (int)fmax(rint(middle - size / 2), 0);
    *to = (int)fmin(rint(middle + size / 2), limit);
}

static double mix(const double *number, struct sgrad_chances *chances, const struct sgrad_pixels *other,
                  struct sgrad_pixels *image) {
    const double drawn = sgrad__beta(*number, chances), side = sqrt(1 - fmax(drawn, 1 - drawn));
    int top, bottom, left, right;
    place(side * image->height, image->height, chances, &top, &bottom);
    place(side * image->width, image->width, chances, &left, &right);
    for (int h = top; h < bottom; h++) {
        const size_t at = ((size_t)h * (size_t)image->width + (size_t)left) * (size_t)image->channels;
        memcpy(image->value + at, other->value + at, (size_t)(right - left) * (size_t)image->channels * sizeof *image->value);
    }
    return 1 - (double)(bottom - top) * (right - left) / ((double)image->height * image->width);
}

const struct sgrad_augmentation sgrad_cutmix_augmentation = {
    .name = "cutmix",
    .argument = "A",
    .summary = "rectangle of another image pasted in, and labels mixed in proportion; its area is drawn from Beta(A,A) [1]",
    .source = "Yun et al., CutMix: regularization strategy to train strong classifiers, 2019",
    .numbers = 1,
    .number = { { .usual = 1, .low = 0.01, .high = 4 } },
    .mix = mix,
};
