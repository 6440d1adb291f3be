/* pool.h: functions common to max_pool and average_pool: which inputs a window covers. Private to codelets/.
 *
 * Along one axis, output p reads the inputs p·stride - padding + tap, for tap = 0 … kernel - 1. With 4 inputs, kernel 3,
 * stride 2, padding 1:
 *
 *     input             .  0  1  2  3  .
 *     window of p = 0  [0  1  2]             taps inside: 1, 2
 *     window of p = 1        [0  1  2]       taps inside: 0, 1, 2; input 1 is in the windows 0 and 1 */
#ifndef SGRAD_CODELETS_OPS_POOL_H
#define SGRAD_CODELETS_OPS_POOL_H

#include "codelets/kernels.h"

struct sgrad__window {
    int64_t kernel, stride, padding;
};
struct sgrad__range {
    int64_t begin, end;     /* end is exclusive */
};

/* Returns the taps that are inside an input of SIZE, for the window that begins at START (p·stride - padding). */
SGRAD_ALWAYS_INLINE struct sgrad__range sgrad__window_taps(struct sgrad__window w, int64_t start, int64_t size) {
    return (struct sgrad__range){ start < 0 ? -start : 0, start + w.kernel > size ? size - start : w.kernel };
}

/* Returns the windows, of COUNT, that cover an input; X is its index plus the padding. */
SGRAD_ALWAYS_INLINE struct sgrad__range sgrad__window_outputs(struct sgrad__window w, int64_t x, int64_t count) {
    int64_t begin = x < w.kernel ? 0 : (x - w.kernel) / w.stride + 1, last = x / w.stride;
    return (struct sgrad__range){ begin, last < count ? last + 1 : count };
}

/* A view's dimensions as images (N,H,W,C); the slices of volumes (N,D,H,W,C) are images (N·D,H,W,C). */
struct sgrad__images {
    int64_t dim[4];
};
SGRAD_ALWAYS_INLINE struct sgrad__images sgrad__images_of(const struct sgrad_view *view) {
    const int64_t *d = view->shape.dim + view->shape.rank - 3;
    return (struct sgrad__images){ { sgrad_shape_count(&view->shape) / (d[0] * d[1] * d[2]), d[0], d[1], d[2] } };
}

/* Shape rule: y (N,P,Q,C) for x (N,H,W,C), with P = floor((H + 2 padding - kernel) / stride) + 1; likewise for each slice of
 * volumes. Sets *STRIDE to KERNEL if it is 0. Errors, which are logged: SGRAD_ESHAPE if x has another rank or is smaller than
 * a window, SGRAD_EINVAL if the kernel or the stride is less than 1, or the padding is negative or more than half the kernel. */
int sgrad__pool_infer(struct sgrad_signature *signature, int kernel, int *stride, int padding);

/* Writes "2x2 stride 2 pad 0" to TEXT. */
void sgrad__pool_describe(int kernel, int stride, int padding, char *text, size_t size);

#endif
