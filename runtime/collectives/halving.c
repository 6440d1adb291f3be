/* halving.c: recursive halving, then the same way back (Rabenseifner 2004).
 *
 * In every step the ranks pair at distance 1, 2, 4, …; a pair shares one set of chunks, and each keeps and sums one half of it:
 * the lower the one, the upper the other. Then the halves are exchanged, the last first. Four ranks, four chunks A–D, of which a
 * rank's present set is shown; * is the sum over all:
 *
 *                  rank 0              rank 1              rank 2              rank 3
 *     start        A0  B0  C0  D0      A1  B1  C1  D1      A2  B2  C2  D2      A3  B3  C3  D3
 *     distance 1   A01 B01                     C01 D01     A23 B23                     C23 D23
 *     distance 2   A*                          C*              B*                          D*
 *     distance 2   A*  B*                      C*  D*      A*  B*                      C*  D*
 *     distance 1   A*  B*  C*  D*      A*  B*  C*  D*      A*  B*  C*  D*      A*  B*  C*  D*
 *
 * Distance 1 comes first, so every chunk is summed by the tree made by halving; usual implementations begin far apart.
 * And where hosts hold 2^i neighbouring ranks each, the longest messages stay inside them.
 * A set of one chunk cannot be halved: its pairs exchange it as in doubling.c, and need no way back. So one chunk makes this
 * recursive doubling, and p chunks Rabenseifner's method; the cheapest number between them is taken. (It is never p: a set of
 * two chunks costs one message as one chunk, two messages as two, and the same bytes.)
 *
 * Cost of p = 2^k ranks and 2^j chunks: (2 (2^j − 1) + k − j) messages of bytes / 2^j, each latency + bytes / 2^j / bandwidth.
 * Other numbers of ranks fold (fold.c).
 *
 * Limits: a half travels as so many messages as it has chunks. Folding takes all bytes once up and once down more. */
#include "config.h"
#include "runtime/collectives/internal.h"

static double price(double bytes, int chunks, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const double message = bytes / chunks;
    double seconds = chunks * sgrad__fold_seconds(&fold, message, net);
    for (int distance = 1, set = chunks; distance < fold.places; distance *= 2) {
        const int messages = set > 1 ? set : 1; /* half the set, there and back */
        seconds += messages * sgrad__exchange_seconds(&fold, distance, message, net);
        if (set > 1) set /= 2;
    }
    return seconds;
}

static int chunks(double bytes, const struct sgrad_network *net) { return sgrad__best_chunks(price, 1, net->ranks, bytes, net); }

static double cost(double bytes, const struct sgrad_network *net) { return price(bytes, chunks(bytes, net), net); }

struct set {
    int begin, end; /* chunks begin … end − 1 */
};

static void add_set(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, struct set set) {
    for (int c = set.begin; c < set.end; c++) sgrad_plan_add(plan, kind, peer, c);
}

/* What RANK keeps of the set that it shares with its peers at DISTANCE, and what they keep. */
static void halve(struct set set, bool upper, struct set *kept, struct set *given) {
    const int middle = set.begin + (set.end - set.begin + 1) / 2;
    *kept = upper ? (struct set){ middle, set.end } : (struct set){ set.begin, middle };
    *given = upper ? (struct set){ set.begin, middle } : (struct set){ middle, set.end };
}

/* From DISTANCE on, and back to it: PLACE shares SET with the place at that distance, by then of the same content. */
static void add_steps(struct sgrad_plan *plan, const struct sgrad__fold *fold, int place, int distance, struct set set) {
    if (distance == fold->places) return;
    const int peer = sgrad__fold_rank(fold, place ^ distance);
    const bool whole = set.end - set.begin == 1;
    struct set kept = set, given = set;
    if (!whole) halve(set, place & distance, &kept, &given);
    add_set(plan, SGRAD_SEND, peer, given);
    add_set(plan, SGRAD_REDUCE, peer, kept);
    add_steps(plan, fold, place, 2 * distance, kept);
    if (whole) return;
    add_set(plan, SGRAD_SEND, peer, kept);
    add_set(plan, SGRAD_COPY, peer, given);
}

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    const struct sgrad__fold fold = sgrad__fold(net->ranks);
    const int place = sgrad__fold_place(&fold, rank);
    sgrad__fold_in(plan, &fold, rank);
    if (place >= 0) add_steps(plan, &fold, place, 1, (struct set){ 0, plan->chunks });
    sgrad__fold_out(plan, &fold, rank);
}

const struct sgrad_allreduce sgrad_halving_allreduce = {
    .name = "halving",
    .summary = "recursive halving, then doubling (Rabenseifner): few bytes in few steps, for 2^k ranks",
    .source = "Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1",
    .halving = true,
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
