/* stall.c: when a rank waits in vain: what it says, and how the run ends.
 *
 * Whoever waits for other ranks does it in naps. When nothing has happened for as long as its patience lasts, it calls the
 * roll: it tells all ranks whom it waits for, and listens for a while to what they tell. Rank 2 was stopped:
 *
 *     rank 0   waits for 1   ─┐ told to all, and heard by 0, 1 and 3
 *     rank 1   waits for 2   ─┤
 *     rank 2                  │ says nothing: it is what the others wait for, whether they know it or not
 *     rank 3   waits for 2   ─┘
 *
 * The lowest that spoke tells it in one line and ends all. A rank that waits for its own tasks, a file system that does not
 * answer say, tells so. What counts is the number of naps: a process that was stopped for an hour has not waited for one.
 *
 * Limits: starting MPI and measuring the network are not watched. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <stdlib.h>

enum { ROLL = 1, STILL = 2, CALLS = 1000 };     /* tags: of the roll; of STILL and CALLS − 1 more, those of one call */
static const double nap = 0.01, answers = 1;    /* seconds */

struct waiting {
    bool own;           /* for its own tasks, not for another rank */
    char what[SGRAD_STALL_TEXT];
};
struct answer {
    struct waiting is;
    int spoke;
};

static const struct sgrad__world *const world = &sgrad__world;
static double patience;     /* seconds; 0: for ever */

void sgrad__stall_open(double seconds) { patience = seconds; }

/* The next after SECONDS: short at first, for what is there at once. */
static double next_nap(double seconds) { return seconds < nap ? 2 * seconds : nap; }

/* ---- the roll --------------------------------------------------------------------------------------------------- */

/* Those whose patience ended a little later are waited for; nobody waits for the messages' end, for the run is over. */
static void call_roll(const struct waiting *mine, struct answer *answer) {
    MPI_Request *request = sgrad_alloc((size_t)world->ranks, sizeof *request), sent;
    int missing = world->ranks - 1;
    for (int r = 0; r < world->ranks; r++) {
        if (r == world->rank) continue;
        MPI_Irecv(&answer[r].is, sizeof answer[r].is, MPI_BYTE, r, ROLL, world->control, &request[r]);
        MPI_Isend(mine, sizeof *mine, MPI_BYTE, r, ROLL, world->control, &sent);
    }
    answer[world->rank] = (struct answer){ *mine, 1 };
    for (double waited = 0; missing && waited < 2 + patience / 4; waited += nap) {
        for (int r = 0; r < world->ranks; r++) {
            if (answer[r].spoke) continue;
            MPI_Test(&request[r], &answer[r].spoke, MPI_STATUS_IGNORE);
            missing -= answer[r].spoke;
        }
        sgrad_sleep(nap);
    }
    free(request);
}

/* Those that do not answer, those that wait for themselves, this rank; when nobody is to blame, all. */
static void tell(const struct answer *answer) {
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
    sgrad_fail(SGRAD_EDEVICE, SGRAD_STALL_SAYS " %g s:%.*s", patience, (int)size - 1, text);
    free(text);
}

void sgrad_stall_tell(bool own, const char *what) {
    struct waiting mine = { .own = own };
    int lowest = 0;
    snprintf(mine.what, sizeof mine.what, "%s", what);
    if (world->ranks == 1) {
        sgrad_warn(SGRAD_STALL_SAYS " %g s; still waiting %s", patience, mine.what);
        return;
    }
    struct answer *answer = sgrad_alloc((size_t)world->ranks, sizeof *answer);
    call_roll(&mine, answer);
    while (!answer[lowest].spoke) lowest++;
    if (lowest < world->rank) sgrad_sleep(5);    /* it tells what this rank would, and ends it */
    tell(answer);
    sgrad_ranks_abort(1);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

bool sgrad_stall_due(double waited) { return patience > 0 && waited >= patience; }

void sgrad__request_wait(struct ompi_request_t **request, const char *what) {
    int ended = 0;
    double waited = 0;
    for (double seconds = 1e-5; MPI_Test(request, &ended, MPI_STATUS_IGNORE), !ended; seconds = next_nap(seconds)) {
        sgrad_sleep(seconds);
        waited += seconds;
        if (sgrad_stall_due(waited)) sgrad_stall_tell(false, what);
    }
}

/* ---- waiting with patience that does not end --------------------------------------------------------------------- */

/* Rank 0 writes a long file, and the others wait for it in one call. Whose patience would have ended first tells all who wait,
 * and each that hears tells, too. Those that wait are then known, and the lowest of them warns:
 *
 *     rank 0   (a file)
 *     rank 1         hears ── tells ──── nobody below: warns
 *     rank 2   due ─ tells ───────────── has heard 1
 *
 * Messages are empty, with a tag of the call: one that comes late is no other call's. */
static void tell_still(int tag) {
    for (int r = 0; r < world->ranks; r++) {
        MPI_Request sent;
        if (r == world->rank) continue;
        MPI_Isend(NULL, 0, MPI_BYTE, r, tag, world->control, &sent);
        MPI_Request_free(&sent);
    }
}

/* The lowest rank that has told so since the last time; the number of ranks: none. */
static int hear_still(int tag) {
    int lowest = world->ranks, any;
    MPI_Status from;
    while (MPI_Iprobe(MPI_ANY_SOURCE, tag, world->control, &any, &from), any) {
        MPI_Recv(NULL, 0, MPI_BYTE, from.MPI_SOURCE, tag, world->control, MPI_STATUS_IGNORE);
        if (from.MPI_SOURCE < lowest) lowest = from.MPI_SOURCE;
    }
    return lowest;
}

/* Whoever calls the roll waits elsewhere, in vain: all end. */
static void answer_roll(const char *what) {
    int called;
    MPI_Iprobe(MPI_ANY_SOURCE, ROLL, world->control, &called, MPI_STATUS_IGNORE);
    if (called) sgrad_stall_tell(false, what);
}

void sgrad__request_await(struct ompi_request_t **request, const char *what) {
    static int calls;
    const int tag = STILL + calls++ % CALLS;
    int ended = 0, lowest = world->ranks;
    double all = 0, since = 0;      /* seconds: waited; waited since the last warning */
    double told = -1;               /* of these, when this rank told; −1: it has not */
    for (double seconds = 1e-5; MPI_Test(request, &ended, MPI_STATUS_IGNORE), !ended; seconds = next_nap(seconds)) {
        sgrad_sleep(seconds);
        all += seconds;
        since += seconds;
        answer_roll(what);
        const int heard = hear_still(tag);
        if (heard < lowest) lowest = heard;
        if (told < 0 && (lowest < world->ranks || sgrad_stall_due(since))) {
            tell_still(tag);
            told = since;
        }
        if (told < 0 || since < told + answers) continue;
        if (world->rank < lowest) sgrad_warn("rank %d has waited %.0f s %s", world->rank, all, what);
        lowest = world->ranks;
        since = 0;
        told = -1;
    }
    hear_still(tag);
}
