/* message_work.c: models the CPU time of a worker for messages in a simulated trainer. This file submits tasks by task.c, whose
 * durations simulation.c returns, and none of those files uses it. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <limits.h>
#include <stdlib.h>

static void nothing(const struct sgrad_args *args) { (void)args; }
static double twice(const struct sgrad_args *args) { return 2 * (double)sgrad_view_bytes(&args->view[0]); }
static const struct sgrad_kernel copy_kernel = { .name = "copy to itself", .kind = &sgrad__simulated_reduction,
                                                 .cpu = nothing, .flops = sgrad_no_flops, .bytes = twice };

static void forget(void *call) {
    sgrad_bound_kernel_release(call);
    free(call);
}

/* The time is a separate task: that of a sent message reads the tensor, concurrently with the transmission; that of a received
 * message precedes every use of the tensor. A message of a rank to itself is modelled as a copy. */
void sgrad__simulation_carry(const struct sgrad_message *message, enum sgrad_access access) {
    const bool own = message->peer == sgrad__world.rank;
    if (sgrad__simulation_carrying() <= 0 || (own && access == SGRAD_R)) return;
    struct sgrad_bound_kernel *call = sgrad_xcalloc(1, sizeof *call);
    *call = (struct sgrad_bound_kernel){ .kernel = own ? &copy_kernel : &sgrad__simulated_carry, .operands = 1,
                                 .view = { message->tensor->view }, .access = { access } };
    sgrad_bound_kernel_prepare(call);
    const struct sgrad_submission task = { .call = call, .operand = (struct sgrad_tensor *const[]){ message->tensor },
                                           .priority = INT_MAX, .workers = SGRAD_CPU_WORKERS, .name = call->kernel->name,
                                           .done = forget, .done_arg = call };
    if (sgrad_task_submit(&task)) forget(call);
}
