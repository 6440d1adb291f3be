/* signals.c: signals that ask a run to end: it cancels what it can, writes a checkpoint and says so. */
#include "graphs/runs/run.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t caught;
static volatile time_t since;

static time_t seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Batch systems and launchers repeat what they ask for, or ask in several ways at once: that is one question. Who asks once more
 * later wants the program to end, whatever it does. */
static void note(int number) {
    if (caught && seconds() - since >= SGRAD_STOP_GRACE) {
        signal(number, SIG_DFL);
        raise(number);      /* comes when this handler has ended */
        return;
    }
    if (caught) return;
    since = seconds();
    caught = number;
}

/* SIGUSR1 is what mpirun hands on to its ranks, and batch systems send before time is over; SIGHUP: a terminal closes. */
static const int watched[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
enum { WATCHED = sizeof watched / sizeof *watched };
static struct sigaction before[WATCHED];

/* A signal that was ignored, by nohup say, stays so. */
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
