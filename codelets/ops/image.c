/* image.c: converts pixels to activations: y = (x / full_scale - mean) / deviation per channel, where deviation is the standard
 * deviation. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/image.h"

void sgrad__image_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_image *image = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if ((x->rank != 4 && x->rank != 5) || x->dim[x->rank - 1] > SGRAD_MAX_CHANNELS)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: image requires pixels (N,H,W,C) or (N,D,H,W,C) of at most %d channels, not %s",
                               signature->layer, SGRAD_MAX_CHANNELS, sgrad_shape_text(x, text));
    if (image->full_scale == 0) image->full_scale = 1;
    for (int c = 0; c < SGRAD_MAX_CHANNELS; c++)
        if (image->deviation[c] == 0) image->deviation[c] = 1;
    signature->y.shape = *x;
    return 0;
}

/* Forward: x (N,H,W,C) or (N,D,H,W,C) U8 or U16, y as x */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    enum { PART = 480 };        /* values computed at a time: a multiple of each number of channels */
    const struct sgrad_image *attrs = args->attrs;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t channels = shape->dim[shape->rank - 1], count = sgrad_shape_count(shape);
    const enum sgrad_dtype type = args->view[1].dtype;
    float mean[PART], deviation[PART], buffer[PART];
    for (int j = 0; j < PART; j++) mean[j] = attrs->mean[j % channels], deviation[j] = attrs->deviation[j % channels];
    for (int64_t i = 0; i < count; i += PART) {
        const int64_t n = count - i < PART ? count - i : (int64_t)PART;
        const uint8_t *x = (const uint8_t *)args->data[0] + i;
        const uint16_t *deep = (const uint16_t *)args->data[0] + i;
        float *y = sgrad_row_out(type, args->data[1], i, buffer);
        if (args->view[0].dtype == SGRAD_U16)
            for (int64_t j = 0; j < n; j++) y[j] = ((float)deep[j] / attrs->full_scale - mean[j]) / deviation[j];
        else
            for (int64_t j = 0; j < n; j++) y[j] = ((float)x[j] / attrs->full_scale - mean[j]) / deviation[j];
        sgrad_row_done(type, args->data[1], i, n, y);
    }
}

static double flops(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void fill(const struct sgrad_test *test, int input, void *data) {
    uint8_t *pixel = data;
    for (int64_t i = 0; i < sgrad_shape_count(&test->x[input]); i++) pixel[i] = (uint8_t)(37 * i % 251);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_image *image = attrs;
    const int rank = signature->x[0].shape.rank, channels = (int)signature->x[0].shape.dim[rank - 1];
    const struct {
        const char *name;
        const float *value;
    } by_channel[] = { { "mean", image->mean }, { "deviation", image->deviation } };
    fprintf(to, "number = Cast <to = 1> (x)\nfull = Constant <value = float {%.9g}> ()\nshare = Div (number, full)\n",
            image->full_scale);
    for (int i = 0; i < 2; i++) {
        fprintf(to, "%s = Constant <value = float[1, %d, 1, 1%s] {", by_channel[i].name, channels, rank == 5 ? ", 1" : "");
        for (int c = 0; c < channels; c++) fprintf(to, "%s%.9g", c ? ", " : "", by_channel[i].value[c]);
        fputs("}> ()\n", to);
    }
    fputs("distance = Sub (share, mean)\ny = Div (distance, deviation)", to);
}

const struct sgrad_op sgrad_image_op = {
    .name = "image",
    .summary = "conversion of pixels to activations, normalised per channel",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_image),
    .no_gradient = 1u << 0,
    .input_dtype = { SGRAD_U8 },
    .infer = infer,
    .onnx = onnx,
    .forward = { { { .name = "image", .kind = &sgrad_input_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__image_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .fill = fill,
    .tests = {
        { "7 images of 5x4x3", .x = { { 4, { 7, 5, 4, 3 } } },
          &(struct sgrad_image){ .full_scale = 255, .mean = { 0.5f, 0.4f, 0.3f }, .deviation = { 0.2f, 0.3f, 0.4f } } },
        { "2 volumes of 3x5x4x2", .x = { { 5, { 2, 3, 5, 4, 2 } } },
          &(struct sgrad_image){ .full_scale = 255, .mean = { 0.5f, 0.4f }, .deviation = { 0.2f, 0.3f } } },
    },
};
