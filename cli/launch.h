/* launch.h: what stargrad launch asks of mpirun.c. Private to the two. */
#ifndef SGRAD_CLI_LAUNCH_H
#define SGRAD_CLI_LAUNCH_H

#include "cli/cli.h"

#include <sys/types.h>

/* Exit status, as shells and mpirun have it; to SGRAD__KILLED the number of a signal is added. */
enum { SGRAD__NOT_FOUND = 127, SGRAD__KILLED = 128, SGRAD__STALLED = 1000 /* our own: mpirun had to be ended */ };

/* From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 are handed to the children that run attends to. */
void sgrad__children_open(void);
/* Sleeps. False: one of these came. */
bool sgrad__children_pause(int seconds);

/* A child that nobody hears. WORD ends with NULL, as below. */
pid_t sgrad__children_start_silent(const char *const *word);
/* Runs mpirun to its end, or ends it when it hangs. *TOLD counts the signals that came meanwhile, and were handed on. */
int sgrad__children_run(const char *const *word, int *told);

#endif
