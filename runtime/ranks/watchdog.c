/* watchdog.c: detects ranks that wait for longer than the timeout, logs the cause, and ends the run.
 *
 * A rank that waits for other ranks polls at short intervals. After the timeout it starts a *roll call*: it sends a description
 * of its wait to all ranks, and collects their descriptions for a limited time. Example, in which rank 2 was stopped:
 *
 *     rank 0   waits for 1   ─┐ sent to all ranks, received by 0, 1 and 3
 *     rank 1   waits for 2   ─┤
 *     rank 2                  │ sends nothing: it is the cause of the other waits, directly or indirectly
 *     rank 3   waits for 2   ─┘
 *
 * The lowest rank that answered logs the result in one line and ends all ranks. The description also states whether a rank waits
 * for its own tasks, for example for a file system that does not respond. A rank may also wait for a long operation of another
 * one, and then only checks that all ranks are alive. Waited time is the sum of the poll intervals, so that a
 * process that was stopped for an hour has not waited for an hour.
 *
 * Limits: the start of MPI and the measurement of the network are not watched. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <stdlib.h>

enum { ROLL = 1, STILL = 2, CALLS = 1000 };     /* tags: the roll call; STILL to STILL + CALLS − 1: calls of await */
static const double nap = 0.01, answers = 1;    /* seconds */

struct waiting {
    bool own;           /* the rank waits for its own tasks, not for another rank */
    char what[SGRAD_STALL_TEXT];
};
struct answer {
    struct waiting is;
    int spoke;
};

static const struct sgrad__world *const world = &sgrad__world;
static double patience;     /* timeout in seconds; 0: none */

void sgrad__watchdog_open(double seconds) { patience = seconds; }

/* Returns the poll interval after one of SECONDS. The first intervals are short, so that short waits end without delay. */
static double next_nap(double seconds) { return seconds < nap ? 2 * seconds : nap; }

/* ---- roll call -------------------------------------------------------------------------------------------------- */

/* Waits for REQUEST, by rank, the answers of those that have not answered yet, for MORE seconds and a quarter of the timeout.
 * Returns true if all ranks have answered. */
static bool collect(MPI_Request *request, struct answer *answer, double more) {
    int missing = 0;
    for (int r = 0; r < world->ranks; r++) missing += !answer[r].spoke;
    for (double waited = 0; missing && waited < more + patience / 4; waited += nap) {
        for (int r = 0; r < world->ranks; r++) {
            if (answer[r].spoke) continue;
            MPI_Test(&request[r], &answer[r].spoke, MPI_STATUS_IGNORE);
            missing -= answer[r].spoke;
        }
        sgrad_sleep(nap);
    }
    return !missing;
}

/* Stores the description of each rank in ANSWER. The time limit exceeds a quarter of the timeout, so that ranks whose timeout
 * ends slightly later can answer. Sends are not completed, because the run ends afterwards. */
static void call_roll(const struct waiting *mine, struct answer *answer) {
    MPI_Request *request = sgrad_xcalloc((size_t)world->ranks, sizeof *request), sent;
    for (int r = 0; r < world->ranks; r++) {
        if (r == world->rank) continue;
        MPI_Irecv(&answer[r].is, sizeof answer[r].is, MPI_BYTE, r, ROLL, world->control, &request[r]);
        MPI_Isend(mine, sizeof *mine, MPI_BYTE, r, ROLL, world->control, &sent);
    }
    answer[world->rank] = (struct answer){ *mine, 1 };
    collect(request, answer, 2);
    free(request);
}

/* Logs the ranks that did not answer, those that wait for their own tasks, and this rank. If there are no ranks of the
 * first two kinds, logs the wait of every rank. */
static void log_answers(const struct answer *answer) {
    char *text = NULL;
    size_t size;
    int silent = 0, blamed = 0;
    FILE *to = open_memstream(&text, &size);
    for (int r = 0; r < world->ranks; r++) {
        if (!answer[r].spoke) fprintf(to, "%s %d", silent++ ? "," : " no answer from rank", r);
        blamed += !answer[r].spoke || answer[r].is.own;
    }
    if (silent) fputc(';', to);
    for (int r = 0; r < world->ranks; r++)
        if (answer[r].spoke && (!blamed || r == world->rank || answer[r].is.own))
            fprintf(to, " rank %d waits %.*s;", r, SGRAD_STALL_TEXT, answer[r].is.what);
    fclose(to);
    sgrad_log_error(SGRAD_EDEVICE, SGRAD_STALL_MESSAGE " %g s:%.*s", patience, (int)size - 1, text);
    free(text);
}

void sgrad_watchdog_report(bool own, const char *what) {
    struct waiting mine = { .own = own };
    int lowest = 0;
    snprintf(mine.what, sizeof mine.what, "%s", what);
    if (world->ranks == 1) {
        sgrad_log_warning(SGRAD_STALL_MESSAGE " %g s; this process still waits %s", patience, mine.what);
        return;
    }
    struct answer *answer = sgrad_xcalloc((size_t)world->ranks, sizeof *answer);
    call_roll(&mine, answer);
    while (!answer[lowest].spoke) lowest++;
    if (lowest < world->rank) sgrad_sleep(5);    /* that rank logs the result and ends this one */
    log_answers(answer);
    sgrad_ranks_abort(1);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

bool sgrad_watchdog_expired(double waited) { return patience > 0 && waited >= patience; }

void sgrad__request_wait(MPI_Request *request, const char *what) {
    int ended = 0;
    double waited = 0;
    for (double seconds = 1e-5; MPI_Test(request, &ended, MPI_STATUS_IGNORE), !ended; seconds = next_nap(seconds)) {
        sgrad_sleep(seconds);
        waited += seconds;
        if (sgrad_watchdog_expired(waited)) sgrad_watchdog_report(false, what);
    }
}

/* ---- signs of life ------------------------------------------------------------------------------------------------ */

/* During a long operation, for example while rank 0 writes a large file, the main thread of a rank sends nothing. Another thread
 * of each rank therefore answers calls. A rank that was stopped, or whose host is unreachable, does not answer. */
enum { CALL = 1, ALIVE = 2 };       /* tags */
static const double listening = 0.25;       /* seconds between two looks for calls */
static struct {
    MPI_Comm ranks;
    struct sgrad_monitor *monitor;
    struct sgrad_thread *thread;
    bool ends;                      /* requires the monitor's lock */
} life;

static void answer_calls(void) {
    int called;
    MPI_Status from;
    MPI_Request sent;
    while (MPI_Iprobe(MPI_ANY_SOURCE, CALL, life.ranks, &called, &from), called) {
        MPI_Recv(NULL, 0, MPI_BYTE, from.MPI_SOURCE, CALL, life.ranks, MPI_STATUS_IGNORE);
        MPI_Isend(NULL, 0, MPI_BYTE, from.MPI_SOURCE, ALIVE, life.ranks, &sent);
        MPI_Request_free(&sent);
    }
}

static void *live(void *unused) {
    (void)unused;
    sgrad_monitor_lock(life.monitor);
    while (!life.ends) {
        sgrad_monitor_unlock(life.monitor);
        answer_calls();
        sgrad_monitor_lock(life.monitor);
        if (!life.ends) sgrad_monitor_wait(life.monitor, listening);
    }
    sgrad_monitor_unlock(life.monitor);
    return NULL;
}

int sgrad__watchdog_start(void) {
    if (SGRAD_SIMULATED || patience <= 0 || world->ranks == 1) return 0;
    MPI_Comm_dup(world->control, &life.ranks);
    life.ends = false;
    life.monitor = sgrad_monitor_create();
    life.thread = sgrad_thread_start(live, NULL);
    return life.thread ? 0 : sgrad_log_error(SGRAD_ENOMEM, "a thread cannot be started; check the limit of threads (ulimit -u)");
}

void sgrad__watchdog_stop(void) {
    if (!life.monitor) return;
    sgrad_monitor_lock(life.monitor);
    life.ends = true;
    sgrad_monitor_notify(life.monitor);
    sgrad_monitor_unlock(life.monitor);
    sgrad_thread_join(life.thread);
    sgrad_monitor_destroy(life.monitor);
    life.monitor = NULL;
    MPI_Comm_free(&life.ranks);
}

/* Calls all ranks. If one does not answer, logs that, and ends the run. */
static void call_ranks(const char *what) {
    struct answer *answer = sgrad_xcalloc((size_t)world->ranks, sizeof *answer);
    MPI_Request *request = sgrad_xcalloc((size_t)world->ranks, sizeof *request), sent;
    snprintf(answer[world->rank].is.what, sizeof answer->is.what, "%s", what);
    answer[world->rank].spoke = 1;
    for (int r = 0; r < world->ranks; r++) {
        if (r == world->rank) continue;
        MPI_Irecv(NULL, 0, MPI_BYTE, r, ALIVE, life.ranks, &request[r]);
        MPI_Isend(NULL, 0, MPI_BYTE, r, CALL, life.ranks, &sent);
        MPI_Request_free(&sent);
    }
    const bool all = collect(request, answer, 10);    /* a thread may run late on a busy host */
    if (!all) log_answers(answer);
    if (!all) sgrad_ranks_abort(1);
    free(request);
    free(answer);
}

/* ---- waiting without an error after the timeout ------------------------------------------------------------------- */

/* For long operations of one rank: rank 0 writes a large file, and the other ranks wait for it in the same call. The first rank
 * whose timeout ends sends a message to all ranks. Each waiting rank that receives one also sends one to all ranks. Each then
 * knows the waiting ranks, and the lowest of them logs a warning:
 *
 *     rank 0   (writes a file)
 *     rank 1             receives ── sends ──── no lower rank has sent: warns
 *     rank 2   timeout ─ sends ──────────────── has received from 1
 *
 * The messages are empty, and their tag identifies the call, so that a late message does not affect another call. */
static void send_still(int tag) {
    for (int r = 0; r < world->ranks; r++) {
        MPI_Request sent;
        if (r == world->rank) continue;
        MPI_Isend(NULL, 0, MPI_BYTE, r, tag, world->control, &sent);
        MPI_Request_free(&sent);
    }
}

/* Receives all pending messages of TAG. Returns the lowest rank that sent one; the number of ranks: none did. */
static int hear_still(int tag) {
    int lowest = world->ranks, any;
    MPI_Status from;
    while (MPI_Iprobe(MPI_ANY_SOURCE, tag, world->control, &any, &from), any) {
        MPI_Recv(NULL, 0, MPI_BYTE, from.MPI_SOURCE, tag, world->control, MPI_STATUS_IGNORE);
        if (from.MPI_SOURCE < lowest) lowest = from.MPI_SOURCE;
    }
    return lowest;
}

/* Answers a roll call, if a rank has started one. That rank waits in another call and its timeout has ended, so all ranks end. */
static void answer_roll(const char *what) {
    int called;
    MPI_Iprobe(MPI_ANY_SOURCE, ROLL, world->control, &called, MPI_STATUS_IGNORE);
    if (called) sgrad_watchdog_report(false, what);
}

void sgrad__request_await(MPI_Request *request, const char *what) {
    static int calls;
    const int tag = STILL + calls++ % CALLS;
    int ended = 0, lowest = world->ranks;
    double all = 0, since = 0;      /* seconds: waited; waited since the last warning */
    double sent_at = -1;            /* value of SINCE when this rank sent its messages; −1: not sent */
    for (double seconds = 1e-5; MPI_Test(request, &ended, MPI_STATUS_IGNORE), !ended; seconds = next_nap(seconds)) {
        sgrad_sleep(seconds);
        all += seconds;
        since += seconds;
        answer_roll(what);
        const int heard = hear_still(tag);
        if (heard < lowest) lowest = heard;
        if (sent_at < 0 && (lowest < world->ranks || sgrad_watchdog_expired(since))) {
            send_still(tag);
            sent_at = since;
        }
        if (sent_at < 0 || since < sent_at + answers) continue;
        if (world->rank < lowest && life.monitor) call_ranks(what);
        if (world->rank < lowest) sgrad_log_warning("rank %d has waited %.0f s %s", world->rank, all, what);
        lowest = world->ranks;
        since = 0;
        sent_at = -1;
    }
    hear_still(tag);
}
