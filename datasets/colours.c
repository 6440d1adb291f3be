/* colours.c: functions that several augmentations use: changes of the values of an image, as in Pillow's ImageEnhance and
 * ImageOps, composition of maps, and random numbers from a beta distribution. */
#include "config.h"
#include "datasets/colours.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sgrad__pixels_take(const struct sgrad_field *image, const void *data, int64_t count, float *to) {
    if (image->dtype == SGRAD_U16)
        for (int64_t i = 0; i < count; i++) to[i] = ((const uint16_t *)data)[i];
    else
        for (int64_t i = 0; i < count; i++) to[i] = ((const uint8_t *)data)[i];
}

void sgrad__pixels_give(const struct sgrad_field *image, const float *from, int64_t count, void *data) {
    if (image->dtype == SGRAD_U16)
        for (int64_t i = 0; i < count; i++) ((uint16_t *)data)[i] = (uint16_t)from[i];
    else
        for (int64_t i = 0; i < count; i++) ((uint8_t *)data)[i] = (uint8_t)from[i];
}

static int64_t values_of(const struct sgrad_pixels *image) {
    return (int64_t)image->height * image->width * image->channels;
}

static float limited(const struct sgrad_pixels *image, double value) {
    return (float)rint(fmin(fmax(value, 0), (double)image->full_scale));
}

/* Multiplies the difference of VALUE from BASE by FACTOR; a factor of 1 changes nothing. */
static float away(const struct sgrad_pixels *image, double base, float value, double factor) {
    return limited(image, base + factor * (value - base));
}

/* Returns the luma of an RGB pixel (ITU-R BT.601); with another number of channels, their mean. */
static double grey_of(const struct sgrad_pixels *image, const float *pixel) {
    double sum = 0;
    if (image->channels == 3) return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
    for (int c = 0; c < image->channels; c++) sum += pixel[c];
    return sum / image->channels;
}

void sgrad__brighten(struct sgrad_pixels *image, double factor) {
    for (int64_t i = 0; i < values_of(image); i++) image->value[i] = away(image, 0, image->value[i], factor);
}

void sgrad__contrast(struct sgrad_pixels *image, double factor) {
    double mean = 0;
    for (int64_t i = 0; i < values_of(image); i += image->channels) mean += grey_of(image, image->value + i);
    mean /= (double)(values_of(image) / image->channels);
    for (int64_t i = 0; i < values_of(image); i++) image->value[i] = away(image, mean, image->value[i], factor);
}

void sgrad__saturate(struct sgrad_pixels *image, double factor) {
    for (int64_t i = 0; i < values_of(image); i += image->channels) {
        const double grey = grey_of(image, image->value + i);
        for (int c = 0; c < image->channels; c++) image->value[i + c] = away(image, grey, image->value[i + c], factor);
    }
}

/* The smoothed image is the mean over 3x3 pixels, in which the middle pixel counts five times. Pixels at the border are not
 * changed. */
void sgrad__sharpen(struct sgrad_pixels *image, double factor) {
    const size_t row = (size_t)image->width * (size_t)image->channels, size = row * (size_t)image->height;
    float *old = sgrad_xcalloc(size, sizeof *old);
    memcpy(old, image->value, size * sizeof *old);
    for (int h = 1; h < image->height - 1; h++)
        for (size_t at = (size_t)h * row + (size_t)image->channels; at < (size_t)(h + 1) * row - (size_t)image->channels; at++) {
            double sum = 4.0 * old[at];
            for (const float *line = old + at - row; line <= old + at + row; line += row)
                sum += line[-image->channels] + line[0] + line[image->channels];
            image->value[at] = away(image, sum / 13, old[at], factor);
        }
    free(old);
}

void sgrad__posterize(struct sgrad_pixels *image, int bits) {
    for (int64_t i = 0; i < values_of(image); i++) {
        const int value = (int)(image->value[i] * 255.0f / image->full_scale) & ~((1 << (8 - bits)) - 1);
        image->value[i] = limited(image, value * image->full_scale / 255);
    }
}

void sgrad__solarize(struct sgrad_pixels *image, double from) {
    for (int64_t i = 0; i < values_of(image); i++)
        if (image->value[i] >= from * image->full_scale) image->value[i] = limited(image, image->full_scale - image->value[i]);
}

/* Returns the largest possible value, of 8 or of 16 bits. */
static int largest(const struct sgrad_pixels *image) { return image->full_scale > 255 ? 65535 : 255; }

/* Returns how often each value occurs in channel C, for all values from 0 to the largest possible one. The caller must free
 * it. */
static int64_t *count(const struct sgrad_pixels *image, int c) {
    int64_t *times = sgrad_xcalloc((size_t)largest(image) + 1, sizeof *times);
    for (int64_t i = c; i < values_of(image); i += image->channels) times[(int)image->value[i]]++;
    return times;
}

static void replace(struct sgrad_pixels *image, int c, const float *by) {
    for (int64_t i = c; i < values_of(image); i += image->channels) image->value[i] = by[(int)image->value[i]];
}

void sgrad__autocontrast(struct sgrad_pixels *image) {
    float *by = sgrad_xcalloc((size_t)largest(image) + 1, sizeof *by);
    for (int c = 0; c < image->channels; c++) {
        int low = 0, high = largest(image);
        int64_t *times = count(image, c);
        while (!times[low]) low++;
        while (!times[high]) high--;
        for (int v = low; v <= high; v++) by[v] = limited(image, (v - low) * (double)image->full_scale / (high - low));
        if (low < high) replace(image, c, by);
        free(times);
    }
    free(by);
}

/* Replaces a value by the fraction of the channel's values that are below it, scaled to full_scale. Values equal to the channel's
 * maximum are not counted in the total. */
void sgrad__equalize(struct sgrad_pixels *image) {
    float *by = sgrad_xcalloc((size_t)largest(image) + 1, sizeof *by);
    for (int c = 0; c < image->channels; c++) {
        int high = largest(image);
        int64_t *times = count(image, c);
        while (!times[high]) high--;
        const int64_t all = values_of(image) / image->channels - times[high];
        int64_t below = 0;
        for (int v = 0; v <= high && all; below += times[v++])
            by[v] = limited(image, (double)below * (double)image->full_scale / (double)all);
        if (all) replace(image, c, by);
        free(times);
    }
    free(by);
}

struct sgrad_affine sgrad__affine_after(const struct sgrad_affine *one, const struct sgrad_affine *other) {
    return (struct sgrad_affine){
        .y0 = other->y0 + other->yy * one->y0 + other->yx * one->x0,
        .yy = other->yy * one->yy + other->yx * one->xy,
        .yx = other->yy * one->yx + other->yx * one->xx,
        .x0 = other->x0 + other->xy * one->y0 + other->xx * one->x0,
        .xy = other->xy * one->yy + other->xx * one->xy,
        .xx = other->xy * one->yx + other->xx * one->xx,
        .reflect = one->reflect || other->reflect,
    };
}

/* Jöhnk's method (1964): two uniform numbers, raised to the power 1/a, are drawn until their sum is at most 1. The result is the
 * first divided by the sum. */
double sgrad__beta(double a, struct sgrad_chances *chances) {
    for (;;) {
        const double x = pow(sgrad_chance(chances), 1 / a), y = pow(sgrad_chance(chances), 1 / a);
        if (x + y > 0 && x + y <= 1) return x / (x + y);
    }
}
