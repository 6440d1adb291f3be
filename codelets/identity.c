/* identity.c: y = x: a value of its own with the same content, for an operation that takes one value twice. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/identity.h"

void sgrad__identity_forward_cuda(const struct sgrad_args *a);
void sgrad__identity_backward_cuda(const struct sgrad_args *a);

/* x, y of any shape */
SGRAD_VECTOR(forward)(const struct sgrad_args *a) {
    const enum sgrad_dtype type = a->view[0].dtype;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&a->view[0].shape); (n = sgrad_piece(i, count)); i += n) {
        const float *x = sgrad_row(type, a->data[0], i, n, x_room);
        float *y = sgrad_row_out(type, a->data[1], i, y_room);
        for (int64_t j = 0; j < n; j++) y[j] = x[j];
        sgrad_row_done(type, a->data[1], i, n, y);
    }
}

/* dy, dx of any shape */
SGRAD_VECTOR(backward)(const struct sgrad_args *a) {
    const enum sgrad_dtype type = a->view[0].dtype;
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&a->view[0].shape); (n = sgrad_piece(i, count)); i += n) {
        const float *dy = sgrad_row(type, a->data[0], i, n, dy_room);
        float *dx = sgrad_row_sum(type, a->data[1], i, n, sgrad_adds(a, 1), dx_room);
        for (int64_t j = 0; j < n; j++) dx[j] += dy[j];
        sgrad_row_done(type, a->data[1], i, n, dx);
    }
}

static void onnx(const struct sgrad_signature *s, const void *attrs, FILE *to) {
    (void)s, (void)attrs;
    fputs("y = Identity (x)", to);
}

const struct sgrad_op sgrad_identity_op = {
    .name = "identity",
    .summary = "y = x, a value of its own",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_identity),
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "identity forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__identity_forward_cuda), .flops = sgrad_no_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "identity backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__identity_backward_cuda) },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "7 samples of 5", .x = { { 2, { 7, 5 } } } },
        { "longer than a row", .x = { { 2, { 3, 577 } } } },
    },
};
