/* average_pool.c: the mean of every window, as torch.nn.AvgPool2d. Padding counts as zeros; with exclude_padding
 * (count_include_pad=False) it does not count. */
#include "config.h"
#include "codelets/ops/pool.h"
#include "codelets/ops/onnx.h"
#include "codelets/ops/average_pool.h"

void sgrad__average_pool_forward_cuda(const struct sgrad_args *a);
void sgrad__average_pool_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_average_pool *m = attrs;
    return sgrad__pool_infer(signature, m->kernel, &m->stride, m->padding);
}

static struct sgrad__window window_of(const struct sgrad_args *args) {
    const struct sgrad_average_pool *m = args->attrs;
    return (struct sgrad__window){ m->kernel, m->stride, m->padding };
}

/* Returns the divisor of a window's sum; the window begins at row H and column V of an HxW image. */
static inline float divisor(const struct sgrad_args *args, struct sgrad__window w, int64_t h, int64_t v, int64_t H, int64_t W) {
    const struct sgrad_average_pool *m = args->attrs;
    if (!m->exclude_padding) return (float)(w.kernel * w.kernel);
    const struct sgrad__range rows = sgrad__window_taps(w, h, H), columns = sgrad__window_taps(w, v, W);
    return (float)((rows.end - rows.begin) * (columns.end - columns.begin));
}

/* x (N,H,W,C), y (N,P,Q,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad__window w = window_of(args);
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images x_is = sgrad__images_of(&args->view[0]), y_is = sgrad__images_of(&args->view[1]);
    const int64_t *in = x_is.dim, *out = y_is.dim, H = in[1], W = in[2], C = in[3];
    const int64_t P = out[1], Q = out[2];
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < out[0] * P * Q; pixel++) {
        const int64_t i = pixel / (P * Q), h = pixel / Q % P * w.stride - w.padding, v = pixel % Q * w.stride - w.padding;
        const struct sgrad__range rows = sgrad__window_taps(w, h, H), columns = sgrad__window_taps(w, v, W);
        const float count = divisor(args, w, h, v, H, W);
        for (int64_t c = 0, n; (n = sgrad_chunk(c, C)); c += n) {
            float *y = sgrad_row_sum(type, args->data[1], pixel * C + c, n, false, y_room);
            for (int64_t r = rows.begin; r < rows.end; r++)
                for (int64_t s = columns.begin; s < columns.end; s++) {
                    const float *x = sgrad_row(type, args->data[0], ((i * H + h + r) * W + v + s) * C + c, n, x_room);
                    for (int64_t j = 0; j < n; j++) y[j] += x[j];
                }
            for (int64_t j = 0; j < n; j++) y[j] /= count;
            sgrad_row_done(type, args->data[1], pixel * C + c, n, y);
        }
    }
}

/* dy (N,P,Q,C), dx (N,H,W,C). For every input element the gradients of all windows that contain it are added. */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad__window w = window_of(args);
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images y_is = sgrad__images_of(&args->view[0]), x_is = sgrad__images_of(&args->view[1]);
    const int64_t *out = y_is.dim, *in = x_is.dim, H = in[1], W = in[2], C = in[3];
    const int64_t P = out[1], Q = out[2];
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < in[0] * H * W; pixel++) {
        const int64_t i = pixel / (H * W), h = pixel / W % H + w.padding, v = pixel % W + w.padding;
        const struct sgrad__range rows = sgrad__window_outputs(w, h, P), columns = sgrad__window_outputs(w, v, Q);
        for (int64_t c = 0, n; (n = sgrad_chunk(c, C)); c += n) {
            float *dx = sgrad_row_sum(type, args->data[1], pixel * C + c, n, sgrad_adds(args, 1), dx_room);
            for (int64_t p = rows.begin; p < rows.end; p++)
                for (int64_t q = columns.begin; q < columns.end; q++) {
                    const float share = 1 / divisor(args, w, p * w.stride - w.padding, q * w.stride - w.padding, H, W);
                    const float *dy = sgrad_row(type, args->data[0], ((i * P + p) * Q + q) * C + c, n, dy_room);
                    for (int64_t j = 0; j < n; j++) dx[j] += share * dy[j];
                }
            sgrad_row_done(type, args->data[1], pixel * C + c, n, dx);
        }
    }
}

static double flops(const struct sgrad_args *args) {
    const struct sgrad_average_pool *m = args->attrs;
    const double x = (double)sgrad_shape_count(&args->view[0].shape), y = (double)sgrad_shape_count(&args->view[1].shape);
    return (double)m->kernel * m->kernel * (x < y ? x : y); /* forward: x, y; backward: dy, dx; the smaller is y's */
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_average_pool *m = attrs;
    sgrad__pool_describe(m->kernel, m->stride, m->padding, text, size);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_average_pool *m = attrs;
    fputs("y = AveragePool <", to);
    sgrad__onnx_window(signature->x[0].shape.rank == 5, 0, m->kernel, m->stride, m->padding, to);
    fprintf(to, ", count_include_pad = %d> (x)", !m->exclude_padding);
}

const struct sgrad_op sgrad_average_pool_op = {
    .name = "average_pool",
    .summary = "mean of each window",
    .source = "LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, 1998",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_average_pool),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "average_pool forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__average_pool_forward_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "average_pool backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__average_pool_backward_cuda), .flops = flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "2x2 on one image of 5x7x3", .x = { { 4, { 1, 5, 7, 3 } } }, &(struct sgrad_average_pool){ .kernel = 2 } },
        { "3x3 stride 2 pad 1, 2 of 7x6x17", .x = { { 4, { 2, 7, 6, 17 } } },
          &(struct sgrad_average_pool){ .kernel = 3, .stride = 2, .padding = 1 } },
        { "the same without padding in the mean", .x = { { 4, { 2, 7, 6, 17 } } },
          &(struct sgrad_average_pool){ .kernel = 3, .stride = 2, .padding = 1, .exclude_padding = true } },
        { "2x2 on the slices of 2 volumes", .x = { { 5, { 2, 3, 4, 6, 5 } } }, &(struct sgrad_average_pool){ .kernel = 2 } },
        { "3x3 stride 1, 3 of 5x4x1", .x = { { 4, { 3, 5, 4, 1 } } }, &(struct sgrad_average_pool){ .kernel = 3, .stride = 1 } },
    },
};
