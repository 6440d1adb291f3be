/* shortcut_a_cuda.cu: shortcut_a.c on CUDA devices. */
#include <numeric>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/shortcut_a.h"

/* y[n][p][q][before + c] = x[n][p·stride][q·stride][c], with x (N,H,W,C), y (N,P,Q,K); zero in the other channels. In packs. */
struct shape {
    int H, W, C, P, Q, K, stride, before;
};

/* One thread for each pack of y. */
template <typename P> static __global__ void forward(uint32_t n, struct shape shape, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel to = sgrad__pixel_of(i, shape.P, shape.Q, shape.K);
    const int c = to.c - shape.before;
    float v[P::size] = {};
    if (c >= 0 && c < shape.C)
        sgrad__load(x + sgrad__index_of(to.n, to.h * shape.stride, to.w * shape.stride, c, shape.H, shape.W, shape.C), v);
    sgrad__store(y + i, v);
}

/* One thread for each pack of dx. */
template <typename P> static __global__ void backward(uint32_t n, struct shape shape, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, shape.H, shape.W, shape.C);
    const int p = at.h / shape.stride, q = at.w / shape.stride;
    float v[P::size] = {};
    if (at.h % shape.stride == 0 && at.w % shape.stride == 0 && p < shape.P && q < shape.Q)
        sgrad__load(dy + sgrad__index_of(at.n, p, q, at.c + shape.before, shape.P, shape.Q, shape.K), v);
    sgrad__store(dx + i, v, add);
}

static struct shape shape_of(const struct sgrad_args *args, const struct sgrad_shape *shape, const struct sgrad_shape *y,
                             int pack) {
    const int stride = ((const struct sgrad_shortcut_a *)args->attrs)->stride;
    const int H = (int)shape->dim[1], W = (int)shape->dim[2], C = (int)shape->dim[3], P = (int)y->dim[1], Q = (int)y->dim[2],
              K = (int)y->dim[3];
    return { H, W, C / pack, P, Q, K / pack, stride, (K - C) / 2 / pack };
}

/* The size of a pack must divide this number: a divisor of the channels of x and y, and of the zeros before x's. */
static int64_t divisor(const struct sgrad_shape *shape, const struct sgrad_shape *y) {
    return std::gcd(std::gcd(shape->dim[3], y->dim[3]), (y->dim[3] - shape->dim[3]) / 2);
}

/* x (N,H,W,C), y (N,P,Q,K) */
extern "C" void sgrad__shortcut_a_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape, *y = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, divisor(x, y), [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, sgrad_shape_count(y) / P::size, shape_of(args, x, y, P::size), args->data[0], args->data[1]);
    });
}

/* dy (N,P,Q,K), dx (N,H,W,C) */
extern "C" void sgrad__shortcut_a_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *y = &args->view[0].shape, *x = &args->view[1].shape;
    sgrad__with_pack(args->view[1].dtype, divisor(x, y), [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, sgrad_shape_count(x) / P::size, shape_of(args, x, y, P::size), args->data[0], args->data[1],
                      sgrad_adds(args, 1));
    });
}
