/* randaugment.c: several random changes, all of the same strength. Those that move pixels come first, as with all
 * augmentations. */
#include "config.h"
#include "datasets/colours.h"

#include <math.h>

enum { STRENGTHS = 30 };

/* T is the strength, -1 to 1. */
static void shear_x(double t, int height, int width, struct sgrad_affine *map) {
    (void)width;
    map->xy = 0.3 * t, map->x0 = -map->xy * (height - 1) / 2;
}
static void shear_y(double t, int height, int width, struct sgrad_affine *map) {
    (void)height;
    map->yx = 0.3 * t, map->y0 = -map->yx * (width - 1) / 2;
}
static void shift_x(double t, int height, int width, struct sgrad_affine *map) {
    (void)height;
    map->x0 = rint(0.45 * t * width);
}
static void shift_y(double t, int height, int width, struct sgrad_affine *map) {
    (void)width;
    map->y0 = rint(0.45 * t * height);
}
static void turn(double t, int height, int width, struct sgrad_affine *map) {
    const double angle = t * M_PI / 6, y = (height - 1) / 2.0, x = (width - 1) / 2.0;
    *map = (struct sgrad_affine){ .yy = cos(angle), .yx = -sin(angle), .xy = sin(angle), .xx = cos(angle) };
    map->y0 = y - map->yy * y - map->yx * x;
    map->x0 = x - map->xy * y - map->xx * x;
}
static void brighten(double t, struct sgrad_pixels *image) { sgrad__brighten(image, 1 + 0.9 * t); }
static void saturate(double t, struct sgrad_pixels *image) { sgrad__saturate(image, 1 + 0.9 * t); }
static void contrast(double t, struct sgrad_pixels *image) { sgrad__contrast(image, 1 + 0.9 * t); }
static void sharpen(double t, struct sgrad_pixels *image) { sgrad__sharpen(image, 1 + 0.9 * t); }
static void posterize(double t, struct sgrad_pixels *image) { sgrad__posterize(image, 8 - (int)rint(4 * fabs(t))); }
static void solarize(double t, struct sgrad_pixels *image) { sgrad__solarize(image, 1 - fabs(t)); }
static void autocontrast(double t, struct sgrad_pixels *image) { (void)t, sgrad__autocontrast(image); }
static void equalize(double t, struct sgrad_pixels *image) { (void)t, sgrad__equalize(image); }

/* The first entry changes nothing. */
static const struct one {
    void (*move)(double t, int height, int width, struct sgrad_affine *map);
    void (*change)(double t, struct sgrad_pixels *image);
} ones[] = {
    { NULL, NULL },     { shear_x, NULL },  { shear_y, NULL },  { shift_x, NULL },   { shift_y, NULL },
    { turn, NULL },     { NULL, brighten }, { NULL, saturate }, { NULL, contrast },  { NULL, sharpen },
    { NULL, posterize }, { NULL, solarize }, { NULL, autocontrast }, { NULL, equalize },
};

/* Draws the next change of the sample, and its strength T. move and change have the same stream, so they draw the same
 * sequence. */
static const struct one *next(const double *number, struct sgrad_chances *chances, double *t) {
    const struct one *one = &ones[(int)(sgrad_chance(chances) * (double)(sizeof ones / sizeof *ones))];
    *t = (sgrad_chance(chances) < 0.5 ? -1 : 1) * number[1] / STRENGTHS;
    return one;
}

/* Each change is applied to the result of the changes before it: its map is evaluated first, then theirs. */
static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    for (int i = 0; i < (int)number[0]; i++) {
        double t;
        struct sgrad_affine one = { .yy = 1, .xx = 1 };
        const struct one *is = next(number, chances, &t);
        if (!is->move) continue;
        is->move(t, height, width, &one);
        *map = sgrad__affine_after(&one, map);
    }
}

static void change(const double *number, struct sgrad_chances *chances, struct sgrad_pixels *image) {
    for (int i = 0; i < (int)number[0]; i++) {
        double t;
        const struct one *is = next(number, chances, &t);
        if (is->change) is->change(t, image);
    }
}

const struct sgrad_augmentation sgrad_randaugment_augmentation = {
    .name = "randaugment",
    .argument = "N,M",
    .summary = "N random changes of 14 kinds, with strength M, at most 30 [2,9]",
    .source = "Cubuk et al., RandAugment: practical automated data augmentation, 2019; strengths as torchvision has them",
    .numbers = 2,
    .number = { { .usual = 2, .low = 1, .high = 14 }, { .usual = 9, .low = 0, .high = STRENGTHS } },
    .move = move,
    .change = change,
};
