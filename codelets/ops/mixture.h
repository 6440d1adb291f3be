/* mixture.h: the choice of experts, for router.c and balance.c. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_MIXTURE_H
#define SGRAD_CODELETS_OPS_MIXTURE_H

#include "codelets/cpu/numbers.h"

/* Computes the softmax P of COUNT numbers X. */
SGRAD_ALWAYS_INLINE void softmax_of_row(const float *x, int64_t count, float *p) {
    const float most = largest(x, count);
    for (int64_t e = 0; e < count; e++) p[e] = exp_of(x[e] - most);
    const float inverse = 1 / sum_of(p, count);
    for (int64_t e = 0; e < count; e++) p[e] *= inverse;
}

/* Sets CHOSEN of the ACTIVE largest of COUNT scores, at most SGRAD_ROW; of equal ones, the first. As many are chosen if scores
 * are NaN. */
static inline void choose_largest(int active, const float *score, int64_t count, bool chosen[SGRAD_ROW]) {
    memset(chosen, 0, SGRAD_ROW * sizeof *chosen);
    for (int k = 0; k < active; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < count; e++)
            if (!chosen[e] && (best < 0 || score[e] > score[best])) best = e;
        chosen[best] = true;
    }
}

#endif
