/* image.c: pixels to activations, y = (x / full_scale - mean) / deviation per channel. In training the image is first
 * padded with black, cropped at random and flipped at random; draw.h says how:
 *
 *     x                     . . . . .
 *     a b c    pad by 1     . a b c .    down = 1     d e f            f e d
 *     d e f       ->        . d e f .    right = 0    g h i    flip    i h g
 *     g h i                 . g h i .       ->        . . .     ->     . . .
 *                           . . . . .
 *
 * A channel takes at most 256 values, so each is computed once. */
#include "config.h"
#include "codelets/draw.h"
#include "codelets/kernels.h"

#include <assert.h>

void sgrad__image_cuda(const struct sgrad_args *a);

static struct sgrad__crop crop_of(const struct sgrad_args *a, int64_t sample) {
    const struct sgrad_image *attrs = a->attrs;
    const struct sgrad_step *step = a->step;
    if (!step->training) return (struct sgrad__crop){ 0, 0, false };
    return sgrad__image_draw(step->seed, step->epoch, step->sample[a->first - step->first + sample], attrs->pad, attrs->flip);
}

/* x (N,H,W,C) U8, y (N,H,W,C) */
static void image(const struct sgrad_args *a) {
    const struct sgrad_image *attrs = a->attrs;
    const int64_t *dim = a->view[0].shape.dim, height = dim[1], width = dim[2], channels = dim[3];
    const enum sgrad_dtype type = a->view[1].dtype;
    float table[SGRAD_MAX_CHANNELS][256]; /* what value v of channel c becomes */
    assert(channels <= SGRAD_MAX_CHANNELS);
    for (int c = 0; c < channels; c++)
        for (int v = 0; v < 256; v++) table[c][v] = ((float)v / attrs->full_scale - attrs->mean[c]) / attrs->deviation[c];

    int64_t to = 0;
    for (int64_t s = 0; s < dim[0]; s++) {
        const struct sgrad__crop crop = crop_of(a, s);
        const uint8_t *x = (const uint8_t *)a->data[0] + s * height * width * channels;
        for (int64_t h = 0; h < height; h++)
            for (int64_t w = 0; w < width; w++) {
                int64_t from_h = h + crop.down, from_w = (crop.flip ? width - 1 - w : w) + crop.right;
                bool inside = from_h >= 0 && from_h < height && from_w >= 0 && from_w < width;
                const uint8_t *pixel = inside ? x + (from_h * width + from_w) * channels : NULL;
                for (int64_t c = 0; c < channels; c++) sgrad_put(type, a->data[1], to++, table[c][pixel ? pixel[c] : 0]);
            }
    }
}

static double flops(const struct sgrad_args *a) { return 3.0 * (double)sgrad_shape_count(&a->view[0].shape); }

const struct sgrad_kernel sgrad_image_kernel = {
    .name = "image",
    .kind = &sgrad_input_kind,
    .cpu = image,
    .cuda = SGRAD_ON_CUDA(sgrad__image_cuda),
    .flops = flops,
};
