/* resize.c: scales and crops an image to a square, as torchvision's Resize and CenterCrop do with Pillow.
 *
 * The shorter side is scaled to the side of the square, or, as is usual in evaluations of ImageNet, to more (256 for 224).
 *
 *     h x w       columns weighted      h x side       rows weighted      side x side
 *                                                                                        shown for w > h: the dots are
 *     ########    ------------------>   .####.         ---------------->  .##.           columns cut off on both sides,
 *     ########                          .####.                            .##.           never computed
 *     ########                          .####.
 *
 * Each output pixel is a weighted mean of input pixels; the weights are a triangle. If the image shrinks, the triangle is two
 * output pixels wide, to avoid aliasing. If it grows, the triangle is two input pixels wide (bilinear interpolation). The axes
 * are processed one after the other, with rounding to integers in between. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Output pixel i is the sum over j < count[i] of weight[i*most + j] times input pixel first[i] + j. */
struct filter {
    int most, *first, *count;
    float *weight;
};

/* Creates the filter from LENGTH pixels, scaled to SCALED, to the SIDE pixels in the middle. */
static struct filter filter_create(int length, int64_t scaled, int side) {
    const double scale = (double)length / (double)scaled, reach = fmax(scale, 1);
    const int64_t cut = (scaled - side) / 2 + ((scaled - side) % 4 == 3);      /* torchvision rounds halves to even */
    struct filter filter = { .most = 2 * (int)ceil(reach) + 1 };
    filter.first = sgrad_xcalloc((size_t)side, sizeof *filter.first);
    filter.count = sgrad_xcalloc((size_t)side, sizeof *filter.count);
    filter.weight = sgrad_xcalloc((size_t)side * (size_t)filter.most, sizeof *filter.weight);
    for (int i = 0; i < side; i++) {
        const double centre = ((double)(cut + i) + 0.5) * scale;
        const int from = (int)fmax(centre - reach + 0.5, 0), to = (int)fmin(centre + reach + 0.5, length);
        float *weight = filter.weight + (size_t)i * (size_t)filter.most;
        double sum = 0;
        for (int j = from; j < to; j++) sum += weight[j - from] = (float)fmax(1 - fabs((j + 0.5 - centre) / reach), 0);
        for (int j = from; j < to; j++) weight[j - from] = (float)(weight[j - from] / sum);
        filter.first[i] = from;
        filter.count[i] = to - from;
    }
    return filter;
}

static void filter_destroy(struct filter *filter) {
    free(filter->first);
    free(filter->count);
    free(filter->weight);
}

/* Three channels of a pixel, and one unused number: one vector register. Addresses need the alignment of a float only. */
typedef float pixel __attribute__((vector_size(4 * sizeof(float)), aligned(sizeof(float))));

static inline float value_of(const void *x, size_t i, bool deep) {
    return deep ? ((const uint16_t *)x)[i] : ((const uint8_t *)x)[i];
}

/* Writes the COUNT numbers X, which include 0.5 for rounding, to TO, from number AT on. */
static inline void put(const float *x, size_t count, void *to, size_t at, bool deep) {
    const float most = deep ? 65535 : 255;
    for (size_t i = 0; i < count; i++)
        if (deep) ((uint16_t *)to)[at + i] = (uint16_t)(x[i] < most ? x[i] : most);
        else ((uint8_t *)to)[at + i] = (uint8_t)(x[i] < most ? x[i] : most);
}

/* Scales a row of pixels at number AT of FROM to SIDE pixels at number TO_AT of TO. LINE has room for the row, and SCALED for the
 * scaled row, each with one more number. */
static inline void fit_row(const struct filter *columns, const void *from, size_t at, int side, void *to, size_t to_at,
                           float *line, float *scaled, bool deep) {
    const size_t begin = 3 * (size_t)columns->first[0];
    const size_t end = 3 * (size_t)(columns->first[side - 1] + columns->count[side - 1]);
    for (size_t i = begin; i < end; i++) line[i] = value_of(from, at + i, deep);
    for (int i = 0; i < side; i++) {
        const float *weight = columns->weight + (size_t)i * (size_t)columns->most;
        const float *x = line + 3 * (size_t)columns->first[i];
        pixel sum = { 0.5f, 0.5f, 0.5f };
        for (int j = 0; j < columns->count[i]; j++) sum += weight[j] * *(const pixel *)(const void *)(x + 3 * j);
        *(pixel *)(void *)(scaled + 3 * i) = sum;
    }
    put(scaled, 3 * (size_t)side, to, to_at, deep);
}

/* Computes row I of TO, of STRIDE numbers, from the rows of NARROW. SUM has room for a row. */
static inline void fit_column(const struct filter *rows, int i, const void *narrow, size_t stride, void *to, float *sum,
                              bool deep) {
    const float *weight = rows->weight + (size_t)i * (size_t)rows->most;
    for (size_t k = 0; k < stride; k++) sum[k] = 0.5f;
    for (int j = 0; j < rows->count[i]; j++) {
        const size_t first = (size_t)(rows->first[i] + j) * stride;
        for (size_t k = 0; k < stride; k++) sum[k] += weight[j] * value_of(narrow, first + k, deep);
    }
    put(sum, stride, to, (size_t)i * stride, deep);
}

/* FROM is (height,width,3) and TO (side,side,3), both of 16 bits if DEEP is set, which is a constant in each call. */
__attribute__((always_inline)) static inline void fit(const struct sgrad__image *image, const void *from, int scaled,
                                                      int side, void *to, bool deep) {
    const int height = image->height, width = image->width, least = height < width ? height : width;
    struct filter columns = filter_create(width, (int64_t)width * scaled / least, side);
    struct filter rows = filter_create(height, (int64_t)height * scaled / least, side);
    const size_t stride = 3 * (size_t)side, row = 3 * (size_t)width;
    void *narrow = sgrad_xcalloc((size_t)height, stride * (deep ? 2 : 1)); /* (height,side,3) */
    float *line = sgrad_xcalloc(row + 1, sizeof *line), *scaled_row = sgrad_xcalloc(stride + 1, sizeof *scaled_row);
    const int top = rows.first[0], bottom = rows.first[side - 1] + rows.count[side - 1];
    for (int y = top; y < bottom; y++)
        fit_row(&columns, from, (size_t)y * row, side, narrow, (size_t)y * stride, line, scaled_row, deep);
    for (int y = 0; y < side; y++) fit_column(&rows, y, narrow, stride, to, scaled_row, deep);
    free(scaled_row);
    free(line);
    free(narrow);
    filter_destroy(&columns);
    filter_destroy(&rows);
}

void sgrad__image_fit(const struct sgrad__image *image, int scaled, int side, void *to) {
    const void *from = image->rgb16 ? (const void *)image->rgb16 : image->rgb;
    if (image->height == side && image->width == side && scaled == side)
        memcpy(to, from, 3 * (size_t)side * (size_t)side * (image->rgb16 ? 2 : 1));
    else if (image->rgb16)
        fit(image, from, scaled, side, to, true);
    else
        fit(image, from, scaled, side, to, false);
}
