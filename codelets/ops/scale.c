/* scale.c: y = factor·x, for example to make a prediction from logits less confident. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/scale.h"

void sgrad__scale_forward_cuda(const struct sgrad_args *a);
void sgrad__scale_backward_cuda(const struct sgrad_args *a);

static float factor_of(const struct sgrad_args *args) { return ((const struct sgrad_scale *)args->attrs)->factor; }

/* x, y of any shape */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const float factor = factor_of(args);
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, args->data[0], i, n, x_room);
        float *y = sgrad_row_out(type, args->data[1], i, y_room);
        for (int64_t j = 0; j < n; j++) y[j] = factor * x[j];
        sgrad_row_done(type, args->data[1], i, n, y);
    }
}

/* dy, dx of any shape */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const float factor = factor_of(args);
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *dy = sgrad_row(type, args->data[0], i, n, dy_room);
        float *dx = sgrad_row_sum(type, args->data[1], i, n, sgrad_adds(args, 1), dx_room);
        for (int64_t j = 0; j < n; j++) dx[j] += factor * dy[j];
        sgrad_row_done(type, args->data[1], i, n, dx);
    }
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "%g", ((const struct sgrad_scale *)attrs)->factor);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature;
    fprintf(to, "factor = Constant <value = float {%.9g}> ()\ny = Mul (x, factor)", ((const struct sgrad_scale *)attrs)->factor);
}

const struct sgrad_op sgrad_scale_op = {
    .name = "scale",
    .summary = "y = x times a constant",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_scale),
    .infer = sgrad_infer_same,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "scale forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__scale_forward_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "scale backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__scale_backward_cuda) },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "7 samples of 5", .x = { { 2, { 7, 5 } } }, .attrs = &(struct sgrad_scale){ .factor = 1 / 9.f } },
        { "longer than a row", .x = { { 2, { 3, 577 } } }, .attrs = &(struct sgrad_scale){ .factor = -2.5f } },
    },
};
