/* global_average_pool_cuda.cu: global_average_pool.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

/* One thread for each pack of y: x (N,pixels,C), y (N,C); C in packs. */
template <typename P> static __global__ void forward(uint32_t n, int pixels, int C, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    x += (int64_t)(i / C) * pixels * C + i % C;
    float v[P::size], sum[P::size] = {};
    for (int pixel = 0; pixel < pixels; pixel++) {
        sgrad__load(x + (int64_t)pixel * C, v);
        for (int j = 0; j < P::size; j++) sum[j] += v[j];
    }
    for (float &e : sum) e *= 1.0f / pixels;
    sgrad__store(y + i, sum);
}

/* One thread for each pack of dx: dy (N,C), dx (N,pixels,C); C in packs. */
template <typename P> static __global__ void backward(uint32_t n, int pixels, int C, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(dy + i / C / pixels * C + i % C, v);
    for (float &e : v) e *= 1.0f / pixels;
    sgrad__store(dx + i, v, add);
}

/* x (N,…,C), y (N,C) or (N,1,…,1,C) */
extern "C" void sgrad__global_average_pool_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape;
    const int64_t N = x->dim[0], C = x->dim[x->rank - 1], pixels = sgrad_shape_count(x) / N / C;
    sgrad__with_pack(args->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, N * C / P::size, pixels, C / P::size, args->data[0], args->data[1]);
    });
}

/* dy (N,C) or (N,1,…,1,C), dx (N,…,C) */
extern "C" void sgrad__global_average_pool_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[1].shape;
    const int64_t N = x->dim[0], C = x->dim[x->rank - 1], pixels = sgrad_shape_count(x) / N / C;
    sgrad__with_pack(args->view[1].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, N * pixels * C / P::size, pixels, C / P::size, args->data[0], args->data[1],
                      sgrad_adds(args, 1));
    });
}
