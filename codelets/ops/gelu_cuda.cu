/* gelu_cuda.cu: gelu.c on CUDA devices. */
#include "codelets/cuda/activation.h"
#include "codelets/ops/gelu.h"

#define ROOT_2_PI 0.79788456f /* √(2/π) */

/* Returns Φ(x); sets *DENSITY to its derivative. */
static __device__ inline float phi(bool approximate, float x, float *density) {
    if (approximate) {
        const float u = ROOT_2_PI * (x + 0.044715f * x * x * x), p = 1 / (1 + expf(-2 * u));
        *density = p * (1 - p) * 2 * ROOT_2_PI * (1 + 3 * 0.044715f * x * x);
        return p;
    }
    *density = expf(-x * x / 2) * 0.39894228f;
    return 0.5f * (1 + erff(x * 0.70710678f));
}

struct gelu {
    bool approximate;
    __device__ float value(float x) const {
        float density;
        return x * phi(approximate, x, &density);
    }
    __device__ float gradient(float x, float dy) const {
        float density;
        const float p = phi(approximate, x, &density);
        return dy * (p + x * density);
    }
};

static struct gelu of(const struct sgrad_args *args) { return { ((const struct sgrad_gelu *)args->attrs)->approximate }; }

extern "C" void sgrad__gelu_forward_cuda(const struct sgrad_args *args) { activate(args, of(args)); }
extern "C" void sgrad__gelu_backward_cuda(const struct sgrad_args *args) { activate_backward(args, of(args)); }
