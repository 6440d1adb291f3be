/* halving.c: recursive halving, and its reverse (Rabenseifner 2004): reduce-scatter, all-gather, allreduce.
 *
 * In every step, ranks at distance 1, 2, 4, … form pairs. Both ranks of a pair have the same set of consecutive chunks. Each
 * sends one half to the other and sums the other half: the lower rank keeps the first half, the upper rank the second. Afterwards
 * the same pairs, in reverse order, exchange their sums. Four ranks, four chunks A–D; each column shows the current set of the
 * rank, and * is the sum over all ranks:
 *
 *                  rank 0              rank 1              rank 2              rank 3
 *     start        A0  B0  C0  D0      A1  B1  C1  D1      A2  B2  C2  D2      A3  B3  C3  D3
 *     distance 1   A01 B01                     C01 D01     A23 B23                     C23 D23
 *     distance 2   A*                          C*              B*                          D*        reduce_scatter ends
 *     distance 2   A*  B*                      C*  D*      A*  B*                      C*  D*        all_gather begins
 *     distance 1   A*  B*  C*  D*      A*  B*  C*  D*      A*  B*  C*  D*      A*  B*  C*  D*
 *
 * Distance 1 is first, so that every chunk is summed along the binary tree ((0+1)+(2+3))+…; usual implementations start with the
 * largest distance. In addition, if each host has 2^i consecutive ranks, the longest messages stay within hosts.
 *
 * An allreduce sends each half as one message, and may have fewer chunks than ranks. A set of one chunk cannot be halved: its
 * pairs exchange it as in doubling.c, and do not need the second exchange. With one chunk the algorithm is therefore recursive
 * doubling, with p chunks that of Rabenseifner; it uses the cheapest number of chunks from 1 to p. (That is never p: a set of two
 * chunks costs one message as one chunk, two messages as two chunks, and the same bytes.)
 *
 * reduce_scatter and all_gather require chunk i on rank i. Halving assigns chunks to ranks in bit-reversed order (B and C are
 * swapped above), so the chunks of a half are not consecutive, and each is a separate message.
 *
 * Cost of p = 2^k ranks and 2^j chunks: k + j messages: two each of 1/2, 1/4, … 1/2^j of the bytes, and k − j more of 1/2^j.
 * For an allreduce, other numbers of ranks are folded (fold.c); reduce_scatter and all_gather require p = 2^k.
 *
 * Limits: folding sends all bytes two more times, once to and once from the folded ranks. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <math.h>

static double price(double bytes, int chunks, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const double message = bytes / chunks;
    double seconds = sgrad__fold_seconds(&fold, bytes, net);
    for (int distance = 1, set = chunks; distance < fold.places; distance *= 2) {
        const int times = set > 1 ? 2 : 1;      /* half the set, in both exchanges */
        if (set > 1) set /= 2;
        seconds += times * sgrad__exchange_seconds(&fold, distance, set * message, net);
    }
    return seconds;
}

static int chunks(double bytes, const struct sgrad_network *net) { return sgrad__best_chunks(price, 1, net->ranks, bytes, net); }

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

/* ---- costs of reduce_scatter and all_gather: one chunk per rank, 2^k ranks ---- */

static int shares(double bytes, const struct sgrad_network *net) {
    (void)bytes;
    return net->ranks;
}

static double share_cost(double bytes, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    double seconds = 0;
    if (fold.extra) return INFINITY;
    for (int distance = 1; distance < fold.places; distance *= 2)
        seconds += fold.places / 2 / distance * sgrad__exchange_seconds(&fold, distance, bytes / fold.places, net);
    return seconds;
}

/* ---- plans ---- */

/* COUNT consecutive chunks, the first is FIRST. */
struct set {
    int first, count;
};

enum { SUMS = 1, COPIES = 2, ALL = SUMS | COPIES };

/* Returns C with its k bits reversed, for 2^k chunks. */
static int mirrored(int c, int chunks) {
    int other = 0;
    for (int bit = 1; bit < chunks; bit *= 2, c /= 2) other = 2 * other + c % 2;
    return other;
}

static void add_set(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, struct set set, int what) {
    if (what == ALL) sgrad_plan_add_chunks(plan, kind, peer, set.first, set.count);
    else
        for (int c = set.first; c < set.first + set.count; c++) sgrad_plan_add(plan, kind, peer, mirrored(c, plan->chunks));
}

/* Returns the half of SET that a rank keeps: the second half if it is the UPPER of its pair, else the first. */
static struct set half(struct set set, bool upper) {
    const int lower = set.count - set.count / 2;
    return upper ? (struct set){ set.first + lower, set.count / 2 } : (struct set){ set.first, lower };
}

/* Appends the steps of index PLACE from DISTANCE to the largest distance, and back. At that point, PLACE and its peer at DISTANCE
 * both have SET. WHAT selects the two exchanges; with ALL, each set is one message. */
static void add_steps(struct sgrad_plan *plan, const struct sgrad__fold *fold, int place, int distance, struct set set,
                      int what) {
    if (distance == fold->places) return;
    const int peer = sgrad__fold_rank(fold, place ^ distance);
    const bool one = set.count == 1, upper = place & distance;
    const struct set kept = one ? set : half(set, upper), given = one ? set : half(set, !upper);
    if (what & SUMS) {
        add_set(plan, SGRAD_SEND, peer, given, what);
        add_set(plan, SGRAD_ADD, peer, kept, what);
    }
    add_steps(plan, fold, place, 2 * distance, kept, what);
    if (one || !(what & COPIES)) return;
    add_set(plan, SGRAD_SEND, peer, kept, what);
    add_set(plan, SGRAD_COPY, peer, given, what);
}

static void add_all_steps(struct sgrad_plan *plan, int rank, const struct sgrad_network *net, int what) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const int place = sgrad__fold_place(&fold, rank);
    if (place >= 0) add_steps(plan, &fold, place, 1, (struct set){ 0, plan->chunks }, what);
}

static void scatter(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) { add_all_steps(plan, rank, net, SUMS); }
static void gather(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) { add_all_steps(plan, rank, net, COPIES); }

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    sgrad__fold_in(plan, &fold, rank);
    add_all_steps(plan, rank, net, ALL);
    sgrad__fold_out(plan, &fold, rank);
}

#define SOURCE "Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1"

const struct sgrad_collective sgrad_halving_reduce_scatter = {
    .name = "halving",
    .kind = SGRAD_REDUCE_SCATTER,
    .summary = "recursive halving: in pairs at distance 1, 2, 4, …, each rank sums one half of the data; for 2^k ranks",
    .source = SOURCE,
    .tree_order = true,
    .symmetric = true,
    .cost = share_cost,
    .chunks = shares,
    .schedule = scatter,
};
const struct sgrad_collective sgrad_halving_all_gather = {
    .name = "halving",
    .kind = SGRAD_ALL_GATHER,
    .summary = "reverse of recursive halving: each rank's data doubles in every step; for 2^k ranks",
    .source = SOURCE,
    .tree_order = true,
    .symmetric = true,
    .cost = share_cost,
    .chunks = shares,
    .schedule = gather,
};
const struct sgrad_collective sgrad_halving_allreduce = {
    .name = "halving",
    .kind = SGRAD_ALLREDUCE,
    .summary = "recursive halving, then doubling (Rabenseifner): few bytes in few steps, for 2^k ranks",
    .source = SOURCE,
    .tree_order = true,
    .symmetric = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
