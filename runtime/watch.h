/* watch.h: what tasks take, and what workers do, from when somebody asks. */
#ifndef SGRAD_RUNTIME_WATCH_H
#define SGRAD_RUNTIME_WATCH_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds up what CALL's tasks take on CPU workers, from here on; at first before any of them runs. Then: seconds of *TASKS. */
void sgrad_call_watch(struct sgrad_call *call);
double sgrad_call_took(const struct sgrad_call *call, int64_t *tasks);

/* How busy workers are: from here on StarPU counts, anew. The I-th worker of this process, its name ("cpu0", "cuda1"), and the
 * share of its time since the last call that it spent in tasks; false: there are not so many. */
void sgrad_workers_watch(void);
bool sgrad_worker_busy(int i, char *name, size_t size, double *share);

/* What CPU workers spend beside TASKS: choosing them, what becomes ready by them, messages; not when they had none to choose.
 * ALL seconds of all of them; and those of a USUAL gap between two watched tasks of one, the middle one, but no more than a task
 * has of ALL (where workers mostly wait, most gaps are waiting). Since sgrad_workers_watch, or the last call of this or of
 * sgrad_worker_busy, which have StarPU's counts in common. */
struct sgrad_overhead {
    double all, usual;
    int64_t tasks;
};
struct sgrad_overhead sgrad_workers_overhead(void);

#ifdef __cplusplus
}
#endif

#endif
