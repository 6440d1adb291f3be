/* workers.c: measures the load of the workers of all ranks.
 *
 * Every rank writes the busy fractions of its workers after its vote (input.c). They are summed together with the votes, so that
 * no additional message is needed:
 *
 *     rank 0   vote │ cpu0 cpu1 │  0    0             votes │ rank0/cpu0 rank0/cpu1 │ rank1/cpu0 rank1/cpu1
 *     rank 1   vote │  0    0   │ cpu0 cpu1     sum   votes │ rank0/cpu0 rank0/cpu1 │ rank1/cpu0 rank1/cpu1 */
#include "graphs/compiler/program.h"
#include "runtime/profile.h"

#include <stdlib.h>

/* The workers of one rank. */
struct list {
    int count;
    char name[SGRAD_MAX_WORKERS][16];
};

static struct list own_workers(void) {
    struct list list = { 0 };
    double share;
    while (list.count < SGRAD_MAX_WORKERS &&
           sgrad_worker_busy(list.count, list.name[list.count], sizeof *list.name, &share))
        list.count++;
    return list;
}

struct sgrad__workers *sgrad__workers_watch(const struct sgrad_context *context, bool asked) {
    sgrad_ranks_broadcast(&asked, sizeof asked, 0);
    if (!asked) return NULL;
    sgrad_workers_profile();
    struct sgrad__workers *w = sgrad_xcalloc(1, sizeof *w);
    for (int r = 0; r < context->ranks; r++) {
        struct list list = own_workers();
        sgrad_ranks_broadcast(&list, sizeof list, r);
        if (r == context->rank) w->first = w->count, w->own = list.count;
        for (int i = 0; i < list.count; i++) {
            const char *name = list.name[i];
            w->name = sgrad_array_grow(w->name, w->count, sizeof *w->name);
            w->name[w->count++] = context->ranks > 1 ? sgrad_format("rank%d/%s", r, name) : sgrad_format("%s", name);
        }
    }
    return w;
}

void sgrad__workers_busy(const struct sgrad__workers *workers, double *share) {
    char name[16];
    for (int i = 0; i < workers->count; i++) share[i] = 0;
    for (int i = 0; i < workers->own; i++) sgrad_worker_busy(i, name, sizeof name, &share[workers->first + i]);
}

void sgrad__workers_free(struct sgrad__workers *workers) {
    if (!workers) return;
    for (int i = 0; i < workers->count; i++) free(workers->name[i]);
    free(workers->name);
    free(workers);
}
