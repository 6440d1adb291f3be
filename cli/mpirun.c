/* mpirun.c: runs mpirun as a child process.
 *
 *     terminal, batch system ──SIGINT, SIGTERM, SIGHUP, SIGUSR1──> launch ──SIGUSR1, then SIGINT──> mpirun ──> ranks
 *                standard error <──────────────────────────────── launch <────────────────── standard error
 *
 * The child has its own process group, so that a signal to the group of the terminal or of the job is delivered only to launch.
 * The first signal is forwarded as SIGUSR1, which mpirun sends to all ranks; they end with a checkpoint. Signals of the next 30
 * seconds are ignored as repetitions. A later one ends mpirun, and with it the ranks, by SIGINT.
 *
 * A batch system sends SIGTERM to each process of the job, including mpirun. Open MPI 4 forwards it, and kills the ranks a
 * second later, before a checkpoint is written. Therefore mpirun is started with SIGTERM blocked; it unblocks the signal in the
 * ranks.
 *
 * If a host no longer responds, the ranks detect that (--stall-timeout), but mpirun would wait for the host for a quarter of an
 * hour. mpirun may also wait forever at its own end: about one in a hundred of Open MPI 4.1.4 with PMIx 4.2.2 did so on a busy
 * machine, for a lock in PMIx_server_finalize. Therefore launch kills mpirun if it runs TIME_TO_END after a rank has reported a
 * stall, after the message of a failed rank on standard error, or after the last rank has ended, if all are on this host.
 *
 * Ranks that mpirun has left, for example stopped ones, become children of launch, which kills them: they must not write to the
 * run directory when they continue. A rank is a process of this program. */
#include "cli/launch.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIME_TO_END = 5, TIME_TO_DIE = 60 };    /* seconds; a killed process that waits for a disk takes long to end */

const char *sgrad__mpirun(void) { return access(SGRAD_MPIRUN, X_OK) ? "mpirun" : SGRAD_MPIRUN; }

static sigset_t watched;
static int signals;     /* file descriptor */

void sgrad__children_open(void) {
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
    struct sigaction is;
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)     /* ignored signals, for example with nohup, remain ignored */
        if (sigaction(ends[i], NULL, &is) == 0 && is.sa_handler != SIG_IGN) sigaddset(&watched, ends[i]);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Returns true if a signal to end has arrived. */
static bool asked(void) {
    struct signalfd_siginfo signal;
    bool is = false;
    while (read(signals, &signal, sizeof signal) == sizeof signal) is |= signal.ssi_signo != SIGCHLD;
    return is;
}

bool sgrad__children_pause(int seconds) {
    for (double end = sgrad_time_monotonic() + seconds; !asked();) {
        const double left = end - sgrad_time_monotonic();
        if (left <= 0) return true;
        poll(&(struct pollfd){ .fd = signals, .events = POLLIN }, 1, (int)(1000 * left) + 1);
    }
    return false;
}

/* Starts a child. If launch ends, the child is ended by SIGINT. */
static pid_t start(const char *const *word, int out, int error) {
    sigset_t blocked;
    pid_t child = fork();
    if (child) return child;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGINT);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);    /* other process groups may not read from the terminal */
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    sigprocmask(SIG_UNBLOCK, &watched, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    execvp(*word, (char *const *)word);
    sgrad_log_error(SGRAD_EIO, "launch: %s: %s", *word, strerror(errno));
    _exit(SGRAD__NOT_FOUND);
}

pid_t sgrad__children_start_silent(const char *const *word) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t child = start(word, null, null);
    close(null);
    return child;
}

/* ---- standard error of the child ---------------------------------------------------------------------------------- */

struct output {
    int from;           /* file descriptor; -1: end of file */
    char line[256];     /* beginning of the current line */
    size_t length;
    int rank;           /* the first rank that a line reports as failed; -1: none */
    double stalled;     /* time: when a rank has reported a stall; 0: none has */
    bool failed;        /* mpirun or MPI has reported that a rank has failed, so mpirun ends */
};

double sgrad__children_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the rank that LINE reports as failed; -1: none. The messages are those of Open MPI (of a signal, of an exit status), of
 * MPICH, and of the watchdog. */
static int failed_rank(const char *line) {
    static const char *const before[] = { "noticed that process rank ", "Process name: [", "RANK ", " no answer from rank " };
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *at = strstr(line, before[i]);
        if (!at) continue;
        at += strlen(before[i]);
        if (i == 1) at = strrchr(at, ',') ? strrchr(at, ',') + 1 : "";
        return isdigit((unsigned char)*at) ? atoi(at) : -1;
    }
    return -1;
}

/* Open MPI 5 ends its own messages with a byte 0, which a line of a rank may follow directly. */
static void read_byte(struct output *output, char c) {
    static const char message[] = "stargrad: " SGRAD_STALL_MESSAGE;
    if (c && c != '\n' && output->length < sizeof output->line - 1) output->line[output->length++] = c;
    if (c != '\n') return;
    output->line[output->length] = 0;
    if (!output->stalled && !strncmp(output->line, message, strlen(message))) output->stalled = sgrad__children_clock();
    if (output->rank < 0) output->rank = failed_rank(output->line);
    output->failed |=
        strstr(output->line, "mpirun noticed that process rank ") || strstr(output->line, "MPI_ABORT was invoked on rank ");
    output->length = 0;
}

static void forward(struct output *output) {
    char text[4096];
    ssize_t got;
    while ((got = read(output->from, text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < got; i++) read_byte(output, text[i]);
        for (ssize_t at = 0, put; at < got && (put = write(STDERR_FILENO, text + at, (size_t)(got - at))) > 0;) at += put;
    }
    if (got < 0 && errno == EAGAIN) return;
    close(output->from);
    output->from = -1;
}

/* ---- mpirun ----------------------------------------------------------------------------------------------------- */

/* Stores the path of the program of PROCESS; a file that has been replaced has its former path. Returns an errno; 0: none. */
static int program_of(const char *process, char path[PATH_MAX]) {
    static const char replaced[] = " (deleted)";
    char *link = sgrad_format("/proc/%s/exe", process);
    const ssize_t length = readlink(link, path, PATH_MAX - 1);
    const int error = length < 0 ? errno : 0;
    free(link);
    path[length < 0 ? 0 : length] = 0;
    const size_t all = strlen(path), extra = strlen(replaced);
    if (all > extra && !strcmp(path + all - extra, replaced)) path[all - extra] = 0;
    return error;
}

/* Returns true if PROCESS runs this program and has not ended. */
static bool runs_program(long process) {
    char own[PATH_MAX], other[PATH_MAX], number[24];
    snprintf(number, sizeof number, "%ld", process);
    return !program_of(number, other) && !program_of("self", own) && !strcmp(own, other);
}

/* Returns true if the process CHILD runs this program, or is ending: it then has no program. */
static bool is_rank(long child) {
    char path[PATH_MAX], number[24];
    snprintf(number, sizeof number, "%ld", child);
    return program_of(number, path) == ENOENT || runs_program(child);
}

/* Kills the ranks that mpirun has left, and waits for their end. Other processes remain, such as a shared connection of ssh. */
static void end_orphans(void) {
    char *path = sgrad_format("/proc/self/task/%ld/children", (long)getpid());
    bool any = true;
    for (double end = sgrad_time_monotonic() + TIME_TO_DIE; any && sgrad_time_monotonic() < end;) {
        FILE *file = fopen(path, "re");
        long child;
        for (any = false; file && fscanf(file, "%ld", &child) == 1;) {
            if (!is_rank(child)) continue;
            kill((pid_t)child, SIGKILL);
            any = true;
        }
        if (file) fclose(file);
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        if (any) sgrad_sleep(1e-3);
    }
    free(path);
}

/* The ranks that mpirun has started on this host. */
struct ranks_here {
    int count, stopped;     /* stopped: by a signal */
    pid_t one;              /* a stopped one */
};

static char state_of(long process) {
    char *path = sgrad_format("/proc/%ld/stat", process), line[512] = "";
    FILE *file = fopen(path, "re");
    if (file && !fgets(line, sizeof line, file)) *line = 0;
    if (file) fclose(file);
    free(path);
    const char *name = strrchr(line, ')');
    return name && name[1] ? name[2] : 0;
}

static struct ranks_here find_ranks(pid_t mpirun) {
    struct ranks_here ranks = { 0 };
    char *path = sgrad_format("/proc/%ld/task", (long)mpirun);
    DIR *tasks = opendir(path);
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        long child;
        char *children = sgrad_format("%s/%s/children", path, task->d_name);
        FILE *file = *task->d_name == '.' ? NULL : fopen(children, "re");
        while (file && fscanf(file, "%ld", &child) == 1) {
            if (!runs_program(child)) continue;
            ranks.count++;
            if (state_of(child) != 'T') continue;
            ranks.stopped++;
            ranks.one = (pid_t)child;
        }
        if (file) fclose(file);
        free(children);
    }
    if (tasks) closedir(tasks);
    free(path);
    return ranks;
}

/* Observations of the ranks, to notice when they hang. */
struct observations {
    double checked, end;    /* times: of the last look for ranks; when mpirun must have ended, 0: unknown */
    bool had_all;           /* all ranks have been on this host */
    int stopped;            /* number of looks in succession that found stopped ranks beside others */
};

/* Looks for the ranks on this host. Kills a rank that has been stopped for longer than the timeout of WATCH while others were
 * not: during the start of MPI, they would wait for it forever. Returns true if all ranks were here, and have ended. */
static bool look_for_ranks(struct observations *seen, pid_t mpirun, const struct sgrad__watch *watch) {
    const struct ranks_here ranks = find_ranks(mpirun);
    const bool ended = seen->had_all && !ranks.count;
    seen->stopped = ranks.stopped && ranks.stopped < ranks.count ? seen->stopped + 1 : 0;
    if (watch->timeout > 0 && seen->stopped > watch->timeout + TIME_TO_END) kill(ranks.one, SIGKILL);
    seen->had_all |= ranks.count >= watch->ranks;
    return ended;
}

/* Returns true if mpirun still runs TIME_TO_END after it should have begun to end. Looks for ranks each second. */
static bool is_overdue(struct observations *seen, pid_t child, const struct output *output, const struct sgrad__watch *watch) {
    const double now = sgrad_time_monotonic();
    bool ends = output->stalled > 0 || output->failed;
    if (!ends && !seen->end && now >= seen->checked + 1) {
        ends = look_for_ranks(seen, child, watch);
        seen->checked = now;
    }
    if (ends && !seen->end) seen->end = now + TIME_TO_END;
    return seen->end > 0 && now >= seen->end;
}

/* A request to the ranks to end. mpirun drops it until it has started them; it is then repeated, but not so late that ranks take
 * it for a second request (SGRAD_STOP_GRACE). */
struct request {
    double first, last;     /* times at which it was sent */
    bool early;             /* not all ranks had been seen then */
};

static void ask_to_end(struct request *request, pid_t child, const struct observations *seen) {
    const double now = sgrad_time_monotonic();
    *request = (struct request){ now, now, !seen->had_all };
    kill(child, SIGUSR1);
}

/* Repeats the request each second, and once after all ranks have been seen. */
static void repeat(struct request *request, pid_t child, const struct observations *seen) {
    const double now = sgrad_time_monotonic();
    if (now < request->last + 1) return;
    request->last = now;
    request->early = !seen->had_all && now < request->first + 0.8 * SGRAD_STOP_GRACE;
    kill(child, SIGUSR1);
}

/* Waits for the end of mpirun. Returns its status, as waitpid does; -1: it hung and was killed. *CHANGED: the answer of
 * WATCH, after which the ranks have been asked to end. */
static int await(pid_t child, struct output *output, const struct sgrad__watch *watch, int *forwarded, bool *changed) {
    int status;
    double forwarded_at = 0, watched_at = sgrad_time_monotonic();
    struct request request = { 0 };
    struct observations seen = { 0 };
    bool hangs = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
        poll((struct pollfd[]){ { signals, POLLIN, 0 }, { output->from, POLLIN, 0 } }, 2, 1000);
        if (output->from >= 0) forward(output);
        if (asked() && (!*forwarded || sgrad_time_monotonic() >= forwarded_at + SGRAD_STOP_GRACE)) {
            if ((*forwarded)++) kill(child, SIGINT);
            else ask_to_end(&request, child, &seen);
            forwarded_at = sgrad_time_monotonic();
        }
        if (watch->changed && !*changed && sgrad_time_monotonic() >= watched_at + 1) {
            watched_at = sgrad_time_monotonic();
            *changed = watch->changed(watch);
            if (*changed) ask_to_end(&request, child, &seen);
        }
        if (request.early) repeat(&request, child, &seen);
        hangs = is_overdue(&seen, child, output, watch);
        if (hangs) kill(-child, SIGKILL);
    }
    return hangs ? -1 : status;
}

struct sgrad__end sgrad__children_run(const char *const *word, const struct sgrad__watch *watch, int *forwarded) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        sgrad_log_error(SGRAD_EIO, "launch: a pipe cannot be created: %s", strerror(errno));
        return (struct sgrad__end){ SGRAD__FAILED, -1, sgrad__children_clock(), false };
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pid_t child = start(word, STDOUT_FILENO, ends[1]);
    close(ends[1]);
    struct output output = { .from = ends[0], .rank = -1 };
    bool changed = false;
    const int status = await(child, &output, watch, forwarded, &changed);
    const double time = sgrad__children_clock();
    end_orphans();
    if (output.from >= 0) forward(&output);
    if (output.from >= 0) close(output.from);
    return (struct sgrad__end){ status < 0            ? SGRAD__STALLED
                                : WIFSIGNALED(status) ? SGRAD__KILLED + WTERMSIG(status)
                                                      : WEXITSTATUS(status),
                                output.rank, output.stalled > 0 ? output.stalled : time, changed };
}
