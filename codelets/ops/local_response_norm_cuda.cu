/* local_response_norm_cuda.cu: local_response_norm.c on CUDA devices. Neighbouring channels are adjacent in memory, so every
 * thread reads its window from the cache. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/local_response_norm.h"

/* y_c = x_c s_c^-beta with s_c = k + alpha/size Σ x_d², d from c - before to c + after */
struct window {
    int C, before, after;
    float k, alpha, beta; /* alpha: divided by size */
};

/* Returns s_c of a row X of C channels. */
template <typename T> static __device__ inline float scale(const struct window &s, const T *x, int c) {
    float sum = 0;
    for (int d = max(c - s.before, 0); d <= min(c + s.after, s.C - 1); d++) sum += (float)x[d] * (float)x[d];
    return s.k + s.alpha * sum;
}

template <typename T> static __global__ void forward(uint32_t n, struct window s, const T *x, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % s.C;
    y[i] = (float)x[i] * powf(scale(s, x + (i - c), c), -s.beta);
}

/* Computes dx_c = dy_c s_c^-beta - 2 alpha/size beta x_c Σ dy_d y_d / s_d, over the d whose windows contain c. */
template <typename T>
static __global__ void backward(uint32_t n, struct window s, const T *x, const T *y, const T *dy, T *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % s.C;
    const int64_t row = i - c;
    float sum = 0;
    for (int d = max(c - s.after, 0); d <= min(c + s.before, s.C - 1); d++)
        sum += (float)dy[row + d] * (float)y[row + d] / scale(s, x + row, d);
    const float d = (float)dy[i] * powf(scale(s, x + row, c), -s.beta) - 2 * s.alpha * s.beta * (float)x[i] * sum;
    dx[i] = add ? (float)dx[i] + d : d;
}

static struct window window_of(const struct sgrad_args *a) {
    const struct sgrad_local_response_norm *attrs = (const struct sgrad_local_response_norm *)a->attrs;
    const struct sgrad_shape *x = &a->view[0].shape;
    const int C = (int)x->dim[x->rank - 1], before = attrs->size / 2, after = (attrs->size - 1) / 2;
    return { C, before, after, attrs->k, attrs->alpha / attrs->size, attrs->beta };
}

/* Forward: x, y (…,C) */
extern "C" void sgrad__local_response_norm_forward_cuda(const struct sgrad_args *a) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_type(a->view[0].dtype,
                     [=](auto type) { sgrad__launch(forward<decltype(type)>, n, window_of(a), a->data[0], a->data[1]); });
}

/* Backward: x, y, dy, dx (…,C) */
extern "C" void sgrad__local_response_norm_backward_cuda(const struct sgrad_args *a) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        sgrad__launch(backward<decltype(type)>, n, window_of(a), a->data[0], a->data[1], a->data[2], a->data[3],
                      sgrad_adds(a, 3));
    });
}
