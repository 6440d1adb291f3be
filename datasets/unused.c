/* unused.c: warns of classes without samples. Without training samples: labels may be counted from 1, or only test samples have a
 * class. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <stdlib.h>

char *sgrad_classes_absent(const char *const *name, int classes, const int32_t *label, int64_t count, bool quoted, int *absent) {
    enum { FEW = 5 };
    bool *used = sgrad_xcalloc((size_t)classes + 1, sizeof *used);
    char *list = NULL;
    *absent = 0;
    for (int64_t i = 0; i < count; i++)
        if (label[i] >= 0) used[label[i]] = true;
    for (int c = 0; c < classes; c++) {
        if (used[c]) continue;
        char *text = sgrad__class_name(name, c);
        sgrad__list_name(&list, absent, FEW, quoted, text);
        free(text);
    }
    free(used);
    return list;
}

void sgrad__warn_of_unused(const char *where, const int32_t *label, int64_t count, const struct sgrad_dataset *dataset) {
    int unused;
    char *list = sgrad_classes_absent(dataset->class_name, dataset->classes, label, count, false, &unused);
    if (unused && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: of %d classes, these have no training sample: %s%s", where, dataset->classes, list,
                          dataset->class_name ? "" : "; classes are counted from 0");
    free(list);
}

void sgrad__warn_of_absent(const char *where, const char *const *class_name, int classes, const int32_t *label, int64_t count) {
    int absent;
    char *list = sgrad_classes_absent(class_name, classes, label, count, class_name != NULL, &absent);
    if (absent && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: has no image of %d of the %d classes: %s", where, absent, classes, list);
    free(list);
}
