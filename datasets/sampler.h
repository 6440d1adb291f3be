/* sampler.h: the order of the samples of a training set. Not installed; graphs/ uses it. */
#ifndef SGRAD_DATASETS_SAMPLER_H
#define SGRAD_DATASETS_SAMPLER_H

#include "runtime/philox.h"
#include "runtime/runtime.h"

/* The order of the samples. The caller sets seed, count and shuffle; all other members must be zero. */
struct sgrad__sampler {
    uint64_t seed;
    int64_t count;              /* samples of the training set */
    bool shuffle;               /* false: every epoch has the order of the files */
    uint32_t epoch;             /* epoch of the permutation in SAMPLE */
    int64_t *sample;            /* permutation of an epoch; NULL: none yet */
};
/* Returns the sample at POSITION, 0 to count - 1, of EPOCH. The permutation of an epoch is computed on its first use. */
int64_t sgrad__sampler_sample(struct sgrad__sampler *order, uint32_t epoch, int64_t position);
/* Returns the shift of the windows of EPOCH, 0 to LIMIT - 1; 0 without shuffling, or if LIMIT is 0. */
int64_t sgrad__sampler_shift(const struct sgrad__sampler *order, uint32_t epoch, int64_t limit);
void sgrad__sampler_close(struct sgrad__sampler *order);            /* frees the permutation */

#endif
