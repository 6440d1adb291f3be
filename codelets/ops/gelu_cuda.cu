/* gelu_cuda.cu: gelu.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
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

template <typename P> static __global__ void forward(uint32_t n, bool approximate, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size], density;
    sgrad__load(x + i, v);
    for (float &e : v) e *= phi(approximate, e, &density);
    sgrad__store(y + i, v);
}

template <typename P> static __global__ void backward(uint32_t n, bool approximate, const P *x, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size], d[P::size], density;
    sgrad__load(x + i, v);
    sgrad__load(dy + i, d);
    for (int j = 0; j < P::size; j++) {
        const float p = phi(approximate, v[j], &density);
        d[j] *= p + v[j] * density;
    }
    sgrad__store(dx + i, d, add);
}

static bool is_approximate(const struct sgrad_args *args) { return ((const struct sgrad_gelu *)args->attrs)->approximate; }

/* x, y of any shape */
extern "C" void sgrad__gelu_forward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, is_approximate(args), args->data[0], args->data[1]);
    });
}

/* x, dy, dx of any shape */
extern "C" void sgrad__gelu_backward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, n / P::size, is_approximate(args), args->data[0], args->data[1], args->data[2],
                      sgrad_adds(args, 2));
    });
}
