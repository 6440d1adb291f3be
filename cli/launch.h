/* launch.h: the hosts of stargrad launch (hosts.c) and its child processes (mpirun.c), for launch.c. Private to these files. */
#ifndef SGRAD_CLI_LAUNCH_H
#define SGRAD_CLI_LAUNCH_H

#include "cli/cli.h"

#include <sys/stat.h>
#include <sys/types.h>

/* ---- hosts.c ---- */

struct sgrad__host {
    char *name, *entry;     /* "A"; "A:2", or a line of the file */
    int slots;
    pid_t probe;
    bool gone;              /* by the last probe */
};
struct sgrad__hosts {
    bool file;              /* of --hostfile, not of --host */
    int count, gone;
    struct sgrad__host *host;
    struct stat read, seen; /* the file when it was read, and when its last change was noticed */
};

/* Reads the hosts of --host or --hostfile, which may be none. The caller must free them. */
int sgrad__hosts_read(const struct sgrad__request *request, struct sgrad__hosts *hosts);
void sgrad__hosts_free(struct sgrad__hosts *hosts);
/* Returns the entries, or the names, of the hosts that are unreachable (GONE) or reachable; the caller must free the text. */
char *sgrad__hosts_text(const struct sgrad__hosts *hosts, bool gone, bool entries, const char *between);
/* Writes the reachable hosts to a new temporary file, which the caller must remove. PATH: a template for mkstemp. */
int sgrad__hosts_write(const struct sgrad__hosts *hosts, char *path);
long sgrad__hosts_slots(const struct sgrad__hosts *hosts);      /* of the reachable hosts */
/* Starts a program on each host with mpirun, so that the hosts are reached in the same manner as for a run. */
void sgrad__hosts_probe(struct sgrad__hosts *hosts);
/* Returns true if the file has other hosts than HOSTS, and has not been written since the previous call. A file without hosts
 * causes a warning. */
bool sgrad__hosts_changed(const struct sgrad__request *request, struct sgrad__hosts *hosts);
/* Reads the file again if it has changed, once it has not been written for a second, and moves the hosts before to FORMER, unless
 * that has some. If it cannot be read or has no hosts, HOSTS remain. Returns false if a signal to end arrives meanwhile. */
bool sgrad__hosts_follow(const struct sgrad__request *request, struct sgrad__hosts *hosts, struct sgrad__hosts *former);
/* Replaces HOSTS with FORMER, which becomes empty. The present file is not read again before it changes. */
void sgrad__hosts_restore(struct sgrad__hosts *hosts, struct sgrad__hosts *former);

/* ---- mpirun.c ---- */

const char *sgrad__mpirun(void);        /* the name or path of mpirun */

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
    bool changed;       /* the end was requested, because the hosts have changed */
};
/* Conditions that are checked while mpirun runs. CHANGED is called each second; if it returns true, the run ends. NULL: none. */
struct sgrad__watch {
    int ranks;              /* of the run */
    double timeout;         /* seconds until a stopped rank counts as dead; 0: never */
    bool (*changed)(const struct sgrad__watch *watch);
    const struct sgrad__request *request;
    struct sgrad__hosts *hosts;
};
/* Runs mpirun with the command line WORD and waits for its end. Kills it if it hangs after a rank has reported a stall, and kills
 * all ranks on this host that it has left. Adds to *FORWARDED the number of forwarded signals. After a change (WATCH), the ranks
 * get SIGUSR1 once, and end with a checkpoint. */
struct sgrad__end sgrad__children_run(const char *const *word, const struct sgrad__watch *watch, int *forwarded);

#endif
