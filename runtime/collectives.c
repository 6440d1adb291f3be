/* collectives.c: the list of collective algorithms, and the choice of the cheapest. */
#include "config.h"
#include "runtime/collectives/internal.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

#define SGRAD_COLLECTIVE(name, kind) extern const struct sgrad_collective sgrad_##name##_##kind;
#include "runtime/collectives.def"
#undef SGRAD_COLLECTIVE

static const struct sgrad_collective *const built_in[] = {
#define SGRAD_COLLECTIVE(name, kind) &sgrad_##name##_##kind,
#include "runtime/collectives.def"
#undef SGRAD_COLLECTIVE
    NULL,
};
const struct sgrad_collective *const *sgrad_collectives = built_in;

const char *sgrad_collective_kind_name(enum sgrad_collective_kind kind) {
    static const char *const name[] = { [SGRAD_ALLREDUCE] = "allreduce", [SGRAD_REDUCE_SCATTER] = "reduce_scatter",
                                        [SGRAD_ALL_GATHER] = "all_gather", [SGRAD_REDUCE] = "reduce",
                                        [SGRAD_BROADCAST] = "broadcast" };
    return name[kind];
}

const struct sgrad_collective *sgrad_collective_find(enum sgrad_collective_kind kind, const char *name) {
    int all = 0, count = 0;
    while (sgrad_collectives[all]) all++;
    const struct sgrad_collective **of_kind = sgrad_xcalloc((size_t)all + 1, sizeof *of_kind);
    for (int i = 0; i < all; i++)
        if (sgrad_collectives[i]->kind == kind) of_kind[count++] = sgrad_collectives[i];
    const struct sgrad_collective *found = sgrad_registry_find(sgrad_collective_kind_name(kind), name, of_kind);
    free(of_kind);
    return found;
}

/* Returns true if METHOD may be chosen automatically. Algorithms of libraries are only used if selected by name: their cost is an
 * estimate, and their transfers do not overlap. HALVING: additions must follow the binary tree. */
static bool chooses(const struct sgrad_collective *method, enum sgrad_collective_kind kind, bool halving) {
    return method->kind == kind && !method->library && (method->tree_order || !halving);
}

/* Returns NULL if no algorithm qualifies. If HALVING excludes all of them for this number of ranks, the caller tries again
 * without it. */
static const struct sgrad_collective *cheapest(enum sgrad_collective_kind kind, const struct sgrad_exchange *what, bool halving,
                                               const struct sgrad_network *net) {
    const struct sgrad_collective *best = NULL;
    double least = INFINITY;
    for (const struct sgrad_collective *const *method = sgrad_collectives; *method; method++) {
        if (!chooses(*method, kind, halving)) continue;
        if (what->limit && sgrad__collective_chunks(*method, what, net) > what->limit) continue;
        const double seconds = sgrad_collective_cost(*method, what, net);
        if (seconds >= least) continue;
        best = *method;
        least = seconds;
    }
    return best;
}

const struct sgrad_collective *sgrad_collective_cheapest(enum sgrad_collective_kind kind, const struct sgrad_exchange *what,
                                                         const struct sgrad_network *net) {
    const struct sgrad_collective *best = cheapest(kind, what, what->halving, net);
    return best ? best : cheapest(kind, what, false, net);
}
