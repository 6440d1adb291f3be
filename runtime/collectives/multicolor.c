/* multicolor.c: allreduce along k trees concurrently; each rank is an inner node of only one (IBM: Kumar et al. 2017).
 *
 * Chunk c has colour c mod k. The chunks of each colour are summed up a separate k-ary tree and sent down again. All trees are
 * the same heap, whose nodes are numbered level by level, and differ in the ranks: node i of colour c is rank (c m + i) mod p,
 * where m = ⌈(p − 1) / k⌉ is the number of nodes with children. So the ranks with children in colour c are c m … c m + m − 1.
 * Six ranks, k = 3, m = 2:
 *
 *        colour 0               colour 1               colour 2
 *
 *            0                      2                      4
 *         ┌──┼──┐                ┌──┼──┐                ┌──┼──┐
 *         1  2  3                3  4  5                5  0  1
 *        ┌┴┐                    ┌┴┐                    ┌┴┐
 *        4 5                    0 1                    2 3
 *
 *     inner:   0 1               2 3                    4 5
 *
 * If k m > p, these blocks of ranks would overlap: the sums would still be correct, but a rank would be an inner node of two
 * trees. k is the largest number up to 4 with k m ≤ p; 2 always satisfies this.
 *
 * The chunks of one colour are pipelined as in tree.c. Cost of n chunks: the first of each colour takes 2 s messages in sequence,
 * where s is the number on the path up; the others take (n / k − 1) rounds of at most 2 k messages in and out of a rank; each
 * message takes latency + bytes / n / bandwidth. With many chunks the total approaches 2 bytes / bandwidth.
 *
 * Limits: the trees do not take hosts into account. The order of additions differs between colours. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <math.h>

struct forest {
    int ranks, k, m; /* k: number of trees, and of children of a node; m: number of inner nodes of a tree */
};

static struct forest grow(int ranks) {
    struct forest f = { .ranks = ranks, .k = ranks < 4 ? ranks : 4 };
    while (f.k * (f.m = (ranks - 2 + f.k) / f.k) > ranks) f.k--;
    return f;
}

static int rank_of(const struct forest *forest, int colour, int place) { return (colour * forest->m + place) % forest->ranks; }

static int place_of(const struct forest *forest, int colour, int rank) {
    return (rank - colour * forest->m % forest->ranks + forest->ranks) % forest->ranks;
}

/* Seconds for one chunk of every colour, up and down, with all messages concurrent. */
static double round_seconds(const struct forest *forest, double bytes, const struct sgrad_network *net) {
    struct sgrad__round round = sgrad__round_begin(net, bytes);
    for (int colour = 0; colour < forest->k; colour++)
        for (int place = 1; place < forest->ranks; place++) {
            const int child = rank_of(forest, colour, place), parent = rank_of(forest, colour, (place - 1) / forest->k);
            sgrad__round_send(&round, child, parent);
            sgrad__round_send(&round, parent, child);
        }
    return sgrad__round_end(&round);
}

/* Number of messages in sequence until node PLACE has the sum over its subtree. The path down takes the same number. */
static int steps_up(const struct forest *forest, int place) {
    int steps = 0;
    for (int child = place * forest->k + forest->k; child > place * forest->k; child--) {
        if (child >= forest->ranks) continue;
        const int ready = steps_up(forest, child);
        steps = (ready > steps ? ready : steps) + 1;
    }
    return steps;
}

static double price(double bytes, int chunks, const struct sgrad_network *net) {
    const struct forest f = grow(net->ranks);
    if (f.ranks == 1) return 0;
    const double round = round_seconds(&f, bytes / chunks, net);
    const double first = 2 * steps_up(&f, 0) * sgrad__slowest(bytes / chunks, net);
    return (chunks / f.k - 1) * round + fmax(first, round);
}

static int chunks(double bytes, const struct sgrad_network *net) {
    return sgrad__best_chunks(price, grow(net->ranks).k, SGRAD__CHUNKS, bytes, net);
}

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

static void add_up(struct sgrad_plan *plan, int chunk, int rank, const struct forest *forest) {
    const int colour = chunk % forest->k, place = place_of(forest, colour, rank);
    for (int child = place * forest->k + forest->k; child > place * forest->k; child--)
        if (child < forest->ranks) sgrad_plan_add(plan, SGRAD_ADD, rank_of(forest, colour, child), chunk);
    if (place) sgrad_plan_add(plan, SGRAD_SEND, rank_of(forest, colour, (place - 1) / forest->k), chunk);
}

static void add_down(struct sgrad_plan *plan, int chunk, int rank, const struct forest *forest) {
    const int colour = chunk % forest->k, place = place_of(forest, colour, rank);
    if (place) sgrad_plan_add(plan, SGRAD_COPY, rank_of(forest, colour, (place - 1) / forest->k), chunk);
    for (int child = place * forest->k + 1; child <= place * forest->k + forest->k && child < forest->ranks; child++)
        sgrad_plan_add(plan, SGRAD_SEND, rank_of(forest, colour, child), chunk);
}

enum { LAG = 2 }; /* rounds between the sum of a chunk and its distribution: the fewest that keep all ranks busy */

/* In each round, a rank first sends the chunks of the colours in which it is a leaf, because these sends depend on no other rank.
 * It then acts as an inner node of its colour, first up, then down, and finally receives the chunks of the colours in which it is
 * a leaf. The order of colours descends from the rank's colour, so that the children of one node start with different parents. */
static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    const struct forest f = grow(net->ranks);
    const int own = rank / f.m + f.k;
    for (int up = 0, down = -f.k * LAG; down < plan->chunks; up += f.k, down += f.k) {
        for (int i = 1; i <= f.k; i++) {
            const int chunk = up + (own - i) % f.k;
            if (chunk < plan->chunks) add_up(plan, chunk, rank, &f);
        }
        for (int i = 0; i < f.k; i++) {
            const int chunk = down + (own - i) % f.k;
            if (down >= 0 && chunk < plan->chunks) add_down(plan, chunk, rank, &f);
        }
    }
}

const struct sgrad_collective sgrad_multicolor_allreduce = {
    .name = "multicolor",
    .kind = SGRAD_ALLREDUCE,
    .summary = "k pipelined trees in parallel; each rank is an inner node of only one tree (IBM)",
    .source = "Kumar et al. 2017, arXiv:1711.00705",
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
