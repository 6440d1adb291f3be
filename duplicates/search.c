/* search.c: all pairs of hashes at a distance of at most the threshold, exactly, without comparing each with each.
 *
 * By *parts* (M. Norouzi, A. Punjani, D. J. Fleet, "Fast exact search in Hamming space with multi-index hashing", 2014): a hash
 * is cut into m parts. Of T differing bits some part has at most T/m, so for each part there is a table in which hashes with
 * like parts lie together, and a hash is compared with those alone whose part differs in so few bits. T = 10, m = 4:
 *
 *     10 = 4·2 + 2       parts 0, 1, 2 differ in 2 bits at most, or part 3 in 1 (else there were 3+3+3+2 = 11)
 *
 *     table of part 0    0…00 | 0…01 | 0…10 | 0…11 | …            a list each: hashes by that part, each list in order of images
 *     list 0…01 is compared with itself and the lists whose numbers differ from 0…01 in up to 2 bits
 *
 * By *weights*, for large thresholds: one table, of how many ones a hash has; lists so far apart that nobody is near are not
 * compared.
 *
 * Both are the same walk over a table: its lists, and which list is compared with which. A pair that several parts find counts
 * for the first of them. Before it is cut a hash's bits change places, so that neighbours, which are mostly alike, come to lie
 * in different parts. The cheaper way is chosen by what it is expected to compare.
 *
 * Pairs come in order of their first image. There is room for some; where they are more, the images are searched in stretches:
 * each stretch's with those behind them. */
#include "codelets/kernels.h"
#include "duplicates/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MOST = 64, BITS_MOST = 20, TILE = 2048, UNITS = 32 };

struct part {
    int first, bits;            /* of the hash */
    int radius;                 /* in which it differs at most; below 0: it need not be looked at */
};

struct plan {
    bool weights;
    int parts, threshold;
    struct part part[PARTS_MOST];
    double cost;                /* comparisons */
};

/* Positions in a table are hashes, sorted by list, then by image. */
struct table {
    int lists;
    uint32_t *start;            /* (lists + 1) */
    uint32_t *image;            /* by position */
    uint64_t *word;             /* (position,words) */
};

struct found {
    struct sgrad_pair *pair;
    int64_t count, room;
    int64_t told;               /* of count: those that the walk's sum has */
};

struct walk {
    const struct sgrad_search *search;
    const struct plan *plan;
    int current;                /* part */
    int words;
    int64_t images;             /* hashes that are there */
    uint64_t *word;             /* (images,words) with their bits in other places */
    uint32_t *image;            /* which each is: ascending */
    struct table table;
    uint32_t *mask;             /* what the numbers of two lists that are compared differ in */
    int masks;
    uint32_t from, to;          /* the stretch: images */
    uint32_t queries;
    bool whole;                 /* the stretch is all there is: each two lists are compared once, in whatever order of images */
    struct found *found;        /* of each unit */
    int units;
    int64_t most;
    _Atomic int64_t pairs;
};

/* ---- the plan ----------------------------------------------------------------------------------------------------- */

static double choose(int n, int k) {
    double c = 1;
    for (int i = 0; i < k; i++) c = c * (n - i) / (i + 1);
    return c;
}

/* Lists that are compared with one of BITS bits. */
static double neighbours(int bits, int radius) {
    double sum = 0;
    for (int r = 0; r <= radius && r <= bits; r++) sum += choose(bits, r);
    return sum;
}

static struct plan plan_parts(int bits, int threshold, int parts, double n) {
    struct plan plan = { .parts = parts, .threshold = threshold };
    for (int p = 0, first = 0; p < parts; p++) {
        struct part *part = &plan.part[p];
        *part = (struct part){ first, bits / parts + (p < bits % parts), threshold / parts - (p > threshold % parts) };
        first += part->bits;
        if (part->bits > BITS_MOST) part->bits = BITS_MOST; /* what it leaves out is looked at on comparison */
        if (part->radius < 0) continue;
        const double lists = (double)(1u << part->bits), visits = neighbours(part->bits, part->radius);
        plan.cost += visits * (10 * lists + n * n / lists / 2) + 20 * n;
        if (visits > 1 << 22) plan.cost = INFINITY;
    }
    return plan;
}

static struct plan make_plan(const struct sgrad_hashes *h, const struct sgrad_search *search, int64_t images) {
    const double n = (double)images;
    struct plan best = { .weights = true, .parts = 1, .threshold = search->threshold, .cost = n * n / 2 };
    best.part[0] = (struct part){ 0, h->bits, search->threshold };
    if (search->way == SGRAD_SEARCH_WEIGHTS) return best;
    if (search->way == SGRAD_SEARCH_PARTS) best.cost = INFINITY;
    for (int parts = h->bits / 16 - 1; parts <= h->bits / 4 && parts < PARTS_MOST; parts++) {
        const struct plan plan = plan_parts(h->bits, search->threshold, parts, n);
        if (plan.cost < best.cost) best = plan;
    }
    return best;
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */

SGRAD_ALWAYS_INLINE uint32_t part_of(const uint64_t *word, const struct part *part) {
    const int w = part->first / 64, shift = part->first % 64;
    uint64_t x = word[w] >> shift;
    if (shift && shift + part->bits > 64) x |= word[w + 1] << (64 - shift);
    return (uint32_t)(x & ((1ull << part->bits) - 1));
}

static uint32_t list_of(const struct walk *w, int64_t i) {
    const uint64_t *word = w->word + i * w->words;
    uint32_t ones = 0;
    if (!w->plan->weights) return part_of(word, &w->plan->part[w->current]);
    for (int j = 0; j < w->words; j++) ones += (uint32_t)__builtin_popcountll(word[j]);
    return ones;
}

static void table_make(struct walk *w) {
    struct table *t = &w->table;
    t->lists = w->plan->weights ? 64 * w->words + 1 : 1 << w->plan->part[w->current].bits;
    t->start = sgrad_alloc((size_t)t->lists + 2, sizeof *t->start);
    t->image = sgrad_alloc((size_t)w->images + 1, sizeof *t->image);
    t->word = sgrad_alloc((size_t)((w->images + 1) * w->words), sizeof *t->word);
    for (int64_t i = 0; i < w->images; i++) t->start[list_of(w, i) + 2]++;
    for (int l = 2; l <= t->lists + 1; l++) t->start[l] += t->start[l - 1];
    for (int64_t i = 0; i < w->images; i++) {
        const uint32_t at = t->start[list_of(w, i) + 1]++;
        t->image[at] = w->image[i];
        memcpy(t->word + (size_t)at * (size_t)w->words, w->word + i * w->words, (size_t)w->words * sizeof *w->word);
    }
}

static void table_free(struct table *t) {
    free(t->start);
    free(t->image);
    free(t->word);
    *t = (struct table){ 0 };
}

/* All numbers of BITS bits of which at most RADIUS are 1. */
static void masks_make(struct walk *w) {
    const struct part *part = &w->plan->part[w->current];
    w->masks = 0;
    if (w->plan->weights) return;
    const int count = (int)neighbours(part->bits, part->radius);
    w->mask = sgrad_alloc((size_t)count, sizeof *w->mask);
    for (int ones = 0; ones <= part->radius && ones <= part->bits; ones++) {
        uint32_t x = (1u << ones) - 1; /* the next larger with as many ones: HAKMEM 175 */
        do {
            w->mask[w->masks++] = x;
            const uint32_t low = x & -x, ripple = x + low;
            x = low ? ripple | ((x ^ ripple) >> 2) / low : 1u << part->bits;
        } while (x < 1u << part->bits);
    }
}

/* ---- the walk ------------------------------------------------------------------------------------------------------ */

/* The first of positions LOW to HIGH whose image is above IMAGE. */
SGRAD_ALWAYS_INLINE uint32_t above(const uint32_t *image, uint32_t low, uint32_t high, uint32_t than) {
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (image[middle] > than) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Has an earlier part found this pair? */
static bool is_old(const struct walk *w, const uint64_t *a, const uint64_t *b) {
    uint64_t differ[SGRAD_HASH_WORDS];
    for (int i = 0; i < w->words; i++) differ[i] = a[i] ^ b[i];
    for (int p = 0; p < w->current; p++)
        if (__builtin_popcount(part_of(differ, &w->plan->part[p])) <= w->plan->part[p].radius) return true;
    return false;
}

static void note(struct walk *w, struct found *found, const uint64_t *a, uint32_t position, uint32_t image, int distance) {
    const uint32_t third = w->table.image[position], other = third > image ? third : image;
    if (third < image) image = third;
    if (image >= w->queries) return;
    if (w->current && is_old(w, a, w->table.word + (size_t)position * (size_t)w->words)) return;
    if (found->count == found->room) {
        found->room = found->room ? 2 * found->room : 64;
        struct sgrad_pair *more = realloc(found->pair, (size_t)found->room * sizeof *more);
        if (!more) return (void)(w->pairs = INT64_MAX / 2), (void)(found->room = found->count);
        found->pair = more;
    }
    found->pair[found->count++] = (struct sgrad_pair){ image, other, (uint32_t)distance };
    if (found->count - found->told < TILE) return;
    w->pairs += TILE;
    found->told = found->count;
}

/* Hashes at positions FROM to TO with all in LIST, or, where they are in it themselves (OWN), those behind them. */
SGRAD_ALWAYS_INLINE void compare_all(struct walk *w, struct found *found, uint32_t from, uint32_t to, uint32_t list, bool own,
                                     int words) {
    const struct table *t = &w->table;
    const int threshold = w->search->threshold;
    for (uint32_t tile = t->start[list], stop; tile < t->start[list + 1]; tile = stop) {
        stop = t->start[list + 1] - tile > TILE ? tile + TILE : t->start[list + 1];
        for (uint32_t i = from; i < to && w->pairs <= w->most; i++) {
            const uint64_t *a = t->word + (size_t)i * (size_t)words;
            for (uint32_t j = own && tile <= i ? i + 1 : tile; j < stop; j++) {
                const int distance = sgrad_hash_distance(a, t->word + (size_t)j * (size_t)words, words);
                if (__builtin_expect(distance <= threshold, 0)) note(w, found, a, j, t->image[i], distance);
            }
        }
    }
}

/* Hashes at positions FROM to TO with those of later images in LIST. */
SGRAD_ALWAYS_INLINE void compare(struct walk *w, struct found *found, uint32_t from, uint32_t to, uint32_t list, int words) {
    const struct table *t = &w->table;
    const uint32_t *image = t->image;
    const int threshold = w->search->threshold;
    for (uint32_t tile = t->start[list], stop; tile < t->start[list + 1]; tile = stop) {
        stop = t->start[list + 1] - tile > TILE ? tile + TILE : t->start[list + 1];
        for (uint32_t i = from; i < to; i++) {
            const uint64_t *a = t->word + (size_t)i * (size_t)words;
            if (image[stop - 1] <= image[i] || w->pairs > w->most) break; /* those that follow are later still */
            for (uint32_t j = image[tile] > image[i] ? tile : above(image, tile, stop, image[i]); j < stop; j++) {
                const int distance = sgrad_hash_distance(a, t->word + (size_t)j * (size_t)words, words);
                if (distance <= threshold) note(w, found, a, j, image[i], distance);
            }
        }
    }
}

SGRAD_ALWAYS_INLINE void compare_list(struct walk *w, struct found *found, uint32_t list, uint32_t from, uint32_t to,
                                      uint32_t other, int words) {
    if (!w->whole) compare(w, found, from, to, other, words);
    else if (other >= list) compare_all(w, found, from, to, other, other == list, words);
}

SGRAD_ALWAYS_INLINE void walk_list(struct walk *w, struct found *found, uint32_t list, uint32_t from, uint32_t to, int words) {
    const struct table *t = &w->table;
    if (w->plan->weights) {
        const int low = (int)list - w->search->threshold, high = (int)list + w->search->threshold;
        for (int l = low < 0 ? 0 : low; l <= high && l < t->lists; l++)
            compare_list(w, found, list, from, to, (uint32_t)l, words);
    } else
        for (int m = 0; m < w->masks; m++) compare_list(w, found, list, from, to, list ^ w->mask[m], words);
}

/* Of the table's positions, one of UNITS parts; of its lists those images that belong to the stretch. */
SGRAD_VECTOR(walk_unit)(const struct sgrad_args *args) {
    struct walk *w = (struct walk *)args->attrs;
    const struct table *t = &w->table;
    struct found *found = &w->found[args->first];
    const uint32_t begin = (uint32_t)(w->images * args->first / w->units),
                   end = (uint32_t)(w->images * (args->first + 1) / w->units);
    uint32_t list = 0, high = (uint32_t)t->lists;
    while (high - list > 1) /* the last list that begins at BEGIN or before */
        if (t->start[(list + high) / 2] <= begin) list = (list + high) / 2;
        else high = (list + high) / 2;
    for (uint32_t at = begin; at < end; list++) {
        const uint32_t stop = t->start[list + 1] < end ? t->start[list + 1] : end;
        if (w->pairs > w->most) return;
        const uint32_t from = w->whole ? at : w->from ? above(t->image, at, stop, w->from - 1) : at;
        const uint32_t to = w->whole ? stop : above(t->image, from, stop, w->to - 1);
        if (from < to && w->words == 1) walk_list(w, found, list, from, to, 1);
        else if (from < to) walk_list(w, found, list, from, to, SGRAD_HASH_WORDS);
        at = stop;
    }
    w->pairs += found->count - found->told;
}

static double no_bytes(const struct sgrad_args *args) { return (void)args, 0; }

static int walk_table(struct walk *w) {
    static const struct sgrad_kernel kernel = { .name = "search", .cpu = walk_unit, .flops = sgrad_no_flops, .bytes = no_bytes };
    struct sgrad_call call = { .kernel = &kernel, .attrs = w };
    int error = 0;
    sgrad_call_prepare(&call);
    for (int u = 0; u < w->units && !error; u++)
        error = sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .first = u, .name = "search" });
    const int failed = sgrad_wait_all();
    return error ? error : failed;
}

/* ---- what was found, in order --------------------------------------------------------------------------------------- */

static int by_other(const void *a, const void *b) {
    const uint32_t x = ((const struct sgrad_pair *)a)->b, y = ((const struct sgrad_pair *)b)->b;
    return (x > y) - (x < y);
}

/* All units' pairs by their first image, told image by image. */
static int tell(struct walk *w) {
    const size_t images = (size_t)(w->to - w->from);
    int64_t *start = sgrad_alloc(images + 2, sizeof *start);
    for (int u = 0; u < w->units; u++)
        for (int64_t i = 0; i < w->found[u].count; i++) start[w->found[u].pair[i].a - w->from + 2]++;
    for (size_t i = 2; i < images + 2; i++) start[i] += start[i - 1];
    struct sgrad_pair *pair = sgrad_alloc((size_t)start[images + 1] + 1, sizeof *pair);
    for (int u = 0; u < w->units; u++)
        for (int64_t i = 0; i < w->found[u].count; i++)
            pair[start[w->found[u].pair[i].a - w->from + 1]++] = w->found[u].pair[i];
    int error = 0;
    for (size_t i = 0; i < images && !error; i++) {
        const int64_t count = start[i + 1] - start[i];
        qsort(pair + start[i], (size_t)count, sizeof *pair, by_other);
        if (count) error = w->search->see(w->search->arg, pair + start[i], count);
    }
    free(pair);
    free(start);
    return error;
}

/* One stretch: every part's table. *WHOLE is false where there was no room for all pairs. */
static int search_stretch(struct walk *w, bool *whole) {
    int error = 0;
    w->pairs = 0;
    for (w->current = 0; w->current < w->plan->parts && !error && w->pairs <= w->most; w->current++) {
        if (w->plan->part[w->current].radius < 0) continue;
        table_make(w);
        masks_make(w);
        error = walk_table(w);
        free(w->mask);
        w->mask = NULL;
        table_free(&w->table);
    }
    *whole = w->pairs <= w->most;
    if (!error && *whole) error = tell(w);
    for (int u = 0; u < w->units; u++) {
        free(w->found[u].pair);
        w->found[u] = (struct found){ 0 };
    }
    return error;
}

/* As many images at once as there is room for the pairs of; one image's alone always have it. */
static int search_all(struct walk *w) {
    const int64_t most = w->most;
    const uint32_t queries = w->queries;
    uint32_t stretch = queries;
    for (uint32_t from = 0; from < queries;) {
        bool whole;
        w->from = from;
        w->to = queries - from < stretch ? queries : from + stretch;
        w->whole = w->to - w->from == queries;
        w->most = w->to - w->from == 1 ? INT64_MAX : most;
        SGRAD_TRY(search_stretch(w, &whole));
        if (whole) from = w->to;
        else stretch = (w->to - w->from + 1) / 2;
        if (whole && w->pairs < w->most / 4 && stretch < queries / 2) stretch *= 2;
    }
    return 0;
}

/* Bit I goes where neighbours, I + 1 and I + a row's length, are far away: times an odd number. */
static void shuffle(const uint64_t *from, uint64_t *to, int words) {
    const unsigned bits = (unsigned)words * 64;
    for (int w = 0; w < words; w++) to[w] = 0;
    for (unsigned i = 0; i < bits; i++) {
        const unsigned at = i * 27 % bits;
        to[at / 64] |= (from[i / 64] >> i % 64 & 1) << at % 64;
    }
}

static void take_hashes(struct walk *w, const struct sgrad_hashes *h) {
    w->word = sgrad_alloc((size_t)((h->count + 1) * h->words), sizeof *w->word);
    w->image = sgrad_alloc((size_t)h->count + 1, sizeof *w->image);
    for (int64_t i = 0; i < h->count; i++) {
        if (!sgrad_hashes_has(h, i)) continue;
        shuffle(h->word + i * h->words, w->word + w->images * h->words, h->words);
        w->image[w->images++] = (uint32_t)i;
    }
}

int sgrad_hashes_search(const struct sgrad_hashes *hashes, const struct sgrad_search *search) {
    if (hashes->count >= UINT32_MAX)
        return sgrad_fail(SGRAD_EINVAL, "%lld images: a search takes less than 2^32", (long long)hashes->count);
    struct walk w = { .search = search, .words = hashes->words, .most = search->most ? search->most : 1 << 25,
                      .units = UNITS * sgrad_workers() };
    take_hashes(&w, hashes);
    const struct plan plan = make_plan(hashes, search, w.images);
    w.plan = &plan;
    w.found = sgrad_alloc((size_t)w.units, sizeof *w.found);
    w.queries = (uint32_t)(search->queries ? search->queries : hashes->count);
    int error = w.images > 1 ? search_all(&w) : 0;
    free(w.found);
    free(w.word);
    free(w.image);
    return error;
}
