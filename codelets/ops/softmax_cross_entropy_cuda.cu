/* softmax_cross_entropy_cuda.cu: softmax_cross_entropy.c on CUDA devices. A warp processes a sample; the classes are distributed
 * over its threads. */
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/softmax_cross_entropy.h"

#define WARPS 32 /* per block */

/* log Σ exp(x) = max + log_sum of the C logits x */
template <typename T> static __device__ inline void normalize(int C, const T *x, float *max, double *log_sum) {
    float largest = -INFINITY;
    for (int c = threadIdx.x; c < C; c += 32) largest = fmaxf(largest, x[c]);
    largest = sgrad__warp_max(largest);
    double sum = 0;
    for (int c = threadIdx.x; c < C; c += 32) sum += expf((float)x[c] - largest);
    *max = largest;
    *log_sum = log(sgrad__warp_sum(sum));
}

/* Returns the first class whose logit is MAX, or C if no class has it. */
template <typename T> static __device__ inline int find(int C, const T *x, float max) {
    int first = C;
    for (int c = threadIdx.x; c < C && first == C; c += 32)
        if ((float)x[c] == max) first = c;
    return sgrad__across_warp(first, [](int a, int b) { return min(a, b); });
}

/* Returns whether logit T is one of the five largest. */
template <typename T> static __device__ inline bool in_five(int C, const T *x, int t) {
    const float own = x[t];
    int larger = 0;
    for (int c = threadIdx.x; c < C; c += 32) larger += (float)x[c] > own || ((float)x[c] == own && c < t);
    larger = sgrad__warp_sum(larger);
    return larger < 5;
}

/* Targets of a row: its label, or two labels and the weight of the first. OTHER is NULL if rows have one label. */
struct target {
    int t, u;
    float share;
    __device__ target(const int *label, const int *other, const float *shares, int s)
        : t(label[s]), u(other ? other[s] : label[s]), share(other ? shares[s] : 1) {}
    __device__ float of(int c) const { return (c == t ? share : 0) + (c == u ? 1 - share : 0); }
};

/* One block. x (N,C), label (N), second labels and weights of the first ones (N) or NULL, stat (3): Σ loss, correct, samples.
 * With MANY classes stat (4) has the number of top-5 correct samples as its third element.
 * Warp w processes samples w, w + 32, …; warp 0 adds the results of all warps. */
template <typename T>
static __global__ void __launch_bounds__(32 * WARPS)
    forward(int N, int C, const T *x, const int *label, const int *other, const float *share, double smoothed, bool many,
            const struct sgrad_step *step, double *stat) {
    const double smoothing = step->training ? smoothed : 0;
    double loss = 0, correct = 0, near = 0;
    for (int s = threadIdx.y; s < N; s += WARPS) {
        const T *row = x + (int64_t)s * C;
        const struct target is(label, other, share, s);
        const int t = is.t, u = is.u, major = is.share >= 0.5f ? t : u;
        float max;
        double log_sum, mean = 0;
        normalize(C, row, &max, &log_sum);
        if (smoothing > 0) {
            for (int c = threadIdx.x; c < C; c += 32) mean += (double)(float)row[c] / C;
            mean = sgrad__warp_sum(mean);
        }
        double own = t >= 0 && t < C ? (double)(float)row[t] : NAN; /* NaN if the label is not a class */
        if (u != t) own = is.share * own + (1 - (double)is.share) * (u >= 0 && u < C ? (double)(float)row[u] : NAN);
        loss += max + log_sum - (1 - smoothing) * own - smoothing * mean;
        const bool sure = isfinite(max) && isfinite(log_sum);
        correct += sure && find(C, row, max) == major;
        if (many && sure && major >= 0 && major < C) near += in_five(C, row, major);
    }
    __shared__ double part[3][WARPS];
    if (threadIdx.x == 0) part[0][threadIdx.y] = loss, part[1][threadIdx.y] = correct, part[2][threadIdx.y] = near;
    __syncthreads();
    if (threadIdx.y > 0) return;
    loss = sgrad__warp_sum(part[0][threadIdx.x]);
    correct = sgrad__warp_sum(part[1][threadIdx.x]);
    near = sgrad__warp_sum(part[2][threadIdx.x]);
    if (threadIdx.x > 0) return;
    stat[0] = loss, stat[1] = correct;
    if (many) stat[2] = near;
    stat[2 + many] = N;
}

/* Backward: x (N,C), label (N), second labels and weights of the first ones (N) or NULL, dx (N,C) = (softmax(x) - q) · scale */
template <typename T>
static __global__ void backward(int N, int C, const T *x, const int *label, const int *other, const float *share, float smoothing,
                                float scale, T *dx, bool add) {
    const int s = blockIdx.x * blockDim.y + threadIdx.y;
    if (s >= N) return;
    x += (int64_t)s * C;
    dx += (int64_t)s * C;
    const struct target is(label, other, share, s);
    float max;
    double log_sum;
    normalize(C, x, &max, &log_sum);
    for (int c = threadIdx.x; c < C; c += 32) {
        const float p = expf((float)x[c] - max - (float)log_sum), q = smoothing / C + is.of(c) * (1 - smoothing);
        dx[c] = (add ? (float)dx[c] : 0) + (p - q) * scale;
    }
}

static float smoothing_of(const struct sgrad_args *args) {
    return ((const struct sgrad_softmax_cross_entropy *)args->attrs)->label_smoothing;
}

/* Forward: x (N,…,C), labels (N,…), stat (3 or 4), second labels and weights of the first ones (N,…) or absent */
extern "C" void sgrad__softmax_cross_entropy_forward_cuda(const struct sgrad_args *args) {
    const int64_t N = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / N;
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(forward<decltype(type)>, dim3(1), dim3(32, WARPS), N, C, args->data[0], args->data[1], args->data[3],
                           args->data[4], smoothing_of(args), args->view[2].shape.dim[0] == 4, args->step, args->data[2]);
    });
}

/* Backward: x (N,…,C), labels (N,…), dx (N,…,C), second labels and weights of the first ones (N,…) or absent */
extern "C" void sgrad__softmax_cross_entropy_backward_cuda(const struct sgrad_args *args) {
    const int64_t N = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / N;
    const int64_t per_sample = N / args->view[1].shape.dim[0];
    const dim3 grid((unsigned)sgrad__ceil(N, 8)), block(32, 8);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(backward<decltype(type)>, grid, block, N, C, args->data[0], args->data[1], args->data[3],
                           args->data[4], smoothing_of(args), 1.0f / (float)(args->batch->averaged * per_sample), args->data[2],
                           sgrad_adds(args, 2));
    });
}
