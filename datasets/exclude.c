/* exclude.c: leaves out samples, by a list in a file or by a mask, and renumbers the remaining samples without gaps.
 *
 *     train/cat/2.jpg          reader's samples    0 1 2 3 4 5
 *     # seen twice             left out                x     x
 *     5                        kept                0 1   3 4
 *                              new numbers         0 1   2 3
 *
 * Fields in memory are compacted. For fields that are read on demand, dataset->kept maps a sample to its index in the reader. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 33)

int64_t sgrad__dataset_kept(const struct sgrad_dataset *dataset, int64_t index) {
    return dataset->kept ? dataset->kept[index] : index;
}

struct sgrad_sample sgrad__sample_in_reader(const struct sgrad_dataset *dataset, struct sgrad_sample sample) {
    sample.index = sgrad__dataset_kept(dataset, sample.index);
    return sample;
}

char *sgrad_dataset_sample_name(const struct sgrad_dataset *dataset, int64_t index) {
    const int64_t i = sgrad__dataset_kept(dataset, index);
    return dataset->reader->sample_name ? dataset->reader->sample_name(dataset, i) : sgrad_format("%lld", (long long)i);
}

/* The names of the samples, sorted by name. */
struct named {
    char *name;
    int64_t index;
};

static int by_name(const void *a, const void *b) {
    const struct named *one = a, *other = b;
    return strcmp(one->name, other->name);
}

static struct named *list_names(const struct sgrad_dataset *dataset) {
    if (!dataset->reader->sample_name) return NULL;
    struct named *named = sgrad_xcalloc((size_t)dataset->count, sizeof *named);
    for (int64_t i = 0; i < dataset->count; i++) named[i] = (struct named){ sgrad_dataset_sample_name(dataset, i), i };
    qsort(named, (size_t)dataset->count, sizeof *named, by_name);
    return named;
}

static void free_names(struct named *named, int64_t count) {
    for (int64_t i = 0; named && i < count; i++) free(named[i].name);
    free(named);
}

/* Returns the sample that LINE names, by number or by name; -1: there is none. NAMED may be NULL. */
static int64_t find(const struct sgrad_dataset *dataset, const struct named *named, char *line) {
    if (line[strspn(line, "0123456789")] == 0) {
        errno = 0;
        const long long number = strtoll(line, NULL, 10);
        return errno || number >= dataset->count ? -1 : number;
    }
    const struct named key = { .name = line };
    const struct named *found = named ? bsearch(&key, named, (size_t)dataset->count, sizeof *named, by_name) : NULL;
    return found ? found->index : -1;
}

/* Sets OUT for the samples that the lines of FILE name. SGRAD_EFORMAT: a line names no sample. */
static int mark(const struct sgrad_dataset *dataset, const char *file, const struct sgrad_map *map, bool *out) {
    struct named *named = list_names(dataset);
    const char *at = (const char *)map->data, *end = at + map->size;
    int error = 0;
    for (int64_t row = 1; at < end && !error; row++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        char *line = sgrad_format("%.*s", (int)((stop ? stop : end) - at), at);
        line[strcspn(line, "\r")] = 0;
        const int64_t sample = *line && *line != '#' ? find(dataset, named, line) : -1;
        if (sample >= 0) out[sample] = true;
        else if (*line && *line != '#')
            error =
                sgrad_log_error(SGRAD_EFORMAT, "%s: line %lld: '%.200s' is none of the %lld samples, by number from 0%s", file,
                                (long long)row, line, (long long)dataset->count, named ? " or by name (train/CLASS/FILE)" : "");
        free(line);
        at = stop ? stop + 1 : end;
    }
    free_names(named, dataset->count);
    return error;
}

/* Leaves out the samples with OUT set. KEPT is the number of the others. */
static void leave_out(struct sgrad_dataset *dataset, const bool *out, int64_t kept) {
    int64_t *which = sgrad_xcalloc((size_t)kept, sizeof *which), n = 0;
    for (int64_t i = 0; i < dataset->count; i++)
        if (!out[i]) which[n++] = i;
    for (struct sgrad_field *f = dataset->field; f->name; f++) {
        const size_t bytes = sgrad_field_bytes(f);
        char *data = (char *)f->data;
        for (int64_t i = 0; data && i < kept; i++) memmove(data + (size_t)i * bytes, data + (size_t)which[i] * bytes, bytes);
        char *less = data ? realloc(data, (size_t)kept * bytes) : NULL;
        if (less) f->data = less;
    }
    for (int64_t i = 0; i < kept; i++) which[i] = sgrad__dataset_kept(dataset, which[i]);
    free(dataset->kept);
    dataset->kept = which;
    dataset->count = kept;
}

int sgrad__dataset_leave_out(struct sgrad_dataset *dataset, const bool *out) {
    int64_t kept = 0;
    for (int64_t i = 0; i < dataset->count; i++) kept += !out[i];
    if (!kept) return sgrad_log_error(SGRAD_EFORMAT, "%s: none of the %lld %s samples can be read", dataset->reader->name,
                                      (long long)dataset->count, dataset->split == SGRAD_TRAIN ? "training" : "test");
    if (kept == dataset->count) return 0;
    dataset->damaged += dataset->count - kept;
    leave_out(dataset, out, kept);
    return 0;
}

int sgrad__dataset_exclude(struct sgrad_dataset *dataset, const char *file) {
    struct sgrad_map map;
    struct stat status;
    if (!stat(file, &status) && S_ISREG(status.st_mode) && status.st_size == 0) return 0; /* the list is empty */
    SGRAD_TRY(sgrad_map_open(file, FILE_LIMIT, &map));
    bool *out = sgrad_xcalloc((size_t)dataset->count, sizeof *out);
    int error = mark(dataset, file, &map, out);
    sgrad_map_close(&map);
    int64_t kept = 0;
    for (int64_t i = 0; i < dataset->count; i++) kept += !out[i];
    if (!error && !kept) error = sgrad_log_error(SGRAD_EFORMAT, "%s: leaves out every sample", file);
    if (!error && kept < dataset->count) {
        dataset->excluded = dataset->count - kept;
        leave_out(dataset, out, kept);
    }
    free(out);
    return error;
}
