/* max_pool_cuda.cu: max_pool.c on CUDA devices. Backward gathers: for every pixel of the input a thread adds the gradients of
 * those few windows that contain the pixel and that it won. So the order of additions is fixed. */
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/max_pool.h"

/* One thread for each pack of y. KEEP, unless it is NULL, gets the index of the winning tap, counted row by row in the window:
 * the first of equal values; a NaN wins over all numbers. */
template <typename P, typename K> static __global__ void forward(uint32_t n, struct sgrad__windows s, const P *x, P *y, K *keep) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel to = sgrad__pixel_of(i, s.P, s.Q, s.C);
    const int top = to.h * s.stride - s.padding, left = to.w * s.stride - s.padding;
    const int h0 = max(top, 0), h1 = min(top + s.kernel, s.H), w0 = max(left, 0), w1 = min(left + s.kernel, s.W);
    float v[P::size], most[P::size];
    K kept;
    for (int j = 0; j < P::size; j++) {
        most[j] = -INFINITY;
        kept.at[j] = (uint8_t)((h0 - top) * s.kernel + w0 - left);
    }
    for (int h = h0; h < h1; h++)
        for (int w = w0; w < w1; w++) {
            sgrad__load(x + sgrad__index_of(to.n, h, w, to.c, s.H, s.W, s.C), v);
            for (int j = 0; j < P::size; j++)
                if (v[j] > most[j] || v[j] != v[j]) {
                    most[j] = v[j];
                    kept.at[j] = (uint8_t)((h - top) * s.kernel + w - left);
                }
        }
    sgrad__store(y + i, most);
    if (keep) keep[i] = kept;
}

/* One thread for each pack of dx. */
template <typename P, typename K>
static __global__ void backward(uint32_t n, struct sgrad__windows s, const P *dy, const K *keep, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.H, s.W, s.C);
    float d[P::size], sum[P::size] = {};
    for (int p = sgrad__first_window(s, at.h); p <= sgrad__last_window(s, at.h, s.P); p++)
        for (int q = sgrad__first_window(s, at.w); q <= sgrad__last_window(s, at.w, s.Q); q++) {
            const uint32_t from = sgrad__index_of(at.n, p, q, at.c, s.P, s.Q, s.C);
            const int tap = (at.h + s.padding - p * s.stride) * s.kernel + (at.w + s.padding - q * s.stride);
            const K kept = keep[from];
            sgrad__load(dy + from, d);
            for (int j = 0; j < P::size; j++) sum[j] += kept.at[j] == tap ? d[j] : 0;
        }
    sgrad__store(dx + i, sum, add);
}

static void launch_forward(const struct sgrad_args *a, void *keep) {
    const struct sgrad_max_pool *attrs = (const struct sgrad_max_pool *)a->attrs;
    const struct sgrad_shape *x = &a->view[0].shape, *y = &a->view[1].shape;
    sgrad__with_pack(a->view[0].dtype, sgrad__image_dims(x)[3], [=](auto pack) {
        using P = decltype(pack);
        using K = sgrad__pack<uint8_t, P::size>;
        const struct sgrad__windows s = sgrad__windows_of(x, y, P::size, attrs->kernel, attrs->stride, attrs->padding);
        sgrad__launch(forward<P, K>, sgrad_shape_count(y) / P::size, s, a->data[0], a->data[1], keep);
    });
}

/* Forward: x (N,H,W,C), y (N,P,Q,C), saved taps (N,P,Q,C) U8 */
extern "C" void sgrad__max_pool_forward_cuda(const struct sgrad_args *a) { launch_forward(a, a->data[2]); }

/* Inference: x (N,H,W,C), y (N,P,Q,C) */
extern "C" void sgrad__max_pool_inference_cuda(const struct sgrad_args *a) { launch_forward(a, NULL); }

/* Backward: dy (N,P,Q,C), saved taps (N,P,Q,C) U8, dx (N,H,W,C) */
extern "C" void sgrad__max_pool_backward_cuda(const struct sgrad_args *a) {
    const struct sgrad_max_pool *attrs = (const struct sgrad_max_pool *)a->attrs;
    const struct sgrad_shape *y = &a->view[0].shape, *x = &a->view[2].shape;
    sgrad__with_pack(a->view[2].dtype, sgrad__image_dims(x)[3], [=](auto pack) {
        using P = decltype(pack);
        using K = sgrad__pack<uint8_t, P::size>;
        const struct sgrad__windows s = sgrad__windows_of(x, y, P::size, attrs->kernel, attrs->stride, attrs->padding);
        sgrad__launch(backward<P, K>, sgrad_shape_count(x) / P::size, s, a->data[0], a->data[1], a->data[2], sgrad_adds(a, 2));
    });
}
