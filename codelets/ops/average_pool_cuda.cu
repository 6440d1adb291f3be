/* average_pool_cuda.cu: average_pool.c on CUDA devices; backward gathers, as in max_pool_cuda.cu. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/average_pool.h"

/* Returns 1 / the divisor of the window at (p,q): the number of its pixels, with EXCLUDE_PADDING only of those in the image. */
static __device__ inline float weight(const struct sgrad__windows &windows, bool exclude_padding, int p, int q) {
    if (!exclude_padding) return 1.0f / (windows.kernel * windows.kernel);
    const int h = p * windows.stride - windows.padding, w = q * windows.stride - windows.padding;
    return 1.0f / ((min(h + windows.kernel, windows.H) - max(h, 0)) * (min(w + windows.kernel, windows.W) - max(w, 0)));
}

/* One thread for each pack of y. */
template <typename P>
static __global__ void forward(uint32_t n, struct sgrad__windows windows, bool exclude_padding, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel to = sgrad__pixel_of(i, windows.P, windows.Q, windows.C);
    const int top = to.h * windows.stride - windows.padding, left = to.w * windows.stride - windows.padding;
    float v[P::size], sum[P::size] = {};
    for (int h = max(top, 0); h < min(top + windows.kernel, windows.H); h++)
        for (int w = max(left, 0); w < min(left + windows.kernel, windows.W); w++) {
            sgrad__load(x + sgrad__index_of(to.n, h, w, to.c, windows.H, windows.W, windows.C), v);
            for (int j = 0; j < P::size; j++) sum[j] += v[j];
        }
    for (float &e : sum) e *= weight(windows, exclude_padding, to.h, to.w);
    sgrad__store(y + i, sum);
}

/* One thread for each pack of dx. */
template <typename P>
static __global__ void backward(uint32_t n, struct sgrad__windows windows, bool exclude_padding, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, windows.H, windows.W, windows.C);
    float d[P::size], sum[P::size] = {};
    for (int p = sgrad__first_window(windows, at.h); p <= sgrad__last_window(windows, at.h, windows.P); p++)
        for (int q = sgrad__first_window(windows, at.w); q <= sgrad__last_window(windows, at.w, windows.Q); q++) {
            sgrad__load(dy + sgrad__index_of(at.n, p, q, at.c, windows.P, windows.Q, windows.C), d);
            for (int j = 0; j < P::size; j++) sum[j] += d[j] * weight(windows, exclude_padding, p, q);
        }
    sgrad__store(dx + i, sum, add);
}

/* x (N,H,W,C), y (N,P,Q,C) */
extern "C" void sgrad__average_pool_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_average_pool *attrs = (const struct sgrad_average_pool *)args->attrs;
    const struct sgrad_shape *x = &args->view[0].shape, *y = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, sgrad__image_dims(x)[3], [=](auto pack) {
        using P = decltype(pack);
        const struct sgrad__windows s = sgrad__windows_of(x, y, P::size, attrs->kernel, attrs->stride, attrs->padding);
        sgrad__launch(forward<P>, sgrad_shape_count(y) / P::size, s, attrs->exclude_padding, args->data[0], args->data[1]);
    });
}

/* dy (N,P,Q,C), dx (N,H,W,C) */
extern "C" void sgrad__average_pool_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_average_pool *attrs = (const struct sgrad_average_pool *)args->attrs;
    const struct sgrad_shape *y = &args->view[0].shape, *x = &args->view[1].shape;
    sgrad__with_pack(args->view[1].dtype, sgrad__image_dims(x)[3], [=](auto pack) {
        using P = decltype(pack);
        const struct sgrad__windows s = sgrad__windows_of(x, y, P::size, attrs->kernel, attrs->stride, attrs->padding);
        sgrad__launch(backward<P>, sgrad_shape_count(x) / P::size, s, attrs->exclude_padding, args->data[0], args->data[1],
                      sgrad_adds(args, 1));
    });
}
