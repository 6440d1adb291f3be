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
template <typename T> static __device__ inline float scale(const struct window &window, const T *x, int c) {
    float sum = 0;
    for (int d = max(c - window.before, 0); d <= min(c + window.after, window.C - 1); d++) sum += (float)x[d] * (float)x[d];
    return window.k + window.alpha * sum;
}

template <typename T> static __global__ void forward(uint32_t n, struct window window, const T *x, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % window.C;
    y[i] = (float)x[i] * powf(scale(window, x + (i - c), c), -window.beta);
}

/* Computes dx_c = dy_c s_c^-beta - 2 alpha/size beta x_c Σ dy_d y_d / s_d, over the d whose windows contain c. */
template <typename T>
static __global__ void backward(uint32_t n, struct window window, const T *x, const T *y, const T *dy, T *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % window.C;
    const int64_t row = i - c;
    float sum = 0;
    for (int d = max(c - window.after, 0); d <= min(c + window.before, window.C - 1); d++)
        sum += (float)dy[row + d] * (float)y[row + d] / scale(window, x + row, d);
    const float d =
        (float)dy[i] * powf(scale(window, x + row, c), -window.beta) - 2 * window.alpha * window.beta * (float)x[i] * sum;
    dx[i] = add ? (float)dx[i] + d : d;
}

static struct window window_of(const struct sgrad_args *args) {
    const struct sgrad_local_response_norm *attrs = (const struct sgrad_local_response_norm *)args->attrs;
    const struct sgrad_shape *x = &args->view[0].shape;
    const int C = (int)x->dim[x->rank - 1], before = attrs->size / 2, after = (attrs->size - 1) / 2;
    return { C, before, after, attrs->k, attrs->alpha / attrs->size, attrs->beta };
}

/* Forward: x, y (…,C) */
extern "C" void sgrad__local_response_norm_forward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch(forward<decltype(type)>, n, window_of(args), args->data[0], args->data[1]);
    });
}

/* Backward: x, y, dy, dx (…,C) */
extern "C" void sgrad__local_response_norm_backward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch(backward<decltype(type)>, n, window_of(args), args->data[0], args->data[1], args->data[2], args->data[3],
                      sgrad_adds(args, 3));
    });
}
