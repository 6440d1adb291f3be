/* scale_cuda.cu: scale.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/scale.h"

template <typename P> static __global__ void multiply(uint32_t n, float factor, const P *x, P *y, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(x + i, v);
    for (float &e : v) e *= factor;
    sgrad__store(y + i, v, add);
}

/* x, y of any shape */
static void times_factor(const struct sgrad_args *args, bool add) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    const float factor = ((const struct sgrad_scale *)args->attrs)->factor;
    sgrad__with_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(multiply<P>, n / P::size, factor, (const P *)args->data[0], (P *)args->data[1], add);
    });
}

/* x, y of any shape */
extern "C" void sgrad__scale_forward_cuda(const struct sgrad_args *args) { times_factor(args, false); }

/* dy, dx of any shape */
extern "C" void sgrad__scale_backward_cuda(const struct sgrad_args *args) { times_factor(args, sgrad_adds(args, 1)); }
