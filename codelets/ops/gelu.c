/* gelu.c: y = x·Φ(x), where Φ is the normal distribution function, or, if APPROXIMATE is set, GPT-2's approximation
 *
 *     Φ(x) ≈ (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)),    u = √(2/π)·(x + 0.044715 x³)
 *
 * The exact Φ is computed by Abramowitz, Stegun, Handbook of mathematical functions, 7.1.26, whose error is below 1.5e-7. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/gelu.h"

void sgrad__gelu_forward_cuda(const struct sgrad_args *args);
void sgrad__gelu_backward_cuda(const struct sgrad_args *args);

#define ROOT_2_PI 0.79788456f   /* √(2/π) */

/* Returns Φ(x); sets *DENSITY to its derivative. In the exact form |x| above 13 is treated as 13. */
SGRAD_ALWAYS_INLINE float phi(bool approximate, float x, float *density) {
    if (approximate) {
        const float u = ROOT_2_PI * (x + 0.044715f * x * x * x), p = sigmoid(2 * u);
        *density = p * (1 - p) * 2 * ROOT_2_PI * (1 + 3 * 0.044715f * x * x);
        return p;
    }
    const float size = x < 0 ? -x : x, z = (size > 13 ? 13 : size) * 0.70710678f, t = 1 / (1 + 0.3275911f * z);
    const float sum = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float e = exp_within(-z * z), tail = 0.5f * sum * e;
    *density = e * 0.39894228f;
    return x < 0 ? tail : 1 - tail;
}

SGRAD_ALWAYS_INLINE float exact(float x, const void *attrs) {
    (void)attrs;
    float density;
    return x * phi(false, x, &density);
}
SGRAD_ALWAYS_INLINE float approximate(float x, const void *attrs) {
    (void)attrs;
    float density;
    return x * phi(true, x, &density);
}
/* dy/dx = Φ(x) + x·Φ'(x) */
SGRAD_ALWAYS_INLINE float exact_gradient(float x, float dy, const void *attrs) {
    (void)attrs;
    float density;
    const float p = phi(false, x, &density);
    return dy * (p + x * density);
}
SGRAD_ALWAYS_INLINE float approximate_gradient(float x, float dy, const void *attrs) {
    (void)attrs;
    float density;
    const float p = phi(true, x, &density);
    return dy * (p + x * density);
}

static bool is_approximate(const struct sgrad_args *args) { return ((const struct sgrad_gelu *)args->attrs)->approximate; }

SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    if (is_approximate(args)) activate(args, approximate, NULL);
    else activate(args, exact, NULL);
}
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    if (is_approximate(args)) activate_backward(args, approximate_gradient, NULL);
    else activate_backward(args, exact_gradient, NULL);
}

/* the exponential counts as 20 operations */
static double flops(const struct sgrad_args *args) { return 32.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "%s", ((const struct sgrad_gelu *)attrs)->approximate ? "tanh" : "");
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature;
    fprintf(to, "y = Gelu <approximate = \"%s\"> (x)", ((const struct sgrad_gelu *)attrs)->approximate ? "tanh" : "none");
}

const struct sgrad_op sgrad_gelu_op = {
    .name = "gelu",
    .summary = "Gaussian error linear unit: y = x Φ(x), where Φ is the standard normal distribution function",
    .source = "D. Hendrycks, K. Gimpel, Gaussian error linear units, 2016",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_gelu),
    .infer = sgrad_infer_same,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "gelu forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__gelu_forward_cuda), .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "gelu backward", .kind = &sgrad_backward_kind, .cpu = backward,
                     .cuda = SGRAD_ON_CUDA(sgrad__gelu_backward_cuda), .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } } },
        { "tanh, 7 samples of 17", .x = { { 2, { 7, 17 } } }, .attrs = &(struct sgrad_gelu){ .approximate = true } },
        { "longer than a row", .x = { { 2, { 2, 531 } } } },
        { "tanh, longer than a row", .x = { { 2, { 2, 531 } } }, .attrs = &(struct sgrad_gelu){ .approximate = true } },
    },
};
