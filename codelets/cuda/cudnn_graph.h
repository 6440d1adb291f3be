/* cudnn_graph.h: a convolution, with the operations before and after it, as one graph, which cuDNN fuses into one kernel if it
 * can. Private to codelets/, only for *_cuda.cu. */
#ifndef SGRAD_CODELETS_CUDA_CUDNN_GRAPH_H
#define SGRAD_CODELETS_CUDA_CUDNN_GRAPH_H

#include <functional>
#include <string>

#include "codelets/cuda/cuda.h"

/* The operations of a graph in addition to its convolution, as bits. Each belongs to one pass. */
enum sgrad__graph_step {
    SGRAD__SCALE = 1,       /* forward, before the convolution: x = (x - mean) · scale + shift */
    SGRAD__SCALE_RELU = 2,  /* then x = max(x, 0); only with SCALE */
    SGRAD__BIAS = 4,        /* forward, after the convolution: y += bias */
    SGRAD__RELU = 8,        /* then y = max(y, 0) */
    SGRAD__STATS = 16,      /* then Σy and Σy² of each channel */
    SGRAD__MASK = 32,       /* backward-data, after the convolution: dx = 0 where mask ≤ 0 */
    SGRAD__MASK_SCALED = 64,/* or dx = 0 where (source - mean) · scale + shift ≤ 0 */
    SGRAD__SUMS = 128       /* then Σdx and Σdx · (source - mean) of each channel */
};

/* All parameters of a graph. They are compared bytewise, so padding must be zeroed. */
struct sgrad__graph_key {
    size_t room;               /* bytes of cuDNN's workspace */
    int32_t pass, steps;       /* enum sgrad__pass: which of x, w and y is computed from the others; enum sgrad__graph_step */
    int32_t dtype, tf32;       /* of x, w, y, bias, mask and source; 1: F32 may be rounded to TF32 */
    int32_t dims;              /* 4; of volumes 5, with D before H */
    int32_t x[5], w[5], y[5];  /* (N,C,[D,]H,W), (K,C/groups,[T,]R,S), (N,K,[O,]P,Q) */
    int32_t padding[3], stride[3], dilation[3];
};

/* The operands of a graph. MASK and SOURCE have the shape and the type of x. BIAS (K) has the type of x. The others are F32
 * with one element per channel: of x (C), except SUM and PRODUCT in forward, which are of y (K). */
enum sgrad__graph_operand {
    SGRAD__AT_X, SGRAD__AT_W, SGRAD__AT_Y, SGRAD__AT_BIAS, SGRAD__AT_MEAN, SGRAD__AT_SCALE, SGRAD__AT_SHIFT, SGRAD__AT_MASK,
    SGRAD__AT_SOURCE, SGRAD__AT_SUM, SGRAD__AT_PRODUCT, SGRAD__GRAPH_OPERANDS
};
struct sgrad__graph_data {
    const void *at[SGRAD__GRAPH_OPERANDS];
    void *room; /* cuDNN's workspace */
};

/* The two implementations of a task. unfused: separate kernels. before and after: the work before and after the graph. These
 * three enqueue on the worker's stream and may be called several times. memo returns the key of the measurement in the tuning
 * cache. */
struct sgrad__graph_ways {
    std::function<void()> unfused, before, after;
    std::function<std::string()> memo;
};

/* Enqueues the task, as a graph or as separate kernels: the faster one, as measured by a worker's first task with this key, or
 * by an earlier run. STARGRAD_CUDNN=graph: the fastest graph if one runs. If a graph fails later, a warning is logged and
 * separate kernels are used from then on. */
void sgrad__graph_do(const struct sgrad__graph_key *key, const struct sgrad__graph_data *data,
                     const struct sgrad__graph_ways *ways);

/* Returns the shortest time of WORK in milliseconds, or INFINITY if it fails. WORK enqueues on the worker's stream; this
 * function waits for it. WORK runs once untimed, because the first run loads kernels, then up to three times; only once if
 * that takes more than twice LEAST. If the first run takes a second more than twice LEAST, its time is returned at once. */
double sgrad__time_of(const std::function<cudnnStatus_t()> &work, double least);

/* Returns true if graphs may be used: the environment variable STARGRAD_CUDNN is not "algorithms". */
bool sgrad__graph_wanted(void);

#endif
