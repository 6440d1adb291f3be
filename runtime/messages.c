/* messages.c: tensors from rank to rank, by StarPU-MPI's detached transfers; and MPI_Iallreduce on a tensor, the baseline that
 * plans are measured against.
 *
 * MPI asks that all ranks begin collective calls in the same order, but tensors are ready when they are ready. So each takes a
 * ticket when it is submitted, and one thread begins them in the order of tickets and looks for their end:
 *
 *     submitted  0 1 2 3        ready  . 1 2 .    waits for 0        ready  0 1 2 .    begins 0, 1, 2
 */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <starpu_mpi.h>
#include <stdlib.h>

int sgrad__message_limit = INT_MAX;

/* StarPU-MPI makes one message of a tensor, and MPI counts its bytes in an int. */
static int check_length(const struct sgrad_message *m) {
    const size_t bytes = sgrad_view_bytes(&m->tensor->view);
    if (bytes <= (size_t)sgrad__message_limit) return 0;
    return sgrad_fail(SGRAD_EINVAL, "%s: has %zu bytes, and a message between ranks %d at most: it has to go in several tensors",
                      m->tensor->name, bytes, sgrad__message_limit);
}

static atomic_llong sent_bytes;

int64_t sgrad_sent_bytes(void) { return sent_bytes; }

int sgrad_send(const struct sgrad_message *m) {
    SGRAD_TRY(check_length(m));
    atomic_fetch_add(&sent_bytes, (long long)sgrad_view_bytes(&m->tensor->view));
    if (starpu_mpi_isend_detached_prio(m->tensor->handle, m->peer, m->tag, m->priority, MPI_COMM_WORLD, m->done, m->arg) == 0)
        return 0;
    return sgrad_fail(SGRAD_EDEVICE, "%s: cannot be sent to rank %d", m->tensor->name, m->peer);
}

int sgrad_receive(const struct sgrad_message *m) {
    SGRAD_TRY(check_length(m));
    if (starpu_mpi_irecv_detached_prio(m->tensor->handle, m->peer, m->tag, m->priority, MPI_COMM_WORLD, m->done, m->arg) == 0)
        return 0;
    return sgrad_fail(SGRAD_EDEVICE, "%s: cannot be received from rank %d", m->tensor->name, m->peer);
}

/* ---- MPI_Iallreduce ---------------------------------------------------------------------------------------------- */

struct ticket {
    struct sgrad_message is;
    bool ready, begun;
    int pieces;
    MPI_Request *request;       /* one for each piece */
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

/* MPI counts elements in an int: a longer tensor goes in pieces, the same ones on every rank. */
static void begin(struct ticket *t) {
    const struct sgrad_view *v = &t->is.tensor->view;
    const int64_t count = sgrad_shape_count(&v->shape), most = sgrad__message_limit;
    char *memory = sgrad__tensor_memory(t->is.tensor);
    t->pieces = (int)((count + most - 1) / most);
    t->request = sgrad_alloc((size_t)t->pieces, sizeof *t->request);
    for (int64_t i = 0, from = 0; i < t->pieces; i++, from += most) {
        const int piece = (int)(count - from < most ? count - from : most);
        MPI_Iallreduce(MPI_IN_PLACE, memory + (size_t)from * sgrad_dtype_size(v->dtype), piece,
                       v->dtype == SGRAD_F64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, collective, &t->request[i]);
    }
    t->begun = true;
}

/* Takes the first ticket that has ended out of the list; NULL: none has. */
static struct ticket *take_ended(void) {
    for (struct ticket **at = &first; *at && (*at)->begun; at = &(*at)->next) {
        struct ticket *t = *at;
        int ended = 0;
        MPI_Testall(t->pieces, t->request, &ended, MPI_STATUSES_IGNORE);
        if (!ended) continue;
        if (!(*at = t->next)) last = at;
        return t;
    }
    return NULL;
}

static void *look_after(void *arg) {
    (void)arg;
    sgrad_monitor_enter(tickets);
    while (!closing || first) {
        for (struct ticket *t = first; t && t->ready; t = t->next)
            if (!t->begun) begin(t);
        struct ticket *ended = take_ended();
        bool waiting = first && first->begun;
        if (!ended && !waiting && !(closing && !first)) sgrad_monitor_wait(tickets, 0);
        sgrad_monitor_leave(tickets);
        if (ended) {
            sgrad__tensor_release(ended->is.tensor);
            ended->is.done(ended->is.arg);
            free(ended->request);
            free(ended);
        } else if (waiting) {
            sgrad_sleep(50e-6);
        }
        sgrad_monitor_enter(tickets);
    }
    sgrad_monitor_leave(tickets);
    return NULL;
}

int sgrad_allreduce(const struct sgrad_message *m) {
    struct ticket *t = sgrad_alloc(1, sizeof *t);
    t->is = *m;
    sgrad_monitor_enter(tickets);
    if (!thread) thread = sgrad_thread_start(look_after, NULL);
    *last = t;
    last = &t->next;
    sgrad_monitor_leave(tickets);
    if (thread && sgrad__tensor_acquire(m->tensor, SGRAD_RW, is_ready, t) == 0) return 0;
    return sgrad_fail(SGRAD_EDEVICE, "%s: cannot be summed over the ranks", m->tensor->name);
}

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
    MPI_Comm_free(&collective);
}
