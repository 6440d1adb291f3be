/* halving.c: recursive halving, and the same way back (Rabenseifner 2004): reduce-scatter, all-gather, allreduce.
 *
 * In every step the ranks pair at distance 1, 2, 4, …; a pair shares one set of neighbouring chunks, and each keeps and sums half
 * of them: the lower rank the first, the upper the others. Then what was kept is exchanged, the last first. Four ranks, four
 * chunks A–D, of which a rank's present set is shown; * is the sum over all:
 *
 *                  rank 0              rank 1              rank 2              rank 3
 *     start        A0  B0  C0  D0      A1  B1  C1  D1      A2  B2  C2  D2      A3  B3  C3  D3
 *     distance 1   A01 B01                     C01 D01     A23 B23                     C23 D23
 *     distance 2   A*                          C*              B*                          D*        reduce_scatter ends
 *     distance 2   A*  B*                      C*  D*      A*  B*                      C*  D*        all_gather begins
 *     distance 1   A*  B*  C*  D*      A*  B*  C*  D*      A*  B*  C*  D*      A*  B*  C*  D*
 *
 * Distance 1 comes first, so every chunk is summed by the tree made by halving; usual implementations begin far apart.
 * And where hosts hold 2^i neighbouring ranks each, the longest messages stay inside them.
 * An allreduce sends a half as one message, and may have fewer chunks. A set of one cannot be halved: its pairs exchange it as in
 * doubling.c, and need no way back. So one chunk makes this recursive doubling, p chunks Rabenseifner's method; the cheapest
 * number between them is taken. (It is never p: a set of two chunks costs one message as one chunk, two messages as two, and the
 * same bytes.) Shares of reduce_scatter and all_gather are to be at the place of their number, which these halves mirror (B and C
 * change places above): a half is no run of neighbours, and goes as so many messages.
 *
 * Cost of p = 2^k ranks and 2^j chunks: k + j messages, of 1/2, 1/4, … 1/2^j of the bytes twice, and k − j more of the last.
 * Other numbers of ranks fold (fold.c) for an allreduce, and are not served for the others.
 *
 * Limits: folding takes all bytes once up and once down more. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <math.h>

static double price(double bytes, int chunks, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const double message = bytes / chunks;
    double seconds = sgrad__fold_seconds(&fold, bytes, net);
    for (int distance = 1, set = chunks; distance < fold.places; distance *= 2) {
        const int times = set > 1 ? 2 : 1;      /* half the set, there and back */
        if (set > 1) set /= 2;
        seconds += times * sgrad__exchange_seconds(&fold, distance, set * message, net);
    }
    return seconds;
}

static int chunks(double bytes, const struct sgrad_network *net) { return sgrad__best_chunks(price, 1, net->ranks, bytes, net); }

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

/* ---- shares: a chunk for each of 2^k ranks ---- */

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

/* COUNT chunks from FIRST on. */
struct set {
    int first, count;
};

enum { SUMS = 1, COPIES = 2, ALL = SUMS | COPIES };

/* Chunk C of 2^k, with its bits the other way round. */
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

/* What a place, the UPPER of its pair or the lower, keeps of the set that both share. */
static struct set half(struct set set, bool upper) {
    const int lower = set.count - set.count / 2;
    return upper ? (struct set){ set.first + lower, set.count / 2 } : (struct set){ set.first, lower };
}

/* From DISTANCE on, and back to it: PLACE shares SET with the place at that distance, by then of the same content. */
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
    .summary = "recursive halving: pairs at distance 1, 2, 4, … share the sums out; for 2^k ranks",
    .source = SOURCE,
    .halving = true,
    .alike = true,
    .cost = share_cost,
    .chunks = shares,
    .schedule = scatter,
};
const struct sgrad_collective sgrad_halving_all_gather = {
    .name = "halving",
    .kind = SGRAD_ALL_GATHER,
    .summary = "the way back of recursive halving: what a rank holds doubles in every step; for 2^k ranks",
    .source = SOURCE,
    .halving = true,
    .alike = true,
    .cost = share_cost,
    .chunks = shares,
    .schedule = gather,
};
const struct sgrad_collective sgrad_halving_allreduce = {
    .name = "halving",
    .kind = SGRAD_ALLREDUCE,
    .summary = "recursive halving, then doubling (Rabenseifner): few bytes in few steps, for 2^k ranks",
    .source = SOURCE,
    .halving = true,
    .alike = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
