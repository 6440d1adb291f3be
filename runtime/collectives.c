/* allreduce.c: the list of methods, the making of a plan, the choice of the cheapest. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/collectives/internal.h"
#include "runtime/runtime.h"

#include <assert.h>

const struct sgrad_allreduce *const sgrad_allreduces[] = {
#define SGRAD_ALLREDUCE(name) &sgrad_##name##_allreduce,
#include "runtime/collectives.def"
#undef SGRAD_ALLREDUCE
    NULL,
};

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

/* What MPI does is MPI's to know, its cost a guess, and no chunk of it overlaps anything: it is taken by its name only. */
static bool chooses(const struct sgrad_allreduce *method, bool halving) {
    return method != &sgrad_mpi_allreduce && (method->halving || !halving);
}

const struct sgrad_allreduce *sgrad_allreduce_cheapest(double bytes, const struct sgrad_network *net, bool halving) {
    const struct sgrad_allreduce *best = NULL;
    double least = 0;
    for (const struct sgrad_allreduce *const *method = sgrad_allreduces; *method; method++) {
        if (!chooses(*method, halving)) continue;
        const double seconds = (*method)->cost(bytes, net);
        if (best && seconds >= least) continue;
        best = *method;
        least = seconds;
    }
    return best;
}
