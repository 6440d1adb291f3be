/* resize.c: an image to a square of another size, as torchvision's Resize and CenterCrop do it with Pillow.
 *
 *     h x w       columns weighed       h x side       rows weighed       side x side
 *                                                                                        shown for w > h: the dots are
 *     ########    ------------------>   .####.         ---------------->  .##.           columns cut off on both sides,
 *     ########                          .####.                            .##.           never computed
 *     ########                          .####.
 *
 * Each pixel of the result is a weighted mean of the pixels under it: a triangle, two output pixels wide (bilinear
 * interpolation when the image grows), over as many pixels as it covers when the image shrinks, so that nothing aliases.
 * One axis after the other, rounded to 8 bits in between. */
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

/* From LENGTH pixels, were they scaled to SCALED, the SIDE in the middle. */
static struct filter filter_create(int length, int64_t scaled, int side) {
    const double scale = (double)length / (double)scaled, reach = fmax(scale, 1);
    const int64_t cut = (scaled - side) / 2;
    struct filter filter = { .most = 2 * (int)ceil(reach) + 1 };
    filter.first = sgrad_alloc((size_t)side, sizeof *filter.first);
    filter.count = sgrad_alloc((size_t)side, sizeof *filter.count);
    filter.weight = sgrad_alloc((size_t)side * (size_t)filter.most, sizeof *filter.weight);
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

/* Pixel i of TO from a line of pixels that lie STRIDE bytes apart. */
static void weigh(const struct filter *filter, int i, const uint8_t *from, size_t stride, uint8_t *to) {
    const float *weight = filter->weight + (size_t)i * (size_t)filter->most;
    const uint8_t *x = from + (size_t)filter->first[i] * stride;
    float r = 0.5f, g = 0.5f, b = 0.5f;
    for (int j = 0; j < filter->count[i]; j++, x += stride) {
        r += weight[j] * x[0];
        g += weight[j] * x[1];
        b += weight[j] * x[2];
    }
    to[0] = (uint8_t)fminf(r, 255);
    to[1] = (uint8_t)fminf(g, 255);
    to[2] = (uint8_t)fminf(b, 255);
}

void sgrad__image_fit(const struct sgrad__image *image, int side, uint8_t *to) {
    const int height = image->height, width = image->width, least = height < width ? height : width;
    if (height == side && width == side) {
        memcpy(to, image->rgb, 3 * (size_t)side * (size_t)side);
        return;
    }
    struct filter columns = filter_create(width, (int64_t)width * side / least, side);
    struct filter rows = filter_create(height, (int64_t)height * side / least, side);
    const size_t stride = 3 * (size_t)side;
    uint8_t *narrow = sgrad_alloc((size_t)height, stride); /* (height,side,3) */
    const int top = rows.first[0], bottom = rows.first[side - 1] + rows.count[side - 1];
    for (int y = top; y < bottom; y++)
        for (int x = 0; x < side; x++)
            weigh(&columns, x, image->rgb + 3 * (size_t)y * (size_t)width, 3, narrow + (size_t)y * stride + 3 * x);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) weigh(&rows, y, narrow + 3 * x, stride, to + (size_t)y * stride + 3 * x);
    free(narrow);
    filter_destroy(&columns);
    filter_destroy(&rows);
}
