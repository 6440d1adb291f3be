/* fold.c: reduces any number of ranks to 2^k, for algorithms that require 2^k ranks (Rabenseifner 2004).
 *
 * Seven ranks, four of which run the algorithm, and three extra ranks:
 *
 *     rank      0     1     2     3     4     5     6
 *     in        0 <── 1     2 <── 3     4 <── 5     6       odd ranks below 6 send their values
 *     index     0           1           2           3       the algorithm
 *     out       0 ──> 1     2 ──> 3     4 ──> 5     6       odd ranks below 6 receive the result
 *
 * Each extra rank is paired with the rank before it, because consecutive ranks are likely to be on the same host. */
#include "config.h"
#include "runtime/collectives/internal.h"

struct sgrad__fold sgrad__fold(int ranks) {
    int places = 1;
    while (places <= ranks / 2) places *= 2;
    return (struct sgrad__fold){ places, ranks - places };
}

int sgrad__fold_place(const struct sgrad__fold *fold, int rank) {
    if (rank >= 2 * fold->extra) return rank - fold->extra;
    return rank % 2 ? -1 : rank / 2;
}

int sgrad__fold_rank(const struct sgrad__fold *fold, int place) { return place < fold->extra ? 2 * place : place + fold->extra; }

/* Appends the transfer of all chunks between an extra rank, with action ODD, and the rank before it, with action EVEN. */
static void fold_all(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank, enum sgrad_action_kind odd,
                     enum sgrad_action_kind even) {
    if (rank >= 2 * fold->extra) return;
    sgrad_plan_add_chunks(plan, rank % 2 ? odd : even, rank ^ 1, 0, plan->chunks);
}

void sgrad__fold_in(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank) {
    fold_all(plan, fold, rank, SGRAD_SEND, SGRAD_ADD);
}

void sgrad__fold_out(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank) {
    fold_all(plan, fold, rank, SGRAD_COPY, SGRAD_SEND);
}

double sgrad__fold_seconds(const struct sgrad__fold *fold, double bytes, const struct sgrad_network *net) {
    struct sgrad__round round = sgrad__round_begin(net, bytes);
    for (int rank = 0; rank < 2 * fold->extra; rank += 2) sgrad__round_send(&round, rank + 1, rank);
    return 2 * sgrad__round_end(&round);
}

double sgrad__exchange_seconds(const struct sgrad__fold *fold, int distance, double bytes, const struct sgrad_network *net) {
    struct sgrad__round round = sgrad__round_begin(net, bytes);
    for (int place = 0; place < fold->places; place++)
        sgrad__round_send(&round, sgrad__fold_rank(fold, place), sgrad__fold_rank(fold, place ^ distance));
    return sgrad__round_end(&round);
}
