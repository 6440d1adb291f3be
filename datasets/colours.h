/* colours.h: common functions of augmentations: changes of the values of an image, maps of pixels, random numbers. Private to
 * datasets/. */
#ifndef SGRAD_DATASETS_COLOURS_H
#define SGRAD_DATASETS_COLOURS_H

#include "datasets/datasets.h"

/* sgrad__pixel returns value I of DATA, the values of a field with pixels. sgrad__pixels_take converts COUNT values to floats.
 * sgrad__pixels_give converts floats, which must be integers in the range of the type, to values. */
static inline float sgrad__pixel(const struct sgrad_field *image, const void *data, int64_t i) {
    return image->dtype == SGRAD_U16 ? ((const uint16_t *)data)[i] : ((const uint8_t *)data)[i];
}
void sgrad__pixels_take(const struct sgrad_field *image, const void *data, int64_t count, float *to);
void sgrad__pixels_give(const struct sgrad_field *image, const float *from, int64_t count, void *data);

/* brighten multiplies values by FACTOR. The others multiply by FACTOR the difference of a value from the mean grey of the image
 * (contrast), from the grey of its pixel (saturate), or from the smoothed image (sharpen). Results are rounded to integers and
 * limited to 0 to full_scale. The method is that of Pillow's ImageEnhance. */
void sgrad__brighten(struct sgrad_pixels *image, double factor);
void sgrad__contrast(struct sgrad_pixels *image, double factor);
void sgrad__saturate(struct sgrad_pixels *image, double factor);
void sgrad__sharpen(struct sgrad_pixels *image, double factor);

void sgrad__posterize(struct sgrad_pixels *image, int bits);        /* Retains the upper BITS of 8 bits of each value. */
void sgrad__solarize(struct sgrad_pixels *image, double from);      /* Inverts values of at least FROM·full_scale. */
void sgrad__autocontrast(struct sgrad_pixels *image);               /* Scales each channel to 0 to full_scale. */
void sgrad__equalize(struct sgrad_pixels *image);                   /* Makes the values of a channel about equally frequent. */

/* Returns the composition of two maps: pixel p of the result is read at SECOND(FIRST(p)). */
struct sgrad_affine sgrad__affine_after(const struct sgrad_affine *first, const struct sgrad_affine *second);
/* augment.c: applies MAP to a sample's image, or to every slice of its volume. Overwrites DATA. */
void sgrad__pixels_move(const struct sgrad_dataset *dataset, const struct sgrad_affine *map, void *data);

double sgrad__beta(double a, struct sgrad_chances *chances);        /* a random number from Beta(A,A); A is at most 4 */

#endif
