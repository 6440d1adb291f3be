/* resize_weights.h: which pixels of x a pixel of y of resize.c is the weighted sum of. CPU and CUDA kernels use the same
 * functions; the reader of ONNX compares files with them.
 *
 * Rows and columns are independent: the weight of pixel (h,w) in pixel (p,q) is that of row h in row p times that of column w in
 * column q. Along one axis, from 4 pixels to 2 and to 3:
 *
 *     mode        y 0                y 1                        y 0          y 1            y 2
 *     nearest     x0                 x2                         x0           x1             x2
 *     bilinear    (x0 + x1) / 2      (x2 + x3) / 2              5/6 x0 + …   (x1 + x2) / 2  … + 5/6 x3
 *     area        (x0 + x1) / 2      (x2 + x3) / 2              (x0 + x1)/2  (x1 + x2) / 2  (x2 + x3) / 2 */
#ifndef SGRAD_CODELETS_OPS_RESIZE_WEIGHTS_H
#define SGRAD_CODELETS_OPS_RESIZE_WEIGHTS_H

#include <math.h>

#include "codelets/ops/resize.h"
#include "runtime/philox.h"

/* The pixels of one axis, begin to end - 1, with weights above 0; of bilinear, the last one has the weight LAST. */
struct sgrad__taps {
    int begin, end;
    float last;
};

/* Returns the pixels, of IN, that pixel P, of OUT, is computed from. Positions are rounded as in PyTorch, which computes them in
 * single precision. */
static inline SGRAD_BOTH struct sgrad__taps sgrad__resize_taps(const struct sgrad_resize *attrs, int p, int in, int out) {
    struct sgrad__taps taps;
    const float scale = (float)in / (float)out;
    taps.last = 1;
    if (attrs->area) {
        taps.begin = (int)((int64_t)p * in / out);
        taps.end = (int)(((int64_t)(p + 1) * in + out - 1) / out);
        taps.last = 1 / (float)(taps.end - taps.begin);
        return taps;
    }
    float at = attrs->bilinear ? scale * ((float)p + 0.5f) - 0.5f : scale * (float)p;
    if (at < 0) at = 0;
    taps.begin = (int)at < in - 1 ? (int)at : in - 1;
    taps.end = taps.begin + 1;
    if (!attrs->bilinear || taps.end == in) return taps;
    taps.end++;
    taps.last = at - (float)taps.begin;
    return taps;
}

/* Returns the weight of pixel X in a pixel with TAPS; 0 if it is not one of them. */
static inline SGRAD_BOTH float sgrad__resize_weight(const struct sgrad_resize *attrs, struct sgrad__taps taps, int x) {
    if (x < taps.begin || x >= taps.end) return 0;
    return attrs->area || x == taps.end - 1 ? taps.last : 1 - taps.last;
}

/* Pixels BEGIN to END - 1, of OUT: all that pixel X, of IN, may have a weight in. */
static inline SGRAD_BOTH struct sgrad__taps sgrad__resize_outputs(int x, int in, int out) {
    struct sgrad__taps outputs;
    const int64_t begin = (int64_t)(x - 1) * out / in - 1, end = (int64_t)(x + 2) * out / in + 2;
    outputs.begin = begin < 0 ? 0 : (int)begin;
    outputs.end = end > out ? out : (int)end;
    outputs.last = 0;
    return outputs;
}

#endif
