/* relu.c: y = max(x, 0). A NaN remains a NaN, so that divergence of a run is visible. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/relu.h"

void sgrad__relu_forward_cuda(const struct sgrad_args *a);
void sgrad__relu_backward_cuda(const struct sgrad_args *a);

/* x, y of any shape */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    enum sgrad_dtype type = args->view[0].dtype;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, args->data[0], i, n, x_room);
        float *y = sgrad_row_out(type, args->data[1], i, y_room);
        for (int64_t j = 0; j < n; j++) y[j] = x[j] < 0 ? 0 : x[j];
        sgrad_row_done(type, args->data[1], i, n, y);
    }
}

/* y, dy, dx of any shape */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    enum sgrad_dtype type = args->view[0].dtype;
    float y_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *y = sgrad_row(type, args->data[0], i, n, y_room);
        const float *dy = sgrad_row(type, args->data[1], i, n, dy_room);
        float *dx = sgrad_row_sum(type, args->data[2], i, n, sgrad_adds(args, 2), dx_room);
        for (int64_t j = 0; j < n; j++) dx[j] += y[j] <= 0 ? 0 : dy[j];
        sgrad_row_done(type, args->data[2], i, n, dx);
    }
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Relu (x)", to);
}

const struct sgrad_op sgrad_relu_op = {
    .name = "relu",
    .summary = "rectified linear unit: y = max(x, 0)",
    .source = "Nair, Hinton, Rectified linear units improve restricted Boltzmann machines, ICML 2010",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_relu),
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "relu forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__relu_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "relu backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__relu_backward_cuda) },
                    .use = { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .fill = sgrad_fill_nonzero,
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } } },
        { "7 samples of 17", .x = { { 2, { 7, 17 } } } },
        { "longer than a row", .x = { { 4, { 2, 17, 17, 1 } } } },
    },
};
