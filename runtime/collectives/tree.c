/* tree.c: up a binary reduction tree and down again (FireCaffe: Iandola et al. 2016).
 *
 * Pairs reduce at distance 1, the firsts of pairs at distance 2, and so on; rank 0 has the sum. Five ranks:
 *
 *                  0     1     2     3     4
 *     distance 1   01 <──┘     23 <──┘     │
 *     distance 2   0123 <──────┘           │        down: the same edges backwards, the longest first
 *     distance 4   01234 <─────────────────┘
 *
 * Chunks follow one another, and what comes down overlaps what goes up, as a rank sends and receives at once:
 *
 *     rank 0 receives   A from 1, 2, 4   B from 1, 2, 4   C from 1, 2, 4
 *     rank 0 sends                       A to 4, 2, 1     B to 4, 2, 1     C to 4, 2, 1
 *
 * Cost of p ranks and n chunks: (n + 1) ⌈log2 p⌉ (latency + bytes / n / bandwidth): with one chunk twice FireCaffe's formula,
 * with many the formula itself.
 *
 * Limits: rank 0 takes in ⌈log2 p⌉ times the bytes: methods that share the sums out are faster for long buffers. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <stddef.h>

static int rank_of(const int *member, int place) { return member ? member[place] : place; }

void sgrad__tree_up(struct sgrad_plan *plan, int chunk, int place, int members, const int *member) {
    for (int distance = 1; distance < members; distance *= 2) {
        if (place & distance) {
            sgrad_plan_add(plan, SGRAD_SEND, rank_of(member, place - distance), chunk);
            return;
        }
        if (place + distance < members) sgrad_plan_add(plan, SGRAD_REDUCE, rank_of(member, place + distance), chunk);
    }
}

void sgrad__tree_down(struct sgrad_plan *plan, int chunk, int place, int members, const int *member) {
    int distance = 1; /* to the parent; of the root, beyond every child */
    while (distance < members && !(place & distance)) distance *= 2;
    if (place) sgrad_plan_add(plan, SGRAD_COPY, rank_of(member, sgrad__tree_parent(place)), chunk);
    while (distance /= 2)
        if (place + distance < members) sgrad_plan_add(plan, SGRAD_SEND, rank_of(member, place + distance), chunk);
}

static double price(double bytes, int chunks, const struct sgrad_network *net) {
    struct sgrad__round up = sgrad__round_begin(net, bytes / chunks);
    for (int rank = 1; rank < net->ranks; rank++) sgrad__round_send(&up, rank, sgrad__tree_parent(rank));
    return (chunks + 1) * sgrad__round_end(&up);
}

static int chunks(double bytes, const struct sgrad_network *net) {
    return sgrad__best_chunks(price, 1, SGRAD__CHUNKS, bytes, net);
}

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

/* The next chunk goes up while one is on its way to the root: then that comes down. */
static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    for (int c = 0; c <= plan->chunks; c++) {
        if (c < plan->chunks) sgrad__tree_up(plan, c, rank, net->ranks, NULL);
        if (c > 0) sgrad__tree_down(plan, c - 1, rank, net->ranks, NULL);
    }
}

const struct sgrad_allreduce sgrad_tree_allreduce = {
    .name = "tree",
    .summary = "up a binary tree to rank 0 and down again, in a pipeline of chunks (FireCaffe)",
    .source = "Iandola et al. 2016, arXiv:1511.00175",
    .halving = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
