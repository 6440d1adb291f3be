/* search.c: finds all pairs of hashes with a distance of at most the threshold, exactly, without comparing all pairs.
 *
 * *Multi-index hashing* (M. Norouzi, A. Punjani, D. J. Fleet, "Fast exact search in Hamming space with multi-index hashing",
 * 2014): a hash is divided into m segments. If at most T bits differ, at most T/m bits differ in some segment. Therefore each
 * segment has a table with lists of the hashes that are equal in this segment, and a hash is compared only with hashes whose
 * segment differs in at most that many bits. T = 10, m = 4:
 *
 *     10 = 4·2 + 2       segments 0, 1, 2 differ in at most 2 bits, or segment 3 in at most 1 (else 3+3+3+2 = 11 differ)
 *
 *     table of segment 0     0…00 | 0…01 | 0…10 | 0…11 | …            one list per value of the segment, in order of images
 *     list 0…01 is compared with itself and with the lists whose values differ from 0…01 in up to 2 bits
 *
 * *Comparison by weights*, for large thresholds: one table with a list per number of ones in a hash. Lists whose numbers differ
 * by more than the threshold are not compared.
 *
 * Both algorithms use the same code: the lists of a table, and which lists are compared. A pair that several segments find counts
 * for the first of them. Before a hash is divided, its bits are permuted, so that neighbours, which are mostly equal, are in
 * different segments. plan.c chooses the algorithm.
 *
 * Pairs are reported in order of their first image. The memory for pairs is limited. If it is too small, the images are searched
 * in ranges: the images of each range are compared with those after them.
 *
 * If memory is limited, hashes are in a temporary file, and a table contains two shards of a segment's lists at a time. A shard
 * has the lists whose values begin with the same bits. Only shards whose numbers differ in at most as many bits as the radius are
 * compared. Four shards, radius 1:
 *
 *     shards      00  01  10  11          compared     00+00  00+01  00+10  01+01  01+11  10+10  10+11  11+11 */
#include "codelets/kernels.h"
#include "duplicates/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TILE = 2048, UNITS = 32, UNIT_LEAST = 256, SHARDS_MOST = 64, PAIRS_LEAST = 1024 };

/* A table: hashes, sorted by list, then by image. A position is an index in this order. */
struct table {
    int lists;
    uint32_t *size;             /* (lists): hashes, including those that are not in the table */
    uint32_t *start;            /* (lists + 1): position of the first hash of each list */
    uint32_t *image;            /* of each position */
    uint64_t *word;             /* (position,words) */
};

struct found {
    struct sgrad_pair *pair;
    int64_t count, room;
    int64_t counted;            /* of count: pairs that are included in pairs of struct walk */
};

struct walk {
    const struct sgrad_search *search;
    const struct sgrad__plan *plan;
    int current;                /* segment */
    int words;
    int64_t images;             /* number of hashes */
    uint64_t *word;             /* (images,words): the hashes with permuted bits */
    uint32_t *image;            /* image of each hash, ascending */
    bool disk;                  /* word and image are mapped from a file */
    struct table table;
    int64_t room;               /* maximum number of hashes in a table */
    int shift;                  /* shard of a list: its number >> shift */
    uint32_t one, other;        /* shards in the table */
    uint32_t *mask;             /* values in which two lists that are compared may differ (xor) */
    int masks;
    uint32_t from, to;          /* the range of images */
    uint32_t queries;
    bool whole;                 /* the range is all images: each two lists are compared once, in any order */
    struct found *found;        /* of each task */
    int units, tasks, busy;     /* tasks: at most; for the current table; most in the range */
    int64_t most;
    _Atomic int64_t pairs;
};

/* ---- tables -------------------------------------------------------------------------------------------------------- */

SGRAD_ALWAYS_INLINE uint32_t part_of(const uint64_t *word, const struct sgrad__part *part) {
    const int w = part->first / 64, shift = part->first % 64;
    uint64_t x = word[w] >> shift;
    if (shift && shift + part->bits > 64) x |= word[w + 1] << (64 - shift);
    return (uint32_t)(x & ((1ull << part->bits) - 1));
}

static uint32_t list_of(const struct walk *walk, int64_t i) {
    const uint64_t *word = walk->word + i * walk->words;
    uint32_t ones = 0;
    if (!walk->plan->weights) return part_of(word, &walk->plan->part[walk->current]);
    for (int j = 0; j < walk->words; j++) ones += (uint32_t)__builtin_popcountll(word[j]);
    return ones;
}

static void count_lists(struct walk *walk) {
    struct table *t = &walk->table;
    t->lists = walk->plan->weights ? 64 * walk->words + 1 : 1 << walk->plan->part[walk->current].bits;
    t->size = sgrad_xcalloc((size_t)t->lists, sizeof *t->size);
    for (int64_t i = 0; i < walk->images; i++) t->size[list_of(walk, i)]++;
}

/* Fills the table with the lists of the shards w->one and w->other. */
static void table_make(struct walk *walk) {
    struct table *t = &walk->table;
    uint32_t all = 0;
    t->start = sgrad_xcalloc((size_t)t->lists + 2, sizeof *t->start);
    for (uint32_t l = 0; l < (uint32_t)t->lists; l++) {
        t->start[l + 1] = all;
        if (l >> walk->shift == walk->one || l >> walk->shift == walk->other) all += t->size[l];
    }
    t->start[t->lists + 1] = all;
    t->image = sgrad_xcalloc((size_t)all + 1, sizeof *t->image);
    t->word = sgrad_xcalloc(((size_t)all + 1) * (size_t)walk->words, sizeof *t->word);
    for (int64_t i = 0; i < walk->images; i++) {
        const uint32_t list = list_of(walk, i);
        if (list >> walk->shift != walk->one && list >> walk->shift != walk->other) continue;
        const uint32_t at = t->start[list + 1]++;
        t->image[at] = walk->image[i];
        memcpy(t->word + (size_t)at * (size_t)walk->words, walk->word + i * walk->words,
               (size_t)walk->words * sizeof *walk->word);
    }
}

static void table_free(struct table *table) {
    free(table->start);
    free(table->image);
    free(table->word);
    table->start = table->image = NULL;
    table->word = NULL;
}

/* ---- shards --------------------------------------------------------------------------------------------------------- */

static uint32_t shards(const struct walk *walk) { return (((uint32_t)walk->table.lists - 1) >> walk->shift) + 1; }

static int64_t largest_shard(const struct walk *walk) {
    int64_t hashes[SHARDS_MOST + 1] = { 0 }, largest = 0;
    for (uint32_t l = 0; l < (uint32_t)walk->table.lists; l++) hashes[l >> walk->shift] += walk->table.size[l];
    for (uint32_t s = 0; s < shards(walk); s++)
        if (hashes[s] > largest) largest = hashes[s];
    return largest;
}

/* Chooses the smallest number of shards, at most SHARDS_MOST, of which two fit in a table. */
static void choose_shards(struct walk *walk) {
    for (walk->shift = 0; shards(walk) > 1;) walk->shift++;
    if (walk->images <= walk->room) return;
    while (2 * shards(walk) <= SHARDS_MOST && walk->shift > 0 && 2 * largest_shard(walk) > walk->room) walk->shift--;
}

/* Returns true if a list of one shard is compared with a list of the other. */
static bool shards_meet(const struct walk *walk) {
    const uint32_t distance = walk->other - walk->one;
    if (!walk->plan->weights) return __builtin_popcount(walk->one ^ walk->other) <= walk->plan->part[walk->current].radius;
    return distance == 0 || ((distance - 1) << walk->shift) + 1 <= (uint32_t)walk->search->threshold;
}

/* Sets w->mask to all numbers of the segment's width in which at most radius bits are 1. */
static void masks_make(struct walk *walk) {
    const struct sgrad__part *part = &walk->plan->part[walk->current];
    walk->masks = 0;
    if (walk->plan->weights) return;
    const int count = (int)sgrad__plan_lists(part->bits, part->radius);
    walk->mask = sgrad_xcalloc((size_t)count, sizeof *walk->mask);
    for (int ones = 0; ones <= part->radius && ones <= part->bits; ones++) {
        uint32_t x = (1u << ones) - 1; /* then the next larger number with as many ones: HAKMEM 175 */
        do {
            walk->mask[walk->masks++] = x;
            const uint32_t low = x & -x, ripple = x + low;
            x = low ? ripple | ((x ^ ripple) >> 2) / low : 1u << part->bits;
        } while (x < 1u << part->bits);
    }
}

/* ---- comparison ---------------------------------------------------------------------------------------------------- */

/* Returns the first of the positions LOW to HIGH - 1 whose image is above THAN; HIGH: no such position. */
SGRAD_ALWAYS_INLINE uint32_t above(const uint32_t *image, uint32_t low, uint32_t high, uint32_t than) {
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (image[middle] > than) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Returns true if an earlier segment has found this pair. */
static bool is_old(const struct walk *walk, const uint64_t *a, const uint64_t *b) {
    uint64_t differ[SGRAD_HASH_WORDS];
    for (int i = 0; i < walk->words; i++) differ[i] = a[i] ^ b[i];
    for (int p = 0; p < walk->current; p++)
        if (__builtin_popcount(part_of(differ, &walk->plan->part[p])) <= walk->plan->part[p].radius) return true;
    return false;
}

static void note(struct walk *walk, struct found *found, const uint64_t *a, uint32_t position, uint32_t image, int distance) {
    const uint32_t third = walk->table.image[position], other = third > image ? third : image;
    if (third < image) image = third;
    if (image >= walk->queries) return;
    if (walk->current && is_old(walk, a, walk->table.word + (size_t)position * (size_t)walk->words)) return;
    if (found->count == found->room) {
        found->room = found->room ? 2 * found->room : 64;
        struct sgrad_pair *more = realloc(found->pair, (size_t)found->room * sizeof *more);
        if (!more) return (void)(walk->pairs = INT64_MAX / 2), (void)(found->room = found->count);
        found->pair = more;
    }
    found->pair[found->count++] = (struct sgrad_pair){ image, other, (uint32_t)distance };
    if (found->count - found->counted < TILE) return;
    walk->pairs += TILE;
    found->counted = found->count;
}

/* Compares the hashes at positions FROM to TO - 1 with all of LIST, or, if they are in LIST themselves (OWN), with those after
 * them. */
SGRAD_ALWAYS_INLINE void compare_all(struct walk *walk, struct found *found, uint32_t from, uint32_t to, uint32_t list, bool own,
                                     int words) {
    const struct table *t = &walk->table;
    const int threshold = walk->search->threshold;
    for (uint32_t tile = t->start[list], stop; tile < t->start[list + 1]; tile = stop) {
        stop = t->start[list + 1] - tile > TILE ? tile + TILE : t->start[list + 1];
        for (uint32_t i = from; i < to && walk->pairs <= walk->most; i++) {
            const uint64_t *a = t->word + (size_t)i * (size_t)words;
            for (uint32_t j = own && tile <= i ? i + 1 : tile; j < stop; j++) {
                const int distance = sgrad_hash_distance(a, t->word + (size_t)j * (size_t)words, words);
                if (__builtin_expect(distance <= threshold, 0)) note(walk, found, a, j, t->image[i], distance);
            }
        }
    }
}

/* Compares the hashes at positions FROM to TO - 1 with those of later images in LIST. */
SGRAD_ALWAYS_INLINE void compare(struct walk *walk, struct found *found, uint32_t from, uint32_t to, uint32_t list, int words) {
    const struct table *t = &walk->table;
    const uint32_t *image = t->image;
    const int threshold = walk->search->threshold;
    for (uint32_t tile = t->start[list], stop; tile < t->start[list + 1]; tile = stop) {
        stop = t->start[list + 1] - tile > TILE ? tile + TILE : t->start[list + 1];
        for (uint32_t i = from; i < to; i++) {
            const uint64_t *a = t->word + (size_t)i * (size_t)words;
            if (image[stop - 1] <= image[i] || walk->pairs > walk->most) break; /* hashes after this one have later images */
            for (uint32_t j = image[tile] > image[i] ? tile : above(image, tile, stop, image[i]); j < stop; j++) {
                const int distance = sgrad_hash_distance(a, t->word + (size_t)j * (size_t)words, words);
                if (distance <= threshold) note(walk, found, a, j, image[i], distance);
            }
        }
    }
}

SGRAD_ALWAYS_INLINE void compare_list(struct walk *walk, struct found *found, uint32_t list, uint32_t from, uint32_t to,
                                      uint32_t other, int words) {
    if ((list >> walk->shift != other >> walk->shift) != (walk->one != walk->other))
        return; /* lists of one shard meet if one == other */
    if (!walk->whole) compare(walk, found, from, to, other, words);
    else if (other >= list) compare_all(walk, found, from, to, other, other == list, words);
}

SGRAD_ALWAYS_INLINE void walk_list(struct walk *walk, struct found *found, uint32_t list, uint32_t from, uint32_t to, int words) {
    const struct table *t = &walk->table;
    if (walk->plan->weights) {
        const int low = (int)list - walk->search->threshold, high = (int)list + walk->search->threshold;
        for (int l = low < 0 ? 0 : low; l <= high && l < t->lists; l++)
            compare_list(walk, found, list, from, to, (uint32_t)l, words);
    } else
        for (int m = 0; m < walk->masks; m++) compare_list(walk, found, list, from, to, list ^ walk->mask[m], words);
}

/* Compares the hashes of one task. The tasks divide the positions of the table equally; of each list, the images of the range
 * count. */
SGRAD_VECTOR(walk_unit)(const struct sgrad_args *args) {
    struct walk *w = (struct walk *)args->attrs;
    const struct table *t = &w->table;
    struct found *found = &w->found[args->first];
    const int64_t all = t->start[t->lists];
    const uint32_t begin = (uint32_t)(all * args->first / w->tasks), end = (uint32_t)(all * (args->first + 1) / w->tasks);
    uint32_t list = 0, high = (uint32_t)t->lists;
    while (high - list > 1) /* finds the last list that begins at BEGIN or before */
        if (t->start[(list + high) / 2] <= begin) list = (list + high) / 2;
        else high = (list + high) / 2;
    for (uint32_t at = begin; at < end; list++) {
        const uint32_t stop = t->start[list + 1] < end ? t->start[list + 1] : end;
        if (w->pairs > w->most) return;
        const uint32_t from = !w->whole && w->from ? above(t->image, at, stop, w->from - 1) : at;
        const uint32_t to = w->whole ? stop : above(t->image, from, stop, w->to - 1);
        if (from < to && w->words == 1) walk_list(w, found, list, from, to, 1);
        else if (from < to) walk_list(w, found, list, from, to, SGRAD_HASH_WORDS);
        at = stop;
    }
    w->pairs += found->count - found->counted;
}

static double no_bytes(const struct sgrad_args *args) { return (void)args, 0; }

static int by_images(const void *a, const void *b) {
    const struct sgrad_pair *p = a, *q = b;
    return p->a != q->a ? (p->a > q->a) - (p->a < q->a) : (p->b > q->b) - (p->b < q->b);
}

static void sort_unit(const struct sgrad_args *args) {
    const struct found *found = &((const struct walk *)args->attrs)->found[args->first];
    if (found->count) qsort(found->pair, (size_t)found->count, sizeof *found->pair, by_images);
}

static int run_units(struct walk *walk, const struct sgrad_kernel *kernel, int units) {
    struct sgrad_bound_kernel call = { .kernel = kernel, .attrs = walk };
    int error = 0;
    sgrad_bound_kernel_prepare(&call);
    for (int u = 0; u < units && !error; u++)
        error = sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .first = u, .name = kernel->name });
    const int failed = sgrad_wait_all();
    return error ? error : failed;
}

static int walk_table(struct walk *walk) {
    static const struct sgrad_kernel kernel = { .name = "search", .cpu = walk_unit, .flops = sgrad_no_flops, .bytes = no_bytes };
    const int64_t tasks = 1 + walk->table.start[walk->table.lists] / UNIT_LEAST;
    walk->tasks = tasks < walk->units ? (int)tasks : walk->units;
    if (walk->busy < walk->tasks) walk->busy = walk->tasks;
    return run_units(walk, &kernel, walk->tasks);
}

/* ---- the pairs in order --------------------------------------------------------------------------------------------- */

/* Collects the pairs of the next image in NEXT, from the sorted pairs of all tasks. AT has the position in each. Returns the
 * number of pairs; 0: there are no more. */
static int64_t next_image(const struct walk *walk, int64_t *at, struct found *next) {
    uint32_t image = UINT32_MAX;
    next->count = 0;
    for (int u = 0; u < walk->busy; u++)
        if (at[u] < walk->found[u].count && walk->found[u].pair[at[u]].a < image) image = walk->found[u].pair[at[u]].a;
    for (int u = 0; u < walk->busy; u++)
        for (; at[u] < walk->found[u].count && walk->found[u].pair[at[u]].a == image; at[u]++) {
            if (next->count == next->room) {
                struct sgrad_pair *more = sgrad_xcalloc((size_t)(next->room = 2 * next->room + 64), sizeof *more);
                if (next->count) memcpy(more, next->pair, (size_t)next->count * sizeof *more);
                free(next->pair);
                next->pair = more;
            }
            next->pair[next->count++] = walk->found[u].pair[at[u]];
        }
    if (next->count) qsort(next->pair, (size_t)next->count, sizeof *next->pair, by_images);
    return next->count;
}

/* Sorts the pairs of all tasks by their first image and passes them to search->see, image by image. */
static int pass_pairs(struct walk *walk) {
    static const struct sgrad_kernel kernel = { .name = "sort", .cpu = sort_unit, .flops = sgrad_no_flops, .bytes = no_bytes };
    struct found next = { 0 };
    SGRAD_TRY(run_units(walk, &kernel, walk->busy));
    int64_t *at = sgrad_xcalloc((size_t)walk->units, sizeof *at);
    int error = 0;
    while (!error && next_image(walk, at, &next)) error = walk->search->see(walk->search->arg, next.pair, next.count);
    free(next.pair);
    free(at);
    return error;
}

/* Searches one segment: each two shards that may have near hashes. */
static int search_part(struct walk *walk) {
    int error = 0;
    count_lists(walk);
    masks_make(walk);
    choose_shards(walk);
    for (walk->one = 0; walk->one < shards(walk); walk->one++)
        for (walk->other = walk->one; walk->other < shards(walk) && !error && walk->pairs <= walk->most; walk->other++) {
            if (!shards_meet(walk)) continue;
            table_make(walk);
            error = walk_table(walk);
            table_free(&walk->table);
        }
    free(walk->mask);
    free(walk->table.size);
    walk->mask = walk->table.size = NULL;
    return error;
}

/* Searches one range, with the tables of all segments. *WHOLE is false if there was no memory for all pairs. */
static int search_stretch(struct walk *walk, bool *whole) {
    int error = 0;
    walk->pairs = walk->busy = 0;
    for (walk->current = 0; walk->current < walk->plan->parts && !error && walk->pairs <= walk->most; walk->current++)
        if (walk->plan->part[walk->current].radius >= 0) error = search_part(walk);
    *whole = walk->pairs <= walk->most;
    if (!error && *whole) error = pass_pairs(walk);
    for (int u = 0; u < walk->units; u++) {
        free(walk->found[u].pair);
        walk->found[u] = (struct found){ 0 };
    }
    return error;
}

/* Searches ranges of as many images as there is memory for their pairs. A range of one image has no limit. */
static int search_all(struct walk *walk) {
    const int64_t most = walk->most;
    const uint32_t queries = walk->queries;
    uint32_t stretch = queries;
    for (uint32_t from = 0; from < queries;) {
        bool whole;
        walk->from = from;
        walk->to = queries - from < stretch ? queries : from + stretch;
        walk->whole = walk->to - walk->from == queries;
        walk->most = walk->to - walk->from == 1 ? INT64_MAX : most;
        SGRAD_TRY(search_stretch(walk, &whole));
        if (whole) from = walk->to;
        else stretch = (walk->to - walk->from + 1) / 2;
        if (whole && walk->pairs < walk->most / 4 && stretch < queries / 2) stretch *= 2;
    }
    return 0;
}

/* Permutes the bits: bit I goes to 27·I modulo their number, far from its neighbours, I + 1 and I + the length of a row. */
static void shuffle(const uint64_t *from, uint64_t *to, int words) {
    const unsigned bits = (unsigned)words * 64;
    for (int w = 0; w < words; w++) to[w] = 0;
    for (unsigned i = 0; i < bits; i++) {
        const unsigned at = i * 27 % bits;
        to[at / 64] |= (from[i / 64] >> i % 64 & 1) << at % 64;
    }
}

/* Allocates BYTES of memory, or maps an unlinked file, of which the system caches as much as fits in memory. SGRAD_EIO. */
static int take_room(const struct walk *walk, size_t bytes, void **room) {
    if (!walk->disk) return *room = sgrad_xcalloc(bytes, 1), 0;
    const char *folder = walk->search->folder ? walk->search->folder : P_tmpdir;
    char *path = sgrad_format("%s/search.XXXXXX", folder);
    const int fd = mkstemp(path);
    int failed = fd < 0 ? errno : 0;
    if (!failed) unlink(path);
    if (!failed) failed = posix_fallocate(fd, 0, (off_t)bytes);
    void *data = failed ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!failed && data == MAP_FAILED) failed = errno;
    if (fd >= 0) close(fd);
    free(path);
    if (failed)
        return sgrad_log_error(SGRAD_EIO, "%s: cannot allocate the %zu bytes of a search: %s", folder, bytes, strerror(failed));
    *room = data;
    return 0;
}

static void give_back(const struct walk *walk, void *room, size_t bytes) {
    if (!walk->disk) free(room);
    else if (room) munmap(room, bytes);
}

static void take_hashes(struct walk *walk, const struct sgrad_hashes *hashes) {
    for (int64_t i = 0; i < hashes->count; i++) {
        if (!sgrad_hashes_has(hashes, i)) continue;
        shuffle(hashes->word + i * hashes->words, walk->word + walk->images * hashes->words, hashes->words);
        walk->image[walk->images++] = (uint32_t)i;
    }
}

/* Half of the memory is for hashes, or, if these are on disk, for a table. The other half is for pairs, in arrays that double. */
static void divide_memory(struct walk *walk, int64_t count) {
    const int64_t hash = (int64_t)sizeof *walk->image + walk->words * (int64_t)sizeof *walk->word;
    const int64_t half = walk->search->memory / 2, pairs = half / (3 * (int64_t)sizeof(struct sgrad_pair));
    walk->room = INT64_MAX;
    walk->most = walk->search->most ? walk->search->most : 1 << 25;
    if (!walk->search->memory) return;
    walk->disk = 2 * hash * count > half;
    if (walk->disk) walk->room = half / hash;
    if (pairs < walk->most) walk->most = pairs < PAIRS_LEAST ? PAIRS_LEAST : pairs;
}

int sgrad_hashes_search(const struct sgrad_hashes *hashes, const struct sgrad_search *search) {
    const size_t count = (size_t)hashes->count + 1, words = count * (size_t)hashes->words * sizeof *hashes->word;
    if (hashes->count >= UINT32_MAX)
        return sgrad_log_error(SGRAD_EINVAL, "%lld images are too many; a search supports fewer than 2^32",
                               (long long)hashes->count);
    struct walk w = { .search = search, .words = hashes->words, .units = UNITS * sgrad_workers() };
    void *word = NULL, *image = NULL;
    divide_memory(&w, hashes->count);
    int error = take_room(&w, words, &word);
    if (!error) error = take_room(&w, count * sizeof *w.image, &image);
    w.word = word, w.image = image;
    if (!error) take_hashes(&w, hashes);
    const struct sgrad__plan plan = sgrad__plan_make(hashes->bits, search, w.images);
    w.plan = &plan;
    w.found = sgrad_xcalloc((size_t)w.units, sizeof *w.found);
    w.queries = (uint32_t)(search->queries ? search->queries : hashes->count);
    if (!error && w.images > 1) error = search_all(&w);
    free(w.found);
    give_back(&w, word, words);
    give_back(&w, image, count * sizeof *w.image);
    return error;
}
