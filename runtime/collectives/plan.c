/* plan.c: the making of one rank's plan by one method. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/runtime.h"

#include <assert.h>

void sgrad_plan_add(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk) {
    plan->action = sgrad_grow(plan->action, plan->count, sizeof *plan->action);
    plan->action[plan->count++] = (struct sgrad_action){ kind, peer, chunk };
}

struct sgrad_plan sgrad_plan_make(const struct sgrad_allreduce *method, double bytes, int limit, int rank,
                                  const struct sgrad_network *net) {
    assert(limit >= 1 && rank >= 0 && rank < net->ranks);
    struct sgrad_plan plan = { .chunks = 1 };
    if (net->ranks == 1) return plan;
    plan.chunks = method->chunks(bytes, net);
    if (plan.chunks > limit) plan.chunks = limit;
    method->schedule(&plan, rank, net);
    return plan;
}
