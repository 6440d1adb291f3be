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
 * hour. Therefore launch reads standard error, and kills mpirun if it runs TIME_TO_END after a rank has reported a stall. */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIME_TO_END = 15 };     /* seconds */

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

struct ear {
    int from;           /* file descriptor; -1: end of file */
    char line[64];      /* beginning of the current line */
    size_t length;
    bool stalled;       /* a rank has reported a stall */
};

/* Open MPI 5 ends its own messages with a byte 0, which a line of a rank may follow directly. */
static void listen_to(struct ear *ear, char c) {
    static const char says[] = "stargrad: " SGRAD_STALL_SAYS;
    if (c == '\n') ear->length = 0;
    else if (c && ear->length < sizeof ear->line) ear->line[ear->length++] = c;
    if (ear->length == strlen(says) && !memcmp(ear->line, says, strlen(says))) ear->stalled = true;
}

static void pass_on(struct ear *ear) {
    char text[4096];
    ssize_t got;
    while ((got = read(ear->from, text, sizeof text)) > 0) {
        for (ssize_t i = 0; i < got; i++) listen_to(ear, text[i]);
        for (ssize_t at = 0, put; at < got && (put = write(STDERR_FILENO, text + at, (size_t)(got - at))) > 0;) at += put;
    }
    if (got < 0 && errno == EAGAIN) return;
    close(ear->from);
    ear->from = -1;
}

/* ---- mpirun ----------------------------------------------------------------------------------------------------- */

int sgrad__children_run(const char *const *word, int *forwarded) {
    int ends[2], status;
    double end = 0, forwarded_at = 0;
    bool hangs = false;
    if (pipe2(ends, O_CLOEXEC))
        return sgrad_log_error(SGRAD_EIO, "launch: a pipe cannot be created: %s", strerror(errno)), SGRAD__FAILED;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pid_t child = start(word, STDOUT_FILENO, ends[1]);
    close(ends[1]);
    struct ear ear = { .from = ends[0] };
    while (waitpid(child, &status, WNOHANG) == 0) {
        poll((struct pollfd[]){ { signals, POLLIN, 0 }, { ear.from, POLLIN, 0 } }, 2, 1000);
        if (ear.from >= 0) pass_on(&ear);
        if (asked() && (!*forwarded || sgrad_time_monotonic() >= forwarded_at + SGRAD_STOP_GRACE)) {
            kill(child, (*forwarded)++ ? SIGINT : SIGUSR1);
            forwarded_at = sgrad_time_monotonic();
        }
        if (ear.stalled && !end) end = sgrad_time_monotonic() + TIME_TO_END;
        hangs = end && sgrad_time_monotonic() >= end;
        if (hangs) kill(-child, SIGKILL);
    }
    if (ear.from >= 0) pass_on(&ear);
    if (ear.from >= 0) close(ear.from);
    if (hangs) return SGRAD__STALLED;
    return WIFSIGNALED(status) ? SGRAD__KILLED + WTERMSIG(status) : WEXITSTATUS(status);
}
