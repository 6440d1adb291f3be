/* add_cuda.cu: add.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/add.h"

template <typename P> static __global__ void forward(uint32_t n, const P *x0, const P *x1, P *y, bool relu) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float u[P::size], v[P::size];
    sgrad__load(x0 + i, u);
    sgrad__load(x1 + i, v);
    for (int j = 0; j < P::size; j++) {
        v[j] += u[j];
        if (relu && v[j] < 0) v[j] = 0;
    }
    sgrad__store(y + i, v);
}

/* y is NULL without relu; dx0 or dx1 is NULL if that gradient is not needed */
template <typename P> static __global__ void backward(uint32_t n, const P *y, const P *dy, P *dx0, P *dx1, bool add0, bool add1) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size], d[P::size];
    sgrad__load(dy + i, d);
    if (y) {
        sgrad__load(y + i, v);
        for (int j = 0; j < P::size; j++) d[j] = v[j] <= 0 ? 0 : d[j];
    }
    if (dx0) sgrad__store(dx0 + i, d, add0);
    if (dx1) sgrad__store(dx1 + i, d, add1);
}

/* x0, x1, y of any shape */
extern "C" void sgrad__add_forward_cuda(const struct sgrad_args *args) {
    const bool relu = ((const struct sgrad_add *)args->attrs)->relu;
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, args->data[0], args->data[1], args->data[2], relu);
    });
}

/* y, dy, dx0, dx1 of any shape */
extern "C" void sgrad__add_backward_cuda(const struct sgrad_args *args) {
    const bool relu = ((const struct sgrad_add *)args->attrs)->relu;
    const int64_t n = sgrad_shape_count(&args->view[1].shape);
    sgrad__with_pack(args->view[1].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, n / P::size, relu ? args->data[0] : nullptr, args->data[1], args->data[2], args->data[3],
                      sgrad_adds(args, 2), sgrad_adds(args, 3));
    });
}
