/* collectives.c: the list of methods of summing over ranks, and the choice of the cheapest. */
#include "config.h"
#include "runtime/collectives.h"

#include <stddef.h>

#define SGRAD_ALLREDUCE(name) extern const struct sgrad_allreduce sgrad_##name##_allreduce;
#include "runtime/collectives.def"
#undef SGRAD_ALLREDUCE

const struct sgrad_allreduce *const sgrad_allreduces[] = {
#define SGRAD_ALLREDUCE(name) &sgrad_##name##_allreduce,
#include "runtime/collectives.def"
#undef SGRAD_ALLREDUCE
    NULL,
};

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
