/* relu.c: y = max(x, 0). A NaN remains a NaN, so that divergence of a run is visible. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/relu.h"

void sgrad__relu_forward_cuda(const struct sgrad_args *a);
void sgrad__relu_backward_cuda(const struct sgrad_args *a);

SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) {
    (void)attrs;
    return x < 0 ? 0 : x;
}
SGRAD_ALWAYS_INLINE float gradient(float y, float dy, const void *attrs) {
    (void)attrs;
    return y <= 0 ? 0 : dy;
}

SGRAD_VECTOR(forward)(const struct sgrad_args *args) { activate(args, value, NULL); }
SGRAD_VECTOR(backward)(const struct sgrad_args *args) { activate_backward(args, gradient, NULL); }

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
