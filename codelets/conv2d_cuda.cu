/* conv2d_cuda.cu: conv2d.c on CUDA devices, through cuDNN.
 *
 * F32 convolutions use float multiply-adds (no TF32); bf16 ones tensor cores with F32 sums. cuDNN wants weights and their
 * gradients in the type of the activations, so in bf16 runs they pass through the workspace:
 *
 *     workspace  │ weight or dweight (K,R,S,C/groups) bf16 │ cuDNN's own                                        │
 *
 * A *plan* holds descriptors and cuDNN's choice of algorithm; it is made once per shape and worker, from cuDNN's heuristics:
 * nothing is run to make it. */
#include <cstring>

#include "codelets/cuda.h"

/* cuDNN's own: this, and as much as the operands, for algorithms that transpose them first. */
#define WORKSPACE  ((size_t)64 << 20)
#define ALGORITHMS 16 /* more than any pass has */

enum pass { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };

/* All that a plan depends on. Compared byte by byte, so padding has to be cleared. */
struct key {
    size_t room; /* bytes that are cuDNN's own */
    int32_t pass, dtype, deterministic, stride, padding, dilation, groups;
    int32_t x[4], w[4], y[4]; /* (N,H,W,C), (K,R,S,C/groups), (N,P,Q,K) */
};
struct plan {
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t convolution;
    int algorithm; /* cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t, …BwdFilterAlgo_t */
};

static void plan_free(void *value) {
    struct plan *plan = (struct plan *)value;
    cudnnDestroyTensorDescriptor(plan->x);
    cudnnDestroyTensorDescriptor(plan->y);
    cudnnDestroyFilterDescriptor(plan->w);
    cudnnDestroyConvolutionDescriptor(plan->convolution);
}

/* The first, so the fastest, of those found that fits in its room, is deterministic where that was asked for, and does not
 * round F32 to TF32. */
template <typename Found> static void choose(const struct key *key, struct plan *plan, const Found *found, int count) {
    for (int i = 0; i < count; i++) {
        if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].memory > key->room) continue;
        if (key->deterministic && found[i].determinism != CUDNN_DETERMINISTIC) continue;
        if (key->dtype == SGRAD_F32 && found[i].mathType != CUDNN_FMA_MATH) continue;
        SGRAD_CUDA(cudnnSetConvolutionMathType(plan->convolution, found[i].mathType));
        plan->algorithm = found[i].algo;
        return;
    }
    sgrad_fail(SGRAD_EDEVICE, "conv2d: no algorithm of cuDNN for input (%d,%d,%d,%d), weight (%d,%d,%d,%d), %s", key->x[0],
               key->x[1], key->x[2], key->x[3], key->w[0], key->w[1], key->w[2], key->w[3],
               sgrad_dtype_name((enum sgrad_dtype)key->dtype));
    abort();
}

static void describe(const struct key *key, struct plan *plan) {
    const cudnnDataType_t type = key->dtype == SGRAD_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const cudnnTensorFormat_t layout = CUDNN_TENSOR_NHWC;
    const int32_t *x = key->x, *w = key->w, *y = key->y;
    SGRAD_CUDA(cudnnCreateTensorDescriptor(&plan->x));
    SGRAD_CUDA(cudnnCreateTensorDescriptor(&plan->y));
    SGRAD_CUDA(cudnnCreateFilterDescriptor(&plan->w));
    SGRAD_CUDA(cudnnCreateConvolutionDescriptor(&plan->convolution));
    SGRAD_CUDA(cudnnSetTensor4dDescriptor(plan->x, layout, type, x[0], x[3], x[1], x[2]));
    SGRAD_CUDA(cudnnSetTensor4dDescriptor(plan->y, layout, type, y[0], y[3], y[1], y[2]));
    SGRAD_CUDA(cudnnSetFilter4dDescriptor(plan->w, type, layout, w[0], w[3], w[1], w[2]));
    SGRAD_CUDA(cudnnSetConvolution2dDescriptor(plan->convolution, key->padding, key->padding, key->stride, key->stride,
                                               key->dilation, key->dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    SGRAD_CUDA(cudnnSetConvolutionGroupCount(plan->convolution, key->groups));
    SGRAD_CUDA(cudnnSetConvolutionMathType(plan->convolution, key->dtype == SGRAD_F32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH));
}

static void find(const struct key *key, struct plan *plan) {
    int count;
    if (key->pass == FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t found[ALGORITHMS];
        SGRAD_CUDA(cudnnGetConvolutionForwardAlgorithm_v7(sgrad_cudnn(), plan->x, plan->w, plan->convolution, plan->y, ALGORITHMS,
                                                          &count, found));
        choose(key, plan, found, count);
    } else if (key->pass == BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t found[ALGORITHMS];
        SGRAD_CUDA(cudnnGetConvolutionBackwardDataAlgorithm_v7(sgrad_cudnn(), plan->w, plan->y, plan->convolution, plan->x,
                                                               ALGORITHMS, &count, found));
        choose(key, plan, found, count);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t found[ALGORITHMS];
        SGRAD_CUDA(cudnnGetConvolutionBackwardFilterAlgorithm_v7(sgrad_cudnn(), plan->x, plan->y, plan->convolution, plan->w,
                                                                 ALGORITHMS, &count, found));
        choose(key, plan, found, count);
    }
}

/* ---- a task: its plan, and how its workspace is cut ---------------------------------------------------------------- */

/* Bytes at the beginning of the workspace that a bf16 run's weight (or its gradient) takes. */
static size_t weight_bytes(enum sgrad_dtype dtype, const struct sgrad_view *w) {
    return dtype == SGRAD_BF16 ? sgrad__ceil(sgrad_shape_count(&w->shape) * sizeof(__nv_bfloat16), 256) * 256 : 0;
}

struct task {
    const struct plan *plan;
    void *weight; /* bf16: in the workspace; else NULL */
    void *room;
    size_t room_size;
};

static struct task task_of(enum pass pass, const struct sgrad_args *a, const struct sgrad_view *x, const struct sgrad_view *w,
                           const struct sgrad_view *y) {
    static struct sgrad_cache cache = sgrad__cuda_cache(sizeof(struct key), sizeof(struct plan), plan_free);
    const struct sgrad_conv2d *attrs = (const struct sgrad_conv2d *)a->attrs;
    const size_t weight = weight_bytes(x->dtype, w);
    if (a->workspace_size < weight) sgrad__cuda_fail("workspace too small", "conv2d", __FILE__, __LINE__);

    struct key key;
    memset(&key, 0, sizeof key);
    key.room = a->workspace_size - weight;
    key.pass = pass, key.dtype = x->dtype, key.deterministic = a->deterministic;
    key.stride = attrs->stride, key.padding = attrs->padding, key.dilation = attrs->dilation, key.groups = attrs->groups;
    for (int i = 0; i < 4; i++) {
        key.x[i] = (int32_t)x->shape.dim[i];
        key.w[i] = (int32_t)w->shape.dim[i];
        key.y[i] = (int32_t)y->shape.dim[i];
    }
    bool fresh;
    struct plan *plan = (struct plan *)sgrad_cache_get(&cache, &key, &fresh);
    if (fresh) {
        describe(&key, plan);
        find(&key, plan);
    }
    return { plan, weight ? a->workspace : NULL, (char *)a->workspace + weight, key.room };
}

/* The weight of a forward or backward-data task, operand 1, in the type of the activations. */
static const void *weight_of(const struct task *t, const struct sgrad_args *a) {
    if (!t->weight) return a->data[1];
    sgrad__convert(sgrad_shape_count(&a->view[1].shape), (const float *)a->data[1], (__nv_bfloat16 *)t->weight);
    return t->weight;
}

/* Asked before anything runs, and on machines without CUDA devices too. Both backward passes have three images or filters
 * first; forward's third operand is the bias, its fourth y. */
static int count_devices(void) {
    int count;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
extern "C" size_t sgrad__conv2d_workspace_cuda(const struct sgrad_args *a) {
    static const int devices = count_devices();
    if (devices == 0) return 0;
    size_t bytes = WORKSPACE;
    for (int i = 0; i < 3; i++)
        if (a->view[i].shape.rank == 4) bytes += sgrad_view_bytes(&a->view[i]);
    if (a->view[2].shape.rank != 4) bytes += sgrad_view_bytes(&a->view[3]);
    return bytes + weight_bytes(a->view[0].dtype, &a->view[a->view[2].shape.rank == 4 ? 2 : 1]);
}

static const float zero = 0, one = 1;

/* x (N,H,W,C), weight (K,R,S,C/groups), bias (K) or absent, y (N,P,Q,K) */
extern "C" void sgrad__conv2d_forward_cuda(const struct sgrad_args *a) {
    const struct task t = task_of(FORWARD, a, &a->view[0], &a->view[1], &a->view[3]);
    const void *weight = weight_of(&t, a);
    SGRAD_CUDA(cudnnConvolutionForward(sgrad_cudnn(), &one, t.plan->x, a->data[0], t.plan->w, weight, t.plan->convolution,
                                       (cudnnConvolutionFwdAlgo_t)t.plan->algorithm, t.room, t.room_size, &zero, t.plan->y,
                                       a->data[3]));
    if (a->data[2]) sgrad__add_bias(&a->view[3], (const float *)a->data[2], a->data[3]);
}

/* dy (N,P,Q,K), weight (K,R,S,C/groups), dx (N,H,W,C) */
extern "C" void sgrad__conv2d_backward_data_cuda(const struct sgrad_args *a) {
    const struct task t = task_of(BACKWARD_DATA, a, &a->view[2], &a->view[1], &a->view[0]);
    const void *weight = weight_of(&t, a);
    SGRAD_CUDA(cudnnConvolutionBackwardData(sgrad_cudnn(), &one, t.plan->w, weight, t.plan->y, a->data[0], t.plan->convolution,
                                            (cudnnConvolutionBwdDataAlgo_t)t.plan->algorithm, t.room, t.room_size,
                                            sgrad__adds(a, 2) ? &one : &zero, t.plan->x, a->data[2]));
}

/* x (N,H,W,C), dy (N,P,Q,K), dweight (K,R,S,C/groups), dbias (K) or absent */
extern "C" void sgrad__conv2d_backward_weight_cuda(const struct sgrad_args *a) {
    const struct task t = task_of(BACKWARD_WEIGHT, a, &a->view[0], &a->view[2], &a->view[1]);
    SGRAD_CUDA(cudnnConvolutionBackwardFilter(sgrad_cudnn(), &one, t.plan->x, a->data[0], t.plan->y, a->data[1],
                                              t.plan->convolution, (cudnnConvolutionBwdFilterAlgo_t)t.plan->algorithm, t.room,
                                              t.room_size, &zero, t.plan->w, t.weight ? t.weight : a->data[2]));
    if (t.weight) sgrad__convert(sgrad_shape_count(&a->view[2].shape), (const __nv_bfloat16 *)t.weight, (float *)a->data[2]);
    if (a->data[3]) sgrad__sum_bias(&a->view[1], a->data[1], (float *)a->data[3]);
}
