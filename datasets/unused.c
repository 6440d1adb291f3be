/* unused.c: warns of classes without training samples: labels may be counted from 1, or only test samples have a class. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <stdlib.h>

void sgrad__warn_of_unused(const char *kind, const char *path, const int32_t *label, int64_t count,
                           const struct sgrad_dataset *dataset) {
    enum { FEW = 5 };
    bool *used = sgrad_xcalloc((size_t)dataset->classes, sizeof *used);
    char *list = NULL;
    int unused = 0;
    for (int64_t i = 0; i < count; i++)
        if (label[i] >= 0) used[label[i]] = true;
    for (int c = 0; c < dataset->classes; c++) {
        if (used[c]) continue;
        char *name = sgrad__class_name(dataset->class_name, c);
        sgrad__list_name(&list, &unused, FEW, false, name);
        free(name);
    }
    if (unused && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: %s: of %d classes, these have no training sample: %s%s", kind, path, dataset->classes, list,
                          dataset->class_name ? "" : "; classes are counted from 0");
    free(list);
    free(used);
}
