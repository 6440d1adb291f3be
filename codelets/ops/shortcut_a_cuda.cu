/* shortcut_a_cuda.cu: shortcut_a.c on CUDA devices. */
#include <numeric>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/shortcut_a.h"

/* y[n][p][q][before + c] = x[n][p·stride][q·stride][c], with x (N,H,W,C), y (N,P,Q,K); zero in the other channels. In packs. */
struct shape {
    int H, W, C, P, Q, K, stride, before;
};

/* One thread for each pack of y. */
template <typename P> static __global__ void forward(uint32_t n, struct shape s, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel to = sgrad__pixel_of(i, s.P, s.Q, s.K);
    const int c = to.c - s.before;
    float v[P::size] = {};
    if (c >= 0 && c < s.C) sgrad__load(x + sgrad__index_of(to.n, to.h * s.stride, to.w * s.stride, c, s.H, s.W, s.C), v);
    sgrad__store(y + i, v);
}

/* One thread for each pack of dx. */
template <typename P> static __global__ void backward(uint32_t n, struct shape s, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.H, s.W, s.C);
    const int p = at.h / s.stride, q = at.w / s.stride;
    float v[P::size] = {};
    if (at.h % s.stride == 0 && at.w % s.stride == 0 && p < s.P && q < s.Q)
        sgrad__load(dy + sgrad__index_of(at.n, p, q, at.c + s.before, s.P, s.Q, s.K), v);
    sgrad__store(dx + i, v, add);
}

static struct shape shape_of(const struct sgrad_args *a, const struct sgrad_shape *x, const struct sgrad_shape *y, int pack) {
    const int stride = ((const struct sgrad_shortcut_a *)a->attrs)->stride;
    const int H = (int)x->dim[1], W = (int)x->dim[2], C = (int)x->dim[3], P = (int)y->dim[1], Q = (int)y->dim[2],
              K = (int)y->dim[3];
    return { H, W, C / pack, P, Q, K / pack, stride, (K - C) / 2 / pack };
}

/* The size of a pack must divide this number: a divisor of the channels of x and y, and of the zeros before x's. */
static int64_t divisor(const struct sgrad_shape *x, const struct sgrad_shape *y) {
    return std::gcd(std::gcd(x->dim[3], y->dim[3]), (y->dim[3] - x->dim[3]) / 2);
}

/* x (N,H,W,C), y (N,P,Q,K) */
extern "C" void sgrad__shortcut_a_forward_cuda(const struct sgrad_args *a) {
    const struct sgrad_shape *x = &a->view[0].shape, *y = &a->view[1].shape;
    sgrad__with_pack(a->view[0].dtype, divisor(x, y), [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, sgrad_shape_count(y) / P::size, shape_of(a, x, y, P::size), a->data[0], a->data[1]);
    });
}

/* dy (N,P,Q,K), dx (N,H,W,C) */
extern "C" void sgrad__shortcut_a_backward_cuda(const struct sgrad_args *a) {
    const struct sgrad_shape *y = &a->view[0].shape, *x = &a->view[1].shape;
    sgrad__with_pack(a->view[1].dtype, divisor(x, y), [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, sgrad_shape_count(x) / P::size, shape_of(a, x, y, P::size), a->data[0], a->data[1],
                      sgrad_adds(a, 1));
    });
}
