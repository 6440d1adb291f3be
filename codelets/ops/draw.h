/* draw.h: the random decisions of dropout and drop_path. CPU and CUDA kernels use the same functions, so that the decisions for a
 * sample are the same on any device, in any micro-batch and on any rank. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_DRAW_H
#define SGRAD_CODELETS_OPS_DRAW_H

#include <stdbool.h>

#include "runtime/philox.h"

/* Returns the random words for elements 4·BLOCK … 4·BLOCK+3 of a sample, in memory order; of a sharded sample, elements are
 * numbered in the whole sample. SAMPLE is its index in the whole batch, over all ranks. LAYER, struct sgrad_dropout.stream,
 * gives each layer of a network different words. drop_path uses the first word of block 0. Generator: Philox
 * (runtime/philox.h). */
static inline SGRAD_BOTH struct sgrad_random sgrad__dropout_draw(uint64_t seed, uint32_t step, uint32_t layer, int64_t sample,
                                                                 int64_t block) {
    return sgrad_philox(seed, SGRAD_STREAM_DROPOUT, step, (uint64_t)layer << 32 | (uint32_t)sample, (uint32_t)block);
}

/* Returns the factor of an element, from its random word, for forward and backward: 0 with probability P, else 1/(1-P). */
static inline SGRAD_BOTH float sgrad__dropout_factor(uint32_t word, float p) {
    return sgrad_uniform(word) < p ? 0.0f : 1.0f / (1.0f - p);
}

#endif
