/* chain.c: broadcast from rank to rank along a chain, pipelined in chunks (Pjesivac-Grbovic et al. 2007).
 *
 *     root ──> 1 ──> 2 ──> 3        root sends   A B C D
 *                                   1 sends        A B C D
 *                                   2 sends          A B C D
 *
 * The ranks of a host are consecutive in the chain, which starts at the root. Cost of p ranks and n chunks:
 * (p − 2 + n) (latency + bytes / n / bandwidth): with many chunks no algorithm is faster.
 *
 * Limits: one slow link delays all ranks after it. */
#include "config.h"
#include "runtime/collectives/internal.h"

/* The cost does not depend on the root: every message is assumed to take as long as the slowest. */
static double price(double bytes, int chunks, const struct sgrad_network *net) {
    return (net->ranks - 2 + chunks) * sgrad__slowest(bytes / chunks, net);
}

static int chunks(double bytes, const struct sgrad_network *net) {
    return sgrad__best_chunks(price, 1, SGRAD__CHUNKS, bytes, net);
}

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    const int p = net->ranks;
    int first[p], ring[p], at = 0, root = 0;
    sgrad__hosts(net, first, ring);
    while (ring[at] != rank) at++;
    while (ring[root] != plan->root) root++;
    const bool begins = at == root, ends = (at + 1) % p == root;
    for (int c = 0; c < plan->chunks; c++) {
        if (!begins) sgrad_plan_add(plan, SGRAD_COPY, ring[(at + p - 1) % p], c);
        if (!ends) sgrad_plan_add(plan, SGRAD_SEND, ring[(at + 1) % p], c);
    }
}

const struct sgrad_collective sgrad_chain_broadcast = {
    .name = "chain",
    .kind = SGRAD_BROADCAST,
    .summary = "pipelined chain of ranks, for long buffers",
    .source = "Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0",
    .tree_order = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
