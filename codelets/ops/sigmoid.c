/* sigmoid.c: y = σ(x) = 1 / (1 + exp(-x)), the logistic function. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/sigmoid.h"

void sgrad__sigmoid_forward_cuda(const struct sgrad_args *args);
void sgrad__sigmoid_backward_cuda(const struct sgrad_args *args);

SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) {
    (void)attrs;
    return sigmoid(x);
}
SGRAD_ALWAYS_INLINE float gradient(float y, float dy, const void *attrs) {
    (void)attrs;
    return dy * y * (1 - y);
}

SGRAD_VECTOR(forward)(const struct sgrad_args *args) { activate(args, value, NULL); }
SGRAD_VECTOR(backward)(const struct sgrad_args *args) { activate_backward(args, gradient, NULL); }

/* the exponential counts as 20 operations */
static double forward_flops(const struct sgrad_args *args) { return 22.0 * (double)sgrad_shape_count(&args->view[0].shape); }
static double backward_flops(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Sigmoid (x)", to);
}

const struct sgrad_op sgrad_sigmoid_op = {
    .name = "sigmoid",
    .summary = "logistic function: y = 1 / (1 + exp(-x))",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_sigmoid),
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "sigmoid forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__sigmoid_forward_cuda), .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "sigmoid backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__sigmoid_backward_cuda), .flops = backward_flops },
                    { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } } },
        { "7 samples of 17", .x = { { 2, { 7, 17 } } } },
        { "longer than a row", .x = { { 2, { 2, 531 } } } },
    },
};
