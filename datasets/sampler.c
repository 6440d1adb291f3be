/* sampler.c: the order of the samples: for every epoch a permutation of the training set, which depends only on seed and
 * epoch. If classes are balanced, each of the K classes that have samples gets 1/K of the positions instead: a small class
 * repeats its samples, in equal numbers as far as possible; a large one leaves out a random part, another one in each epoch. */
#include "datasets/sampler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns a number from 0 to N - 1, computed from 64 random bits (Lemire, 2019, without rejection: the bias is below N/2^64). */
static int64_t below(int64_t n, uint64_t bits) {
    return (int64_t)((unsigned __int128)bits * (uint64_t)n >> 64);
}

/* Fisher-Yates shuffle of the COUNT elements of INDEX, in Durstenfeld's form. One call of Philox gives the random numbers of two
 * exchanges. BLOCK: another one for each shuffle of an epoch. */
static void shuffle(const struct sgrad__sampler *sampler, uint32_t epoch, uint32_t block, int64_t *index, int64_t count) {
    struct sgrad_random r = { { 0 } };
    for (int64_t i = count - 1; i > 0; i--) {
        int half = 2 * (int)(i & 1);
        if (half || i == count - 1) r = sgrad_philox(sampler->seed, SGRAD_STREAM_SHUFFLE, epoch, (uint64_t)i / 2, block);
        int64_t j = below(i + 1, (uint64_t)r.word[half] << 32 | r.word[half + 1]);
        int64_t other = index[i];
        index[i] = index[j];
        index[j] = other;
    }
}

static void sort_by_class(struct sgrad__sampler *sampler) {
    int64_t *next = sampler->first = sgrad_xcalloc((size_t)sampler->classes + 1, sizeof *next);
    sampler->by_class = sgrad_xcalloc((size_t)sampler->count, sizeof *sampler->by_class);
    for (int64_t i = 0; i < sampler->count; i++) next[sampler->label[i] + 1]++;
    for (int c = 0; c < sampler->classes; c++) next[c + 1] += next[c];
    for (int64_t i = 0; i < sampler->count; i++) sampler->by_class[next[sampler->label[i]]++] = i;
    memmove(next + 1, next, (size_t)sampler->classes * sizeof *next);    /* each had become the first of the next class */
    next[0] = 0;
}

/* Fills the positions, class by class. The remainder of count / classes goes to other classes in each epoch. */
static void balance(struct sgrad__sampler *sampler, uint32_t epoch) {
    if (!sampler->by_class) sort_by_class(sampler);
    int64_t used = 0, to = 0, number = 0;
    for (int c = 0; c < sampler->classes; c++) used += sampler->first[c + 1] > sampler->first[c];
    int64_t *mine = sgrad_xcalloc((size_t)sampler->count, sizeof *mine);
    for (int c = 0; c < sampler->classes; c++) {
        const int64_t from = sampler->first[c], size = sampler->first[c + 1] - from;
        if (!size) continue;
        const int64_t more = (number++ + epoch) % used < sampler->count % used, quota = sampler->count / used + more;
        memcpy(mine, sampler->by_class + from, (size_t)size * sizeof *mine);
        shuffle(sampler, epoch, 1 + (uint32_t)c, mine, size);
        for (int64_t i = 0; i < quota; i++) sampler->index[to++] = mine[i % size];
    }
    assert(to == sampler->count);
    free(mine);
}

static void order(struct sgrad__sampler *sampler, uint32_t epoch) {
    if (!sampler->index) sampler->index = sgrad_xcalloc((size_t)sampler->count, sizeof *sampler->index);
    for (int64_t i = 0; i < sampler->count; i++) sampler->index[i] = i;
    if (sampler->label) balance(sampler, epoch);
    shuffle(sampler, epoch, 0, sampler->index, sampler->count);
    sampler->epoch = epoch;
}

int64_t sgrad__sampler_index(struct sgrad__sampler *sampler, uint32_t epoch, int64_t position) {
    assert(position >= 0 && position < sampler->count);
    if (!sampler->shuffle) return position;
    if (!sampler->index || sampler->epoch != epoch) order(sampler, epoch);
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
    free(sampler->by_class);
    free(sampler->first);
    sampler->index = sampler->by_class = sampler->first = NULL;
}
