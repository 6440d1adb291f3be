/* allreduce.c: sums of tensors that a library does in one call: MPI_Iallreduce, the baseline that plans are measured against, and
 * NCCL's (nccl.c).
 *
 * These ask that all ranks begin collective calls in the same order, or they wait for each other for ever; but tensors are ready
 * when they are ready. So each takes a ticket when it is submitted, which all ranks do in the same order, and one thread begins
 * them in the order of tickets and looks for their end:
 *
 *     submitted  0 1 2 3        ready  . 1 2 .    waits for 0        ready  0 1 2 .    begins 0, 1, 2
 */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <stdlib.h>

struct ticket {
    struct sgrad_message is;
    const struct sgrad__summing *by;
    struct sgrad__sum sum;
    int node;
    bool ready, begun;
    struct ticket *next;
};
static struct ticket *first, **last = &first;       /* those that have not ended, in order */
static struct sgrad_monitor *tickets;               /* of these, and of closing */
static struct sgrad_thread *thread;
static MPI_Comm collective;
static bool closing;

static void is_ready(void *arg) {
    sgrad_monitor_enter(tickets);
    ((struct ticket *)arg)->ready = true;
    sgrad_monitor_tell(tickets);
    sgrad_monitor_leave(tickets);
}

/* ---- by MPI ---- */

/* A request for each piece: MPI counts elements in an int, so a longer tensor goes in several, the same ones on every rank. */
struct requests {
    int pieces;
    MPI_Request piece[];
};

static int main_memory(void) { return 0; }

static void begin_mpi(struct sgrad__sum *s) {
    const struct sgrad_view *v = &s->tensor->view;
    const int64_t count = sgrad_shape_count(&v->shape), most = sgrad__message_limit;
    const int pieces = (int)((count + most - 1) / most);
    char *memory = sgrad__tensor_memory(s->tensor, main_memory());
    struct requests *r = s->under_way = sgrad_alloc(1, sizeof *r + (size_t)pieces * sizeof *r->piece);
    r->pieces = pieces;
    for (int64_t i = 0, from = 0; i < pieces; i++, from += most) {
        const int piece = (int)(count - from < most ? count - from : most);
        MPI_Iallreduce(MPI_IN_PLACE, memory + (size_t)from * sgrad_dtype_size(v->dtype), piece,
                       v->dtype == SGRAD_F64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, collective, &r->piece[i]);
    }
}

static bool mpi_has_ended(struct sgrad__sum *s) {
    struct requests *r = s->under_way;
    int ended = 0;
    MPI_Testall(r->pieces, r->piece, &ended, MPI_STATUSES_IGNORE);
    if (ended) free(r);
    return ended;
}

static const struct sgrad__summing mpi = { .node = main_memory, .begin = begin_mpi, .has_ended = mpi_has_ended };

/* ---- in the order of tickets ---- */

/* Takes the first ticket that has ended out of the list; NULL: none has. */
static struct ticket *take_ended(void) {
    for (struct ticket **at = &first; *at && (*at)->begun; at = &(*at)->next) {
        struct ticket *t = *at;
        if (!t->by->has_ended(&t->sum)) continue;
        if (!(*at = t->next)) last = at;
        return t;
    }
    return NULL;
}

/* The next to begin; NULL: it is not ready. */
static struct ticket *find_ready(void) {
    struct ticket *t = first;
    while (t && t->begun) t = t->next;
    return t && t->ready ? t : NULL;
}

/* Nobody waits for the list while the library is called, which may wait for other ranks the first time. */
static void *look_after(void *arg) {
    (void)arg;
    sgrad_monitor_enter(tickets);
    while (!closing || first) {
        struct ticket *next = find_ready(), *ended = next ? NULL : take_ended();
        bool waiting = first && first->begun;
        if (!next && !ended && !waiting && !(closing && !first)) sgrad_monitor_wait(tickets, 0);
        sgrad_monitor_leave(tickets);
        if (next) {
            next->by->begin(&next->sum);
            next->begun = true;
        } else if (ended) {
            sgrad__tensor_release(ended->is.tensor, ended->node);
            ended->is.done(ended->is.arg);
            free(ended);
        } else if (waiting) {
            sgrad_sleep(50e-6);
        }
        sgrad_monitor_enter(tickets);
    }
    sgrad_monitor_leave(tickets);
    return NULL;
}

static int submit(const struct sgrad_message *m, const struct sgrad__summing *by) {
    struct ticket *t = sgrad_alloc(1, sizeof *t);
    *t = (struct ticket){ .is = *m, .by = by, .sum = { .tensor = m->tensor }, .node = by->node() };
    sgrad_monitor_enter(tickets);
    if (!thread) thread = sgrad_thread_start(look_after, NULL);
    *last = t;
    last = &t->next;
    sgrad_monitor_leave(tickets);
    if (thread && sgrad__tensor_acquire(m->tensor, t->node, SGRAD_RW, is_ready, t) == 0) return 0;
    return sgrad_fail(SGRAD_EDEVICE, "%s: cannot be summed over the ranks", m->tensor->name);
}

int sgrad_allreduce(const struct sgrad_message *m) { return submit(m, &mpi); }
int sgrad_allreduce_on_gpus(const struct sgrad_message *m) { return submit(m, &sgrad__nccl_summing); }

void sgrad__messages_open(void) {
    tickets = sgrad_monitor_create();
    MPI_Comm_dup(MPI_COMM_WORLD, &collective);
}

void sgrad__messages_close(void) {
    sgrad_monitor_enter(tickets);
    closing = true;
    sgrad_monitor_tell(tickets);
    sgrad_monitor_leave(tickets);
    sgrad_thread_end(thread);
    thread = NULL;
    sgrad_monitor_destroy(tickets);
    sgrad__nccl_close();
    MPI_Comm_free(&collective);
}
