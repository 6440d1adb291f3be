/* guide.c: estimates how far apart the hashes of unrelated images are, from random pairs.
 *
 *     distance           0 … 10 … 20 … 32 … 64
 *     pairs of a class         .  ::  ::: :          the fraction of pairs up to a threshold is the rate of false duplicates;
 *     pairs of two             .   :  ::: ::         the maximum over the classes is used
 *
 * A random pair is rarely a pair of duplicates: in a set of n images with d duplicates each, with probability d/n. If a set
 * consists of duplicates, these count as unrelated images, so the estimate is too high, never too low. */
#include "codelets/kernels.h"
#include "duplicates/internal.h"
#include "runtime/philox.h"

#include <stdlib.h>

enum { DRAWS = 2000000, CLASS_LEAST = 20000, CLASS_MOST = 400000, SMALL = 450, ACROSS = 10, SHARE = DRAWS / 2 / ACROSS };
enum { LENGTH = 64 * SGRAD_HASH_WORDS + 1 };

/* The training images that have hashes, by class: those of class k are image[start[k]] to image[start[k + 1] - 1]. */
struct classes {
    int count;
    int64_t *start, *image;
};

static struct classes sort_classes(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes) {
    const int32_t *label = train->classes ? sgrad_dataset_target(train)->data : NULL;
    struct classes c = { .count = label ? train->classes : 1 };
    c.start = sgrad_xcalloc((size_t)c.count + 2, sizeof *c.start);
    c.image = sgrad_xcalloc((size_t)hashes->train + 1, sizeof *c.image);
    for (int64_t i = 0; i < hashes->train; i++)
        if (sgrad_hashes_has(hashes, i)) c.start[(label ? label[i] : 0) + 2]++;
    for (int k = 2; k <= c.count + 1; k++) c.start[k] += c.start[k - 1];
    for (int64_t i = 0; i < hashes->train; i++)
        if (sgrad_hashes_has(hashes, i)) c.image[c.start[(label ? label[i] : 0) + 1]++] = i;
    return c;
}

/* The work is divided into one task per class, and ACROSS tasks for pairs of two classes. Each task counts its pairs by
 * distance. */
struct draws {
    const struct sgrad_hashes *hashes;
    const struct classes *classes;
    const int32_t *label;
    uint64_t seed;
    int64_t (*distance)[LENGTH];        /* (classes + ACROSS) */
};

/* Draws two different numbers below N. */
SGRAD_ALWAYS_INLINE void draw(const uint32_t word[2], int64_t n, int64_t *a, int64_t *b) {
    *a = (int64_t)((uint64_t)word[0] * (uint64_t)n >> 32);
    *b = (int64_t)((uint64_t)word[1] * (uint64_t)(n - 1) >> 32);
    *b += *b >= *a;
}

/* Draws pairs FROM to TO - 1 of the N images from index FIRST on. One call of Philox gives two pairs. With ACROSS, pairs of one
 * class are skipped. */
SGRAD_ALWAYS_INLINE void sample(const struct draws *draws, int64_t first, int64_t n, uint32_t stream, uint32_t from, uint32_t to,
                                bool across, int64_t *distance) {
    const int64_t *image = draws->classes->image + first;
    const struct sgrad_hashes *h = draws->hashes;
    for (uint32_t i = from; i < to && n > 1; i += 2) {
        const struct sgrad_random random = sgrad_philox(draws->seed, SGRAD_STREAM_PAIRS, stream, i, 0);
        for (int half = 0; half < 2; half++) {
            int64_t a, b;
            draw(random.word + 2 * half, n, &a, &b);
            a = image[a], b = image[b];
            if (across && draws->label[a] == draws->label[b]) continue;
            distance[sgrad_hash_distance(h->word + a * h->words, h->word + b * h->words, h->words)]++;
        }
    }
}

SGRAD_VECTOR(sample_unit)(const struct sgrad_args *args) {
    const struct draws *d = args->attrs;
    const int64_t *start = d->classes->start;
    const int classes = d->classes->count, unit = (int)args->first, part = unit - classes;
    const int64_t draws = sgrad_clamp(DRAWS / classes, CLASS_LEAST, CLASS_MOST);
    int64_t *distance = d->distance[unit];
    if (part < 0) sample(d, start[unit], start[unit + 1] - start[unit], 1 + (uint32_t)unit, 0, (uint32_t)draws, false, distance);
    else sample(d, 0, start[classes], 0, SHARE * (uint32_t)part, SHARE * (uint32_t)(part + 1), true, distance);
}

static double no_bytes(const struct sgrad_args *args) { return (void)args, 0; }

static int sample_all(const struct draws *draws) {
    static const struct sgrad_kernel kernel = {
        .name = "sample", .cpu = sample_unit, .flops = sgrad_no_flops, .bytes = no_bytes
    };
    struct sgrad_bound_kernel call = { .kernel = &kernel, .attrs = draws };
    const int units = draws->classes->count + (draws->classes->count > 1 ? ACROSS : 0);
    int error = 0;
    sgrad_bound_kernel_prepare(&call);
    for (int u = 0; u < units && !error; u++)
        error = sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .first = u, .name = "sample" });
    const int failed = sgrad_wait_all();
    return error ? error : failed;
}

static int64_t add(int64_t *to, const int64_t *from) {
    int64_t all = 0;
    for (int d = 0; d < LENGTH; d++) all += from[d], to[d] += from[d];
    return all;
}

/* Updates the maximum over the classes of the fraction of pairs up to each distance, and the sums. */
static void take_worst(const int64_t *distance, struct sgrad_guide *guide) {
    const int64_t all = add(guide->distance[0], distance);
    int64_t sum = 0;
    for (int d = 0; d < LENGTH && all; d++) {
        sum += distance[d];
        const double share = (double)sum / (double)all;
        if (guide->worst[d] < share) guide->worst[d] = share;
    }
    guide->pairs[0] += all;
}

/* Adds up all tasks. Classes with so few images that one pair of duplicates weighs too much count as one class. */
static void add_up(const struct draws *draws, struct sgrad_guide *guide) {
    const struct classes *c = draws->classes;
    int64_t few[LENGTH] = { 0 };
    for (int k = 0; k < c->count; k++)
        if (c->start[k + 1] - c->start[k] < SMALL) add(few, draws->distance[k]);
        else take_worst(draws->distance[k], guide);
    take_worst(few, guide);
    for (int u = c->count; u < c->count + ACROSS; u++) guide->pairs[1] += add(guide->distance[1], draws->distance[u]);
}

int sgrad_guide_sample(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes, uint64_t seed,
                       struct sgrad_guide *guide) {
    struct classes c = sort_classes(train, hashes);
    struct draws draws = { hashes, &c, sgrad_dataset_target(train)->data, seed, NULL };
    struct sgrad_guide g = { .automatic = -1 };
    draws.distance = sgrad_xcalloc((size_t)c.count + ACROSS, sizeof *draws.distance);
    int error = sample_all(&draws);
    add_up(&draws, &g);
    while (g.pairs[0] && g.automatic < hashes->bits && g.worst[g.automatic + 1] < SGRAD_FALSE_RATE) g.automatic++;
    if (!error) *guide = g;
    free(draws.distance);
    free(c.start);
    free(c.image);
    return error;
}
