/* cutout.c: sets the pixels of a square, at a random position, to the image's mean. */
#include "config.h"
#include "datasets/datasets.h"

#include <math.h>

static void change(const double *number, struct sgrad_chances *chances, struct sgrad_pixels *image) {
    const int side = (int)*number, count = image->height * image->width;
    const int top = (int)(sgrad_chance(chances) * image->height) - side / 2;
    const int left = (int)(sgrad_chance(chances) * image->width) - side / 2;
    for (int c = 0; c < image->channels; c++) {
        double sum = 0;
        for (int i = 0; i < count; i++) sum += image->value[i * image->channels + c];
        const float mean = (float)rint(sum / count);
        for (int h = top < 0 ? 0 : top; h < top + side && h < image->height; h++)
            for (int w = left < 0 ? 0 : left; w < left + side && w < image->width; w++)
                image->value[(h * image->width + w) * image->channels + c] = mean;
    }
}

const struct sgrad_augmentation sgrad_cutout_augmentation = {
    .name = "cutout",
    .argument = "N",
    .summary = "square of N pixels, or 1/N of the shorter side, at a random position, filled with the image's mean",
    .source = "DeVries, Taylor, Improved regularization of convolutional neural networks with Cutout, 2017",
    .numbers = 1,
    .number = { { .low = 1, .high = 8192, .pixels = true } },
    .change = change,
};
