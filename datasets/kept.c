/* kept.c: leaves out samples, which a list names (exclude.c) or which are damaged (damaged.c), and renumbers the others without
 * gaps.
 *
 *     reader's samples    0 1 2 3 4 5
 *     left out                x     x
 *     kept                0 1   3 4
 *     new numbers         0 1   2 3
 *
 * Fields in memory are compacted. A reader keeps its numbers: dataset->kept maps a sample to its index in the reader. Every call
 * of a reader for one sample takes the index from sgrad__index_in_reader. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "datasets/mixture.h"

#include <stdlib.h>
#include <string.h>

int64_t sgrad__index_in_reader(const struct sgrad_dataset *dataset, int64_t index) {
    return dataset->kept ? dataset->kept[index] : index;
}

struct sgrad_sample sgrad__sample_in_reader(const struct sgrad_dataset *dataset, struct sgrad_sample sample) {
    sample.index = sgrad__index_in_reader(dataset, sample.index);
    return sample;
}

/* Moves the samples WHICH[0…count-1], in ascending order, to the front of the field, and frees the memory of the others. */
static void compact(struct sgrad_field *field, const int64_t *which, int64_t count) {
    const size_t bytes = sgrad_field_bytes(field);
    char *data = (char *)field->data;
    if (!data) return;
    for (int64_t i = 0; i < count; i++) memmove(data + (size_t)i * bytes, data + (size_t)which[i] * bytes, bytes);
    char *less = realloc(data, (size_t)count * bytes);
    if (less) field->data = less;
}

/* Renumbers the first samples of the shards: those of WHICH[0…kept-1], in ascending order, remain. A shard may become empty. */
static void renumber_shards(struct sgrad_dataset *dataset, const int64_t *which, int64_t kept) {
    int64_t i = 0;
    for (int64_t s = 0; s <= dataset->shards && dataset->first; s++) {
        while (i < kept && which[i] < dataset->first[s]) i++;
        dataset->first[s] = i;
    }
}

int64_t sgrad__dataset_leave_out(struct sgrad_dataset *dataset, const bool *out) {
    int64_t left_out = 0, n = 0;
    for (int64_t i = 0; i < dataset->count; i++) left_out += out[i];
    const int64_t kept = dataset->count - left_out;
    if (!left_out || !kept) return left_out;
    int64_t *which = sgrad_xcalloc((size_t)kept, sizeof *which);
    for (int64_t i = 0; i < dataset->count; i++)
        if (!out[i]) which[n++] = i;
    for (struct sgrad_field *f = dataset->field; f->name; f++) compact(f, which, kept);
    renumber_shards(dataset, which, kept);
    sgrad__mixture_leave_out(dataset, which, kept);
    for (int64_t i = 0; i < kept; i++) which[i] = sgrad__index_in_reader(dataset, which[i]);
    free(dataset->kept);
    dataset->kept = which;
    dataset->count = kept;
    return left_out;
}
