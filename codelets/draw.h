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

/* Where an augmented image is taken from: y[h][w] = x[h + down][(flip ? W-1-w : w) + right], and black outside of x.
 * The same as padding by PAD, cropping at 0…2·PAD, and flipping one time in two. */
struct sgrad__crop {
    int down, right;    /* -pad … pad */
    bool flip;
};
static inline SGRAD_BOTH struct sgrad__crop sgrad__image_draw(uint64_t seed, uint32_t epoch, int64_t sample, int pad, bool flip) {
    struct sgrad_random r = sgrad_philox(seed, SGRAD_STREAM_AUGMENT, epoch, (uint64_t)sample, 0);
    struct sgrad__crop crop;
    crop.down = (int)((uint64_t)r.word[0] * (uint32_t)(2 * pad + 1) >> 32) - pad;
    crop.right = (int)((uint64_t)r.word[1] * (uint32_t)(2 * pad + 1) >> 32) - pad;
    crop.flip = flip && r.word[2] >> 31;
    return crop;
}

#endif
