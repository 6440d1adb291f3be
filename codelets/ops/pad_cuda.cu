/* pad_cuda.cu: pad.c on CUDA devices, with one thread for each pack that is written. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/pad.h"

/* Returns the pixel, of SIZE, that position P of the padded axis repeats; -1: zeros. */
static __device__ inline int source(int p, int before, int size, bool reflect) {
    const int x = p - before;
    if (x >= 0 && x < size) return x;
    return !reflect ? -1 : x < 0 ? -x : 2 * (size - 1) - x;
}

/* Returns position I, from 0 to 2, of the padded axis that repeats pixel X, of SIZE; -1: there is none. */
static __device__ inline int position(int i, int x, int before, int after, int size, bool reflect) {
    if (i == 0) return before + x;
    if (i == 1) return reflect && x > 0 && x <= before ? before - x : -1;
    return reflect && x < size - 1 && size - 1 - x <= after ? before + 2 * (size - 1) - x : -1;
}

template <typename P> static __global__ void forward(uint32_t n, struct sgrad__sizes s, struct sgrad_pad a, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.P, s.Q, s.C);
    const int h = source(at.h, a.top, s.H, a.reflect), w = source(at.w, a.left, s.W, a.reflect);
    float v[P::size] = {};
    if (h >= 0 && w >= 0) sgrad__load(x + sgrad__index_of(at.n, h, w, at.c, s.H, s.W, s.C), v);
    sgrad__store(y + i, v);
}

template <typename P>
static __global__ void backward(uint32_t n, struct sgrad__sizes s, struct sgrad_pad a, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.H, s.W, s.C);
    float v[P::size], sum[P::size] = {};
    for (int k = 0; k < 9; k++) {
        const int p = position(k / 3, at.h, a.top, a.bottom, s.H, a.reflect);
        const int q = position(k % 3, at.w, a.left, a.right, s.W, a.reflect);
        if (p < 0 || q < 0) continue;
        sgrad__load(dy + sgrad__index_of(at.n, p, q, at.c, s.P, s.Q, s.C), v);
        for (int j = 0; j < P::size; j++) sum[j] += v[j];
    }
    sgrad__store(dx + i, sum, add);
}

/* x (N,H,W,C), y (N,P,Q,C) */
extern "C" void sgrad__pad_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape, *y = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, x->dim[x->rank - 1], [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, sgrad_shape_count(y) / P::size, sgrad__sizes_of(x, y, P::size),
                      *(const struct sgrad_pad *)args->attrs, args->data[0], args->data[1]);
    });
}

/* dy (N,P,Q,C), dx (N,H,W,C) */
extern "C" void sgrad__pad_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *y = &args->view[0].shape, *x = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, x->dim[x->rank - 1], [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, sgrad_shape_count(x) / P::size, sgrad__sizes_of(x, y, P::size),
                      *(const struct sgrad_pad *)args->attrs, args->data[0], args->data[1], sgrad_adds(args, 1));
    });
}
