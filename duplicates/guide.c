/* guide.c: how far apart the hashes of unrelated images are, from pairs drawn at random.
 *
 *     distance           0 … 10 … 20 … 32 … 64
 *     pairs of a class         .  ::  ::: :          the share up to a threshold is how often it takes strangers for
 *     pairs of two             .   :  ::: ::         duplicates, in the worst class at least so often
 *
 * A pair drawn at random hardly ever belongs together: of n images with d duplicates each it does once in n/d. Where a set
 * consists of duplicates these count as strangers, so that the estimate is too high, never too low. */
#include "duplicates/internal.h"
#include "runtime/philox.h"

#include <stdlib.h>

enum { DRAWS = 2000000, CLASS_LEAST = 20000, CLASS_MOST = 400000, SMALL = 450 };

/* The training images of each class that have hashes: of class k those from start[k] to start[k + 1]. */
struct classes {
    int count;
    int64_t *start, *image;
};

static struct classes sort_classes(const struct sgrad_dataset *train, const struct sgrad_hashes *h) {
    const int32_t *label = train->classes ? sgrad_dataset_target(train)->data : NULL;
    struct classes c = { .count = label ? train->classes : 1 };
    c.start = sgrad_alloc((size_t)c.count + 2, sizeof *c.start);
    c.image = sgrad_alloc((size_t)h->train + 1, sizeof *c.image);
    for (int64_t i = 0; i < h->train; i++)
        if (sgrad_hashes_has(h, i)) c.start[(label ? label[i] : 0) + 2]++;
    for (int k = 2; k <= c.count + 1; k++) c.start[k] += c.start[k - 1];
    for (int64_t i = 0; i < h->train; i++)
        if (sgrad_hashes_has(h, i)) c.image[c.start[(label ? label[i] : 0) + 1]++] = i;
    return c;
}

/* Two different numbers below N and M; of one list (SAME) two different ones. */
static void draw(uint64_t seed, uint32_t stream, uint32_t i, int64_t n, int64_t m, bool same, int64_t *a, int64_t *b) {
    const struct sgrad_random random = sgrad_philox(seed, SGRAD_STREAM_PAIRS, stream, i, 0);
    *a = (int64_t)(((uint64_t)random.word[0] << 32 | random.word[1]) % (uint64_t)n);
    *b = (int64_t)(((uint64_t)random.word[2] << 32 | random.word[3]) % (uint64_t)(m - same));
    if (same && *b >= *a) ++*b;
}

static int distance(const struct sgrad_hashes *h, int64_t a, int64_t b) {
    return sgrad_hash_distance(h->word + a * h->words, h->word + b * h->words, h->words);
}

/* The share of pairs up to each distance, if it is the worst so far. */
static void take_worst(const int64_t *count, int bits, struct sgrad_guide *g) {
    int64_t all = 0, sum = 0;
    for (int d = 0; d <= bits; d++) all += count[d];
    for (int d = 0; d <= bits && all; d++) {
        sum += count[d];
        const double share = (double)sum / (double)all;
        if (g->worst[d] < share) g->worst[d] = share;
        g->distance[0][d] += count[d];
    }
    g->pairs[0] += all;
}

/* Adds pairs of one class to COUNT, by distance. */
static void sample_class(const struct sgrad_hashes *h, const struct classes *c, int class, uint64_t seed, int64_t *count) {
    const int64_t first = c->start[class], n = c->start[class + 1] - first;
    int64_t draws = DRAWS / c->count;
    draws = draws < CLASS_LEAST ? CLASS_LEAST : draws > CLASS_MOST ? CLASS_MOST : draws;
    for (int64_t i = 0; i < draws && n > 1; i++) {
        int64_t a, b;
        draw(seed, 1 + (uint32_t)class, (uint32_t)i, n, n, true, &a, &b);
        count[distance(h, c->image[first + a], c->image[first + b])]++;
    }
}

/* Classes of so few images that one pair of duplicates weighs too much count as one. */
static void sample_within(const struct sgrad_hashes *h, const struct classes *c, uint64_t seed, struct sgrad_guide *g) {
    int64_t few[64 * SGRAD_HASH_WORDS + 1] = { 0 };
    for (int k = 0; k < c->count; k++) {
        int64_t count[64 * SGRAD_HASH_WORDS + 1] = { 0 };
        const bool small = c->start[k + 1] - c->start[k] < SMALL;
        sample_class(h, c, k, seed, small ? few : count);
        if (!small) take_worst(count, h->bits, g);
    }
    take_worst(few, h->bits, g);
}

static void sample_across(const struct sgrad_hashes *h, const struct classes *c, const int32_t *label, uint64_t seed,
                          struct sgrad_guide *g) {
    const int64_t n = c->start[c->count];
    for (uint32_t i = 0; i < DRAWS / 2 && c->count > 1 && n > 1; i++) {
        int64_t a, b;
        draw(seed, 0, i, n, n, true, &a, &b);
        a = c->image[a], b = c->image[b];
        if (label[a] == label[b]) continue;
        g->distance[1][distance(h, a, b)]++;
        g->pairs[1]++;
    }
}

void sgrad_guide_sample(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes, uint64_t seed,
                        struct sgrad_guide *guide) {
    struct classes c = sort_classes(train, hashes);
    *guide = (struct sgrad_guide){ .automatic = -1 };
    sample_within(hashes, &c, seed, guide);
    sample_across(hashes, &c, sgrad_dataset_target(train)->data, seed, guide);
    while (guide->pairs[0] && guide->automatic < hashes->bits && guide->worst[guide->automatic + 1] < SGRAD_FALSE_RATE)
        guide->automatic++;
    free(c.start);
    free(c.image);
}
