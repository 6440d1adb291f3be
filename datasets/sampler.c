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
static void shuffle(struct sgrad__sampler *o, uint32_t epoch) {
    if (!o->sample) o->sample = sgrad_xcalloc((size_t)o->count, sizeof *o->sample);
    for (int64_t i = 0; i < o->count; i++) o->sample[i] = i;
    struct sgrad_random r = { { 0 } };
    for (int64_t i = o->count - 1; i > 0; i--) {
        int half = 2 * (int)(i & 1);
        if (half || i == o->count - 1) r = sgrad_philox(o->seed, SGRAD_STREAM_SHUFFLE, epoch, (uint64_t)i / 2, 0);
        int64_t j = below(i + 1, (uint64_t)r.word[half] << 32 | r.word[half + 1]);
        int64_t sample = o->sample[i];
        o->sample[i] = o->sample[j];
        o->sample[j] = sample;
    }
    o->epoch = epoch;
}

int64_t sgrad__sampler_sample(struct sgrad__sampler *o, uint32_t epoch, int64_t position) {
    assert(position >= 0 && position < o->count);
    if (!o->shuffle) return position;
    if (!o->sample || o->epoch != epoch) shuffle(o, epoch);
    return o->sample[position];
}

int64_t sgrad__sampler_shift(const struct sgrad__sampler *o, uint32_t epoch, int64_t limit) {
    if (!o->shuffle || limit < 2) return 0;
    const struct sgrad_random r = sgrad_philox(o->seed, SGRAD_STREAM_SHUFFLE, epoch, UINT64_MAX, 0);
    return below(limit, (uint64_t)r.word[0] << 32 | r.word[1]);
}

void sgrad__sampler_close(struct sgrad__sampler *o) {
    free(o->sample);
    o->sample = NULL;
}
