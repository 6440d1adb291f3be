/* attention_graph.h: attention as a cuDNN graph, which cuDNN computes by its own flash attention kernels. Private to codelets/,
 * only for *_cuda.cu. */
#ifndef SGRAD_CODELETS_CUDA_ATTENTION_GRAPH_H
#define SGRAD_CODELETS_CUDA_ATTENTION_GRAPH_H

#include "codelets/cuda/cudnn_graph.h"

/* All parameters of a graph: N samples of T rows; HEADS heads of queries and KV of keys, of SIZE numbers each; the numbers
 * between two rows of q, k and v, and of their gradients. Keys are compared bytewise, so padding must be zeroed. */
struct sgrad__attention_key {
    size_t room; /* bytes of cuDNN's workspace */
    int32_t backward, causal;
    int32_t N, T, heads, kv, size;
    int32_t stride[3];
};

/* The operands of a graph. Q, K, V, Y, DY and the gradients are bf16. The others are F32: STATS, log Σ exp of each row of
 * scores (N,heads,T); SUMS, y·dy of each row, which backward writes; DQ_SUM (N,heads,T,size), in which backward sums dq. SCALE,
 * LOWEST and ONE are single numbers in host memory. */
enum sgrad__attention_operand {
    SGRAD__AT_QUERY, SGRAD__AT_KEY, SGRAD__AT_VALUE, SGRAD__AT_OUT, SGRAD__AT_STATS, SGRAD__AT_DOUT, SGRAD__AT_DQUERY,
    SGRAD__AT_DKEY, SGRAD__AT_DVALUE, SGRAD__AT_SUMS, SGRAD__AT_DQUERY_SUM, SGRAD__AT_FACTOR, SGRAD__AT_LOWEST, SGRAD__AT_ONE,
    SGRAD__ATTENTION_OPERANDS
};
static_assert((int)SGRAD__ATTENTION_OPERANDS <= (int)SGRAD__GRAPH_MOST, "a graph's data have room for the operands");

/* Returns true if this version of cuDNN can compute attention. */
bool sgrad__attention_graph_exists(void);

/* Enqueues attention as a graph, or by UNFUSED if that is faster or cuDNN has no kernel. DATA has all operands of the pass
 * except the single numbers. */
void sgrad__attention_graph_do(const struct sgrad__attention_key *key, struct sgrad__graph_data data,
                               const std::function<void()> &unfused);

#endif
