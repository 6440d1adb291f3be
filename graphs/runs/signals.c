/* signals.c: signals that ask a run to end: it finishes the steps in flight, writes a checkpoint and says so. */
#include "graphs/runs/run.h"

#include <signal.h>

static volatile sig_atomic_t caught;
static void note(int number) { caught = number; }

/* SIGUSR1 is what mpirun hands on to its ranks, and batch systems send before time is over; SIGHUP: a terminal closes. */
static const int watched[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
enum { WATCHED = sizeof watched / sizeof *watched };
static struct sigaction before[WATCHED];

/* A signal that was ignored, by nohup say, stays so. The second of a kind ends the program. */
void sgrad__signals_watch(void) {
    const struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART | (int)SA_RESETHAND };
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
