/* layer.h: the record of a convolution or an inner product, forward or backward. It is used by the algorithms (onednn.c,
 * winograd.c and others), by algorithms.c, which selects one of them, and by passes.c, which defines the kernels. Private to
 * codelets/. */
#ifndef SGRAD_CODELETS_CPU_LAYER_H
#define SGRAD_CODELETS_CPU_LAYER_H

#include "codelets/kernels.h"
#include "codelets/pass.h"

/* All parameters of a computation. It is also a cache key, and keys are compared bytewise, so it must not have padding bytes. */
struct sgrad__layer {
    int32_t pass;                              /* enum sgrad__pass */
    int32_t rank;                              /* 4: convolution of images, 5: of volumes, 2: inner product */
    int32_t dtype;                             /* of x, y and their gradients: SGRAD_F32 or SGRAD_BF16 */
    int32_t bias, accumulate, deterministic;   /* 1: has a bias; adds to its outputs; must not be measured */
    int32_t packed;                            /* 0: the weight is not packed; else packed for an algorithm (algorithms.h) */
    int32_t exact;                             /* bf16 only; 1: intermediate values must not be rounded to bf16 */
    int32_t stride, dilation, padding, groups; /* convolution only */
    int32_t x[5], w[5], y[5];                  /* (N,H,W,C), (K,R,S,C/groups), (N,P,Q,K); or (N,D,H,W,C), (K,T,R,S,C/groups),
                                                * (N,O,P,Q,K); or (rows,C), (K,C), (rows,K) */
};

/* The role of an operand: x, the weight, the bias, y, or the gradient of one of these. The table contains the operand's index by
 * pass and role; -1: the pass has no such operand. The operands of each pass are:
 *     forward          x, weight, bias, y
 *     backward-data    dy, weight, dx
 *     backward-weight  x, dy, dweight, dbias */
enum sgrad__side { SGRAD__OF_X, SGRAD__OF_WEIGHT, SGRAD__OF_BIAS, SGRAD__OF_Y, SGRAD__PARTS };
extern const int sgrad__operand_of[SGRAD__PASSES][SGRAD__PARTS];

/* Returns the layer of a task of conv2d.c, conv3d.c or conv_transpose.c (the weight has rank 4 or 5) or of linear.c (rank 2).
 * Volumes whose filter covers one slice are treated as images: (N,D,H,W,C) becomes (N·D,H,W,C), and the layer has rank 4.
 * exact is 0. */
struct sgrad__layer sgrad__layer_of(enum sgrad__pass pass, const struct sgrad_args *args);

/* Returns the padding of a volume on either side along D. Along D, stride and dilation are 1. */
static inline int32_t sgrad__layer_depth_padding(const struct sgrad__layer *layer) {
    return (layer->y[1] - layer->x[1] + layer->w[1] - 1) / 2;
}

/* Returns the number of multiplications and additions: the same for all passes. */
double sgrad__layer_flops(const struct sgrad__layer *layer);

/* Returns the size of an operand in bytes, in the layout of its tensor; 0 if the layer has no such operand. */
size_t sgrad__layer_bytes(const struct sgrad__layer *layer, enum sgrad__side part);

#endif
