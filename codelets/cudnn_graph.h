/* cudnn_graph.h: a convolution and what follows it as one graph of operations, which cuDNN makes one kernel of where it can.
 * Private to codelets/, for *_cuda.cu alone. */
#ifndef SGRAD_CODELETS_CUDNN_GRAPH_H
#define SGRAD_CODELETS_CUDNN_GRAPH_H

#include <functional>
#include <string>

#include "codelets/cuda.h"

/* All that a graph depends on. Compared byte by byte, so padding has to be cleared. */
struct sgrad__graph_key {
    size_t room;         /* bytes that are cuDNN's own */
    int32_t dtype, tf32; /* of x, weight, bias and y; whether F32 may be rounded to TF32 */
    int32_t dims;        /* 4, of volumes 5, with D beside H */
    int32_t x[5], w[5], y[5], padding[3], stride[3], dilation[3]; /* (N,C,[D,]H,W), (K,C/groups,[T,]R,S), (N,K,[O,]P,Q) */
    int32_t bias, relu, stats; /* what follows: y += bias, y = max(y, 0), and last Σy and Σy² of each channel */
};
struct sgrad__graph_operands {
    const void *x, *weight, *bias; /* all in the type of x */
    void *y, *room;
    float *sum, *square; /* (K) each, where STATS are asked for */
};

/* The two ways: APART, kernel by kernel, and as a graph, with what has to be done BEFORE and AFTER it. All enqueue on the
 * worker's stream, and may be called several times. */
struct sgrad__graph_ways {
    std::function<void()> apart, before, after;
};

/* Does it the faster way, as measured by the first task with this key, and remembered under MEMO from run to run. */
void sgrad__graph_do(const struct sgrad__graph_key *key, const struct sgrad__graph_operands *operands,
                     const struct sgrad__graph_ways *ways, const std::string &memo);

/* Whether a graph may be taken at all: STARGRAD_CUDNN is not "algorithms". */
bool sgrad__graph_wanted(void);

#endif
