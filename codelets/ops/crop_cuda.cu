/* crop_cuda.cu: crop.c on CUDA devices, with one thread for each element that is written. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/crop.h"

/* Sizes of the whole tensor (N,D,H,W,C) and of the window (N,P,Q,R,C), and the window's origin. */
struct part {
    int D, H, W, C, P, Q, R, z, y, x;
};

template <typename T> static __global__ void forward(uint32_t n, struct part p, const T *x, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % p.C, w = i / p.C % p.R, h = i / p.C / p.R % p.Q, d = i / p.C / p.R / p.Q % p.P;
    const int64_t sample = i / p.C / p.R / p.Q / p.P;
    y[i] = x[(((sample * p.D + d + p.z) * p.H + h + p.y) * p.W + w + p.x) * p.C + c];
}

template <typename T> static __global__ void backward(uint32_t n, struct part p, const T *dy, T *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % p.C, w = (int)(i / p.C % p.W) - p.x, h = (int)(i / p.C / p.W % p.H) - p.y;
    const int d = (int)(i / p.C / p.W / p.H % p.D) - p.z;
    const int64_t sample = i / p.C / p.W / p.H / p.D;
    const bool inside = d >= 0 && d < p.P && h >= 0 && h < p.Q && w >= 0 && w < p.R;
    const float v = inside ? (float)dy[(((sample * p.P + d) * p.Q + h) * p.R + w) * p.C + c] : 0;
    dx[i] = (add ? (float)dx[i] : 0) + v;
}

static struct part part_of(const struct sgrad_args *a, const struct sgrad_shape *whole) {
    const struct sgrad_crop *c = (const struct sgrad_crop *)a->attrs;
    const int64_t *d = whole->dim + whole->rank - 4;
    return { whole->rank == 5 ? (int)d[0] : 1, (int)d[1], (int)d[2], (int)d[3], c->size[0], c->size[1], c->size[2],
             c->from[0], c->from[1], c->from[2] };
}

/* x (N,[D,]H,W,C), y (N,[D,]P,Q,C) */
extern "C" void sgrad__crop_forward_cuda(const struct sgrad_args *a) {
    const struct part p = part_of(a, &a->view[0].shape);
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        sgrad__launch(forward<decltype(type)>, sgrad_shape_count(&a->view[1].shape), p, a->data[0], a->data[1]);
    });
}

/* dy (N,[D,]P,Q,C), dx (N,[D,]H,W,C) */
extern "C" void sgrad__crop_backward_cuda(const struct sgrad_args *a) {
    const struct part p = part_of(a, &a->view[1].shape);
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        const int64_t count = sgrad_shape_count(&a->view[1].shape);
        sgrad__launch(backward<decltype(type)>, count, p, a->data[0], a->data[1], sgrad_adds(a, 1));
    });
}
