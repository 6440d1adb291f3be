/* The search finds every near pair once, in order. Both algorithms are compared with a comparison of all pairs: at many
 * thresholds, for hashes that are spread, clustered or identical, of 64 and 256 bits, with little memory, and without some
 * images. */
#include "config.h"
#include "duplicates/duplicates.h"
#include "runtime/philox.h"
#include "tests/scratch.h"

enum { COUNT = 500 };
static struct sgrad_context *context;

static int open_context(void **state) {
    if (scratch_open(state)) return -1;
    return sgrad_context_open(&(struct sgrad_context_options){ .cpus = 2, .gpus = -1 }, &context);
}

static int close_context(void **state) {
    sgrad_context_close(context);
    return scratch_close(state);
}

struct list {
    const struct sgrad_hashes *hashes;
    struct sgrad_pair *pair;
    int64_t count, room, calls, fails_at;
};

static void append(struct list *list, struct sgrad_pair pair) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 1024;
        list->pair = realloc(list->pair, (size_t)list->room * sizeof pair);
    }
    list->pair[list->count++] = pair;
}

static int see(void *arg, const struct sgrad_pair *pair, int64_t pairs) {
    struct list *list = arg;
    assert_true(pairs > 0);
    if (++list->calls == list->fails_at) return SGRAD_EINTR;
    for (int64_t i = 0; i < pairs; i++) {
        assert_int_equal(pair[i].a, pair[0].a);
        append(list, pair[i]);
    }
    return 0;
}

static void each_with_each(const struct sgrad_hashes *hashes, int threshold, int64_t queries, struct list *list) {
    const int words = hashes->words;
    for (uint32_t a = 0; a < queries; a++)
        for (uint32_t b = a + 1; b < hashes->count; b++) {
            const int distance = sgrad_hash_distance(hashes->word + a * words, hashes->word + b * words, words);
            if (distance > threshold || !sgrad_hashes_has(hashes, a) || !sgrad_hashes_has(hashes, b)) continue;
            append(list, (struct sgrad_pair){ a, b, (uint32_t)distance });
        }
}

static void compare(const struct sgrad_hashes *hashes, struct sgrad_search search) {
    struct list expected = { .hashes = hashes }, found = { .hashes = hashes };
    each_with_each(hashes, search.threshold, search.queries ? search.queries : hashes->count, &expected);
    search.see = see;
    search.arg = &found;
    assert_done(sgrad_hashes_search(hashes, &search));
    assert_int_equal(found.count, expected.count);
    if (found.count) assert_memory_equal(found.pair, expected.pair, (size_t)found.count * sizeof *found.pair);
    free(expected.pair);
    free(found.pair);
}

/* COUNT hashes: SPREAD of them drawn, the others one of these with up to FLIPS bits changed; 0 FLIPS: as it is. */
static struct sgrad_hashes make(int bits, int count, int spread, int flips) {
    struct sgrad_hashes h = { .bits = bits, .words = bits / 64, .train = count, .count = count };
    h.word = sgrad_xcalloc((size_t)(count * h.words), sizeof *h.word);
    h.state = sgrad_xcalloc((size_t)count, 1);
    for (int i = 0; i < count; i++) {
        uint64_t *word = h.word + i * h.words;
        for (int w = 0; w < h.words; w++) {
            const struct sgrad_random r = sgrad_philox(3, 0, 0, (uint64_t)(i < spread ? i : i % spread), (uint32_t)w);
            word[w] = (uint64_t)r.word[0] << 32 | r.word[1];
        }
        for (int f = 0; i >= spread && f < flips; f++) {
            const uint32_t bit = sgrad_philox(4, 0, 0, (uint64_t)i, (uint32_t)f).word[0] % (uint32_t)bits;
            word[bit / 64] ^= 1ull << bit % 64;
        }
    }
    return h;
}

static void release(struct sgrad_hashes *hashes) {
    free(hashes->word);
    free(hashes->state);
}

static void thresholds(void **state) {
    (void)state;
    static const int all[] = { 0, 1, 2, 3, 4, 5, 7, 10, 12, 16, 21, 32, 63, 64 };
    for (int flips = 0; flips <= 24; flips += 8) {
        struct sgrad_hashes h = make(64, COUNT / 2, 40, flips);
        for (size_t t = 0; t < sizeof all / sizeof *all; t++)
            for (int way = SGRAD_SEARCH_CHEAPEST; way <= SGRAD_SEARCH_WEIGHTS; way++)
                if (way != SGRAD_SEARCH_SEGMENTS || all[t] <= 12)
                    compare(&h, (struct sgrad_search){ .threshold = all[t], .method = way });
        release(&h);
    }
}

static void spread(void **state) {
    (void)state;
    struct sgrad_hashes h = make(64, 4 * COUNT, 3 * COUNT, 9);
    for (int threshold = 0; threshold <= 10; threshold += 5)
        for (int way = SGRAD_SEARCH_CHEAPEST; way <= SGRAD_SEARCH_WEIGHTS; way++)
            compare(&h, (struct sgrad_search){ .threshold = threshold, .method = way });
    release(&h);
}

static void long_hashes(void **state) {
    (void)state;
    struct sgrad_hashes h = make(256, COUNT / 2, 60, 40);
    for (int threshold = 0; threshold <= 60; threshold += 10)
        for (int way = SGRAD_SEARCH_CHEAPEST; way <= SGRAD_SEARCH_WEIGHTS; way++)
            if (way != SGRAD_SEARCH_SEGMENTS || threshold <= 40)
                compare(&h, (struct sgrad_search){ .threshold = threshold, .method = way });
    release(&h);
}

/* All alike: as many pairs as there can be, and room for a few. */
static void little_room(void **state) {
    (void)state;
    struct sgrad_hashes h = make(64, 150, 1, 0);
    for (int64_t most = 1; most < 100000; most *= 7) compare(&h, (struct sgrad_search){ .threshold = 4, .most = most });
    release(&h);
    h = make(64, COUNT, 100, 6);
    compare(&h, (struct sgrad_search){ .threshold = 10, .most = 500 });
    release(&h);
}

/* Bounded memory: hashes lie in a file, tables have some of the lists at a time. Whatever the bound, the pairs are the same. */
static void little_memory(void **state) {
    (void)state;
    static const int64_t bounds[] = { 3000, 8000, 16000, 1 << 20 }; /* the last is enough */
    for (int bits = 64; bits <= 256; bits *= 4) {
        struct sgrad_hashes h = make(bits, COUNT, COUNT / 2, 9);
        for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
            for (int way = SGRAD_SEARCH_SEGMENTS; way <= SGRAD_SEARCH_WEIGHTS; way++)
                compare(&h,
                        (struct sgrad_search){ .threshold = 8, .method = way, .memory = bounds[b], .folder = scratch_path("") });
        compare(&h, (struct sgrad_search){ .threshold = 4, .most = 100, .memory = 8000 });
        release(&h);
    }
    struct sgrad_hashes h = make(64, 150, 1, 0);
    compare(&h, (struct sgrad_search){ .threshold = 4, .memory = 1 });
    assert_fails(sgrad_hashes_search(&h, &(struct sgrad_search){ .memory = 1, .folder = scratch_path("none") }), SGRAD_EIO,
                 "cannot allocate the ");
    release(&h);
}

/* The first so many ask; images that have no hash are near nobody. */
static void parts_of_a_set(void **state) {
    (void)state;
    struct sgrad_hashes h = make(64, COUNT, 100, 6);
    for (int64_t queries = 1; queries < COUNT; queries = queries * 3 + 1)
        compare(&h, (struct sgrad_search){ .threshold = 8, .queries = queries });
    for (int i = 0; i < COUNT; i += 3) h.state[i] = i % 2 ? SGRAD_IMAGE_DAMAGED : SGRAD_IMAGE_DEEP;
    h.state[COUNT - 1] = SGRAD_IMAGE_SKIPPED;
    compare(&h, (struct sgrad_search){ .threshold = 8 });
    memset(h.state, SGRAD_IMAGE_DAMAGED, COUNT);
    compare(&h, (struct sgrad_search){ .threshold = 8 });
    h.state[7] = 0;
    compare(&h, (struct sgrad_search){ .threshold = 64 });
    release(&h);
}

static void who_sees_ends_it(void **state) {
    (void)state;
    struct sgrad_hashes h = make(64, COUNT, 100, 0);
    struct list list = { .fails_at = 5 };
    assert_int_equal(sgrad_hashes_search(&h, &(struct sgrad_search){ .threshold = 3, .see = see, .arg = &list }), SGRAD_EINTR);
    assert_int_equal(list.calls, 5);
    free(list.pair);
    release(&h);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the search finds every near pair at every threshold", thresholds),
        sentence("the search finds every near pair among spread hashes", spread),
        sentence("the search finds every near pair of 256 bits", long_hashes),
        sentence("the search finds every pair with buffers for a few", little_room),
        sentence("the search finds the same pairs with little memory", little_memory),
        sentence("the search leaves out images without a hash, and can be limited to some queries", parts_of_a_set),
        sentence("the search ends if its callback requests it", who_sees_ends_it),
    };
    return run_sentences(argc, argv, tests, open_context, close_context);
}
