/* sampler.c: the order of the samples: for every epoch a permutation of the training set, which depends only on seed and
 * epoch.
 *
 * If classes are balanced, each of the K classes that have samples gets 1/K of the positions instead: a small class repeats its
 * samples, in equal numbers as far as possible; a large one leaves out a random part, another one in each epoch.
 *
 * In a mixture, each source gets its quota of the positions. A source with fewer samples repeats them. One with more continues in
 * the next epoch with those that follow (mixture.c).
 *
 * Samples in shards are read fastest in the order of the files. Therefore the shards are shuffled, and each sample is drawn from
 * the next WINDOW ones that remain, as from the shuffle buffer of tf.data and WebDataset. At any time, only the shards of one
 * window are read. With a window of 3, and shards of 2 samples:
 *
 *     shards in random order     4 5 | 0 1 | 2 3
 *     drawn                      5         from 4 5 0
 *                                0         from 4 0 1
 *                                2         from 4 1 2  … */
#include "datasets/sampler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns a number from 0 to N - 1, computed from 64 random bits (Lemire, 2019, without rejection: the bias is below N/2^64). */
static int64_t below(int64_t n, uint64_t bits) {
    return (int64_t)((unsigned __int128)bits * (uint64_t)n >> 64);
}

/* The random numbers of one shuffle. BLOCK: another one for each shuffle of an epoch. */
struct draws {
    uint64_t seed;
    uint32_t epoch, block;
    int64_t call;               /* of Philox, whose result is R; -1: none yet */
    struct sgrad_random r;
};

/* Returns a number from 0 to N - 1 for exchange I. One call of Philox gives the numbers of two exchanges. */
static int64_t draw(struct draws *draws, int64_t i, int64_t n) {
    const int half = 2 * (int)(i & 1);
    if (draws->call != i / 2) {
        draws->call = i / 2;
        draws->r = sgrad_philox(draws->seed, SGRAD_STREAM_SHUFFLE, draws->epoch, (uint64_t)draws->call, draws->block);
    }
    return below(n, (uint64_t)draws->r.word[half] << 32 | draws->r.word[half + 1]);
}

static void exchange(int64_t *a, int64_t *b) {
    const int64_t other = *a;
    *a = *b;
    *b = other;
}

/* Fisher-Yates shuffle of the COUNT elements of INDEX, in Durstenfeld's form. */
static void shuffle(const struct sgrad__sampler *sampler, uint32_t epoch, uint32_t block, int64_t *index, int64_t count) {
    struct draws draws = { .seed = sampler->seed, .epoch = epoch, .block = block, .call = -1 };
    for (int64_t i = count - 1; i > 0; i--) exchange(&index[i], &index[draw(&draws, i, i + 1)]);
}

/* Shuffles the shards, then the samples within a moving window. */
static void shuffle_shards(struct sgrad__sampler *sampler, uint32_t epoch) {
    int64_t *shard = sgrad_xcalloc((size_t)sampler->shards, sizeof *shard), n = 0;
    for (int64_t s = 0; s < sampler->shards; s++) shard[s] = s;
    shuffle(sampler, epoch, 1, shard, sampler->shards);
    for (int64_t s = 0; s < sampler->shards; s++)
        for (int64_t i = sampler->shard[shard[s]]; i < sampler->shard[shard[s] + 1]; i++) sampler->index[n++] = i;
    assert(n == sampler->count);
    free(shard);
    struct draws draws = { .seed = sampler->seed, .epoch = epoch, .call = -1 };
    for (int64_t i = 0; i < n; i++)
        exchange(&sampler->index[i], &sampler->index[i + draw(&draws, i, sampler->window < n - i ? sampler->window : n - i)]);
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

/* Fills the positions source by source: those of EPOCH in the endless sequence of passes over each source, in which every pass
 * has its own random order. */
static void mix(struct sgrad__sampler *sampler, uint32_t epoch) {
    int64_t to = 0;
    for (int s = 0; s < sampler->sources; s++) {
        const struct sgrad_source *source = &sampler->source[s];
        const int64_t size = source->count;
        if (!source->quota) continue;
        const unsigned __int128 begin = (unsigned __int128)epoch * (uint64_t)source->quota;
        int64_t *mine = sgrad_xcalloc((size_t)size, sizeof *mine), at = (int64_t)(begin % (uint64_t)size);
        uint32_t pass = (uint32_t)(begin / (uint64_t)size);
        for (int64_t left = source->quota; left > 0; pass++, at = 0) {
            const int64_t taken = size - at < left ? size - at : left;
            for (int64_t i = 0; i < size; i++) mine[i] = source->first + i;
            if (sampler->shuffle && taken < size) shuffle(sampler, pass, UINT32_MAX - (uint32_t)s, mine, size);
            memcpy(sampler->index + to, mine + at, (size_t)taken * sizeof *mine);
            to += taken;
            left -= taken;
        }
        free(mine);
    }
    assert(to == sampler->count);
}

/* Without a random order: distributes the positions of each source evenly over the epoch. The next sample is always that of the
 * source which is most behind its share: one always is, because the shares of all sum to the number of positions. */
static void interleave(struct sgrad__sampler *sampler) {
    int64_t *from = sampler->index, *taken = sgrad_xcalloc((size_t)sampler->sources, sizeof *taken);
    sampler->index = sgrad_xcalloc((size_t)sampler->count, sizeof *sampler->index);
    for (int64_t i = 0; i < sampler->count; i++) {
        int next = 0;
        int64_t begin = 0, at = 0;
        __int128 most = 0;
        for (int s = 0; s < sampler->sources; begin += sampler->source[s++].quota) {
            const int64_t quota = sampler->source[s].quota;
            const __int128 behind = (__int128)quota * (i + 1) - (__int128)taken[s] * sampler->count;
            if (behind > most) most = behind, next = s, at = begin + taken[s];
        }
        sampler->index[i] = from[at];
        taken[next]++;
    }
    free(taken);
    free(from);
}

static void order(struct sgrad__sampler *sampler, uint32_t epoch) {
    if (!sampler->index) sampler->index = sgrad_xcalloc((size_t)sampler->count, sizeof *sampler->index);
    for (int64_t i = 0; i < sampler->count; i++) sampler->index[i] = i;
    if (sampler->sources) mix(sampler, epoch);
    if (sampler->label) balance(sampler, epoch);
    if (sampler->sources && !sampler->shuffle)
        interleave(sampler);            /* any other order of the files needs no index */
    else if (sampler->shards && !sampler->sources && !sampler->label)
        shuffle_shards(sampler, epoch);
    else
        shuffle(sampler, epoch, 0, sampler->index, sampler->count);
    sampler->epoch = epoch;
}

int64_t sgrad__sampler_index(struct sgrad__sampler *sampler, uint32_t epoch, int64_t position) {
    assert(position >= 0 && position < sampler->count);
    if (!sampler->shuffle && !sampler->sources) return position;
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
