/* silu.c: y = x·σ(x), where σ(x) = 1 / (1 + exp(-x)) is the logistic function. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/silu.h"

void sgrad__silu_forward_cuda(const struct sgrad_args *args);
void sgrad__silu_backward_cuda(const struct sgrad_args *args);

SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) {
    (void)attrs;
    return x * sigmoid(x);
}
/* dy/dx = σ(x)·(1 + x·(1 - σ(x))) */
SGRAD_ALWAYS_INLINE float gradient(float x, float dy, const void *attrs) {
    (void)attrs;
    const float s = sigmoid(x);
    return dy * s * (1 + x * (1 - s));
}

SGRAD_VECTOR(forward)(const struct sgrad_args *args) { activate(args, value, NULL); }
SGRAD_VECTOR(backward)(const struct sgrad_args *args) { activate_backward(args, gradient, NULL); }

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
