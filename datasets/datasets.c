/* datasets.c: opening a data set by its name, reading samples, closing it: the same for every kind. */
#include "config.h"

#include "datasets/datasets.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int find_reader(const char *kind, const char *argument, const struct sgrad_reader **reader) {
    const struct sgrad_reader *found = sgrad_record_find("dataset", kind, sgrad_readers);
    if (!found) return SGRAD_ENAME;
    if (found->argument && !argument)
        return sgrad_fail(SGRAD_EINVAL, "data set %s: its argument is missing: %s:%s", kind, kind, found->argument);
    if (!found->argument && argument) return sgrad_fail(SGRAD_EINVAL, "data set %s: takes no argument", kind);
    *reader = found;
    return 0;
}

int sgrad_dataset_open(const char *text, enum sgrad_split split, const struct sgrad_dataset_options *options,
                       struct sgrad_dataset **dataset) {
    const struct sgrad_reader *reader = NULL;
    const char *colon = strchr(text, ':');
    char *kind = sgrad_format("%.*s", (int)(colon ? colon - text : (ptrdiff_t)strlen(text)), text);
    const char *argument = colon && colon[1] ? colon + 1 : NULL;
    int error = find_reader(kind, argument, &reader);
    free(kind);
    SGRAD_TRY(error);

    struct sgrad_dataset *opened = sgrad_alloc(1, sizeof *opened);
    opened->reader = reader;
    opened->split = split;
    opened->augment = reader->augment;
    error = reader->open(opened, argument, options ? options : &(struct sgrad_dataset_options){ 0 });
    if (error) {
        sgrad_dataset_close(opened);
        return error;
    }
    assert(opened->count > 0 && opened->classes > 0 && opened->channels <= SGRAD_MAX_CHANNELS && opened->label);
    assert(opened->pixels || reader->read);
    *dataset = opened;
    return 0;
}

void sgrad_dataset_close(struct sgrad_dataset *dataset) {
    if (!dataset) return;
    if (dataset->reader->close && dataset->state) dataset->reader->close(dataset);
    sgrad_dataset_release(dataset);
    free(dataset);
}

void sgrad_dataset_release(struct sgrad_dataset *dataset) {
    free((void *)dataset->label);
    free((void *)dataset->pixels);
    dataset->label = NULL;
    dataset->pixels = NULL;
}

int sgrad_dataset_read(const struct sgrad_dataset *dataset, const int64_t *index, int n, uint8_t *pixels, int32_t *labels) {
    const size_t size = sgrad_dataset_sample_bytes(dataset);
    for (int i = 0; i < n; i++, pixels += size) {
        assert(index[i] >= 0 && index[i] < dataset->count);
        labels[i] = dataset->label[index[i]];
        if (dataset->pixels)
            memcpy(pixels, dataset->pixels + (size_t)index[i] * size, size);
        else
            SGRAD_TRY(dataset->reader->read(dataset, index[i], pixels));
    }
    return 0;
}
