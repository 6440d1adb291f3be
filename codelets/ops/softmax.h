/* softmax.h: functions common to the losses of classifiers: the logarithm of a softmax's denominator. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_SOFTMAX_H
#define SGRAD_CODELETS_OPS_SOFTMAX_H

#include "codelets/kernels.h"

#include <math.h>

/* Of a row of logits x. */
struct sgrad__normalizer {
    int64_t argmax; /* index of max; the first one if several are equal */
    float max;
    double log_sum; /* log Σ exp(x - max); NaN if a logit is NaN or +infinity, or all are -infinity */
};
/* Returns true if the row's probabilities are finite. Losses count other rows as wrong predictions, for every label. */
static inline bool sgrad__is_sure(const struct sgrad__normalizer *normalizer) {
    return isfinite(normalizer->max) && isfinite(normalizer->log_sum);
}

/* Returns the normalizer of the row of COUNT logits from element FROM on. */
static inline struct sgrad__normalizer sgrad__normalize(enum sgrad_dtype type, const void *logits, int64_t from, int64_t count) {
    struct sgrad__normalizer r = { 0, sgrad_get(type, logits, from), 0 };
    for (int64_t c = 1; c < count; c++) {
        float x = sgrad_get(type, logits, from + c);
        if (x > r.max) r = (struct sgrad__normalizer){ c, x, 0 };
    }
    double sum = 0;
    for (int64_t c = 0; c < count; c++) sum += expf(sgrad_get(type, logits, from + c) - r.max);
    r.log_sum = log(sum);
    return r;
}

#endif
