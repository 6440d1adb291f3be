/* activation.h: the two passes of an activation function, y = f(x) element by element, on CUDA devices. An operation defines a
 * struct F with f and the product of its derivative and dy, for one number; its members are the attributes:
 *
 *     struct relu {
 *         __device__ float value(float x) const { return x < 0 ? 0 : x; }
 *         __device__ float gradient(float y, float dy) const { return y <= 0 ? 0 : dy; }
 *     };
 *
 * Private to codelets/ops/. */
#ifndef SGRAD_CODELETS_CUDA_ACTIVATION_H
#define SGRAD_CODELETS_CUDA_ACTIVATION_H

#include "codelets/cuda/cuda.h"

template <typename P, typename F> static __global__ void activation_forward(uint32_t n, F f, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(x + i, v);
    for (float &e : v) e = f.value(e);
    sgrad__store(y + i, v);
}

template <typename P, typename F>
static __global__ void activation_backward(uint32_t n, F f, const P *x, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size], d[P::size];
    sgrad__load(x + i, v);
    sgrad__load(dy + i, d);
    for (int j = 0; j < P::size; j++) d[j] = f.gradient(v[j], d[j]);
    sgrad__store(dx + i, d, add);
}

/* Operands: x, y of any shape. */
template <typename F> static inline void activate(const struct sgrad_args *args, F f) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(activation_forward<P, F>, n / P::size, f, args->data[0], args->data[1]);
    });
}

/* Operands: x or y, as the record of the operation states; dy, dx; of any shape. */
template <typename F> static inline void activate_backward(const struct sgrad_args *args, F f) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(activation_backward<P, F>, n / P::size, f, args->data[0], args->data[1], args->data[2],
                      sgrad_adds(args, 2));
    });
}

#endif
