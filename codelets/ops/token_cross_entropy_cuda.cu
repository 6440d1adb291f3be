/* token_cross_entropy_cuda.cu: token_cross_entropy.c on CUDA devices. A warp processes a row; one block adds the losses of all
 * rows. */
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/token_cross_entropy.h"

#define WARPS 32 /* of the block that adds */

/* saved (rows): log Σ exp of each row's C logits */
template <typename T> static __global__ void normalize(uint32_t rows, int C, const T *x, float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    x += (int64_t)row * C;
    float largest = -INFINITY;
    double sum = 0;
    for (int c = threadIdx.x; c < C; c += 32) largest = fmaxf(largest, (float)x[c]);
    largest = sgrad__warp_max(largest);
    for (int c = threadIdx.x; c < C; c += 32) sum += expf((float)x[c] - largest);
    sum = sgrad__warp_sum(sum);
    if (threadIdx.x == 0) keep[row] = (float)(largest + log(sum));
}

/* One block. Elements of stat: Σ loss, twice; with BYTES Σ loss / log 2; number of rows. A target below 0 is excluded; one that
 * is not a class makes the loss NaN. */
template <typename T>
static __global__ void __launch_bounds__(32 * WARPS)
    add_up(int rows, int C, const T *x, const int *target, const float *keep, bool bytes, double *stat) {
    __shared__ double part[2][WARPS];
    double loss = 0, count = 0;
    for (int row = threadIdx.y * 32 + threadIdx.x; row < rows; row += 32 * WARPS) {
        const int t = target[row];
        if (t < 0) continue;
        loss += keep[row] - (t < C ? (double)(float)x[(int64_t)row * C + t] : NAN);
        count++;
    }
    loss = sgrad__warp_sum(loss), count = sgrad__warp_sum(count);
    if (threadIdx.x == 0) part[0][threadIdx.y] = loss, part[1][threadIdx.y] = count;
    __syncthreads();
    if (threadIdx.y > 0) return;
    loss = sgrad__warp_sum(part[0][threadIdx.x]), count = sgrad__warp_sum(part[1][threadIdx.x]);
    if (threadIdx.x > 0) return;
    stat[0] = stat[1] = loss;
    if (bytes) stat[2] = loss / log(2.0);
    stat[2 + bytes] = count;
}

/* x, dx (rows,C); one thread for each element */
template <typename T>
static __global__ void backward(uint32_t n, int C, const T *x, const int *target, const float *keep, float scale, T *dx,
                                bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int row = (int)(i / C), t = target[row];
    const float wanted = (int)(i % C) == t ? 1 : 0, p = t < 0 ? 0 : (expf((float)x[i] - keep[row]) - wanted) * scale;
    dx[i] = (add ? (float)dx[i] : 0) + p;
}

/* x (N,…,C), targets (N,…), saved (N,…), stat (3 or 4) */
extern "C" void sgrad__token_cross_entropy_forward_cuda(const struct sgrad_args *args) {
    const int64_t rows = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / rows;
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        using T = decltype(type);
        sgrad__launch_warps(normalize<T>, rows, (int)C, args->data[0], args->data[2]);
        sgrad__launch_grid(add_up<T>, dim3(1), dim3(32, WARPS), (int)rows, (int)C, args->data[0], args->data[1], args->data[2],
                           args->view[3].shape.dim[0] == 4, args->data[3]);
    });
}

/* x (N,…,C), targets (N,…), saved (N,…), dx (N,…,C) */
extern "C" void sgrad__token_cross_entropy_backward_cuda(const struct sgrad_args *args) {
    const int64_t rows = sgrad_shape_count(&args->view[1].shape), n = sgrad_shape_count(&args->view[0].shape);
    const float scale = 1.0f / (float)(args->batch->averaged * (rows / args->view[1].shape.dim[0]));
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch(backward<decltype(type)>, n, (int)(n / rows), args->data[0], args->data[1], args->data[2], scale,
                      args->data[3], sgrad_adds(args, 3));
    });
}
