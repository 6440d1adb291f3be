/* messages.c: sends and receives tensors between ranks, by detached transfers of StarPU-MPI. */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/internal.h"
#include "runtime/partitions.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <starpu_mpi.h>
#include <stdlib.h>

int sgrad__message_limit = INT_MAX;

int64_t sgrad_message_most(void) {
    const char *asked = sgrad_variable("STARGRAD_MESSAGE_LIMIT");    /* environment.c checks it */
    const int64_t most = asked ? strtol(asked, NULL, 10) : 0;
    return most > 0 && most < sgrad__message_limit ? most : sgrad__message_limit;
}

/* StarPU-MPI sends a tensor as one message, whose bytes MPI counts in an int. */
static int check_length(const struct sgrad_message *message) {
    const size_t bytes = sgrad_view_bytes(&message->tensor->view);
    if (bytes <= (size_t)sgrad_message_most()) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "tensor %s: has %zu bytes, but a message between ranks can have at most %d; split it into several "
                           "tensors",
                           message->tensor->name, bytes, (int)sgrad_message_most());
}

static atomic_llong sent_bytes, carried_bytes;

int64_t sgrad_sent_bytes(void) { return sent_bytes; }
int64_t sgrad_remote_bytes(void) { return carried_bytes; }

void sgrad__messages_count(int64_t bytes, bool sent) {
    if (sent) atomic_fetch_add(&sent_bytes, (long long)bytes);
    atomic_fetch_add(&carried_bytes, (long long)bytes);
}

/* Counted tensors are counted when they are packed (counted.c). */
static void count(const struct sgrad_message *message, bool sent) {
    const long long bytes = (long long)sgrad_view_bytes(&message->tensor->view);
    if (message->tensor->counted) return;
    if (sent) atomic_fetch_add(&sent_bytes, bytes);
    if (message->peer != sgrad__world.rank) atomic_fetch_add(&carried_bytes, bytes);
}

int sgrad_send(const struct sgrad_message *message) {
    const struct sgrad_message to = SGRAD_SIMULATED ? sgrad__simulation_message(*message) : *message;
    SGRAD_TRY(check_length(message));
    count(message, true);
    if (starpu_mpi_isend_detached_prio(message->tensor->handle, to.peer, to.tag, message->priority, MPI_COMM_WORLD, message->done,
                                       message->arg))
        return sgrad_log_error(SGRAD_EDEVICE, "tensor %s: StarPU cannot send it to rank %d", message->tensor->name,
                               message->peer);
    if (SGRAD_SIMULATED) sgrad__simulation_carry(message, SGRAD_R);
    return 0;
}

int sgrad_receive(const struct sgrad_message *message) {
    const struct sgrad_message from = SGRAD_SIMULATED ? sgrad__simulation_message(*message) : *message;
    SGRAD_TRY(check_length(message));
    count(message, false);
    if (starpu_mpi_irecv_detached_prio(message->tensor->handle, from.peer, from.tag, message->priority, MPI_COMM_WORLD,
                                       message->done, message->arg))
        return sgrad_log_error(SGRAD_EDEVICE, "tensor %s: StarPU cannot receive it from rank %d", message->tensor->name,
                               message->peer);
    if (SGRAD_SIMULATED) sgrad__simulation_carry(message, SGRAD_RW);
    return 0;
}
