/* conv2d_cuda.cu: conv2d.c on CUDA devices, through cuDNN.
 *
 * F32 convolutions use float multiply-adds (no TF32); bf16 ones tensor cores with F32 sums. cuDNN wants weights and their
 * gradients in the type of the activations, so in bf16 runs they pass through the workspace:
 *
 *     workspace  │ weight or dweight (K,R,S,C/groups) bf16 │ cuDNN's own │
 *
 * A *plan* holds descriptors and cuDNN's choice of algorithm; it is made once per shape and worker, from cuDNN's heuristics:
 * nothing is run to make it. What cuDNN does not support is computed by simple, slow kernels, after a warning. */
#include <cstring>

#include "codelets/cuda.h"

/* ---- without cuDNN: one thread for each element of what is written, y, dx or dweight ------------------------------ */

struct shape {
    int N, H, W, C, K, R, S, P, Q, stride, padding, dilation, groups;
};

/* The coordinate of x that tap R of output P reads, and the output that reads coordinate H through tap R: maybe outside. */
static __device__ inline int input_of(const struct shape &s, int p, int r) { return p * s.stride + r * s.dilation - s.padding; }
static __device__ inline int output_of(const struct shape &s, int h, int r) {
    const int start = h + s.padding - r * s.dilation;
    return start >= 0 && start % s.stride == 0 ? start / s.stride : -1;
}
static __device__ inline bool inside(int h, int w, int H, int W) { return h >= 0 && h < H && w >= 0 && w < W; }

template <typename T> static __global__ void forward(uint32_t n, struct shape s, const T *x, const float *weight, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__place at = sgrad__place_of(i, s.P, s.Q, s.K);
    const int C = s.C / s.groups, first = at.c / (s.K / s.groups) * C;
    float sum = 0;
    for (int tap = 0; tap < s.R * s.S; tap++) {
        const int h = input_of(s, at.h, tap / s.S), w = input_of(s, at.w, tap % s.S);
        if (!inside(h, w, s.H, s.W)) continue;
        for (int c = 0; c < C; c++)
            sum += (float)x[sgrad__index_of(at.n, h, w, first + c, s.H, s.W, s.C)] * weight[(at.c * s.R * s.S + tap) * C + c];
    }
    y[i] = sum;
}

template <typename T>
static __global__ void backward_data(uint32_t n, struct shape s, const T *dy, const float *weight, T *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__place at = sgrad__place_of(i, s.H, s.W, s.C);
    const int C = s.C / s.groups, K = s.K / s.groups, first = at.c / C * K;
    float sum = add ? (float)dx[i] : 0;
    for (int tap = 0; tap < s.R * s.S; tap++) {
        const int p = output_of(s, at.h, tap / s.S), q = output_of(s, at.w, tap % s.S);
        if (!inside(p, q, s.P, s.Q)) continue;
        for (int k = first; k < first + K; k++)
            sum += (float)dy[sgrad__index_of(at.n, p, q, k, s.P, s.Q, s.K)] * weight[(k * s.R * s.S + tap) * C + at.c % C];
    }
    dx[i] = sum;
}

template <typename T>
static __global__ void backward_weight(uint32_t n, struct shape s, const T *x, const T *dy, float *dweight) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int C = s.C / s.groups, tap = i / C % (s.R * s.S), k = i / C / (s.R * s.S), c = k / (s.K / s.groups) * C + i % C;
    double sum = 0;
    for (int pixel = 0; pixel < s.N * s.P * s.Q; pixel++) {
        const struct sgrad__place at = sgrad__place_of(pixel, s.P, s.Q, 1);
        const int h = input_of(s, at.h, tap / s.S), w = input_of(s, at.w, tap % s.S);
        if (inside(h, w, s.H, s.W))
            sum += (float)x[sgrad__index_of(at.n, h, w, c, s.H, s.W, s.C)] * (float)dy[(int64_t)pixel * s.K + k];
    }
    dweight[i] = (float)sum;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* cuDNN's own workspace: this, and as much as the operands, for algorithms that transpose them first. */
#define WORKSPACE  ((size_t)64 << 20)
#define ALGORITHMS 16 /* more than any pass has */

enum pass { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

/* All that a plan depends on. Compared byte by byte, so padding has to be cleared. */
struct key {
    size_t room; /* bytes that are cuDNN's own */
    int32_t pass, dtype, deterministic;
    struct shape shape;
};
struct plan {
    struct key key;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t convolution;
    int algorithm; /* cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t, …BwdFilterAlgo_t */
    bool direct;   /* cuDNN does not support this */
};

static void plan_free(void *value) {
    struct plan *plan = (struct plan *)value;
    cudnnDestroyTensorDescriptor(plan->x);
    cudnnDestroyTensorDescriptor(plan->y);
    cudnnDestroyFilterDescriptor(plan->w);
    cudnnDestroyConvolutionDescriptor(plan->convolution);
}

static void describe(struct plan *plan) {
    const struct shape *s = &plan->key.shape;
    const cudnnDataType_t type = plan->key.dtype == SGRAD_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const cudnnTensorFormat_t layout = CUDNN_TENSOR_NHWC;
    SGRAD_CUDA(cudnnCreateTensorDescriptor(&plan->x));
    SGRAD_CUDA(cudnnCreateTensorDescriptor(&plan->y));
    SGRAD_CUDA(cudnnCreateFilterDescriptor(&plan->w));
    SGRAD_CUDA(cudnnCreateConvolutionDescriptor(&plan->convolution));
    SGRAD_CUDA(cudnnSetTensor4dDescriptor(plan->x, layout, type, s->N, s->C, s->H, s->W));
    SGRAD_CUDA(cudnnSetTensor4dDescriptor(plan->y, layout, type, s->N, s->K, s->P, s->Q));
    SGRAD_CUDA(cudnnSetFilter4dDescriptor(plan->w, type, layout, s->K, s->C / s->groups, s->R, s->S));
    SGRAD_CUDA(cudnnSetConvolution2dDescriptor(plan->convolution, s->padding, s->padding, s->stride, s->stride, s->dilation,
                                               s->dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    SGRAD_CUDA(cudnnSetConvolutionGroupCount(plan->convolution, s->groups));
    SGRAD_CUDA(
        cudnnSetConvolutionMathType(plan->convolution, plan->key.dtype == SGRAD_F32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH));
}

static void do_without(struct plan *plan) {
    const struct shape *s = &plan->key.shape;
    plan->direct = true;
    sgrad_warn("conv2d: cuDNN does not support %dx%d, stride %d, padding %d, dilation %d, groups %d, from (%d,%d,%d,%d) to "
               "%d channels in %s here; it is computed without, slowly",
               s->R, s->S, s->stride, s->padding, s->dilation, s->groups, s->N, s->H, s->W, s->C, s->K,
               sgrad_dtype_name((enum sgrad_dtype)plan->key.dtype));
}

/* Whether cuDNN supports what it answered with STATUS. */
static bool supported(struct plan *plan, cudnnStatus_t status) {
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        do_without(plan);
    else
        SGRAD_CUDA(status);
    return !plan->direct;
}

/* The first, so the fastest, of those found that fits in its room, is deterministic where that was asked for, and does not
 * round F32 to TF32. */
template <typename Found> static void choose(struct plan *plan, const Found *found, int count) {
    for (int i = 0; i < count; i++) {
        if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].memory > plan->key.room) continue;
        if (plan->key.deterministic && found[i].determinism != CUDNN_DETERMINISTIC) continue;
        if (plan->key.dtype == SGRAD_F32 && found[i].mathType != CUDNN_FMA_MATH) continue;
        SGRAD_CUDA(cudnnSetConvolutionMathType(plan->convolution, found[i].mathType));
        plan->algorithm = found[i].algo;
        return;
    }
    do_without(plan);
}

static void find(struct plan *plan) {
    const cudnnHandle_t h = sgrad_cudnn();
    int count;
    if (plan->key.pass == FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t found[ALGORITHMS];
        if (supported(plan, cudnnGetConvolutionForwardAlgorithm_v7(h, plan->x, plan->w, plan->convolution, plan->y, ALGORITHMS,
                                                                   &count, found)))
            choose(plan, found, count);
    } else if (plan->key.pass == BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t found[ALGORITHMS];
        if (supported(plan, cudnnGetConvolutionBackwardDataAlgorithm_v7(h, plan->w, plan->y, plan->convolution, plan->x,
                                                                        ALGORITHMS, &count, found)))
            choose(plan, found, count);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t found[ALGORITHMS];
        if (supported(plan, cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, plan->x, plan->y, plan->convolution, plan->w,
                                                                          ALGORITHMS, &count, found)))
            choose(plan, found, count);
    }
}

/* ---- a task: its plan, and how its workspace is cut ---------------------------------------------------------------- */

/* Bytes at the beginning of the workspace that a bf16 run's weight (or its gradient) takes. */
static size_t weight_bytes(enum sgrad_dtype dtype, const struct sgrad_view *w) {
    return dtype == SGRAD_BF16 ? sgrad__ceil(sgrad_shape_count(&w->shape) * sizeof(__nv_bfloat16), 256) * 256 : 0;
}

struct task {
    struct plan *plan;
    void *weight; /* bf16: in the workspace; else NULL */
    void *room;
    size_t room_size;
};

static struct task task_of(enum pass pass, const struct sgrad_args *a, const struct sgrad_view *x, const struct sgrad_view *w,
                           const struct sgrad_view *y) {
    static struct sgrad_cache cache = sgrad__cuda_cache(sizeof(struct key), sizeof(struct plan), plan_free);
    const struct sgrad_conv2d *c = (const struct sgrad_conv2d *)a->attrs;
    const int64_t *xd = x->shape.dim, *wd = w->shape.dim, *yd = y->shape.dim;
    const size_t weight = weight_bytes(x->dtype, w);
    if (a->workspace_size < weight) sgrad__cuda_fail("workspace too small", "conv2d", __FILE__, __LINE__);

    struct key key;
    memset(&key, 0, sizeof key);
    key.room = a->workspace_size - weight;
    key.pass = pass, key.dtype = x->dtype, key.deterministic = a->deterministic;
    key.shape = { (int)xd[0], (int)xd[1], (int)xd[2], (int)xd[3], (int)wd[0],  (int)wd[1], (int)wd[2],
                  (int)yd[1], (int)yd[2], c->stride,  c->padding, c->dilation, c->groups };
    bool fresh;
    struct plan *plan = (struct plan *)sgrad_cache_get(&cache, &key, &fresh);
    if (fresh) {
        plan->key = key;
        describe(plan);
        find(plan);
    }
    return { plan, weight ? a->workspace : NULL, (char *)a->workspace + weight, key.room };
}

/* The weight of a forward or backward-data task, operand 1, in the type of the activations. */
static const void *weight_of(const struct task *t, const struct sgrad_args *a) {
    if (!t->weight) return a->data[1];
    sgrad__convert(sgrad_shape_count(&a->view[1].shape), (const float *)a->data[1], (__nv_bfloat16 *)t->weight);
    return t->weight;
}

static int count_devices(void) {
    int count;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/* Asked before anything runs, and on machines without CUDA devices too. Both backward passes have three images or filters
 * first; forward's third operand is the bias, its fourth y. */
extern "C" size_t sgrad__conv2d_workspace_cuda(const struct sgrad_args *a) {
    static const int devices = count_devices();
    if (devices == 0) return 0;
    const bool is_forward = a->view[2].shape.rank != 4;
    size_t bytes = WORKSPACE + sgrad_view_bytes(&a->view[0]) + sgrad_view_bytes(&a->view[1]);
    bytes += sgrad_view_bytes(&a->view[is_forward ? 3 : 2]);
    return bytes + weight_bytes(a->view[0].dtype, &a->view[a->view[1].dtype == SGRAD_F32 ? 1 : 2]);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static const float zero = 0, one = 1;

/* x (N,H,W,C), weight (K,R,S,C/groups), bias (K) or absent, y (N,P,Q,K) */
extern "C" void sgrad__conv2d_forward_cuda(const struct sgrad_args *a) {
    const struct task t = task_of(FORWARD, a, &a->view[0], &a->view[1], &a->view[3]);
    struct plan *p = t.plan;
    if (p->direct || !supported(p, cudnnConvolutionForward(sgrad_cudnn(), &one, p->x, a->data[0], p->w, weight_of(&t, a),
                                                           p->convolution, (cudnnConvolutionFwdAlgo_t)p->algorithm, t.room,
                                                           t.room_size, &zero, p->y, a->data[3])))
        sgrad__with_type(a->view[0].dtype, [=](auto type) {
            const int64_t n = sgrad_shape_count(&a->view[3].shape);
            sgrad__launch(forward<decltype(type)>, n, p->key.shape, a->data[0], a->data[1], a->data[3]);
        });
    if (a->data[2]) sgrad__add_bias(&a->view[3], (const float *)a->data[2], a->data[3]);
}

/* dy (N,P,Q,K), weight (K,R,S,C/groups), dx (N,H,W,C) */
extern "C" void sgrad__conv2d_backward_data_cuda(const struct sgrad_args *a) {
    const struct task t = task_of(BACKWARD_DATA, a, &a->view[2], &a->view[1], &a->view[0]);
    struct plan *p = t.plan;
    const bool add = sgrad__adds(a, 2);
    if (p->direct || !supported(p, cudnnConvolutionBackwardData(sgrad_cudnn(), &one, p->w, weight_of(&t, a), p->y, a->data[0],
                                                                p->convolution, (cudnnConvolutionBwdDataAlgo_t)p->algorithm,
                                                                t.room, t.room_size, add ? &one : &zero, p->x, a->data[2])))
        sgrad__with_type(a->view[0].dtype, [=](auto type) {
            const int64_t n = sgrad_shape_count(&a->view[2].shape);
            sgrad__launch(backward_data<decltype(type)>, n, p->key.shape, a->data[0], a->data[1], a->data[2], add);
        });
}

/* x (N,H,W,C), dy (N,P,Q,K), dweight (K,R,S,C/groups), dbias (K) or absent */
extern "C" void sgrad__conv2d_backward_weight_cuda(const struct sgrad_args *a) {
    const struct task t = task_of(BACKWARD_WEIGHT, a, &a->view[0], &a->view[2], &a->view[1]);
    const int64_t n = sgrad_shape_count(&a->view[2].shape);
    struct plan *p = t.plan;
    if (p->direct ||
        !supported(p, cudnnConvolutionBackwardFilter(sgrad_cudnn(), &one, p->x, a->data[0], p->y, a->data[1], p->convolution,
                                                     (cudnnConvolutionBwdFilterAlgo_t)p->algorithm, t.room, t.room_size, &zero,
                                                     p->w, t.weight ? t.weight : a->data[2])))
        sgrad__with_type(a->view[0].dtype, [=](auto type) {
            sgrad__launch(backward_weight<decltype(type)>, n, p->key.shape, a->data[0], a->data[1], a->data[2]);
        });
    else if (t.weight)
        sgrad__convert(n, (const __nv_bfloat16 *)t.weight, (float *)a->data[2]);
    if (a->data[3]) sgrad__sum_bias(&a->view[1], a->data[1], (float *)a->data[3]);
}
