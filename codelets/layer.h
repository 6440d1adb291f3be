/* layer.h: a convolution or an inner product, forward or backward, as those see it who compute it: onednn.c, winograd.c and
 * others; ways.c, which chooses between them; passes.c, which makes kernels of that. Private to codelets/. */
#ifndef SGRAD_CODELETS_LAYER_H
#define SGRAD_CODELETS_LAYER_H

#include "codelets/kernels.h"
#include "codelets/pass.h"

/* All that a computation depends on, and the key under which its plan is kept: no padding, so it compares byte by byte. */
struct sgrad__layer {
    int32_t pass;                              /* enum sgrad__pass */
    int32_t rank;                              /* 4: convolution of images, 5: of volumes, 2: inner product */
    int32_t dtype;                             /* of x, y and their gradients: SGRAD_F32 or SGRAD_BF16 */
    int32_t bias, accumulate, deterministic;   /* is there a bias; are outputs added to; may no measurement decide */
    int32_t packed;                            /* 0: the weight comes as it lies; else packed for a way and samples (ways.h) */
    int32_t exact;                             /* of bf16: may nothing inside be rounded to bf16 */
    int32_t stride, dilation, padding, groups; /* convolution only */
    int32_t x[5], w[5], y[5];                  /* (N,H,W,C), (K,R,S,C/groups), (N,P,Q,K); or (N,D,H,W,C), (K,T,R,S,C/groups),
                                                * (N,O,P,Q,K); or (rows,C), (K,C), (rows,K) */
};

/* What an operand is: x, the weight, the bias, y, or their gradients. By pass, which operand that is, -1 for none:
 *     forward          x, weight, bias, y
 *     backward-data    dy, weight, dx
 *     backward-weight  x, dy, dweight, dbias */
enum sgrad__side { SGRAD__OF_X, SGRAD__OF_WEIGHT, SGRAD__OF_BIAS, SGRAD__OF_Y, SGRAD__PARTS };
extern const int sgrad__operand_of[SGRAD__PASSES][SGRAD__PARTS];

/* The layer of a task of conv2d.c, conv3d.c or conv_transpose.c, whose weight has rank 4 or 5, or of linear.c, whose weight has
 * rank 2. Volumes whose filter sees one slice at a time are so many images: (N,D,H,W,C) becomes (N·D,H,W,C), and the layer's rank
 * 4. */
struct sgrad__layer sgrad__layer_of(enum sgrad__pass pass, const struct sgrad_args *args);

/* Padding of volumes on either side along D, where the stride and the dilation are 1. */
static inline int32_t sgrad__layer_depth_padding(const struct sgrad__layer *l) { return (l->y[1] - l->x[1] + l->w[1] - 1) / 2; }

double sgrad__layer_flops(const struct sgrad__layer *layer);

/* Bytes of an operand as it lies; 0 where the layer has none such. */
size_t sgrad__layer_bytes(const struct sgrad__layer *layer, enum sgrad__side part);

#endif
