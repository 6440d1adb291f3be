/* max_pool_cuda.cu: max_pool.c on CUDA devices. Backward gathers: for every pixel of the input a thread adds the gradients of
 * those few windows that contain the pixel and that it won. So the order of additions is fixed. */
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/max_pool.h"

/* One thread for each pack of y. KEEP, unless it is NULL, gets the index of the winning tap, counted row by row in the window:
 * the first of equal values; a NaN wins over all numbers. */
template <typename P, typename K>
static __global__ void forward(uint32_t n, struct sgrad__windows windows, const P *x, P *y, K *keep) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel to = sgrad__pixel_of(i, windows.P, windows.Q, windows.C);
    const int top = to.h * windows.stride - windows.padding, left = to.w * windows.stride - windows.padding;
    const int h0 = max(top, 0), h1 = min(top + windows.kernel, windows.H), w0 = max(left, 0),
              w1 = min(left + windows.kernel, windows.W);
    float v[P::size], most[P::size];
    K kept;
    for (int j = 0; j < P::size; j++) {
        most[j] = -INFINITY;
        kept.at[j] = (uint8_t)((h0 - top) * windows.kernel + w0 - left);
    }
    for (int h = h0; h < h1; h++)
        for (int w = w0; w < w1; w++) {
            sgrad__load(x + sgrad__index_of(to.n, h, w, to.c, windows.H, windows.W, windows.C), v);
            for (int j = 0; j < P::size; j++)
                if (v[j] > most[j] || v[j] != v[j]) {
                    most[j] = v[j];
                    kept.at[j] = (uint8_t)((h - top) * windows.kernel + w - left);
                }
        }
    sgrad__store(y + i, most);
    if (keep) keep[i] = kept;
}

/* One thread for each pack of dx. */
template <typename P, typename K>
static __global__ void backward(uint32_t n, struct sgrad__windows windows, const P *dy, const K *keep, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, windows.H, windows.W, windows.C);
    float d[P::size], sum[P::size] = {};
    for (int p = sgrad__first_window(windows, at.h); p <= sgrad__last_window(windows, at.h, windows.P); p++)
        for (int q = sgrad__first_window(windows, at.w); q <= sgrad__last_window(windows, at.w, windows.Q); q++) {
            const uint32_t from = sgrad__index_of(at.n, p, q, at.c, windows.P, windows.Q, windows.C);
            const int tap =
                (at.h + windows.padding - p * windows.stride) * windows.kernel + (at.w + windows.padding - q * windows.stride);
            const K kept = keep[from];
            sgrad__load(dy + from, d);
            for (int j = 0; j < P::size; j++) sum[j] += kept.at[j] == tap ? d[j] : 0;
        }
    sgrad__store(dx + i, sum, add);
}

static void launch_forward(const struct sgrad_args *args, void *keep) {
    const struct sgrad_max_pool *attrs = (const struct sgrad_max_pool *)args->attrs;
    const struct sgrad_shape *x = &args->view[0].shape, *y = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, sgrad__image_dims(x)[3], [=](auto pack) {
        using P = decltype(pack);
        using K = sgrad__pack<uint8_t, P::size>;
        const struct sgrad__windows s = sgrad__windows_of(x, y, P::size, attrs->kernel, attrs->stride, attrs->padding);
        sgrad__launch(forward<P, K>, sgrad_shape_count(y) / P::size, s, args->data[0], args->data[1], keep);
    });
}

/* Forward: x (N,H,W,C), y (N,P,Q,C), saved taps (N,P,Q,C) U8 */
extern "C" void sgrad__max_pool_forward_cuda(const struct sgrad_args *args) { launch_forward(args, args->data[2]); }

/* Inference: x (N,H,W,C), y (N,P,Q,C) */
extern "C" void sgrad__max_pool_inference_cuda(const struct sgrad_args *args) { launch_forward(args, NULL); }

/* Backward: dy (N,P,Q,C), saved taps (N,P,Q,C) U8, dx (N,H,W,C) */
extern "C" void sgrad__max_pool_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_max_pool *attrs = (const struct sgrad_max_pool *)args->attrs;
    const struct sgrad_shape *y = &args->view[0].shape, *x = &args->view[2].shape;
    sgrad__with_pack(args->view[2].dtype, sgrad__image_dims(x)[3], [=](auto pack) {
        using P = decltype(pack);
        using K = sgrad__pack<uint8_t, P::size>;
        const struct sgrad__windows s = sgrad__windows_of(x, y, P::size, attrs->kernel, attrs->stride, attrs->padding);
        sgrad__launch(backward<P, K>, sgrad_shape_count(x) / P::size, s, args->data[0], args->data[1], args->data[2],
                      sgrad_adds(args, 2));
    });
}
