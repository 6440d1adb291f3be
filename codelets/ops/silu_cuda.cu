/* silu_cuda.cu: silu.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/silu.h"

template <typename P> static __global__ void forward(uint32_t n, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(x + i, v);
    for (float &e : v) e *= sgrad__sigmoid(e);
    sgrad__store(y + i, v);
}

template <typename P> static __global__ void backward(uint32_t n, const P *x, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size], d[P::size];
    sgrad__load(x + i, v);
    sgrad__load(dy + i, d);
    for (int j = 0; j < P::size; j++) {
        const float s = sgrad__sigmoid(v[j]);
        d[j] *= s * (1 + v[j] * (1 - s));
    }
    sgrad__store(dx + i, d, add);
}

/* x, y of any shape */
extern "C" void sgrad__silu_forward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, args->data[0], args->data[1]);
    });
}

/* x, dy, dx of any shape */
extern "C" void sgrad__silu_backward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, n / P::size, args->data[0], args->data[1], args->data[2], sgrad_adds(args, 2));
    });
}
