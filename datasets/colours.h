/* colours.h: what several augmentations do: changes of an image's values, in place; maps; random shares. Private to datasets/. */
#ifndef SGRAD_DATASETS_COLOURS_H
#define SGRAD_DATASETS_COLOURS_H

#include "datasets/datasets.h"

/* Number I of the field's DATA; COUNT of them, as numbers that can be changed; and those, whole ones, as DATA again. */
static inline float sgrad__pixel(const struct sgrad_field *image, const void *data, int64_t i) {
    return image->dtype == SGRAD_U16 ? ((const uint16_t *)data)[i] : ((const uint8_t *)data)[i];
}
void sgrad__pixels_take(const struct sgrad_field *image, const void *data, int64_t count, float *to);
void sgrad__pixels_give(const struct sgrad_field *image, const float *from, int64_t count, void *data);

/* Times FACTOR; farther, by it, from the mean of grey; from the pixel's own grey; from the image made soft. Within the scale. */
void sgrad__brighten(struct sgrad_pixels *image, double factor);
void sgrad__contrast(struct sgrad_pixels *image, double factor);
void sgrad__saturate(struct sgrad_pixels *image, double factor);
void sgrad__sharpen(struct sgrad_pixels *image, double factor);

void sgrad__posterize(struct sgrad_pixels *image, int bits);        /* values keep so many of 8 bits */
void sgrad__solarize(struct sgrad_pixels *image, double from);      /* values from this share of the scale on are inverted */
void sgrad__autocontrast(struct sgrad_pixels *image);               /* of each channel the least is 0, the largest the scale */
void sgrad__equalize(struct sgrad_pixels *image);                   /* of each channel all values are about as frequent */

/* The map that leads by FIRST, and from there by SECOND. */
struct sgrad_affine sgrad__affine_after(const struct sgrad_affine *first, const struct sgrad_affine *second);
/* augment.c: a sample's image, or every slice of it, at DATA, in place. */
void sgrad__pixels_move(const struct sgrad_dataset *dataset, const struct sgrad_affine *map, void *data);

double sgrad__beta(double a, struct sgrad_chances *chances);        /* drawn from Beta(A,A); A is 4 at most */

#endif
