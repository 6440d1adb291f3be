/* leaky_relu.c: y = x if x is above 0, else slope·x. A NaN remains a NaN. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/leaky_relu.h"

void sgrad__leaky_relu_forward_cuda(const struct sgrad_args *args);
void sgrad__leaky_relu_backward_cuda(const struct sgrad_args *args);

/* With a positive slope, y has the sign of x, so that backward can read y. */
static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_leaky_relu *leaky = attrs;
    if (leaky->slope == 0) leaky->slope = 0.01f;
    if (!(leaky->slope > 0))
        return sgrad_log_error(SGRAD_EINVAL, "%s: leaky_relu: slope must be above 0, not %g", signature->layer, leaky->slope);
    return sgrad_infer_same(signature, attrs);
}

SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) { return x > 0 ? x : *(const float *)attrs * x; }
SGRAD_ALWAYS_INLINE float gradient(float y, float dy, const void *attrs) { return y > 0 ? dy : *(const float *)attrs * dy; }

SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const float slope = ((const struct sgrad_leaky_relu *)args->attrs)->slope;
    activate(args, value, &slope);
}
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const float slope = ((const struct sgrad_leaky_relu *)args->attrs)->slope;
    activate_backward(args, gradient, &slope);
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "slope %g", ((const struct sgrad_leaky_relu *)attrs)->slope);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature;
    fprintf(to, "y = LeakyRelu <alpha = %#.9g> (x)", ((const struct sgrad_leaky_relu *)attrs)->slope);
}

const struct sgrad_op sgrad_leaky_relu_op = {
    .name = "leaky_relu",
    .summary = "leaky rectified linear unit: y = x if x > 0, else slope x",
    .source = "A. Maas, A. Hannun, A. Ng, Rectifier nonlinearities improve neural network acoustic models, 2013",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_leaky_relu),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "leaky_relu forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__leaky_relu_forward_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "leaky_relu backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__leaky_relu_backward_cuda) },
                    { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .fill = sgrad_fill_nonzero,
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } } },
        { "slope 0.2, 7 samples of 17", .x = { { 2, { 7, 17 } } }, &(struct sgrad_leaky_relu){ .slope = 0.2f } },
        { "longer than a row", .x = { { 2, { 2, 531 } } } },
    },
};
