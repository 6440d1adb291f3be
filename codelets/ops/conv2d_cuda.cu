/* conv2d_cuda.cu: conv2d.c, conv3d.c and conv_transpose.c on CUDA devices, through cuDNN. Filters with one element along D treat
 * the slices of volumes as images. The passes of a transposed convolution are those of a convolution with forward and
 * backward-data exchanged.
 *
 * F32 convolutions use float multiply-adds, or TF32 if that is enabled. bf16 convolutions use tensor cores with F32 sums. cuDNN
 * requires weights and their gradients in the type of the activations. Therefore in bf16 runs they are converted in the
 * workspace, unless the weight is already rounded:
 *
 *     workspace  │ weight or dweight (K,R,S,C/groups) bf16 │ result to add │ vectors of graphs │ cuDNN's workspace │
 *
 * If cuDNN cannot add to the output, it writes its result to the workspace, and a separate kernel adds it.
 *
 * A *plan* contains cuDNN's descriptors and an algorithm. It is created by the first task of a shape on a worker. Of the
 * algorithms that cuDNN's heuristics suggest, the first few are measured once; the fastest is stored in the tuning cache for
 * later runs. Convolutions that cuDNN does not support are computed by simple, slow kernels, after a warning.
 * conv2d_graph_cuda.cu decides whether a task runs by its plan or in a cuDNN graph together with other tasks. */
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include <pthread.h>

#include "codelets/cuda/convolution.h"
#include "codelets/cuda/cudnn_graph.h"
#include "codelets/ops/conv2d.h"

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Size of cuDNN's workspace: this plus the size of the operands, for algorithms that transpose them first. */
#define WORKSPACE  ((size_t)64 << 20)
#define ALGORITHMS 16 /* more than any pass has */

struct plan {
    struct sgrad__convolution_key key;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t convolution;
    int algorithm; /* cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t, …BwdFilterAlgo_t */
    cudnnMathType_t math;
    bool direct;   /* cuDNN does not support this convolution */
    bool aside;    /* cuDNN cannot add to the output of this pass */
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
    if (s->T == 1) {
        SGRAD_CUDA(cudnnSetTensor4dDescriptor(plan->x, layout, type, s->N, s->C, s->H, s->W));
        SGRAD_CUDA(cudnnSetTensor4dDescriptor(plan->y, layout, type, s->N, s->K, s->P, s->Q));
        SGRAD_CUDA(cudnnSetFilter4dDescriptor(plan->w, type, layout, s->K, s->C / s->groups, s->R, s->S));
        SGRAD_CUDA(cudnnSetConvolution2dDescriptor(plan->convolution, s->padding, s->padding, s->stride, s->stride, s->dilation,
                                                   s->dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    } else {
        const int x[] = { s->N, s->C, s->D, s->H, s->W }, y[] = { s->N, s->K, s->O, s->P, s->Q };
        const int w[] = { s->K, s->C / s->groups, s->T, s->R, s->S }, padding[] = { s->depth_padding, s->padding, s->padding };
        const int stride[] = { 1, s->stride, s->stride }, dilation[] = { 1, s->dilation, s->dilation };
        SGRAD_CUDA(cudnnSetTensorNdDescriptorEx(plan->x, layout, type, 5, x));
        SGRAD_CUDA(cudnnSetTensorNdDescriptorEx(plan->y, layout, type, 5, y));
        SGRAD_CUDA(cudnnSetFilterNdDescriptor(plan->w, type, layout, 5, w));
        SGRAD_CUDA(cudnnSetConvolutionNdDescriptor(plan->convolution, 3, padding, stride, dilation, CUDNN_CROSS_CORRELATION,
                                                   CUDNN_DATA_FLOAT));
    }
    SGRAD_CUDA(cudnnSetConvolutionGroupCount(plan->convolution, s->groups));
}

/* Sets the precision to which products may be rounded. */
static void describe_math(const struct plan *plan) {
    cudnnMathType_t math = plan->key.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    if (plan->key.dtype == SGRAD_BF16) math = CUDNN_TENSOR_OP_MATH;
    SGRAD_CUDA(cudnnSetConvolutionMathType(plan->convolution, math));
}

static void shape_text(const struct sgrad__convolution_key *key, char *text, size_t size) {
    static const char *const name[] = { "forward", "backward-data", "backward-weight" };
    const struct shape *s = &key->shape;
    snprintf(text, size,
             "%s of %dx%dx%d, stride %d, padding %d, dilation %d, groups %d, from (%d,%d,%d,%d,%d) to %d channels in %s",
             name[key->pass], s->T, s->R, s->S, s->stride, s->padding, s->dilation, s->groups, s->N, s->D, s->H, s->W, s->C, s->K,
             sgrad_dtype_name((enum sgrad_dtype)key->dtype));
}

/* Marks PLAN as not supported by cuDNN, with a warning. STATUS is cuDNN's error, or CUDNN_STATUS_SUCCESS if none of its
 * algorithms meets the requirements. */
static void do_without(struct plan *plan, cudnnStatus_t status) {
    char shape[160];
    shape_text(&plan->key, shape, sizeof shape);
    plan->direct = true;
    if (status == CUDNN_STATUS_SUCCESS || CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        sgrad_log_warning("convolution: cuDNN does not support %s here; it is computed without cuDNN, by a slower kernel", shape);
    else
        sgrad_log_warning("convolution: cuDNN cannot choose an algorithm for %s: %s; it is computed without cuDNN, by a slower "
                          "kernel",
                          shape, cudnnGetErrorString(status));
}

/* Returns whether cuDNN supports the call that returned STATUS. Other errors end the program. While a CUDA graph is recorded,
 * CUDNN_STATUS_NOT_SUPPORTED counts as supported and ends only the recording, because the call worked before. */
static bool supported(cudnnStatus_t status) {
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        return sgrad_cuda_excuses(cudnnGetErrorString(status), "a convolution");
    SGRAD_CUDA(status);
    return true;
}

struct candidate {
    int algorithm;
    cudnnMathType_t math;
};

/* Returns the usable algorithms among the COUNT that cuDNN's heuristics FOUND, which are sorted by expected speed. Usable ones
 * fit in cuDNN's workspace, are deterministic if that is required, and do not round F32 to TF32 unless that is enabled. */
template <typename Found> static std::vector<candidate> usable(const struct plan *plan, const Found *found, int count) {
    std::vector<candidate> list;
    for (int i = 0; i < count; i++) {
        if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].memory > plan->key.room) continue;
        if (plan->key.deterministic && found[i].determinism != CUDNN_DETERMINISTIC) continue;
        if (plan->key.dtype == SGRAD_F32 && !plan->key.tf32 && found[i].mathType != CUDNN_FMA_MATH) continue;
        list.push_back({ (int)found[i].algo, found[i].mathType });
    }
    return list;
}

/* Returns the usable algorithms of plan P, possibly none. Sets STATUS to cuDNN's result. No error is fatal: the simple kernels
 * compute the convolutions for which cuDNN fails. */
static std::vector<candidate> candidates(const struct plan *plan, cudnnStatus_t *status) {
    const cudnnHandle_t h = sgrad_cudnn();
    int n = 0;
    describe_math(plan);
    if (plan->key.pass == SGRAD__FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t found[ALGORITHMS];
        *status = cudnnGetConvolutionForwardAlgorithm_v7(h, plan->x, plan->w, plan->convolution, plan->y, ALGORITHMS, &n, found);
        return usable(plan, found, *status ? 0 : n);
    } else if (plan->key.pass == SGRAD__BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t found[ALGORITHMS];
        *status =
            cudnnGetConvolutionBackwardDataAlgorithm_v7(h, plan->w, plan->y, plan->convolution, plan->x, ALGORITHMS, &n, found);
        return usable(plan, found, *status ? 0 : n);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t found[ALGORITHMS];
        *status =
            cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, plan->x, plan->y, plan->convolution, plan->w, ALGORITHMS, &n, found);
        return usable(plan, found, *status ? 0 : n);
    }
}

static cudnnStatus_t take(struct plan *plan, const candidate &c) {
    plan->algorithm = c.algorithm, plan->math = c.math;
    return cudnnSetConvolutionMathType(plan->convolution, c.math);
}

/* Runs the pass of plan P by its algorithm: OUT = result + BETA · OUT. OUT is y, dx or dw. */
struct operands {
    const void *x, *weight, *y;
    void *out, *room;
};
static cudnnStatus_t compute(const struct plan *plan, const struct operands &operands, const float *beta) {
    static const float one = 1;
    const cudnnHandle_t h = sgrad_cudnn();
    const size_t size = plan->key.room;
    if (plan->key.pass == SGRAD__FORWARD)
        return cudnnConvolutionForward(h, &one, plan->x, operands.x, plan->w, operands.weight, plan->convolution,
                                       (cudnnConvolutionFwdAlgo_t)plan->algorithm, operands.room, size, beta, plan->y,
                                       operands.out);
    if (plan->key.pass == SGRAD__BACKWARD_DATA)
        return cudnnConvolutionBackwardData(h, &one, plan->w, operands.weight, plan->y, operands.y, plan->convolution,
                                            (cudnnConvolutionBwdDataAlgo_t)plan->algorithm, operands.room, size, beta, plan->x,
                                            operands.out);
    return cudnnConvolutionBackwardFilter(h, &one, plan->x, operands.x, plan->y, operands.y, plan->convolution,
                                          (cudnnConvolutionBwdFilterAlgo_t)plan->algorithm, operands.room, size, beta, plan->w,
                                          operands.out);
}

/* Sets SIZE to the bytes of the workspace of ALGORITHM. */
static cudnnStatus_t find_workspace(const struct plan *plan, int algorithm, size_t *size) {
    const cudnnHandle_t h = sgrad_cudnn();
    if (plan->key.pass == SGRAD__FORWARD)
        return cudnnGetConvolutionForwardWorkspaceSize(h, plan->x, plan->w, plan->convolution, plan->y,
                                                       (cudnnConvolutionFwdAlgo_t)algorithm, size);
    if (plan->key.pass == SGRAD__BACKWARD_DATA)
        return cudnnGetConvolutionBackwardDataWorkspaceSize(h, plan->w, plan->y, plan->convolution, plan->x,
                                                            (cudnnConvolutionBwdDataAlgo_t)algorithm, size);
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(h, plan->x, plan->y, plan->convolution, plan->w,
                                                          (cudnnConvolutionBwdFilterAlgo_t)algorithm, size);
}

/* Sets the plan to an ALGORITHM and MATH mode from the tuning cache. Returns false if these do not work for it: the cache is a
 * file that anyone may have edited. */
static bool follow(struct plan *plan, int algorithm, int math) {
    size_t size;
    return take(plan, { algorithm, (cudnnMathType_t)math }) == CUDNN_STATUS_SUCCESS &&
           find_workspace(plan, algorithm, &size) == CUDNN_STATUS_SUCCESS && size <= plan->key.room;
}

std::string sgrad__convolution_memo(const struct sgrad__convolution_key *key) {
    int device;
    struct cudaDeviceProp properties;
    SGRAD_CUDA(cudaGetDevice(&device));
    SGRAD_CUDA(cudaGetDeviceProperties(&properties, device));
    std::string memo = "2, " + std::string(properties.name) + ", cuDNN " + std::to_string(cudnnGetVersion()) + ", " +
                       std::to_string(key->pass) + " " + std::to_string(key->dtype) + " " + std::to_string(key->tf32) + ", " +
                       std::to_string(key->room) + ":";
    const struct shape *s = &key->shape;
    for (int size : { s->N, s->D, s->H, s->W, s->C, s->K, s->T, s->R, s->S, s->O, s->P, s->Q, s->stride, s->padding, s->dilation,
                      s->groups, s->depth_padding })
        memo += " " + std::to_string(size);
    return memo;
}

/* Sets the plan to the fastest of the first few candidates in LIST. Returns NULL, or the reason why nothing was measured. SIZE is
 * the size of the pass's output in bytes. The output is written to a temporary buffer, unknown to StarPU, because the pass may
 * have to add to its real output. A bf16 weight in the workspace may still be uninitialised. */
static const char *measure(struct plan *plan, const std::vector<candidate> &list, struct operands operands, size_t size) {
    enum { TRIED = 4 };
    const float zero = 0;
    double least = INFINITY;
    candidate best = {};
    sgrad_log_progress("measuring cuDNN's algorithms, once for each kind of GPU and shape");
    const cudaError_t status = cudaMalloc(&operands.out, size);
    if (status != cudaSuccess) return cudaGetLastError(), cudaGetErrorString(status);
    for (size_t i = 0; i < list.size() && i < TRIED; i++) {
        if (take(plan, list[i]) != CUDNN_STATUS_SUCCESS) continue;
        const double took = sgrad__time_of([&] { return compute(plan, operands, &zero); }, least);
        if (took < least) least = took, best = list[i];
    }
    cudaGetLastError();
    SGRAD_CUDA(cudaFree(operands.out));
    if (least == INFINITY) return "none of them ran";
    SGRAD_CUDA(take(plan, best));
    return NULL;
}

/* Sets the algorithm of PLAN. The fastest is found by measurement, once for each kind of GPU and shape, and stored in the tuning
 * cache. With --deterministic, results must not depend on a measurement, so cuDNN's first suggestion is used. It is also used if
 * there is not enough memory to measure. */
static void search(struct plan *plan, struct operands operands, size_t size) {
    static const char topic[] = "cudnn";
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one worker measures; those of equal GPUs then read the cache */
    char value[32], shape[160];
    int algorithm, math;
    const std::string memo = plan->key.deterministic ? "" : sgrad__convolution_memo(&plan->key);
    pthread_mutex_lock(&lock);
    if (plan->key.deterministic || !sgrad_tuning_cache_get(topic, memo.c_str(), value, sizeof value) ||
        sscanf(value, "%d %d", &algorithm, &math) != 2 || !follow(plan, algorithm, math)) {
        cudnnStatus_t status;
        const std::vector<candidate> list = candidates(plan, &status);
        const char *why = list.empty() || plan->key.deterministic ? NULL : measure(plan, list, operands, size);
        if (list.empty()) {
            do_without(plan, status);
        } else if (plan->key.deterministic || why) {
            SGRAD_CUDA(take(plan, list[0]));
        } else {
            snprintf(value, sizeof value, "%d %d", plan->algorithm, plan->math);
            sgrad_tuning_cache_put(topic, memo.c_str(), value);
        }
        shape_text(&plan->key, shape, sizeof shape);
        if (why)
            sgrad_log_warning("convolution: cuDNN's algorithms for %s could not be measured with %zu MB of workspace and %zu MB "
                              "of output: %s; this run uses cuDNN's first suggestion",
                              shape, plan->key.room >> 20, size >> 20, why);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- a task: its plan and the layout of its workspace --------------------------------------------------------------- */

/* Bytes at the beginning of the workspace for the bf16 copy of weight W (or of its gradient); 0 if W needs no conversion. */
static size_t weight_bytes(enum sgrad_dtype dtype, const struct sgrad_view *view) {
    const bool rounds = dtype == SGRAD_BF16 && view->dtype == SGRAD_F32 && view->shape.rank >= 4;
    return rounds ? sgrad__ceil(sgrad_shape_count(&view->shape) * sizeof(__nv_bfloat16), 256) * 256 : 0;
}

/* Sets SIDE to the (D,H,W,C) of a volume, or (1,H,W,C) of an image, and returns the number of volumes or images. With SLICES the
 * slices of volumes are images. */
static int64_t sides_of(const struct sgrad_shape *shape, bool slices, int *side) {
    const int64_t *d = shape->dim + shape->rank - 4;
    const bool volumes = shape->rank == 5 && !slices;
    side[0] = volumes ? (int)d[0] : 1;
    for (int i = 1; i < 4; i++) side[i] = (int)d[i];
    return sgrad_shape_count(shape) / ((int64_t)side[0] * d[1] * d[2] * d[3]);
}

/* Bytes for the result of a pass that adds to its output: y, operand 3, in forward; dx, operand 2, in backward-data. Else 0. */
static size_t added_bytes(const struct sgrad_args *args) {
    const int i = args->view[2].shape.rank < 4 ? 3 : 2;
    return sgrad_adds(args, i) ? sgrad__ceil(sgrad_view_bytes(&args->view[i]), 256) * 256 : 0;
}

/* Length of the vectors, one number per channel, that graphs need in the workspace: the largest number of channels of any
 * operand, rounded up. */
static int64_t vector_of(const struct sgrad_args *args) {
    const int last = args->view[2].shape.rank < 4 ? 3 : 2;
    int64_t most = 0;
    for (int i = 0; i <= last; i++)
        if (args->view[i].shape.rank >= 4) most = std::max(most, args->view[i].shape.dim[args->view[i].shape.rank - 1]);
    return sgrad__ceil(most, 64) * 64;
}
static size_t vector_bytes(const struct sgrad_args *args) { return SGRAD__VECTORS * (size_t)vector_of(args) * sizeof(float); }

struct sgrad__convolution sgrad__convolution_of(enum sgrad__pass pass, const struct sgrad_args *args) {
    static struct sgrad_cache cache =
        sgrad__cuda_cache(sizeof(struct sgrad__convolution_key), sizeof(struct plan), plan_free);
    static const int operand[][3] = { { 0, 1, 3 }, { 2, 1, 0 }, { 0, 2, 1 } }; /* indices of x, w and y, by pass */
    const int x = operand[pass][0], w = operand[pass][1], y = operand[pass][2];
    const struct sgrad_conv2d *c = (const struct sgrad_conv2d *)args->attrs;
    const struct sgrad_shape *filter = &args->view[w].shape;
    const int64_t *wd = filter->dim + filter->rank - 3;
    const int taps = filter->rank == 5 ? (int)filter->dim[1] : 1;
    int xs[4], ys[4];
    const int64_t samples = sides_of(&args->view[x].shape, taps == 1, xs);
    sides_of(&args->view[y].shape, taps == 1, ys);
    const enum sgrad_dtype dtype = args->view[x].dtype;
    const size_t weight = weight_bytes(dtype, &args->view[w]), added = added_bytes(args), vectors = vector_bytes(args);
    if (args->workspace_size < weight + added + vectors) sgrad_cuda_fail("workspace too small", "a convolution");

    char *const aside = (char *)args->workspace + weight;
    struct sgrad__convolution t;
    memset(&t, 0, sizeof t);
    t.key.room = args->workspace_size - weight - added - vectors;
    t.key.pass = pass, t.key.dtype = dtype, t.key.deterministic = args->deterministic, t.key.tf32 = args->tf32;
    t.key.shape = { (int)samples, xs[0], xs[1], xs[2], xs[3], (int)filter->dim[0], taps, (int)wd[0], (int)wd[1], ys[0], ys[1],
                    ys[2], c->stride, c->padding, c->dilation, c->groups, (ys[0] - xs[0] + taps - 1) / 2 };
    t.args = args, t.x = x, t.w = w, t.y = y;
    t.weight = weight ? args->workspace : NULL;
    t.aside = added ? aside : NULL;
    t.vectors = (float *)(aside + added), t.vector = vector_of(args);
    t.room = aside + added + vectors;
    bool created;
    t.plan = (struct plan *)sgrad_cache_get(&cache, &t.key, &created);
    if (created) {
        t.plan->key = t.key;
        describe(t.plan);
        const struct operands operands = { args->data[x], t.weight ? t.weight : args->data[w], args->data[y], NULL, t.room };
        search(t.plan, operands, sgrad_view_bytes(&args->view[sgrad__convolution_output(&t)]));
    }
    t.direct = t.plan->direct;
    return t;
}

const void *sgrad__convolution_weight(const struct sgrad__convolution *convolution) {
    return convolution->weight ? convolution->weight : convolution->args->data[convolution->w];
}
void sgrad__convolution_round(const struct sgrad__convolution *convolution) {
    if (convolution->weight)
        sgrad__convert(sgrad_shape_count(&convolution->args->view[1].shape), (const float *)convolution->args->data[1],
                       (__nv_bfloat16 *)convolution->weight);
}

static int count_devices(void) {
    int count;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/* Called before any task runs, also on machines without CUDA devices. In both backward passes operands 0 to 2 are images or
 * filters; in forward, operand 2 is the bias and operand 3 is y. */
extern "C" size_t sgrad__conv2d_workspace_cuda(const struct sgrad_args *args) {
    static const int devices = count_devices();
    if (devices == 0) return 0;
    const bool is_forward = args->view[2].shape.rank < 4;
    size_t bytes = WORKSPACE + added_bytes(args) + sgrad_view_bytes(&args->view[0]) + sgrad_view_bytes(&args->view[1]);
    bytes += sgrad_view_bytes(&args->view[is_forward ? 3 : 2]) + vector_bytes(args);
    return bytes + weight_bytes(args->view[0].dtype, &args->view[1]) + weight_bytes(args->view[0].dtype, &args->view[2]);
}

/* ---- passes by a plan's algorithm -------------------------------------------------------------------------------- */

static const float zero = 0, one = 1;

/* Computes OUT, or adds to it, by cuDNN. RUN(beta, where) must run the pass with output WHERE. Returns false if cuDNN does not
 * support it. */
template <typename Run>
static bool convolve(const struct sgrad__convolution *convolution, const struct sgrad_view *view, void *out, Run run) {
    struct plan *p = convolution->plan;
    if (p->direct) return false;
    if (convolution->aside && !p->aside && !(p->aside = !supported(run(&one, out)))) return true;
    if (!supported(run(&zero, convolution->aside ? convolution->aside : out))) {
        do_without(p, CUDNN_STATUS_NOT_SUPPORTED);
        return false;
    }
    if (convolution->aside) sgrad__move(view, convolution->aside, out, true);
    return true;
}

/* Calls F with a value of the activations' type and a value of the weight's type; the weight is operand 1. */
template <typename F> static void with_types(const struct sgrad_args *args, F f) {
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__with_type(args->view[1].dtype, [=](auto weight) { f(type, weight); });
    });
}

/* Forward: x (N,[D,]H,W,C), weight (K,[T,]R,S,C/groups), bias (K) or absent, y (N,[D,]P,Q,K). If y is a gradient, it is
 * added to. */
static void forward_unfused(const struct sgrad__convolution *convolution, const struct sgrad_args *args) {
    const struct plan *p = convolution->plan;
    const bool done = convolve(convolution, &args->view[3], args->data[3], [&](const float *beta, void *y) {
        sgrad__convolution_round(convolution);
        return compute(p, { args->data[0], sgrad__convolution_weight(convolution), NULL, y, convolution->room }, beta);
    });
    if (!done)
        with_types(args, [=](auto type, auto weight) {
            const int64_t n = sgrad_shape_count(&args->view[3].shape);
            sgrad__launch(forward<decltype(type), decltype(weight)>, n, p->key.shape, args->data[0], args->data[1], args->data[3],
                          sgrad_adds(args, 3));
        });
    if (args->data[2]) sgrad__add_bias(&args->view[3], (const float *)args->data[2], args->data[3]);
}

/* Backward, data: dy (N,[D,]P,Q,K), weight (K,[T,]R,S,C/groups), dx (N,[D,]H,W,C) */
static void backward_data_unfused(const struct sgrad__convolution *convolution, const struct sgrad_args *args) {
    const struct plan *p = convolution->plan;
    const bool done = convolve(convolution, &args->view[2], args->data[2], [&](const float *beta, void *dx) {
        sgrad__convolution_round(convolution);
        return compute(p, { NULL, sgrad__convolution_weight(convolution), args->data[0], dx, convolution->room }, beta);
    });
    if (!done)
        with_types(args, [=](auto type, auto weight) {
            const int64_t n = sgrad_shape_count(&args->view[2].shape);
            sgrad__launch(backward_data<decltype(type), decltype(weight)>, n, p->key.shape, args->data[0], args->data[1],
                          args->data[2], sgrad_adds(args, 2));
        });
}

/* Backward, weight: x (N,[D,]H,W,C), dy (N,[D,]P,Q,K), dweight (K,[T,]R,S,C/groups) */
static void backward_weight_unfused(const struct sgrad__convolution *convolution, const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[2].shape);
    const struct plan *p = convolution->plan;
    const bool done = convolve(convolution, &args->view[2], convolution->weight ? convolution->weight : args->data[2],
                               [&](const float *beta, void *dw) {
                                   return compute(p, { args->data[0], NULL, args->data[1], dw, convolution->room }, beta);
                               });
    if (!done)
        sgrad__with_type(args->view[0].dtype, [=](auto type) {
            sgrad__launch(backward_weight<decltype(type)>, n, p->key.shape, args->data[0], args->data[1], args->data[2]);
        });
    else if (convolution->weight)
        sgrad__convert(n, (const __nv_bfloat16 *)convolution->weight, (float *)args->data[2]);
}

void sgrad__convolution_unfused(const struct sgrad__convolution *convolution) {
    static void (*const pass[])(const struct sgrad__convolution *, const struct sgrad_args *) = {
        forward_unfused, backward_data_unfused, backward_weight_unfused
    };
    pass[convolution->key.pass](convolution, convolution->args);
}
