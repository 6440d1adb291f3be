/* norms.h: norms of gradients and weights, for the kernels of optimizers. Private to codelets/. */
#ifndef SGRAD_CODELETS_NORMS_H
#define SGRAD_CODELETS_NORMS_H

#include "codelets/kernels.h"
#include "codelets/updates.h"

/* Σ x·y in double: thirty-two sums side by side, joined in order at the end, so that the count alone decides the order, whatever
 * the processor; a product of floats is exact as a double. Pieces, all but the last a multiple of 32 long, give what the whole
 * gives. */
enum { SGRAD_LANES = 32 };
SGRAD_ALWAYS_INLINE void sgrad__add_products(const float *x, const float *y, int64_t count, double *restrict lane) {
    const int64_t whole = count - count % SGRAD_LANES;
    for (int64_t i = 0; i < whole; i += SGRAD_LANES)
        for (int j = 0; j < SGRAD_LANES; j++) lane[j] += (double)x[i + j] * y[i + j];
    for (int64_t i = whole; i < count; i++) lane[i - whole] += (double)x[i] * y[i];
}
SGRAD_ALWAYS_INLINE double sgrad__join_lanes(const double *lane) {
    double sum = 0;
    for (int j = 0; j < SGRAD_LANES; j++) sum += lane[j];
    return sum;
}

#endif
