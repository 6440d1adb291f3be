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

/* Returns the weight of class C of K, which may be invalid. WEIGHT: of each class; NULL: all 1. */
static __device__ inline float weight_of(const float *weight, int c, int K) {
    return weight && c >= 0 && c < K ? weight[c] : 1;
}
static __device__ inline float scale_of(const struct sgrad_step *step) { return step->weight_scale > 0 ? step->weight_scale : 1; }

/* Returns the factor f of the gradient of the focal loss. */
static __device__ inline float focus(double log_p, double gamma) {
    const double rest = -expm1(log_p);
    if (rest <= 0) return 0;
    return (float)(pow(rest, gamma) - gamma * exp(log_p) * pow(rest, gamma - 1) * log_p);
}

/* Constants of the loss. */
struct loss {
    float smoothing, gamma;
    const float *weight;    /* (C); NULL: all 1 */
};

/* One block. x (N,C), label (N), second labels and weights of the first ones (N) or NULL, stat (3): Σ loss, correct, samples.
 * With MANY classes stat (4) has the number of top-5 correct samples as its third element.
 * Warp w processes samples w, w + 32, …; warp 0 adds the results of all warps. */
template <typename T>
static __global__ void __launch_bounds__(32 * WARPS)
    forward(int N, int C, const T *x, const int *label, const int *other, const float *share, struct loss is, bool many,
            const struct sgrad_step *step, double *stat) {
    const double smoothing = step->training ? is.smoothing : 0, gamma = step->training ? is.gamma : 0;
    const float *weight = step->training ? is.weight : NULL;
    double loss = 0, correct = 0, near = 0;
    for (int s = threadIdx.y; s < N; s += WARPS) {
        const T *row = x + (int64_t)s * C;
        const struct target of(label, other, share, s);
        const int t = of.t, u = of.u, major = of.share >= 0.5f ? t : u;
        float max;
        double log_sum, mean = 0, mean_weight = smoothing > 0 ? 0 : 1; /* means of w x, w over all classes */
        normalize(C, row, &max, &log_sum);
        if (smoothing > 0) {
            for (int c = threadIdx.x; c < C; c += 32) {
                mean += (double)weight_of(weight, c, C) * (float)row[c] / C;
                mean_weight += (double)weight_of(weight, c, C) / C;
            }
            mean = sgrad__warp_sum(mean);
            mean_weight = sgrad__warp_sum(mean_weight);
        }
        const double log_z = max + log_sum;
        const double logit = t >= 0 && t < C ? (double)(float)row[t] : NAN; /* NaN if the label is not a class */
        double mass = weight_of(weight, t, C), own = mass * logit;          /* Σ w q, w q x, over the labels */
        if (u != t) {
            const double second = weight_of(weight, u, C);
            own = of.share * own + (1 - (double)of.share) * second * (u >= 0 && u < C ? (double)(float)row[u] : NAN);
            mass = of.share * mass + (1 - (double)of.share) * second;
        }
        double lost = ((1 - smoothing) * mass + smoothing * mean_weight) * log_z - (1 - smoothing) * own - smoothing * mean;
        if (gamma > 0) lost *= pow(-expm1(fmin(0.0, logit - log_z)), gamma);
        loss += lost;
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
    stat[0] = weight ? loss * scale_of(step) : loss, stat[1] = correct;
    if (many) stat[2] = near;
    stat[2 + many] = N;
}

/* Backward: x (N,C), label (N), second labels and weights of the first ones (N) or NULL, dx (N,C) = (p Σ w q - w q) · scale */
template <typename T>
static __global__ void backward(int N, int C, const T *x, const int *label, const int *other, const float *share, struct loss is,
                                const struct sgrad_step *step, float scale, T *dx, bool add) {
    const int s = blockIdx.x * blockDim.y + threadIdx.y;
    if (s >= N) return;
    x += (int64_t)s * C;
    dx += (int64_t)s * C;
    const struct target of(label, other, share, s);
    float max, mass = 1; /* mass: Σ w q */
    double log_sum;
    normalize(C, x, &max, &log_sum);
    if (is.weight) {
        mass = 0;
        for (int c = threadIdx.x; c < C; c += 32) mass += is.weight[c] * (is.smoothing / C + of.of(c) * (1 - is.smoothing));
        mass = sgrad__warp_sum(mass);
        scale *= scale_of(step);
    }
    if (is.gamma > 0 && of.t >= 0 && of.t < C) scale *= focus((double)(float)x[of.t] - max - log_sum, is.gamma);
    for (int c = threadIdx.x; c < C; c += 32) {
        const float p = expf((float)x[c] - max - (float)log_sum), q = is.smoothing / C + of.of(c) * (1 - is.smoothing);
        dx[c] = (add ? (float)dx[c] : 0) + (p * mass - weight_of(is.weight, c, C) * q) * scale;
    }
}

static struct loss loss_of(const struct sgrad_args *args) {
    const struct sgrad_softmax_cross_entropy *attrs = (const struct sgrad_softmax_cross_entropy *)args->attrs;
    return { attrs->label_smoothing, attrs->focal_gamma, (const float *)args->data[5] };
}

/* Forward: x (N,…,C), labels (N,…), stat (3 or 4), second labels and weights of the first ones (N,…) or absent, weights of the
 * classes (C) or absent */
extern "C" void sgrad__softmax_cross_entropy_forward_cuda(const struct sgrad_args *args) {
    const int64_t N = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / N;
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(forward<decltype(type)>, dim3(1), dim3(32, WARPS), N, C, args->data[0], args->data[1], args->data[3],
                           args->data[4], loss_of(args), args->view[2].shape.dim[0] == 4, args->step, args->data[2]);
    });
}

/* Backward: x (N,…,C), labels (N,…), dx (N,…,C), second labels and weights of the first ones (N,…) or absent, weights of the
 * classes (C) or absent */
extern "C" void sgrad__softmax_cross_entropy_backward_cuda(const struct sgrad_args *args) {
    const int64_t N = sgrad_shape_count(&args->view[1].shape), C = sgrad_shape_count(&args->view[0].shape) / N;
    const int64_t per_sample = N / args->view[1].shape.dim[0];
    const dim3 grid((unsigned)sgrad__ceil(N, 8)), block(32, 8);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(backward<decltype(type)>, grid, block, N, C, args->data[0], args->data[1], args->data[3],
                           args->data[4], loss_of(args), args->step, 1.0f / (float)(args->batch->averaged * per_sample),
                           args->data[2], sgrad_adds(args, 2));
    });
}
