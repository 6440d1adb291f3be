/* cudnn_graph.h: a convolution, with what comes before and after it, as one graph of operations, which cuDNN makes one kernel of
 * where it can. Private to codelets/, for *_cuda.cu alone. */
#ifndef SGRAD_CODELETS_CUDNN_GRAPH_H
#define SGRAD_CODELETS_CUDNN_GRAPH_H

#include <functional>
#include <string>

#include "codelets/cuda.h"

/* What a graph may have beside its convolution. Only one pass has each. */
enum sgrad__graph_step {
    SGRAD__SCALE = 1,       /* forward: x first becomes (x - mean) · scale + shift, */
    SGRAD__SCALE_RELU = 2,  /* and 0 where that is less */
    SGRAD__BIAS = 4,        /* forward: y += bias, */
    SGRAD__RELU = 8,        /* y = max(y, 0), */
    SGRAD__STATS = 16,      /* and, of each channel, Σy and Σy² */
    SGRAD__MASK = 32,       /* backward-data: dx becomes 0 where MASK ≤ 0, */
    SGRAD__MASK_SCALED = 64,/* or where (source - mean) · scale + shift ≤ 0, */
    SGRAD__SUMS = 128       /* and, of each channel, Σdx and Σdx · (source - mean) */
};

/* All that a graph depends on. Compared byte by byte, so padding has to be cleared. */
struct sgrad__graph_key {
    size_t room;               /* bytes that are cuDNN's own */
    int32_t pass, steps;       /* enum sgrad__pass: which of x, w and y is made of the others; what else */
    int32_t dtype, tf32;       /* of x, w and y, of the bias and the mask; whether F32 may be rounded to TF32 */
    int32_t dims;              /* 4, of volumes 5, with D beside H */
    int32_t x[5], w[5], y[5];  /* (N,C,[D,]H,W), (K,C/groups,[T,]R,S), (N,K,[O,]P,Q) */
    int32_t padding[3], stride[3], dilation[3];
};

/* Its operands. MASK and SOURCE are like x; the others are F32, (C) or (K), but the bias. */
enum sgrad__graph_operand {
    SGRAD__AT_X, SGRAD__AT_W, SGRAD__AT_Y, SGRAD__AT_BIAS, SGRAD__AT_MEAN, SGRAD__AT_SCALE, SGRAD__AT_SHIFT, SGRAD__AT_MASK,
    SGRAD__AT_SOURCE, SGRAD__AT_SUM, SGRAD__AT_PRODUCT, SGRAD__GRAPH_OPERANDS
};
struct sgrad__graph_data {
    const void *at[SGRAD__GRAPH_OPERANDS];
    void *room;
};

/* The two ways: APART, kernel by kernel, and as a graph, with what has to be done BEFORE and AFTER it. All enqueue on the
 * worker's stream, and may be called several times. MEMO: under what their measurement is remembered from run to run. */
struct sgrad__graph_ways {
    std::function<void()> apart, before, after;
    std::function<std::string()> memo;
};

/* Does it the faster way, as measured by the first task with this key. */
void sgrad__graph_do(const struct sgrad__graph_key *key, const struct sgrad__graph_data *data,
                     const struct sgrad__graph_ways *ways);

/* Milliseconds that WORK, which enqueues on the worker's stream, takes at best, after a first time, when it is loaded; infinite
 * where it fails. What takes more than twice LEAST is timed only once; if its first time is a second longer, it does not run
 * again. */
double sgrad__time_of(const std::function<cudnnStatus_t()> &work, double least);

/* Whether a graph may be taken at all: STARGRAD_CUDNN is not "algorithms". */
bool sgrad__graph_wanted(void);

#endif
