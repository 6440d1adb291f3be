/* doubling.c: recursive doubling (Thakur, Rabenseifner and Gropp 2005).
 *
 * In every step, ranks at distance 1, 2, 4, … form pairs, which exchange their partial sums. Four ranks:
 *
 *                  rank 0       rank 1       rank 2       rank 3
 *     start        0            1            2            3
 *     distance 1   01           01           23           23          0 <-> 1   2 <-> 3
 *     distance 2   0123         0123         0123         0123        0 <-> 2   1 <-> 3
 *
 * The ranks of a pair add the same two values in opposite order: a + b and b + a have the same bits, so all ranks have the same
 * result. Cost of p = 2^k ranks: k (latency + bytes / bandwidth): no algorithm takes fewer steps. Other numbers of ranks are
 * folded (fold.c), which takes two more steps.
 *
 * Limits: each rank sends k times the bytes. If a host has several ranks, the messages of all of them use its link in the last
 * steps. */
#include "config.h"
#include "runtime/collectives/internal.h"

static int chunks(double bytes, const struct sgrad_network *net) {
    (void)bytes, (void)net;
    return 1;
}

static double cost(double bytes, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    double seconds = sgrad__fold_seconds(&fold, bytes, net);
    for (int distance = 1; distance < fold.places; distance *= 2) seconds += sgrad__exchange_seconds(&fold, distance, bytes, net);
    return seconds;
}

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const int place = sgrad__fold_place(&fold, rank);
    sgrad__fold_in(plan, &fold, rank);
    for (int distance = 1; distance < fold.places && place >= 0; distance *= 2) {
        const int peer = sgrad__fold_rank(&fold, place ^ distance);
        sgrad_plan_add_chunks(plan, SGRAD_SEND, peer, 0, plan->chunks);
        sgrad_plan_add_chunks(plan, SGRAD_ADD, peer, 0, plan->chunks);
    }
    sgrad__fold_out(plan, &fold, rank);
}

const struct sgrad_collective sgrad_doubling_allreduce = {
    .name = "doubling",
    .kind = SGRAD_ALLREDUCE,
    .summary = "recursive doubling: pairs at distance 1, 2, 4, … exchange all data: fewest steps, for short buffers",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .tree_order = true,
    .symmetric = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
