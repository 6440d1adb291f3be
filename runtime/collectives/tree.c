/* tree.c: reduce up a binary tree, broadcast down it, and both in sequence as an allreduce (FireCaffe: Iandola et al. 2016).
 *
 * Pairs of ranks reduce at distance 1, the first ranks of these pairs at distance 2, and so on. Five ranks:
 *
 *                  0     1     2     3     4
 *     distance 1   01 <──┘     23 <──┘     │
 *     distance 2   0123 <──────┘           │        down: the same edges backwards, the longest first
 *     distance 4   01234 <─────────────────┘
 *
 * A block of ranks is represented by its first rank, or by the root if it is in the block. So the order of additions does not
 * depend on the root:
 *
 *     root 3       0     1     2     3     4
 *     distance 1   01 <──┘     └──> 23     │
 *     distance 2   └──────────────> 0123   │
 *     distance 4                    01234 <┘
 *
 * Chunks are pipelined. In an allreduce, the broadcast of a chunk overlaps the reduction of the next one, because a rank can send
 * and receive concurrently:
 *
 *     rank 0 receives   A from 1, 2, 4   B from 1, 2, 4   C from 1, 2, 4
 *     rank 0 sends                       A to 4, 2, 1     B to 4, 2, 1     C to 4, 2, 1
 *
 * Cost of an allreduce of p ranks and n chunks: (n + 1) ⌈log2 p⌉ (latency + bytes / n / bandwidth): with one chunk twice
 * FireCaffe's formula, with many chunks close to that formula. reduce and broadcast use one chunk.
 *
 * Limits: the root receives ⌈log2 p⌉ times the bytes. For long buffers, algorithms that distribute the sums over all ranks are
 * faster. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <stddef.h>

/* Returns the index that represents the DISTANCE indices from BLOCK on. */
static int speaker(int block, int distance, int root) { return root >= block && root < block + distance ? root : block; }

/* Returns the parent of index PLACE in the tree with this root; -1: PLACE is the root. Sets CHILD[0 … *children) to its children,
 * in the order of their additions. */
static int neighbours(int place, int members, int root, int child[32], int *children) {
    *children = 0;
    for (int distance = 1; distance < members; distance *= 2) {
        const int block = place & -(2 * distance), other = place & distance ? block : block + distance;
        if (other >= members) continue;
        const int peer = speaker(other, distance, root);
        if (speaker(block, 2 * distance, root) != place) return peer;
        child[(*children)++] = peer;
    }
    return -1;
}

static int rank_of(const int *member, int place) { return member ? member[place] : place; }

void sgrad__tree_up(struct sgrad_plan *plan, int chunk, int place, int members, const int *member) {
    int child[32], children;
    const int parent = neighbours(place, members, plan->root, child, &children);
    for (int i = 0; i < children; i++) sgrad_plan_add(plan, SGRAD_ADD, rank_of(member, child[i]), chunk);
    if (parent >= 0) sgrad_plan_add(plan, SGRAD_SEND, rank_of(member, parent), chunk);
}

void sgrad__tree_down(struct sgrad_plan *plan, int chunk, int place, int members, const int *member) {
    int child[32], children;
    const int parent = neighbours(place, members, plan->root, child, &children);
    if (parent >= 0) sgrad_plan_add(plan, SGRAD_COPY, rank_of(member, parent), chunk);
    while (children--) sgrad_plan_add(plan, SGRAD_SEND, rank_of(member, child[children]), chunk);
}

static double way_seconds(double bytes, const struct sgrad_network *net) {
    struct sgrad__round up = sgrad__round_begin(net, bytes);
    for (int rank = 1; rank < net->ranks; rank++) sgrad__round_send(&up, rank, sgrad__tree_parent(rank));
    return sgrad__round_end(&up);
}

static double price(double bytes, int chunks, const struct sgrad_network *net) {
    return (chunks + 1) * way_seconds(bytes / chunks, net);
}

static int one(double bytes, const struct sgrad_network *net) {
    (void)bytes, (void)net;
    return 1;
}

static int chunks(double bytes, const struct sgrad_network *net) {
    return sgrad__best_chunks(price, 1, SGRAD__CHUNKS, bytes, net);
}

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

static void up(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    for (int c = 0; c < plan->chunks; c++) sgrad__tree_up(plan, c, rank, net->ranks, NULL);
}

static void down(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    for (int c = 0; c < plan->chunks; c++) sgrad__tree_down(plan, c, rank, net->ranks, NULL);
}

/* The actions for the reduction of chunk c precede those for the broadcast of chunk c − 1, so that both overlap. */
static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    for (int c = 0; c <= plan->chunks; c++) {
        if (c < plan->chunks) sgrad__tree_up(plan, c, rank, net->ranks, NULL);
        if (c > 0) sgrad__tree_down(plan, c - 1, rank, net->ranks, NULL);
    }
}

#define SOURCE "Iandola et al. 2016, arXiv:1511.00175"

const struct sgrad_collective sgrad_tree_reduce = {
    .name = "tree",
    .kind = SGRAD_REDUCE,
    .summary = "binary tree, up to the root",
    .source = SOURCE,
    .tree_order = true,
    .cost = way_seconds,
    .chunks = one,
    .schedule = up,
};
const struct sgrad_collective sgrad_tree_broadcast = {
    .name = "tree",
    .kind = SGRAD_BROADCAST,
    .summary = "binary tree, down from the root: fewest steps, for short buffers",
    .source = SOURCE,
    .tree_order = true,
    .cost = way_seconds,
    .chunks = one,
    .schedule = down,
};
const struct sgrad_collective sgrad_tree_allreduce = {
    .name = "tree",
    .kind = SGRAD_ALLREDUCE,
    .summary = "up a binary tree to rank 0 and down again, in a pipeline of chunks (FireCaffe)",
    .source = SOURCE,
    .tree_order = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
