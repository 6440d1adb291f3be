/* draw.h: how random words become decisions: the few lines that CPU and CUDA kernels must share, so that a sample meets
 * the same chances on any device, in any micro-batch, on any rank. Private to codelets/. */
#ifndef SGRAD_CODELETS_DRAW_H
#define SGRAD_CODELETS_DRAW_H

#include <stdbool.h>

#include "runtime/philox.h"

/* The chances of elements 4·BLOCK … 4·BLOCK+3, in memory order, of sample SAMPLE of the whole batch. LAYER keeps the
 * layers of a network apart: struct sgrad_dropout's stream. */
static inline SGRAD_BOTH struct sgrad_random sgrad__dropout_draw(uint64_t seed, uint32_t step, uint32_t layer, int64_t sample,
                                                                 int64_t block) {
    return sgrad_philox(seed, SGRAD_STREAM_DROPOUT, step, (uint64_t)layer << 32 | (uint32_t)sample, (uint32_t)block);
}

/* What such an element is multiplied by, forward and backward: 0 with probability P, else 1/(1-P). */
static inline SGRAD_BOTH float sgrad__dropout_factor(uint32_t word, float p) {
    return sgrad_uniform(word) < p ? 0.0f : 1.0f / (1.0f - p);
}

#endif
