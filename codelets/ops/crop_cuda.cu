/* crop_cuda.cu: crop.c on CUDA devices, with one thread for each element that is written. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/crop.h"

/* Sizes of the whole tensor (N,D,H,W,C) and of the window (N,P,Q,R,C), and the window's origin. */
struct part {
    int D, H, W, C, P, Q, R, z, y, x;
};

template <typename T> static __global__ void forward(uint32_t n, struct part part, const T *x, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % part.C, w = i / part.C % part.R, h = i / part.C / part.R % part.Q,
              d = i / part.C / part.R / part.Q % part.P;
    const int64_t sample = i / part.C / part.R / part.Q / part.P;
    y[i] = x[(((sample * part.D + d + part.z) * part.H + h + part.y) * part.W + w + part.x) * part.C + c];
}

template <typename T> static __global__ void backward(uint32_t n, struct part part, const T *dy, T *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % part.C, w = (int)(i / part.C % part.W) - part.x, h = (int)(i / part.C / part.W % part.H) - part.y;
    const int d = (int)(i / part.C / part.W / part.H % part.D) - part.z;
    const int64_t sample = i / part.C / part.W / part.H / part.D;
    const bool inside = d >= 0 && d < part.P && h >= 0 && h < part.Q && w >= 0 && w < part.R;
    const float v = inside ? (float)dy[(((sample * part.P + d) * part.Q + h) * part.R + w) * part.C + c] : 0;
    dx[i] = (add ? (float)dx[i] : 0) + v;
}

static struct part part_of(const struct sgrad_args *args, const struct sgrad_shape *whole) {
    const struct sgrad_crop *c = (const struct sgrad_crop *)args->attrs;
    const int64_t *end = whole->dim + whole->rank;
    const int slices = whole->rank > 4 ? (int)end[-4] : 1, lines = whole->rank > 3 ? (int)end[-3] : 1;
    return { slices, lines, (int)end[-2], (int)end[-1], c->size[0], c->size[1], c->size[2],
             c->from[0], c->from[1], c->from[2] };
}

/* x (N,[[D,]H,]W,C), y (N,[[D,]P,]Q,C) */
extern "C" void sgrad__crop_forward_cuda(const struct sgrad_args *args) {
    const struct part p = part_of(args, &args->view[0].shape);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch(forward<decltype(type)>, sgrad_shape_count(&args->view[1].shape), p, args->data[0], args->data[1]);
    });
}

/* dy (N,[[D,]P,]Q,C), dx (N,[[D,]H,]W,C) */
extern "C" void sgrad__crop_backward_cuda(const struct sgrad_args *args) {
    const struct part p = part_of(args, &args->view[1].shape);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        const int64_t count = sgrad_shape_count(&args->view[1].shape);
        sgrad__launch(backward<decltype(type)>, count, p, args->data[0], args->data[1], sgrad_adds(args, 1));
    });
}
