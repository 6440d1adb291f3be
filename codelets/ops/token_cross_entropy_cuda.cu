/* token_cross_entropy_cuda.cu: token_cross_entropy.c on CUDA devices. Forward and backward each read the logits once:
 *
 *     forward    row of x ──> lane 0: m, s ┐
 *                        ──> lane 1: m, s ├─> merged: log Σ exp(x) of the row ──> one block adds the losses of all rows
 *                        ──> …            ┘
 *     backward   pack of x, log Σ exp(x) ──> pack of dx
 *
 * with m the largest logit so far and s = Σ exp(x - m); s is multiplied by exp(m - m') when the largest becomes m'.
 *
 * Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, 2018. */
#include <cfloat>
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/token_cross_entropy.h"

#define WARPS 32 /* of the block that adds */

/* saved (rows): log Σ exp of each row's logits, which are PACKS packs */
template <typename P> static __global__ void normalize(uint32_t rows, int packs, const P *x, float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    x += (int64_t)row * packs;
    float largest = -FLT_MAX; /* finite, so that logits of -inf add 0 */
    double sum = 0;
    _Pragma("unroll 4") /* so that loads overlap */
    for (int i = threadIdx.x; i < packs; i += 32) {
        float v[P::size], top = largest, more = 0;
        sgrad__load(x + i, v);
        for (float e : v) top = fmaxf(top, e);
        if (top > largest) sum *= expf(largest - top), largest = top;
        for (float e : v) more += expf(e - largest);
        sum += more;
    }
    const float top = sgrad__warp_max(largest);
    sum = sgrad__warp_sum(sum * expf(largest - top));
    if (threadIdx.x == 0) keep[row] = (float)(top + log(sum));
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

/* x, dx: rows of PACKS packs; one thread for each pack. dx may have the memory of x. */
template <typename P>
static __global__ void backward(uint32_t n, int packs, const P *x, const int *target, const float *keep, float scale, P *dx,
                                bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int row = (int)(i / packs), c = (int)(i % packs) * P::size, t = target[row];
    float v[P::size];
    sgrad__load(x + i, v);
    for (int j = 0; j < P::size; j++) v[j] = t < 0 ? 0 : (expf(v[j] - keep[row]) - (c + j == t)) * scale;
    sgrad__store(dx + i, v, add);
}

/* x (N,…,C), targets (N,…), saved (N,…), stat (3 or 4) */
extern "C" void sgrad__token_cross_entropy_forward_cuda(const struct sgrad_args *args) {
    const int64_t rows = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / rows;
    sgrad__with_wide_pack(args->view[0].dtype, C, [=](auto pack) {
        sgrad__launch_warps(normalize<decltype(pack)>, rows, (int)(C / pack.size), args->data[0], args->data[2]);
    });
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(add_up<decltype(type)>, dim3(1), dim3(32, WARPS), (int)rows, (int)C, args->data[0], args->data[1],
                           args->data[2], args->view[3].shape.dim[0] == 4, args->data[3]);
    });
}

/* x (N,…,C), targets (N,…), saved (N,…), dx (N,…,C) */
extern "C" void sgrad__token_cross_entropy_backward_cuda(const struct sgrad_args *args) {
    const int64_t rows = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / rows;
    const float scale = 1.0f / (float)(args->batch->averaged * (rows / args->view[1].shape.dim[0]));
    sgrad__with_wide_pack(args->view[0].dtype, C, [=](auto pack) {
        const int64_t packs = C / pack.size;
        sgrad__launch(backward<decltype(pack)>, rows * packs, (int)packs, args->data[0], args->data[1], args->data[2], scale,
                      args->data[3], sgrad_adds(args, 3));
    });
}
