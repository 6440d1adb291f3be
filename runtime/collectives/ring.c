/* ring.c: reduce-scatter, then allgather, around a ring (Patarasuk and Yuan 2009).
 *
 * The buffer is cut into a block for each rank. In every step each rank sends one block to the next rank of the ring.
 * Three ranks, blocks A, B, C; A01 is the sum of rank 0's and rank 1's A, and * is the sum over all:
 *
 *                    rank 0             rank 1             rank 2           0 sends   1 sends   2 sends
 *     start          A0   B0   C0       A1   B1   C1       A2   B2   C2
 *     reduce 1       A0   B0   C02      A01  B1   C1       A2   B12  C2        A         B         C
 *     reduce 2       A0   B*   C02      A01  B1   C*       A*   B12  C2        C         A         B
 *     copy 1         A*   B*   C02      A01  B*   C*       A*   B12  C*        B         C         A
 *     copy 2         A*   B*   C*       A*   B*   C*       A*   B*   C*        A         B         C
 *
 * The ring goes through the ranks of one host after the other, so that one message leaves each host in a step, and one enters.
 * Cost of p ranks: 2 (p − 1) (latency + bytes / p / bandwidth): no method moves fewer bytes, none takes more steps.
 *
 * Limits: each block is summed in an order of its own, from its rank around the ring. */
#include "config.h"
#include "runtime/collectives/internal.h"

static int chunks(double bytes, const struct sgrad_network *net) {
    (void)bytes;
    return net->ranks;
}

static double cost(double bytes, const struct sgrad_network *net) {
    const int p = net->ranks;
    int first[p], ring[p];
    sgrad__hosts(net, first, ring);
    struct sgrad__round round = sgrad__round_begin(net, bytes / p);
    for (int i = 0; i < p; i++) sgrad__round_send(&round, ring[i], ring[(i + 1) % p]);
    return 2 * (p - 1) * sgrad__round_end(&round);
}

/* Chunk c belongs to block c mod p. With fewer chunks than ranks some blocks are empty. */
static void add_block(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int block, int p) {
    for (int c = (block + p) % p; c < plan->chunks; c += p) sgrad_plan_add(plan, kind, peer, c);
}

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    const int p = net->ranks;
    int first[p], ring[p], place = 0;
    sgrad__hosts(net, first, ring);
    while (ring[place] != rank) place++;
    const int next = ring[(place + 1) % p], last = ring[(place + p - 1) % p];
    for (int step = 0; step < p - 1; step++) {
        add_block(plan, SGRAD_SEND, next, place - step, p);
        add_block(plan, SGRAD_REDUCE, last, place - step - 1, p);
    }
    for (int step = 0; step < p - 1; step++) {
        add_block(plan, SGRAD_SEND, next, place - step + 1, p);
        add_block(plan, SGRAD_COPY, last, place - step, p);
    }
}

const struct sgrad_allreduce sgrad_ring_allreduce = {
    .name = "ring",
    .summary = "reduce-scatter and allgather around a ring: fewest bytes, most steps",
    .source = "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002",
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
