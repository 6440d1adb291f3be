/* signals.c: handles signals that request the end of a run. The run then cancels steps, writes a checkpoint and logs it. */
#include "graphs/engine/run.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t caught;
static volatile time_t since;

static time_t seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Batch systems and launchers may repeat a signal, or send several different ones at once: these count as one request. A
 * signal SGRAD_STOP_GRACE seconds or more after the first ends the process immediately. */
static void note(int number) {
    if (caught && seconds() - since >= SGRAD_STOP_GRACE) {
        signal(number, SIG_DFL);
        raise(number);      /* delivered after this handler has returned */
        return;
    }
    if (caught) return;
    since = seconds();
    caught = number;
}

/* SIGUSR1: forwarded by mpirun to its ranks, and sent by batch systems before the end of the time limit. SIGHUP: the terminal
 * was closed. */
static const int watched[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
enum { WATCHED = sizeof watched / sizeof *watched };
static struct sigaction before[WATCHED];

/* Signals that are ignored, for example because of nohup, remain ignored. */
void sgrad__signals_watch(void) {
    const struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
    caught = 0;
    for (int i = 0; i < WATCHED; i++) {
        sigaction(watched[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(watched[i], &action, NULL);
    }
}

void sgrad__signals_unwatch(void) {
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
    caught = 0;
}

int sgrad__signal_caught(void) { return caught; }
