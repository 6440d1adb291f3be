/* cudnn_graph.h: tasks as cuDNN graphs: a convolution with the operations before and after it, which cuDNN fuses into one kernel
 * if it can, and attention (attention_graph.h). Private to codelets/, only for *_cuda.cu. */
#ifndef SGRAD_CODELETS_CUDA_CUDNN_GRAPH_H
#define SGRAD_CODELETS_CUDA_CUDNN_GRAPH_H

#include <functional>
#include <string>
#include <vector>

#include "codelets/cuda/cuda.h"

/* ---- any task ------------------------------------------------------------------------------------------------------ */

/* The operands of a graph by their numbers, and cuDNN's workspace. */
enum { SGRAD__GRAPH_MOST = 16 };
struct sgrad__graph_data {
    const void *at[SGRAD__GRAPH_MOST];
    void *room;
};

/* The two implementations of a task. unfused: our own kernels. before and after, which may be empty: the work before and after
 * the graph. These three enqueue on the worker's stream and may be called several times. draw creates the graph
 * (cudnn_descriptors.h) and sets *used to the numbers of its operands. memo returns the key of the measurement in the tuning
 * cache, text the task as a warning names it. */
class sgrad__descriptors;
struct sgrad__graph_task {
    size_t room;   /* bytes of cuDNN's workspace */
    bool exact;    /* factors must not be rounded for tensor cores */
    bool compiled; /* a plan that cuDNN must compile in every run may be used, although nobody asked for graphs */
    std::function<void()> unfused, before, after;
    std::function<cudnnBackendDescriptor_t(sgrad__descriptors &all, std::vector<int64_t> *used)> draw;
    std::function<std::string()> memo, text;
};

/* The chosen implementation of a task: the value of a worker's cache. */
struct sgrad__graph_choice {
    struct sgrad__graph_plan *plan; /* NULL: our own kernels */
};
void sgrad__graph_choice_free(void *choice);

/* Enqueues the task, as a graph or by its own kernels: the faster one, as measured by a worker's first task with this key
 * (CREATED: the choice is new), or by an earlier run. STARGRAD_CUDNN=graph: the fastest graph if one runs. If a graph fails
 * later, a warning is logged and the own kernels are used from then on. */
void sgrad__graph_run(struct sgrad__graph_choice *choice, bool created, const struct sgrad__graph_task &task,
                      const struct sgrad__graph_data &data);

/* Returns the shortest time of WORK in milliseconds, or INFINITY if it fails. WORK enqueues on the worker's stream; this
 * function waits for it. WORK runs once untimed, because the first run loads kernels, then up to three times; only once if
 * that takes more than twice LEAST. If the first run takes a second more than twice LEAST, its time is returned at once. */
double sgrad__time_of(const std::function<cudnnStatus_t()> &work, double least);

/* Returns true if graphs may be used: the environment variable STARGRAD_CUDNN is not "algorithms". */
bool sgrad__graph_wanted(void);

/* ---- convolutions -------------------------------------------------------------------------------------------------- */

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

/* Enqueues a convolution's task, as a graph or by WAYS.unfused. The caller sets unfused, before, after and memo of WAYS. */
void sgrad__graph_do(const struct sgrad__graph_key *key, const struct sgrad__graph_data *data, struct sgrad__graph_task ways);

#endif
