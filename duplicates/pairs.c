/* pairs.c: evaluates the pairs of near images: counts them by relation, decides which images are dropped, and writes the lists.
 *
 *     pairs of image 0, 1, 2, …, in this order       (0,3) 2 bits    (0,4) 7 bits    (3,4) 1 bit
 *     threshold 2                                    0 drops 3                       3 is dropped, so it drops no image
 *     threshold 7                                    0 drops 3       0 drops 4
 *
 * All thresholds up to options.threshold, at most 64, are evaluated in the same pass, with one bit each in a word per image. So a
 * sweep, and the slider of the page, need no further search. */
#include "duplicates/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct evaluation {
    struct sgrad_dataset *const *part;
    const struct sgrad_hashes *hashes;
    const struct sgrad_duplicates_options *options;
    struct sgrad_duplicates *found;
    struct sgrad_file file;         /* pairs.jsonl */
    int64_t write;                  /* maximum number of pairs to write */
};

char *sgrad__image_name(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i) {
    const bool test = i >= hashes->train;
    const struct sgrad_dataset *dataset = sgrad__part_of(part, hashes, &i);
    char *name = sgrad_dataset_sample_name(dataset, i);
    if (!test || dataset->reader->sample_name) return name;
    char *of_test = sgrad_format("test:%s", name);
    free(name);
    return of_test;
}

int sgrad__image_class(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i) {
    const struct sgrad_dataset *dataset = sgrad__part_of(part, hashes, &i);
    const int32_t *label = dataset->classes ? sgrad_dataset_target(dataset)->data : NULL;
    return label ? label[i] : -1;
}

static enum sgrad_relation relation_of(const struct evaluation *e, const struct sgrad_pair *pair) {
    if (pair->b >= e->hashes->train) return SGRAD_LEAK;
    const bool same =
        sgrad__image_class(e->part, e->hashes, pair->a) == sgrad__image_class(e->part, e->hashes, pair->b);
    return same ? SGRAD_WITHIN : SGRAD_ACROSS;
}

/* Returns the levels, as bits, whose thresholds are at least DISTANCE. */
static uint64_t levels_of(const struct sgrad_duplicates *duplicates, uint32_t distance) {
    const int level = (int)distance > duplicates->first ? (int)distance - duplicates->first : 0;
    return duplicates->levels == 64 ? ~0ull << level : ((1ull << duplicates->levels) - 1) & ~0ull << level;
}

static void count(struct evaluation *e, const struct sgrad_pair *pair, enum sgrad_relation relation) {
    struct sgrad_duplicates *d = e->found;
    d->pairs[relation]++;
    d->relation[pair->a] |= (uint8_t)(1 << relation);
    d->relation[pair->b] |= (uint8_t)(1 << relation);
    if (relation == SGRAD_LEAK)
        d->leaks_of_class +=
            sgrad__image_class(e->part, e->hashes, pair->a) == sgrad__image_class(e->part, e->hashes, pair->b);
    for (uint64_t levels = levels_of(d, pair->distance); levels; levels &= levels - 1)
        d->near[relation][__builtin_ctzll(levels)]++;
    if (d->kept < e->options->pairs_kept) d->pair[d->kept++] = *pair;
}

/* Writes the name of image I as a JSON string, "train/cat/1.jpg", or as a number. */
static void put_name(struct evaluation *e, int64_t i) {
    char *name = sgrad__image_name(e->part, e->hashes, i);
    const bool number = name[strspn(name, "0123456789")] == 0;
    if (!number) putc('"', e->file.stream);
    for (const char *c = name; *c; c++)
        if (*c == '"' || *c == '\\') fprintf(e->file.stream, "\\%c", *c);
        else if ((unsigned char)*c < ' ') fprintf(e->file.stream, "\\u%04x", *c);
        else putc(*c, e->file.stream);
    if (!number) putc('"', e->file.stream);
    free(name);
}

static void write_pair(struct evaluation *e, const struct sgrad_pair *pair) {
    fputs("{\"a\":", e->file.stream);
    put_name(e, pair->a);
    fputs(",\"b\":", e->file.stream);
    put_name(e, pair->b);
    fprintf(e->file.stream, ",\"distance\":%u}\n", pair->distance);
    e->found->written++;
}

/* Evaluates all pairs of one image; called in the order of images. With options.across, an image near a test sample is dropped
 * before it could drop others. */
static int evaluate_image(void *arg, const struct sgrad_pair *pair, int64_t pairs) {
    struct evaluation *e = arg;
    struct sgrad_duplicates *d = e->found;
    uint64_t *drop = &d->drop[pair->a];
    for (int64_t i = pairs - 1; i >= 0 && pair[i].b >= e->hashes->train && e->options->across; i--)
        *drop |= levels_of(d, pair[i].distance);
    for (int64_t i = 0; i < pairs; i++) {
        const enum sgrad_relation relation = relation_of(e, &pair[i]);
        count(e, &pair[i], relation);
        if (relation == SGRAD_WITHIN || (relation == SGRAD_ACROSS && e->options->across))
            d->drop[pair[i].b] |= levels_of(d, pair[i].distance) & ~*drop;
        if (e->file.stream && d->written < e->write) write_pair(e, &pair[i]);
    }
    return 0;
}

/* Estimates the number of near pairs within classes that are not duplicates. Images of two classes are rarely duplicates, so the
 * fraction of them that is near is that of unrelated images. */
static double expect_by_chance(const struct evaluation *e) {
    const bool known = e->hashes->train > 0 && sgrad__image_class(e->part, e->hashes, 0) >= 0;
    const int classes = known ? e->part[0]->classes : 1;
    double *images = sgrad_xcalloc((size_t)classes, sizeof *images), all = 0, within = 0;
    for (int64_t i = 0; i < e->hashes->train; i++)
        if (sgrad_hashes_has(e->hashes, i)) images[known ? sgrad__image_class(e->part, e->hashes, i) : 0]++;
    for (int k = 0; k < classes; k++) all += images[k], within += images[k] * (images[k] - 1) / 2;
    free(images);
    const double across = all * (all - 1) / 2 - within;
    return across > 0 ? within * (double)e->found->pairs[SGRAD_ACROSS] / across : 0;
}

static void add_up(struct evaluation *e) {
    struct sgrad_duplicates *d = e->found;
    for (int64_t i = 0; i < e->hashes->count; i++)
        for (int r = 0; r < SGRAD_RELATIONS; r++)
            if (i < e->hashes->train) d->images[r] += d->relation[i] >> r & 1;
            else if (r == SGRAD_LEAK) d->tests += d->relation[i] >> r & 1;
    for (int64_t i = 0; i < e->hashes->train; i++)
        for (uint64_t levels = d->drop[i]; levels; levels &= levels - 1) d->drops[__builtin_ctzll(levels)]++;
    d->dropped = d->drops[d->levels - 1];
    d->chance = expect_by_chance(e);
}

static char *path_of(const char *folder, const char *name) { return sgrad_format("%s/%s", folder, name); }

int sgrad_duplicates_find(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                          const struct sgrad_duplicates_options *options, struct sgrad_duplicates *found) {
    const int first = options->threshold < SGRAD_LEVELS_MOST ? 0 : options->threshold - SGRAD_LEVELS_MOST + 1;
    struct sgrad_duplicates d = { .threshold = options->threshold, .first = first, .levels = options->threshold - first + 1 };
    struct evaluation e = { part, hashes, options, &d, { 0 }, options->pairs_written ? options->pairs_written : 10000000 };
    const struct sgrad_search search = {
        .threshold = options->threshold, .queries = hashes->train, .memory = options->memory, .folder = options->folder,
        .see = evaluate_image, .arg = &e
    };
    char *path = options->folder ? path_of(options->folder, "pairs.jsonl") : NULL;
    int error = path ? sgrad_file_begin(path, &e.file) : 0;
    free(path);
    SGRAD_TRY(error);
    d.drop = sgrad_xcalloc((size_t)hashes->train, sizeof *d.drop);
    d.relation = sgrad_xcalloc((size_t)hashes->count, 1);
    d.pair = sgrad_xcalloc((size_t)options->pairs_kept + 1, sizeof *d.pair);
    error = sgrad_hashes_search(hashes, &search);
    if (error && options->folder) sgrad_file_abort(&e.file);
    if (!error && options->folder) error = sgrad_file_commit(&e.file);
    if (error) return sgrad_duplicates_free(&d), error;
    add_up(&e);
    *found = d;
    return 0;
}

void sgrad_duplicates_free(struct sgrad_duplicates *found) {
    free(found->drop);
    free(found->relation);
    free(found->pair);
}

/* ---- lists ---------------------------------------------------------------------------------------------------------- */

/* Selects the training samples of a list. */
struct wanted {
    const struct sgrad_hashes *hashes;
    const struct sgrad_duplicates *found;
    int level;          /* -1: nothing is dropped */
};
static bool is_dropped(const struct wanted *wanted, int64_t i) {
    return !sgrad_hashes_has(wanted->hashes, i) || (wanted->level >= 0 && wanted->found->drop[i] >> wanted->level & 1);
}
static bool is_kept(const struct wanted *wanted, int64_t i) { return !is_dropped(wanted, i); }
static bool is_leak(const struct wanted *wanted, int64_t i) { return wanted->found->relation[i] >> SGRAD_LEAK & 1; }

static int write_list(const struct sgrad_dataset *train, const struct wanted *wanted, bool (*has)(const struct wanted *, int64_t),
                      const char *path) {
    struct sgrad_file file;
    SGRAD_TRY(sgrad_file_begin(path, &file));
    for (int64_t i = 0; i < train->count; i++) {
        if (!has(wanted, i)) continue;
        char *name = sgrad_dataset_sample_name(train, i);
        if (strchr(name, '\n'))
            sgrad_log_warning("%s: a file is missing from this list, because its name has a line break", path);
        else fprintf(file.stream, "%s\n", name);
        free(name);
    }
    return sgrad_file_commit(&file);
}

int sgrad_duplicates_write_level(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                                 const struct sgrad_duplicates *found, int level, const char *path) {
    return write_list(train, &(struct wanted){ hashes, found, level }, is_dropped, path);
}

int sgrad_duplicates_write(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                           const struct sgrad_duplicates *found, const char *folder) {
    static const struct {
        const char *name;
        bool (*has)(const struct wanted *, int64_t);
    } lists[] = { { "keep.txt", is_kept }, { "drop.txt", is_dropped }, { "leaks.txt", is_leak } };
    const struct wanted wanted = { hashes, found, found->levels - 1 };
    int error = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !error; i++) {
        char *path = path_of(folder, lists[i].name);
        error = write_list(part[0], &wanted, lists[i].has, path);
        free(path);
    }
    return error;
}
