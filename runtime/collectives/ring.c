/* ring.c: reduce-scatter and all-gather around a ring, and both in sequence as an allreduce (Patarasuk and Yuan 2009).
 *
 * The buffer is divided into one chunk per rank. In every step, each rank sends one chunk to the next rank of the ring.
 * Three ranks, chunks A, B, C; A01 is the sum of rank 0's and rank 1's A, and * is the sum over all:
 *
 *                    rank 0             rank 1             rank 2           0 sends   1 sends   2 sends
 *     start          A0   B0   C0       A1   B1   C1       A2   B2   C2
 *     reduce 1       A0   B20  C0       A1   B1   C01      A12  B2   C2        C         A         B
 *     reduce 2       A*   B20  C0       A1   B*   C01      A12  B2   C*        B         C         A
 *     copy 1         A*   B20  C*       A*   B*   C01      A12  B*   C*        A         B         C
 *     copy 2         A*   B*   C*       A*   B*   C*       A*   B*   C*        C         A         B
 *
 * The ranks of a host are consecutive in the ring, so that in each step one message leaves each host and one enters it. Cost of p
 * ranks: (p − 1) (latency + bytes / p / bandwidth) for reduce-scatter, and the same for all-gather. No algorithm sends fewer
 * bytes, and none takes more steps.
 *
 * Limits: the order of additions differs between chunks: it follows the ring and ends at the rank of the chunk. */
#include "config.h"
#include "runtime/collectives/internal.h"

static int chunks(double bytes, const struct sgrad_network *net) {
    (void)bytes;
    return net->ranks;
}

/* Seconds of reduce-scatter or of all-gather. */
static double half_cost(double bytes, const struct sgrad_network *net) {
    const int p = net->ranks;
    int first[p], ring[p];
    sgrad__hosts(net, first, ring);
    struct sgrad__round round = sgrad__round_begin(net, bytes / p);
    for (int i = 0; i < p; i++) sgrad__round_send(&round, ring[i], ring[(i + 1) % p]);
    return (p - 1) * sgrad__round_end(&round);
}

static double cost(double bytes, const struct sgrad_network *net) { return 2 * half_cost(bytes, net); }

/* Appends the p − 1 steps of one pass around the ring. In the first step a rank sends the chunk of the rank LAG positions before
 * it. With LAG 1, each chunk reaches its rank in the last step (sums); with LAG 0, it leaves its rank in the first step (copies).
 * With fewer chunks than ranks, the actions of the missing chunks are omitted. */
static void add_round(struct sgrad_plan *plan, enum sgrad_action_kind receive, int lag, int rank,
                      const struct sgrad_network *net) {
    const int p = net->ranks;
    int first[p], ring[p], at = 0;
    sgrad__hosts(net, first, ring);
    while (ring[at] != rank) at++;
    const int next = ring[(at + 1) % p], last = ring[(at + p - 1) % p];
    for (int step = 0; step < p - 1; step++) {
        const int sent = ring[(at - step - lag + 2 * p) % p], received = ring[(at - step - lag - 1 + 2 * p) % p];
        if (sent < plan->chunks) sgrad_plan_add(plan, SGRAD_SEND, next, sent);
        if (received < plan->chunks) sgrad_plan_add(plan, receive, last, received);
    }
}

static void scatter(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    add_round(plan, SGRAD_ADD, 1, rank, net);
}

static void gather(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    add_round(plan, SGRAD_COPY, 0, rank, net);
}

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    scatter(plan, rank, net);
    gather(plan, rank, net);
}

#define SOURCE "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002"

const struct sgrad_collective sgrad_ring_reduce_scatter = {
    .name = "ring",
    .kind = SGRAD_REDUCE_SCATTER,
    .summary = "chunks travel around a ring, each towards its rank, and every rank on the way adds its values",
    .source = SOURCE,
    .cost = half_cost,
    .chunks = chunks,
    .schedule = scatter,
};
const struct sgrad_collective sgrad_ring_all_gather = {
    .name = "ring",
    .kind = SGRAD_ALL_GATHER,
    .summary = "each rank's chunk travels around a ring",
    .source = SOURCE,
    .tree_order = true,
    .cost = half_cost,
    .chunks = chunks,
    .schedule = gather,
};
const struct sgrad_collective sgrad_ring_allreduce = {
    .name = "ring",
    .kind = SGRAD_ALLREDUCE,
    .summary = "reduce-scatter and all-gather around a ring: fewest bytes, most steps",
    .source = SOURCE,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
