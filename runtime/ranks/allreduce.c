/* allreduce.c: sums of tensors over all ranks by one call of a library: MPI_Iallreduce, the baseline for plans, or NCCL (nccl.c).
 *
 * The libraries require that all ranks begin collective calls in the same order; otherwise they deadlock. Tensors, however,
 * become ready in any order. Therefore each sum gets a ticket on submission, which has the same order on all ranks. One thread
 * begins the sums in the order of their tickets and polls for their completion:
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
static struct ticket *first, **last = &first;       /* the tickets of sums that have not ended, in order */
static struct sgrad_monitor *tickets;               /* protects the list and CLOSING */
static struct sgrad_thread *thread;
static MPI_Comm collective;
static bool closing;

static void is_ready(void *arg) {
    sgrad_monitor_lock(tickets);
    ((struct ticket *)arg)->ready = true;
    sgrad_monitor_notify(tickets);
    sgrad_monitor_unlock(tickets);
}

/* ---- MPI ---- */

/* MPI counts elements in an int, so a longer tensor is divided into segments, one request each. The division is the same on every
 * rank. */
struct requests {
    int pieces;
    MPI_Request piece[];
};

static int main_memory(void) { return 0; }

static void begin_mpi(struct sgrad__sum *sum) {
    const struct sgrad_view *v = &sum->tensor->view;
    const int64_t count = sgrad_shape_count(&v->shape), most = sgrad__message_limit;
    const int pieces = (int)((count + most - 1) / most);
    char *memory = sgrad__tensor_memory(sum->tensor, main_memory());
    struct requests *r = sum->under_way = sgrad_xcalloc(1, sizeof *r + (size_t)pieces * sizeof *r->piece);
    r->pieces = pieces;
    for (int64_t i = 0, from = 0; i < pieces; i++, from += most) {
        const int piece = (int)(count - from < most ? count - from : most);
        MPI_Iallreduce(MPI_IN_PLACE, memory + (size_t)from * sgrad_dtype_size(v->dtype), piece,
                       v->dtype == SGRAD_F64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, collective, &r->piece[i]);
    }
}

static bool mpi_has_ended(struct sgrad__sum *sum) {
    struct requests *r = sum->under_way;
    int ended = 0;
    MPI_Testall(r->pieces, r->piece, &ended, MPI_STATUSES_IGNORE);
    if (ended) free(r);
    return ended;
}

static const struct sgrad__summing mpi = { .node = main_memory, .begin = begin_mpi, .has_ended = mpi_has_ended };

/* ---- order of tickets ---- */

/* Removes the first ticket whose sum has ended from the list and returns it; NULL: no sum has ended. */
static struct ticket *take_ended(void) {
    for (struct ticket **at = &first; *at && (*at)->begun; at = &(*at)->next) {
        struct ticket *t = *at;
        if (!t->by->has_ended(&t->sum)) continue;
        if (!(*at = t->next)) last = at;
        return t;
    }
    return NULL;
}

/* Returns the next ticket to begin; NULL: its tensor is not ready. */
static struct ticket *find_ready(void) {
    struct ticket *t = first;
    while (t && t->begun) t = t->next;
    return t && t->ready ? t : NULL;
}

/* The thread that begins and completes the sums. It does not lock the list during library calls, because the first call may wait
 * for other ranks. */
static void *look_after(void *arg) {
    (void)arg;
    sgrad_monitor_lock(tickets);
    while (!closing || first) {
        struct ticket *next = find_ready(), *ended = next ? NULL : take_ended();
        bool waiting = first && first->begun;
        if (!next && !ended && !waiting && !(closing && !first)) sgrad_monitor_wait(tickets, 0);
        sgrad_monitor_unlock(tickets);
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
        sgrad_monitor_lock(tickets);
    }
    sgrad_monitor_unlock(tickets);
    return NULL;
}

static int submit(const struct sgrad_message *message, const struct sgrad__summing *by) {
    struct ticket *t = sgrad_xcalloc(1, sizeof *t);
    *t = (struct ticket){ .is = *message, .by = by, .sum = { .tensor = message->tensor }, .node = by->node() };
    sgrad_monitor_lock(tickets);
    if (!thread) thread = sgrad_thread_start(look_after, NULL);
    *last = t;
    last = &t->next;
    sgrad_monitor_unlock(tickets);
    if (thread && sgrad__tensor_acquire(message->tensor, t->node, SGRAD_RW, is_ready, t) == 0) return 0;
    return sgrad_log_error(SGRAD_EDEVICE,
                           "the sum of tensor %s over the ranks cannot be started; check the limit of threads (ulimit -u)",
                           message->tensor->name);
}

int sgrad_allreduce(const struct sgrad_message *message) { return submit(message, &mpi); }
int sgrad_allreduce_on_gpus(const struct sgrad_message *message) { return submit(message, &sgrad__nccl_summing); }

void sgrad__allreduces_open(void) {
    tickets = sgrad_monitor_create();
    MPI_Comm_dup(MPI_COMM_WORLD, &collective);
}

void sgrad__allreduces_close(void) {
    sgrad_monitor_lock(tickets);
    closing = true;
    sgrad_monitor_notify(tickets);
    sgrad_monitor_unlock(tickets);
    sgrad_thread_join(thread);
    thread = NULL;
    sgrad_monitor_destroy(tickets);
    sgrad__nccl_close();
    MPI_Comm_free(&collective);
}
