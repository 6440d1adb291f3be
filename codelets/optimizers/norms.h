/* norms.h: norms of gradients and weights, for the kernels of optimizers. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPTIMIZERS_NORMS_H
#define SGRAD_CODELETS_OPTIMIZERS_NORMS_H

#include "codelets/kernels.h"
#include "codelets/updates.h"

/* Σ x·y in double, in which a product of two floats is exact. Product i is added to sum i % 32 of SGRAD_LANES sums, and these
 * are added in order at the end. So the order depends only on the count, not on the processor. sgrad__add_products adds the
 * products of COUNT elements to the sums, which the caller sets to zeros first. It may be called for consecutive chunks of a
 * tensor, with the same result, if the lengths of all chunks except the last are multiples of 32. sgrad__join_lanes returns
 * the total. */
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
