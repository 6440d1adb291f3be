/* mpi.c: MPI does it: one call of MPI_Iallreduce (MPI 4.0, section 6.12.8), to compare with.
 *
 *                  rank 0     rank 1     rank 2
 *     start        A0 B0      A1 B1      A2 B2
 *     one call     A*  B*     A*  B*     A*  B*          what happens inside is the library's affair
 *
 * Cost: the best of the classical formulas (Thakur, Rabenseifner and Gropp 2005) of p ranks, with s = ⌊log2 p⌋ steps:
 *
 *     doubling   s (latency + bytes / bandwidth)                              and latency + bytes / bandwidth,
 *     halving    2 s latency + 2 (p − 1) / p bytes / bandwidth                twice, where p is no power of two
 *     ring       2 (p − 1) latency + 2 (p − 1) / p bytes / bandwidth
 *
 * Limits: libraries choose by tables of their own, not by this network, and some know hosts: the cost is the least to expect, and
 * the method is taken by its name only. The order of sums is unknown, and may change with the library and the length. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <math.h>
#include <stddef.h>

static int chunks(double bytes, const struct sgrad_network *net) {
    (void)bytes, (void)net;
    return 1;
}

static double cost(double bytes, const struct sgrad_network *net) {
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

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    (void)net;
    plan->chunks = 1;
    sgrad_plan_add(plan, SGRAD_WHOLE, rank, 0);
}

const struct sgrad_collective sgrad_mpi_allreduce = {
    .name = "mpi",
    .kind = SGRAD_ALLREDUCE,
    .summary = "one call of MPI_Iallreduce, to compare with; taken by name only",
    .source = "MPI 4.0, section 6.12.8",
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
