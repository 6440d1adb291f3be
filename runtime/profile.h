/* profile.h: profiling of tasks and workers. Disabled until one of the profile functions is called. */
#ifndef SGRAD_RUNTIME_PROFILE_H
#define SGRAD_RUNTIME_PROFILE_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* profile starts to sum the times of CALL's tasks on CPU workers, or resets the sum to 0. The first call must precede all tasks
 * of CALL. took returns the sum in seconds and stores the number of tasks in *TASKS; both are 0 without profiling. */
void sgrad_bound_kernel_profile(struct sgrad_bound_kernel *call);
double sgrad_bound_kernel_took(const struct sgrad_bound_kernel *call, int64_t *tasks);

/* Returns the mean seconds of CALL's tasks on WORKER in earlier runs, without profiling, if there is at least one measurement
 * (sgrad_bound_kernel_expected requires ten); NAN: there is none. */
double sgrad_bound_kernel_mean(const struct sgrad_bound_kernel *call, int worker);

/* profile enables StarPU's worker profiling and resets its counters. busy reports worker I, from 0, of this process: its name
 * ("cpu0", "cuda1") in NAME of SIZE bytes, and in *SHARE the fraction of time, 0 to 1, that it spent in tasks since the previous
 * call. It resets the worker's counters. Returns false if there is no worker I. */
void sgrad_workers_profile(void);
bool sgrad_worker_busy(int i, char *name, size_t size, double *fraction);

/* The time of CPU workers outside tasks: scheduling, release of dependencies, messages. Idle time, with no task ready, is
 * excluded. It covers the time since sgrad_workers_profile, or since the last call of sgrad_workers_overhead or
 * sgrad_worker_busy, because these use the same counters of StarPU. */
struct sgrad_overhead {
    double all, usual;      /* seconds: the total of all workers; the median gap between two profiled tasks of a worker, at most
                             * all / tasks, because most gaps are idle time if workers mostly wait */
    int64_t tasks;          /* tasks run on CPU workers */
};
struct sgrad_overhead sgrad_workers_overhead(void);

/* The time that workers wait for tasks that are overdue: tasks that only wait for moves between memory and a file. Counted once
 * sgrad_workers_watch has been called. overdue changes the number of overdue tasks by CHANGE. awaited returns the seconds so far
 * in which a worker had no task while tasks were overdue: the mean over all workers. */
void sgrad_workers_watch(void);
void sgrad_workers_overdue(int change);
double sgrad_workers_awaited(void);

#ifdef __cplusplus
}
#endif

#endif
