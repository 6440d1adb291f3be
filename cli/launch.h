/* launch.h: child processes of stargrad launch (mpirun.c), for launch.c. Private to these two files. */
#ifndef SGRAD_CLI_LAUNCH_H
#define SGRAD_CLI_LAUNCH_H

#include "cli/cli.h"

#include <sys/types.h>

/* Exit status of a child, as in shells and mpirun: command not found; SGRAD__KILLED plus the number of the signal. */
enum { SGRAD__NOT_FOUND = 127, SGRAD__KILLED = 128, SGRAD__STALLED = 1000 /* mpirun hung and was killed */,
       SGRAD__UNREACHABLE };

/* Starts the forwarding of SIGINT, SIGTERM, SIGHUP and SIGUSR1, unless they are ignored, to the child of sgrad__children_run. */
void sgrad__children_open(void);
/* Sleeps for SECONDS. Returns false as soon as one of these signals arrives. */
bool sgrad__children_pause(int seconds);

/* Starts a child without input and output, and does not wait for it. WORD: its command line, NULL-terminated. */
pid_t sgrad__children_start_silent(const char *const *word);
double sgrad__children_clock(void);     /* seconds since 1970 */
/* The end of mpirun. */
struct sgrad__end {
    int status;         /* exit status, as above; SGRAD__FAILED: also if mpirun was not started */
    int rank;           /* the rank that failed, by the messages of mpirun or of other ranks; -1: unknown */
    double time;        /* when the failure was noticed: seconds since 1970 */
};
/* Runs mpirun with the command line WORD and waits for its end. Kills it if it hangs after a rank has reported a stall, and kills
 * all ranks on this host that it has left. Adds to *FORWARDED the number of forwarded signals. */
struct sgrad__end sgrad__children_run(const char *const *word, int *forwarded);

#endif
