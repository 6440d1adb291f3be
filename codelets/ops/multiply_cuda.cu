/* multiply_cuda.cu: multiply.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/multiply.h"

template <typename P> static __global__ void forward(uint32_t n, bool silu, const P *x0, const P *x1, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float u[P::size], v[P::size];
    sgrad__load(x0 + i, u);
    sgrad__load(x1 + i, v);
    for (int j = 0; j < P::size; j++) v[j] *= silu ? u[j] * sgrad__sigmoid(u[j]) : u[j];
    sgrad__store(y + i, v);
}

/* dx0 or dx1 is NULL if that gradient is not needed */
template <typename P>
static __global__ void backward(uint32_t n, bool silu, const P *x0, const P *x1, const P *dy, P *dx0, P *dx1, bool add0,
                                bool add1) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float u[P::size], v[P::size], d[P::size], d0[P::size], d1[P::size];
    sgrad__load(x0 + i, u);
    sgrad__load(x1 + i, v);
    sgrad__load(dy + i, d);
    for (int j = 0; j < P::size; j++) {
        const float s = silu ? sgrad__sigmoid(u[j]) : 1, slope = silu ? s * (1 + u[j] * (1 - s)) : 1;
        d0[j] = d[j] * v[j] * slope;
        d1[j] = d[j] * u[j] * s;
    }
    if (dx0) sgrad__store(dx0 + i, d0, add0);
    if (dx1) sgrad__store(dx1 + i, d1, add1);
}

static bool has_silu(const struct sgrad_args *args) { return ((const struct sgrad_multiply *)args->attrs)->silu; }

/* x0, x1, y of any shape */
extern "C" void sgrad__multiply_forward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, has_silu(args), args->data[0], args->data[1], args->data[2]);
    });
}

/* x0, x1, dy of any shape, dx0, dx1 of that shape or absent */
extern "C" void sgrad__multiply_backward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_wide_pack(args->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, n / P::size, has_silu(args), args->data[0], args->data[1], args->data[2], args->data[3],
                      args->data[4], sgrad_adds(args, 3), sgrad_adds(args, 4));
    });
}
