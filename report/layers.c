/* layers.c: the time of each layer's tasks, on all workers, and the minimum time by the workers' rooflines. */
#include "report/overlap.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_time(const void *one, const void *other) {
    const struct sgrad__overlap_layer *a = one, *b = other;
    return (a->ms < b->ms) - (a->ms > b->ms);
}

/* Williams et al. 2009: a task takes at least as long as its arithmetic, and as the memory traffic of its operands. */
static double roof_ms(const struct sgrad__timeline_task *task, const struct sgrad__timeline_row *row) {
    return row->gflops > 0 && row->gbytes > 0 ? 1e3 * fmax(task->gflop / row->gflops, task->gbyte / row->gbytes) : 0;
}

int sgrad__layers_find(const struct sgrad__timeline *timeline, struct sgrad__overlap_layer **layer) {
    struct sgrad__overlap_layer *found = NULL;
    struct sgrad__numbers names = { 0 };
    for (int i = 0; i < timeline->tasks; i++) {
        const struct sgrad__timeline_task *task = &timeline->task[i];
        const int length = (int)strcspn(task->name, " "), known = names.count;
        const int n = sgrad__number(&names, task->name, (size_t)length);
        if (n == known) {
            found = sgrad_array_grow(found, n, sizeof *found);
            found[n] = (struct sgrad__overlap_layer){ .name = task->name, .length = length };
        }
        found[n].ms += task->end - task->begin;
        found[n].gflop += task->gflop;
        found[n].gbyte += task->gbyte;
        found[n].roof_ms += roof_ms(task, &timeline->row[task->worker]);
    }
    const int count = names.count;
    sgrad__numbers_free(&names);
    qsort(found, (size_t)count, sizeof *found, by_time);
    *layer = found;
    return count;
}
