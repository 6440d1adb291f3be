/* carrying.c: the work that a worker of a simulated trainer has for each message. It lies above task.c, whose tasks it submits,
 * and simulation.c, which gives their durations. */
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
    sgrad_call_forget(call);
    free(call);
}

/* A task of its own: of what goes to others, beside the sending; of what comes, before it is used; what a rank sends to itself is
 * copied. */
void sgrad__simulation_carry(const struct sgrad_message *m, enum sgrad_access access) {
    const bool own = m->peer == sgrad__world.rank;
    if (sgrad__simulation_carrying() <= 0 || (own && access == SGRAD_R)) return;
    struct sgrad_call *call = sgrad_alloc(1, sizeof *call);
    *call = (struct sgrad_call){ .kernel = own ? &copy_kernel : &sgrad__simulated_carry, .operands = 1,
                                 .view = { m->tensor->view }, .access = { access } };
    sgrad_call_prepare(call);
    const struct sgrad_submission task = { .call = call, .operand = (struct sgrad_tensor *const[]){ m->tensor },
                                           .priority = INT_MAX, .workers = SGRAD_CPU_WORKERS, .name = call->kernel->name,
                                           .done = forget, .done_arg = call };
    if (sgrad_task_submit(&task)) forget(call);
}
