/* exclude.c: leaves out the samples that the lines of a file name, by name or by number:
 *
 *     train/cat/2.jpg
 *     # seen twice
 *     5 */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 33)

char *sgrad_dataset_sample_name(const struct sgrad_dataset *dataset, int64_t index) {
    const int64_t i = sgrad__index_in_reader(dataset, index);
    if (dataset->id) return sgrad_format("%s", dataset->id[i]);
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

/* Returns the number of samples of the split before some were held out for the test split. */
static int64_t all_of(const struct sgrad_dataset *dataset) { return dataset->count + (dataset->kept ? dataset->held_out : 0); }

static struct named *list_names(const struct sgrad_dataset *dataset) {
    if (!dataset->reader->sample_name) return NULL;
    const int64_t all = all_of(dataset);
    struct named *named = sgrad_xcalloc((size_t)all, sizeof *named);
    for (int64_t i = 0; i < all; i++) named[i] = (struct named){ dataset->reader->sample_name(dataset, i), i };
    qsort(named, (size_t)all, sizeof *named, by_name);
    return named;
}

static void free_names(struct named *named, int64_t count) {
    for (int64_t i = 0; named && i < count; i++) free(named[i].name);
    free(named);
}

/* Returns the index in the reader of the sample that LINE names, by number or by name; -1: no such sample. NAMED may be NULL. */
static int64_t find(const struct sgrad_dataset *dataset, const struct named *named, char *line) {
    if (line[strspn(line, "0123456789")] == 0) {
        errno = 0;
        const long long number = strtoll(line, NULL, 10);
        return errno || number >= all_of(dataset) ? -1 : number;
    }
    const struct named key = { .name = line };
    const struct named *found = named ? bsearch(&key, named, (size_t)all_of(dataset), sizeof *named, by_name) : NULL;
    return found ? found->index : -1;
}

static int by_index(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sets OUT for sample INDEX of the reader, unless it is held out. */
static void leave_out(const struct sgrad_dataset *dataset, int64_t index, bool *out) {
    const int64_t *kept = dataset->kept;
    const int64_t *found = kept ? bsearch(&index, kept, (size_t)dataset->count, sizeof *kept, by_index) : NULL;
    if (!kept) out[index] = true;
    else if (found) out[found - kept] = true;
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
        if (sample >= 0) leave_out(dataset, sample, out);
        else if (*line && *line != '#')
            error = sgrad_log_error(
                SGRAD_EFORMAT, "%s: line %lld: '%.200s' is not one of the %lld samples; give its number, from 0%s%.200s", file,
                (long long)row, line, (long long)all_of(dataset), named ? ", or its name, such as " : "",
                named ? named[0].name : "");
        free(line);
        at = stop ? stop + 1 : end;
    }
    free_names(named, all_of(dataset));
    return error;
}

int sgrad__dataset_exclude(struct sgrad_dataset *dataset, const char *file) {
    struct sgrad_map map;
    struct stat status;
    if (!stat(file, &status) && S_ISREG(status.st_mode) && status.st_size == 0) return 0; /* the list is empty */
    SGRAD_TRY(sgrad_map_open(file, FILE_LIMIT, &map));
    bool *out = sgrad_xcalloc((size_t)dataset->count, sizeof *out);
    int error = mark(dataset, file, &map, out);
    sgrad_map_close(&map);
    const int64_t before = dataset->count, left_out = error ? 0 : sgrad__dataset_leave_out(dataset, out);
    if (left_out == before) error = sgrad_log_error(SGRAD_EFORMAT, "%s: excludes every sample", file);
    else dataset->excluded = left_out;
    free(out);
    return error;
}
