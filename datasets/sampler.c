/* sampler.c: the order of the samples: for every epoch a permutation of the training set, which depends only on seed and
 * epoch. */
#include "datasets/sampler.h"

#include <assert.h>
#include <stdlib.h>

/* Returns a number from 0 to N - 1, computed from 64 random bits (Lemire, 2019, without rejection: the bias is below N/2^64). */
static int64_t below(int64_t n, uint64_t bits) {
    return (int64_t)((unsigned __int128)bits * (uint64_t)n >> 64);
}

/* Fisher-Yates shuffle in Durstenfeld's form. One call of Philox gives the random numbers of two exchanges. */
static void shuffle(struct sgrad__sampler *sampler, uint32_t epoch) {
    if (!sampler->index) sampler->index = sgrad_xcalloc((size_t)sampler->count, sizeof *sampler->index);
    for (int64_t i = 0; i < sampler->count; i++) sampler->index[i] = i;
    struct sgrad_random r = { { 0 } };
    for (int64_t i = sampler->count - 1; i > 0; i--) {
        int half = 2 * (int)(i & 1);
        if (half || i == sampler->count - 1) r = sgrad_philox(sampler->seed, SGRAD_STREAM_SHUFFLE, epoch, (uint64_t)i / 2, 0);
        int64_t j = below(i + 1, (uint64_t)r.word[half] << 32 | r.word[half + 1]);
        int64_t index = sampler->index[i];
        sampler->index[i] = sampler->index[j];
        sampler->index[j] = index;
    }
    sampler->epoch = epoch;
}

int64_t sgrad__sampler_index(struct sgrad__sampler *sampler, uint32_t epoch, int64_t position) {
    assert(position >= 0 && position < sampler->count);
    if (!sampler->shuffle) return position;
    if (!sampler->index || sampler->epoch != epoch) shuffle(sampler, epoch);
    return sampler->index[position];
}

/* Returns the shift of all windows of EPOCH. */
static int64_t shift_of(const struct sgrad__sampler *sampler, uint32_t epoch) {
    if (!sampler->shuffle || sampler->shifts < 2) return 0;
    const struct sgrad_random r = sgrad_philox(sampler->seed, SGRAD_STREAM_SHUFFLE, epoch, UINT64_MAX, 0);
    return below(sampler->shifts, (uint64_t)r.word[0] << 32 | r.word[1]);
}

struct sgrad_sample sgrad__sampler_sample(struct sgrad__sampler *sampler, uint32_t epoch, int64_t position) {
    return (struct sgrad_sample){ .index = sgrad__sampler_index(sampler, epoch, position), .shift = shift_of(sampler, epoch) };
}

void sgrad__sampler_close(struct sgrad__sampler *sampler) {
    free(sampler->index);
    sampler->index = NULL;
}
