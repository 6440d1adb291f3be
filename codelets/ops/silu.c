/* silu.c: y = x·σ(x), where σ(x) = 1 / (1 + exp(-x)) is the logistic function. */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/silu.h"

void sgrad__silu_forward_cuda(const struct sgrad_args *args);
void sgrad__silu_backward_cuda(const struct sgrad_args *args);

/* x, y of any shape */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, args->data[0], i, n, x_room);
        float *y = sgrad_row_out(type, args->data[1], i, y_room);
        for (int64_t j = 0; j < n; j++) y[j] = x[j] * sigmoid(x[j]);
        sgrad_row_done(type, args->data[1], i, n, y);
    }
}

/* x, dy, dx of any shape: dy/dx = σ(x)·(1 + x·(1 - σ(x))) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    float x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, args->data[0], i, n, x_room);
        const float *dy = sgrad_row(type, args->data[1], i, n, dy_room);
        float *dx = sgrad_row_sum(type, args->data[2], i, n, sgrad_adds(args, 2), dx_room);
        for (int64_t j = 0; j < n; j++) {
            const float s = sigmoid(x[j]);
            dx[j] += dy[j] * s * (1 + x[j] * (1 - s));
        }
        sgrad_row_done(type, args->data[2], i, n, dx);
    }
}

/* the exponential counts as 20 operations */
static double flops(const struct sgrad_args *args) { return 25.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("share = Sigmoid (x)\ny = Mul (x, share)", to);
}

const struct sgrad_op sgrad_silu_op = {
    .name = "silu",
    .summary = "sigmoid linear unit (swish): y = x / (1 + exp(-x))",
    .source = "S. Elfwing, E. Uchibe, K. Doya, Sigmoid-weighted linear units for neural network function approximation, 2017",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_silu),
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "silu forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__silu_forward_cuda), .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "silu backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__silu_backward_cuda), .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } } },
        { "7 samples of 17", .x = { { 2, { 7, 17 } } } },
        { "longer than a row", .x = { { 2, { 2, 531 } } } },
    },
};
