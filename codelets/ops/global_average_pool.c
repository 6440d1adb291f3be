/* global_average_pool.c: the mean of every channel over an image, or over rows: (N,…,C) to (N,C), or to (N,1,…,1,C). */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/global_average_pool.h"

void sgrad__global_average_pool_forward_cuda(const struct sgrad_args *a);
void sgrad__global_average_pool_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_global_average_pool *pool = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 3)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: global_average_pool requires images (N,H,W,C) or rows (N,T,C), not %s",
                               signature->layer, sgrad_shape_text(x, text));
    signature->y.shape = (struct sgrad_shape){ 2, { x->dim[0], x->dim[x->rank - 1] } };
    if (!pool->keep) return 0;
    signature->y.shape = *x;
    for (int i = 1; i < x->rank - 1; i++) signature->y.shape.dim[i] = 1;
    return 0;
}

static int64_t channels_of(const struct sgrad_shape *shape) { return shape->dim[shape->rank - 1]; }
static int64_t pixels_of(const struct sgrad_shape *shape) {
    return sgrad_shape_count(shape) / shape->dim[0] / channels_of(shape);
}

/* Adds PIXELS pixels of CHANNELS values, fewer than SGRAD_ROW, to SUM. Adds as many pixels at once as fit in a row of floats, so
 * that a few channels fill the vector registers, too; the sums of these are added at the end. */
SGRAD_ALWAYS_INLINE void add_pixels(enum sgrad_dtype type, const void *data, int64_t from, int64_t pixels, int64_t channels,
                                    float *sum) {
    const int64_t wide = SGRAD_ROW / channels * channels, count = pixels * channels;
    float room[SGRAD_ROW], sums[SGRAD_ROW] = { 0 };
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < wide ? count - i : wide;
        const float *x = sgrad_row(type, data, from + i, n, room);
        for (int64_t j = 0; j < n; j++) sums[j] += x[j];
    }
    for (int64_t j = 0; j < wide; j += channels)
        for (int64_t c = 0; c < channels; c++) sum[c] += sums[j + c];
}

/* x (N,…,C), y (N,C) or (N,1,…,1,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    enum { FEW = 16 };
    enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad_shape *x_is = &args->view[0].shape;
    const int64_t pixels = pixels_of(x_is), channels = channels_of(x_is);
    float x_room[SGRAD_ROW], sum[SGRAD_ROW], y_room[SGRAD_ROW], scale = 1.0f / (float)pixels;
    for (int64_t s = 0; s < x_is->dim[0]; s++)
        for (int64_t c = 0, n; (n = sgrad_chunk(c, channels)); c += n) {
            memset(sum, 0, sizeof sum);
            if (channels < FEW) add_pixels(type, args->data[0], s * pixels * channels, pixels, channels, sum);
            for (int64_t p = 0; p < pixels && channels >= FEW; p++) {
                const float *x = sgrad_row(type, args->data[0], (s * pixels + p) * channels + c, n, x_room);
                for (int64_t j = 0; j < n; j++) sum[j] += x[j];
            }
            float *y = sgrad_row_out(type, args->data[1], s * channels + c, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = sum[j] * scale;
            sgrad_row_done(type, args->data[1], s * channels + c, n, y);
        }
}

/* dy (N,C) or (N,1,…,1,C), dx (N,…,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    enum sgrad_dtype type = args->view[1].dtype;
    const struct sgrad_shape *x_is = &args->view[1].shape;
    const int64_t pixels = pixels_of(x_is), channels = channels_of(x_is);
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW], scale = 1.0f / (float)pixels;
    for (int64_t s = 0; s < x_is->dim[0]; s++)
        for (int64_t c = 0, n; (n = sgrad_chunk(c, channels)); c += n) {
            const float *dy = sgrad_row(type, args->data[0], s * channels + c, n, dy_room);
            for (int64_t p = 0; p < pixels; p++) {
                int64_t from = (s * pixels + p) * channels + c;
                float *dx = sgrad_row_sum(type, args->data[1], from, n, sgrad_adds(args, 1), dx_room);
                for (int64_t j = 0; j < n; j++) dx[j] += dy[j] * scale;
                sgrad_row_done(type, args->data[1], from, n, dx);
            }
        }
}

static double backward_flops(const struct sgrad_args *args) { return (double)sgrad_shape_count(&args->view[1].shape); }

/* For rows (N,T,C), the mean along T. For images, which are (N,C,H,W) in ONNX, a global average pool to (N,C,1,1), flattened
 * unless its dimensions are kept. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const bool keep = ((const struct sgrad_global_average_pool *)attrs)->keep;
    if (signature->x[0].shape.rank > 3)
        fputs(keep ? "y = GlobalAveragePool (x)" : "pixel = GlobalAveragePool (x)\ny = Flatten <axis = 1> (pixel)", to);
    else fprintf(to, "rows = Constant <value = int64[1] {1}> ()\ny = ReduceMean <keepdims = %d> (x, rows)", keep);
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "%s", ((const struct sgrad_global_average_pool *)attrs)->keep ? "to one pixel" : "");
}

const struct sgrad_op sgrad_global_average_pool_op = {
    .name = "global_average_pool",
    .summary = "mean of each channel over the image, or over rows: (N,…,C) to (N,C)",
    .source = "Lin, Chen, Yan, Network in network, 2013",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_global_average_pool),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "global_average_pool forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__global_average_pool_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "global_average_pool backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__global_average_pool_backward_cuda),
                      .flops = backward_flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x17", .x = { { 4, { 1, 5, 3, 17 } } } },
        { "3 images of 7x7x1", .x = { { 4, { 3, 7, 7, 1 } } } },
        { "to one pixel, 3 images of 4x5x8", { { 4, { 3, 4, 5, 8 } } }, &(struct sgrad_global_average_pool){ .keep = true } },
        { "2 samples of 6 rows", .x = { { 3, { 2, 6, 19 } } } },
        { "2 images of 1x2x515", .x = { { 4, { 2, 1, 2, 515 } } } },
    },
};
