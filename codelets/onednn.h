/* onednn.h: convolution and inner product through oneDNN, made once per shape and worker. Private to codelets/.
 *
 * A *plan* is one oneDNN primitive with its arguments: how each lies in our tensors, and how the primitive wants it.
 * Where the two differ, it passes through the workspace. A bf16 convolution, forward:
 *
 *     weight (K,R,S,C) f32 ── reorder ─> workspace: bf16, blocked as the primitive likes ─┐
 *     x (N,H,W,C) bf16 ───────────────────────────────────────────────────────────────────┼─> primitive ─> y (N,P,Q,K) bf16
 *     bias (K) f32 ───────────────────────────────────────────────────────────────────────┘
 *
 * In the steady state only pointers are set and primitives executed. */
#ifndef SGRAD_CODELETS_ONEDNN_H
#define SGRAD_CODELETS_ONEDNN_H

#include "codelets/kernels.h"

enum sgrad__pass { SGRAD__FORWARD, SGRAD__BACKWARD_DATA, SGRAD__BACKWARD_WEIGHT };

/* All that a plan depends on, and the key under which it is kept: no padding, so it compares byte by byte.
 * Operands, absent ones included:
 *     forward          x, weight, bias, y
 *     backward-data    dy, weight, dx
 *     backward-weight  x, dy, dweight, dbias */
struct sgrad__layer {
    int32_t pass;                              /* enum sgrad__pass */
    int32_t rank;                              /* 4: convolution, 2: inner product */
    int32_t dtype;                             /* of x, y and their gradients: SGRAD_F32 or SGRAD_BF16 */
    int32_t bias, accumulate;                  /* is there a bias; are outputs added to */
    int32_t stride, dilation, padding, groups; /* convolution only */
    int32_t x[4], w[4], y[4];                  /* (N,H,W,C), (K,R,S,C/groups), (N,P,Q,K); or (N,C), (K,C), (N,K) */
};

/* Fills what the views tell: everything but stride, dilation, padding and groups. */
struct sgrad__layer sgrad__layer_of(enum sgrad__pass pass, const struct sgrad_args *args);

size_t sgrad__layer_workspace(const struct sgrad__layer *layer);
double sgrad__layer_flops(const struct sgrad__layer *layer);
void sgrad__layer_run(const struct sgrad__layer *layer, const struct sgrad_args *args);

#endif
