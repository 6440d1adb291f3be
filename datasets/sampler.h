/* sampler.h: the order of the samples of a training set. Not installed; graphs/ uses it. */
#ifndef SGRAD_DATASETS_SAMPLER_H
#define SGRAD_DATASETS_SAMPLER_H

#include "datasets/datasets.h"
#include "runtime/philox.h"

/* The order of the samples. The caller sets seed, count, shuffle, and optionally the members of labels, shards and shifts; all
 * other members must be zero. */
struct sgrad__sampler {
    uint64_t seed;
    int64_t count;              /* samples of the training set */
    bool shuffle;               /* false: every epoch has the order of the files */
    const int32_t *label;       /* borrowed; of each sample: each class has equally many positions; NULL: each sample has one */
    int classes;                /* labels are below this number */
    int64_t shards;             /* samples are in files, which are shuffled as blocks: dataset->shards; 0: no files */
    const int64_t *shard;       /* borrowed; dataset->first: index of the first sample of each shard, and count */
    int64_t window;             /* of shards: number of samples, at least 1, from which the next one is drawn */
    int sources;                /* dataset->sources; 0: no mixture, each sample has a position */
    const struct sgrad_source *source;      /* borrowed; dataset->source */
    int64_t shifts;             /* samples are windows, whose shift is below this number: dataset->shifts; 0: no shift */
    uint32_t epoch;             /* epoch of the permutation in INDEX */
    int64_t *index;             /* permutation of an epoch; NULL: none yet */
    int64_t *by_class, *first;  /* samples, ordered by class; first one of each class, and count. NULL: not needed yet */
};
/* Return the sample at POSITION, 0 to count - 1, of EPOCH, and its index. The permutation of an epoch is computed on its first
 * use. All windows of an epoch have the same random shift; without shuffling it is 0. */
struct sgrad_sample sgrad__sampler_sample(struct sgrad__sampler *order, uint32_t epoch, int64_t position);
int64_t sgrad__sampler_index(struct sgrad__sampler *order, uint32_t epoch, int64_t position);
void sgrad__sampler_close(struct sgrad__sampler *order);            /* frees the memory of the functions above */

#endif
