/* hard_sigmoid.c: y = min(max(x + 3, 0), 6) / 6, which approximates the logistic function without an exponential. A NaN remains a
 * NaN. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/hard_sigmoid.h"

void sgrad__hard_sigmoid_forward_cuda(const struct sgrad_args *args);
void sgrad__hard_sigmoid_backward_cuda(const struct sgrad_args *args);

SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) {
    (void)attrs;
    const float up = x + 3;
    return (up < 0 ? 0 : up > 6 ? 6 : up) / 6;
}
SGRAD_ALWAYS_INLINE float gradient(float y, float dy, const void *attrs) {
    (void)attrs;
    return y <= 0 || y >= 1 ? 0 : dy / 6;
}

SGRAD_VECTOR(forward)(const struct sgrad_args *args) { activate(args, value, NULL); }
SGRAD_VECTOR(backward)(const struct sgrad_args *args) { activate_backward(args, gradient, NULL); }

static double flops(const struct sgrad_args *args) { return 2.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = HardSigmoid <alpha = 0.166666667, beta = 0.5> (x)", to);
}

const struct sgrad_op sgrad_hard_sigmoid_op = {
    .name = "hard_sigmoid",
    .summary = "piecewise linear logistic function: y = min(max(x + 3, 0), 6) / 6",
    .source = "A. Howard et al., Searching for MobileNetV3, 2019",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_hard_sigmoid),
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "hard_sigmoid forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__hard_sigmoid_forward_cuda), .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "hard_sigmoid backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__hard_sigmoid_backward_cuda) },
                    { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .fill = fill_to_4,
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } } },
        { "7 samples of 17", .x = { { 2, { 7, 17 } } } },
        { "longer than a row", .x = { { 2, { 2, 531 } } } },
    },
};
