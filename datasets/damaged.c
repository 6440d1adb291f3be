/* damaged.c: finds the samples that cannot be read, before a data set is used, and leaves them out. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

/* Returns the label of each sample; NULL: samples have no labels, or more than one each, or labels are not in memory. */
static const int32_t *labels_of(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *target = sgrad_dataset_target(dataset);
    return dataset->classes && !target->shape.rank ? target->data : NULL;
}

/* Warns of each class that had samples and loses all of them. */
static void warn_of_classes(const struct sgrad_dataset *dataset, const bool *out) {
    const int32_t *label = labels_of(dataset);
    int64_t *count[2] = { NULL };       /* per class: all samples, remaining samples */
    for (int i = 0; i < 2; i++) count[i] = sgrad_xcalloc((size_t)dataset->classes + 1, sizeof **count);
    for (int64_t i = 0; i < dataset->count && label; i++) count[0][label[i]]++, count[1][label[i]] += !out[i];
    for (int c = 0; c < dataset->classes; c++)
        if (count[0][c] && !count[1][c])
            sgrad_log_warning("class %s: none of its %lld %s samples can be read",
                              dataset->class_name ? dataset->class_name[c] : "?", (long long)count[0][c],
                              dataset->split == SGRAD_TRAIN ? "training" : "test");
    for (int i = 0; i < 2; i++) free(count[i]);
}

/* Returns LIST, which may be NULL, with the line REASON appended. Frees LIST. The caller must free the result. */
static char *append(char *list, const char *reason) {
    char *more = sgrad_format("%s%s\n", list ? list : "", reason);
    free(list);
    return more;
}

/* Leaves out the samples with OUT[i] set. SGRAD_EFORMAT: these are all samples. */
static int leave_out(struct sgrad_dataset *dataset, const bool *out) {
    const int64_t before = dataset->count, left_out = sgrad__dataset_leave_out(dataset, out);
    if (left_out == before)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: none of the %lld %s samples can be read", dataset->reader->name,
                               (long long)before, dataset->split == SGRAD_TRAIN ? "training" : "test");
    dataset->damaged += left_out;
    return 0;
}

int sgrad_dataset_skip_damaged(struct sgrad_dataset *dataset, bool warns, char **list) {
    const int64_t count = dataset->count;
    char **reason = sgrad_xcalloc((size_t)count, sizeof *reason);
    bool *out = sgrad_xcalloc((size_t)count, sizeof *out);
    int error = sgrad__dataset_find_damaged(dataset, reason);
    for (int64_t i = 0; i < count; i++) {
        out[i] = reason[i];
        if (reason[i] && !error && warns) sgrad_log_warning("%s; this sample is left out", reason[i]);
        if (reason[i] && !error && list) *list = append(*list, reason[i]);
    }
    if (!error && warns) warn_of_classes(dataset, out);
    if (!error) error = leave_out(dataset, out);
    for (int64_t i = 0; i < count; i++) free(reason[i]);
    free(reason);
    free(out);
    return error;
}
