/* multicolor.c: k trees at once, each rank at work inside only one of them (IBM: Kumar et al. 2017).
 *
 * Chunk c has colour c mod k. Each colour goes up a k-ary tree of its own and down again. The trees are one heap, numbered by
 * levels, whose places are handed to the ranks in turn: place i of colour c is rank (c m + i) mod p, where m = ⌈(p − 1) / k⌉ is
 * the number of places with children. So the ranks with children are c m … c m + m − 1 in colour c. Six ranks, k = 3, m = 2:
 *
 *        colour 0               colour 1               colour 2
 *
 *            0                      2                      4
 *         ┌──┼──┐                ┌──┼──┐                ┌──┼──┐
 *         1  2  3                3  4  5                5  0  1
 *        ┌┴┐                    ┌┴┐                    ┌┴┐
 *        4 5                    0 1                    2 3
 *
 *     at work: 0 1               2 3                    4 5
 *
 * Where k m > p the blocks would run into each other: the sums would still be right, but some rank would work in two trees. k is
 * the largest up to 4 for which that does not happen; 2 always is such a number.
 *
 * Chunks of one colour follow one another as in tree.c. Cost of n chunks: the first of each colour takes 2 s messages, s being
 * those that follow one another on the way up; the others (n / k − 1) rounds of at most 2 k messages in and out of a rank; each
 * message latency + bytes / n / bandwidth. With many chunks that is 2 bytes / bandwidth.
 *
 * Limits: trees know no hosts. Each colour is summed in an order of its own. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <math.h>

struct forest {
    int ranks, k, m; /* k trees, and children of a parent; m parents a tree */
};

static struct forest grow(int ranks) {
    struct forest f = { .ranks = ranks, .k = ranks < 4 ? ranks : 4 };
    while (f.k * (f.m = (ranks - 2 + f.k) / f.k) > ranks) f.k--;
    return f;
}

static int rank_of(const struct forest *f, int colour, int place) { return (colour * f->m + place) % f->ranks; }

static int place_of(const struct forest *f, int colour, int rank) {
    return (rank - colour * f->m % f->ranks + f->ranks) % f->ranks;
}

/* One chunk of every colour, up and down. */
static double round_seconds(const struct forest *f, double bytes, const struct sgrad_network *net) {
    struct sgrad__round round = sgrad__round_begin(net, bytes);
    for (int colour = 0; colour < f->k; colour++)
        for (int place = 1; place < f->ranks; place++) {
            const int child = rank_of(f, colour, place), parent = rank_of(f, colour, (place - 1) / f->k);
            sgrad__round_send(&round, child, parent);
            sgrad__round_send(&round, parent, child);
        }
    return sgrad__round_end(&round);
}

/* Messages one after the other until PLACE has all that comes up to it; the same number brings it down again. */
static int steps_up(const struct forest *f, int place) {
    int steps = 0;
    for (int child = place * f->k + f->k; child > place * f->k; child--) {
        if (child >= f->ranks) continue;
        const int ready = steps_up(f, child);
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

static void add_up(struct sgrad_plan *plan, int chunk, int rank, const struct forest *f) {
    const int colour = chunk % f->k, place = place_of(f, colour, rank);
    for (int child = place * f->k + f->k; child > place * f->k; child--)
        if (child < f->ranks) sgrad_plan_add(plan, SGRAD_ADD, rank_of(f, colour, child), chunk);
    if (place) sgrad_plan_add(plan, SGRAD_SEND, rank_of(f, colour, (place - 1) / f->k), chunk);
}

static void add_down(struct sgrad_plan *plan, int chunk, int rank, const struct forest *f) {
    const int colour = chunk % f->k, place = place_of(f, colour, rank);
    if (place) sgrad_plan_add(plan, SGRAD_COPY, rank_of(f, colour, (place - 1) / f->k), chunk);
    for (int child = place * f->k + 1; child <= place * f->k + f->k && child < f->ranks; child++)
        sgrad_plan_add(plan, SGRAD_SEND, rank_of(f, colour, child), chunk);
}

enum { LAG = 2 }; /* rounds until what went up comes down: the fewest that keep all ranks busy */

/* In a round a rank sends as a leaf what waits for nobody, does its part inside its own colour, up and then down, and takes what
 * comes to it as a leaf. The colours count down from its own: of one parent's children each then begins with another parent. */
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
    .summary = "k trees at once, each rank inside only one of them, in pipelines of chunks (IBM)",
    .source = "Kumar et al. 2017, arXiv:1711.00705",
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
