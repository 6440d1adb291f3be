/* clock.c: the clock of the whole program, and all waiting: for a duration, on a monitor, and for the end of a thread.
 *
 * All functions use StarPU, whose threads and time are simulated in its build for SimGrid. */
#include "config.h"
#include "runtime/runtime.h"

#include <starpu.h>
#include <stdlib.h>
#include <time.h>

static double seconds(clockid_t clock) {
    if (SGRAD_SIMULATED) return 1e-6 * starpu_timing_now();
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double sgrad_time_monotonic(void) { return seconds(CLOCK_MONOTONIC); }
double sgrad_time_thread_cpu(void) { return seconds(CLOCK_THREAD_CPUTIME_ID); }

void sgrad_sleep(double seconds) {
    if (SGRAD_SIMULATED) return starpu_sleep((float)seconds);
    const time_t whole = (time_t)seconds;
    nanosleep(&(struct timespec){ .tv_sec = whole, .tv_nsec = (long)(1e9 * (seconds - (double)whole)) }, NULL);
}

/* ---- monitors ---------------------------------------------------------------------------------------------------- */

struct sgrad_monitor {
    starpu_pthread_mutex_t lock;
    starpu_pthread_cond_t changed;
    long times;                     /* number of notifications */
};

struct sgrad_monitor *sgrad_monitor_create(void) {
    struct sgrad_monitor *m = sgrad_xcalloc(1, sizeof *m);
    starpu_pthread_mutex_init(&m->lock, NULL);
    starpu_pthread_cond_init(&m->changed, NULL);
    return m;
}

void sgrad_monitor_destroy(struct sgrad_monitor *monitor) {
    if (!monitor) return;
    starpu_pthread_mutex_destroy(&monitor->lock);
    starpu_pthread_cond_destroy(&monitor->changed);
    free(monitor);
}

void sgrad_monitor_lock(struct sgrad_monitor *monitor) { starpu_pthread_mutex_lock(&monitor->lock); }
void sgrad_monitor_unlock(struct sgrad_monitor *monitor) { starpu_pthread_mutex_unlock(&monitor->lock); }
long sgrad_monitor_generation(const struct sgrad_monitor *monitor) { return monitor->times; }
void sgrad_monitor_notify(struct sgrad_monitor *monitor) {
    monitor->times++;
    starpu_pthread_cond_broadcast(&monitor->changed);
}

void sgrad_monitor_wait(struct sgrad_monitor *monitor, double seconds) {
    struct timespec until;
    if (seconds <= 0 || SGRAD_SIMULATED) {      /* a simulated thread is always notified */
        starpu_pthread_cond_wait(&monitor->changed, &monitor->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);      /* the clock of condition variables */
    const double end = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)end;
    until.tv_nsec = (long)(1e9 * (end - (double)(time_t)end));
    starpu_pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct sgrad_thread {
    starpu_pthread_t thread;
};

struct sgrad_thread *sgrad_thread_start(void *(*what)(void *arg), void *arg) {
    struct sgrad_thread *t = sgrad_xcalloc(1, sizeof *t);
    if (starpu_pthread_create(&t->thread, NULL, what, arg)) {
        free(t);
        return NULL;
    }
    return t;
}

void sgrad_thread_join(struct sgrad_thread *thread) {
    if (!thread) return;
    starpu_pthread_join(thread->thread, NULL);
    free(thread);
}
