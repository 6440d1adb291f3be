/* library.c: an allreduce by a library (mpi.c, nccl.c). Its plan is one call. Its cost is the minimum of these formulas (Thakur,
 * Rabenseifner and Gropp 2005) for p ranks, with s = ⌊log2 p⌋ steps:
 *
 *     doubling   s (latency + bytes / bandwidth)                              plus 2 (latency + bytes / bandwidth)
 *     halving    2 s latency + 2 (p − 1) / p bytes / bandwidth                if p is not a power of two
 *     ring       2 (p − 1) latency + 2 (p − 1) / p bytes / bandwidth
 *
 * Limits: libraries choose their algorithm by internal tables, not for this network, and some take hosts into account. The cost
 * is therefore a lower bound. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <math.h>
#include <stddef.h>

double sgrad__library_cost(double bytes, const struct sgrad_network *net) {
    int first[net->ranks];
    const bool one_host = sgrad__hosts(net, first, NULL) == 1;
    const double latency = one_host ? net->host_latency : net->latency;
    const double transfer = bytes / (one_host ? net->host_bandwidth : net->bandwidth);
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const double p = net->ranks, steps = log2(fold.places), folding = fold.extra ? 2 * (latency + transfer) : 0;
    const double shared = 2 * (p - 1) / p * transfer;
    const double doubling = steps * (latency + transfer) + folding;
    const double halving = 2 * steps * latency + shared + folding;
    const double ring = 2 * (p - 1) * latency + shared;
    return fmin(doubling, fmin(halving, ring));
}

int sgrad__library_chunks(double bytes, const struct sgrad_network *net) {
    (void)bytes, (void)net;
    return 1;
}

void sgrad__library_schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    (void)net;
    plan->chunks = 1;
    sgrad_plan_add(plan, SGRAD_WHOLE, rank, 0);
}
