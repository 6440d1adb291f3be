/* profile.c: measures the time of tasks, and the time of workers between tasks, once profiling is enabled.
 *
 *     worker   ██ task ██ · schedules, frees, copies messages ██ task ██ ·········· no task is ready ·········· ██ task ██
 *              task time             a gap                                      a gap, and idle time
 *
 * Limits: only tasks on CPUs are measured. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/profile.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <starpu.h>
#include <stdlib.h>
#include <string.h>

struct sgrad_tally {
    _Atomic int64_t tasks, nanoseconds;
};
enum { BINS_AN_OCTAVE = 8, BINS = 40 * BINS_AN_OCTAVE };    /* from 1 ns on; the last bin has all longer gaps */
static _Atomic int64_t gap[BINS];                           /* gaps between two profiled tasks of a worker */
static _Thread_local double ended;

/* ---- tasks ---- */

void sgrad_bound_kernel_profile(struct sgrad_bound_kernel *call) {
    if (!call->tally) call->tally = sgrad_xcalloc(1, sizeof *call->tally);
    atomic_store(&call->tally->tasks, 0);
    atomic_store(&call->tally->nanoseconds, 0);
}

static void note_gap(double seconds) {
    const double bin = BINS_AN_OCTAVE * log2(fmax(1e9 * seconds, 1));
    atomic_fetch_add(&gap[bin < BINS - 1 ? (int)bin : BINS - 1], 1);
}

double sgrad__watch_begin(const struct sgrad_bound_kernel *call) {
    if (!call->tally) {
        ended = 0;      /* the gap after this task is not between profiled tasks */
        return 0;
    }
    const double begin = sgrad_time_monotonic();
    if (ended > 0) note_gap(begin - ended);
    return begin;
}

void sgrad__watch_end(const struct sgrad_bound_kernel *call, double begin) {
    if (begin <= 0) return;
    ended = sgrad_time_monotonic();
    atomic_fetch_add(&call->tally->tasks, 1);
    atomic_fetch_add(&call->tally->nanoseconds, (int64_t)(1e9 * (ended - begin)));
}

double sgrad_bound_kernel_took(const struct sgrad_bound_kernel *call, int64_t *tasks) {
    *tasks = call->tally ? atomic_load(&call->tally->tasks) : 0;
    return *tasks ? 1e-9 * (double)atomic_load(&call->tally->nanoseconds) : 0;
}

/* ---- workers ---- */

static void forget_gaps(void) {
    for (int i = 0; i < BINS; i++) atomic_store(&gap[i], 0);
}

void sgrad_workers_profile(void) {
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    for (int w = 0; w < (int)starpu_worker_get_count(); w++) starpu_profiling_worker_get_info(w, NULL);
    forget_gaps();
}

/* As sgrad_worker_is_cuda of context.c, which this file must not use, because context.c depends on it through other files. */
static bool is_cuda(int worker) { return starpu_worker_get_type(worker) == STARPU_CUDA_WORKER; }

static double seconds(struct timespec time) { return 1e-6 * starpu_timing_timespec_to_us(&time); }

bool sgrad_worker_busy(int i, char *name, size_t size, double *share) {
    struct starpu_profiling_worker_info info;
    if (i >= (int)starpu_worker_get_count() || starpu_profiling_worker_get_info(i, &info)) return false;
    const double total = seconds(info.total_time);
    snprintf(name, size, "%s%d", is_cuda(i) ? "cuda" : "cpu", starpu_worker_get_devid(i));
    *share = total > 0 ? seconds(info.executing_time) / total : 0;
    return true;
}

static double middle_gap(void) {
    int64_t count = 0, below = 0;
    int i = 0;
    for (int j = 0; j < BINS; j++) count += atomic_load(&gap[j]);
    while (i < BINS - 1 && 2 * (below + atomic_load(&gap[i])) < count) below += atomic_load(&gap[i++]);
    return count ? 1e-9 * exp2((i + 0.5) / BINS_AN_OCTAVE) : 0;
}

struct sgrad_overhead sgrad_workers_overhead(void) {
    struct starpu_profiling_worker_info info;
    struct sgrad_overhead is = { 0, 0, 0 };
    for (int w = 0; w < (int)starpu_worker_get_count(); w++) {
        if (is_cuda(w) || starpu_profiling_worker_get_info(w, &info)) continue;
        is.all += seconds(info.total_time) - seconds(info.executing_time) - seconds(info.sleeping_time);
        is.tasks += info.executed_tasks;
    }
    if (is.tasks > 0) is.usual = fmin(middle_gap(), is.all / (double)is.tasks);
    forget_gaps();
    return is;
}

/* ---- waits for overdue tasks ---- */

static struct {
    atomic_bool on;
    pthread_mutex_t lock;           /* protects the members below */
    int busy, overdue;              /* workers in a task; tasks */
    double since, total;            /* time of the last change; seconds until then, summed over the workers */
} waits = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Counts the time since the last change, and then changes both numbers. Returns the total. */
static double change_waits(int busy, int overdue) {
    pthread_mutex_lock(&waits.lock);
    const double now = sgrad_time_monotonic();
    if (waits.overdue > 0) waits.total += ((int)starpu_worker_get_count() - waits.busy) * (now - waits.since);
    waits.since = now;
    waits.busy += busy;
    waits.overdue += overdue;
    const double total = waits.total;
    pthread_mutex_unlock(&waits.lock);
    return total;
}

void sgrad_workers_watch(void) { atomic_store(&waits.on, true); }

bool sgrad__worker_begins(void) {
    const bool on = atomic_load(&waits.on);
    if (on) change_waits(1, 0);
    return on;
}

void sgrad__worker_ends(bool watched) {
    if (watched) change_waits(-1, 0);
}

void sgrad_workers_overdue(int change) { change_waits(0, change); }

double sgrad_workers_awaited(void) {
    const unsigned workers = starpu_worker_get_count();
    return workers ? change_waits(0, 0) / workers : 0;
}
