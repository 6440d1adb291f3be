/* messages.c: sends and receives tensors between ranks, by detached transfers of StarPU-MPI. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/partitions.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <starpu_mpi.h>
#include <stdlib.h>

int sgrad__message_limit = INT_MAX;

int64_t sgrad_message_most(void) {
    const char *asked = getenv("STARGRAD_MESSAGE_LIMIT");
    const int64_t most = asked ? strtol(asked, NULL, 10) : 0;
    return most > 0 && most < sgrad__message_limit ? most : sgrad__message_limit;
}

/* StarPU-MPI sends a tensor as one message, whose bytes MPI counts in an int. */
static int check_length(const struct sgrad_message *m) {
    const size_t bytes = sgrad_view_bytes(&m->tensor->view);
    if (bytes <= (size_t)sgrad_message_most()) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "%s: has %zu bytes, and a message between ranks %d at most: it has to go in several tensors",
                           m->tensor->name, bytes, (int)sgrad_message_most());
}

static atomic_llong sent_bytes, carried_bytes;

int64_t sgrad_sent_bytes(void) { return sent_bytes; }
int64_t sgrad_remote_bytes(void) { return carried_bytes; }

static void count(const struct sgrad_message *m) {
    if (m->peer != sgrad__world.rank) atomic_fetch_add(&carried_bytes, (long long)sgrad_view_bytes(&m->tensor->view));
}

int sgrad_send(const struct sgrad_message *m) {
    const struct sgrad_message to = SGRAD_SIMULATED ? sgrad__simulation_message(*m) : *m;
    SGRAD_TRY(check_length(m));
    atomic_fetch_add(&sent_bytes, (long long)sgrad_view_bytes(&m->tensor->view));
    count(m);
    if (starpu_mpi_isend_detached_prio(m->tensor->handle, to.peer, to.tag, m->priority, MPI_COMM_WORLD, m->done, m->arg))
        return sgrad_log_error(SGRAD_EDEVICE, "%s: cannot be sent to rank %d", m->tensor->name, m->peer);
    if (SGRAD_SIMULATED) sgrad__simulation_carry(m, SGRAD_R);
    return 0;
}

int sgrad_receive(const struct sgrad_message *m) {
    const struct sgrad_message from = SGRAD_SIMULATED ? sgrad__simulation_message(*m) : *m;
    SGRAD_TRY(check_length(m));
    count(m);
    if (starpu_mpi_irecv_detached_prio(m->tensor->handle, from.peer, from.tag, m->priority, MPI_COMM_WORLD, m->done, m->arg))
        return sgrad_log_error(SGRAD_EDEVICE, "%s: cannot be received from rank %d", m->tensor->name, m->peer);
    if (SGRAD_SIMULATED) sgrad__simulation_carry(m, SGRAD_RW);
    return 0;
}
