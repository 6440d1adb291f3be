/* image.c: pixels to activations, y = (x / full_scale - mean) / deviation per channel. In training the image is first
 * padded with black, cropped at random and flipped at random; draw.h says how:
 *
 *     x                     . . . . .
 *     a b c    pad by 1     . a b c .    down = 1     d e f            f e d
 *     d e f       ->        . d e f .    right = 0    g h i    flip    i h g
 *     g h i                 . g h i .       ->        . . .     ->     . . .
 *                           . . . . .
 *
 * What is drawn depends on (seed, epoch, sample) alone. A channel takes at most 256 values, so each is computed once. */
#include "config.h"
#include "codelets/draw.h"
#include "codelets/kernels.h"
#include "codelets/ops/image.h"

void sgrad__image_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *s, void *attrs) {
    struct sgrad_image *image = attrs;
    const struct sgrad_shape *x = &s->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 4 || x->dim[3] > SGRAD_MAX_CHANNELS)
        return sgrad_fail(SGRAD_ESHAPE, "%s: image takes pixels (N,H,W,C) of %d channels at most, not %s", s->layer,
                          SGRAD_MAX_CHANNELS, sgrad_shape_text(x, text));
    if (image->full_scale == 0) image->full_scale = 1;
    for (int c = 0; c < SGRAD_MAX_CHANNELS; c++)
        if (image->deviation[c] == 0) image->deviation[c] = 1;
    s->y.shape = *x;
    return 0;
}

static struct sgrad__crop crop_of(const struct sgrad_args *a, int64_t sample) {
    const struct sgrad_image *attrs = a->attrs;
    const struct sgrad_step *step = a->step;
    if (!step->training) return (struct sgrad__crop){ 0, 0, false };
    return sgrad__image_draw(step->seed, step->epoch, step->sample[a->first - step->first + sample], attrs->pad, attrs->flip);
}

/* x (N,H,W,C) U8, y (N,H,W,C) */
static void forward(const struct sgrad_args *a) {
    const struct sgrad_image *attrs = a->attrs;
    const int64_t *dim = a->view[0].shape.dim, height = dim[1], width = dim[2], channels = dim[3];
    const enum sgrad_dtype type = a->view[1].dtype;
    float table[SGRAD_MAX_CHANNELS][256]; /* what value v of channel c becomes */
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

static void fill(const struct sgrad_test *test, int input, void *data) {
    uint8_t *pixel = data;
    for (int64_t i = 0; i < sgrad_shape_count(&test->x[input]); i++) pixel[i] = (uint8_t)(37 * i % 251);
}

const struct sgrad_op sgrad_image_op = {
    .name = "image",
    .summary = "pixels to activations: normalised by channel; in training padded, cropped and flipped at random",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_image),
    .no_gradient = 1u << 0,
    .input_dtype = { SGRAD_U8 },
    .infer = infer,
    .forward = { { { .name = "image", .kind = &sgrad_input_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__image_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .fill = fill,
    .tests = {
        { "7 images of 5x4x3", .x = { { 4, { 7, 5, 4, 3 } } },
          &(struct sgrad_image){ .full_scale = 255, .mean = { 0.5f, 0.4f, 0.3f }, .deviation = { 0.2f, 0.3f, 0.4f } } },
        { "cropped and flipped", .x = { { 4, { 9, 6, 7, 1 } } },
          &(struct sgrad_image){ .full_scale = 16, .mean = { 0.3f }, .deviation = { 0.5f }, .pad = 2, .flip = true } },
    },
};
