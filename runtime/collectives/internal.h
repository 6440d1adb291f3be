/* internal.h: helpers of several collectives: cost model, hosts, folding, binary tree, library calls. Private. */
#ifndef SGRAD_RUNTIME_COLLECTIVES_INTERNAL_H
#define SGRAD_RUNTIME_COLLECTIVES_INTERNAL_H

#include "runtime/collectives.h"

/* ---- cost.c ---------------------------------------------------------------------------------------------------- */

/* Sets FIRST[r] to the first rank on the host of rank r, and ORDER, if not NULL, to all ranks, grouped by host. Both have
 * net->ranks elements. Returns the number of hosts. */
int sgrad__hosts(const struct sgrad_network *net, int *first, int *order);

/* A set of concurrent messages of equal length. A rank sends one message at a time, and receives one at the same time. Each
 * message takes latency + bytes / bandwidth. All messages that leave a host divide the bandwidth of its link, and so do all
 * messages that enter it. */
struct sgrad__round {
    const struct sgrad_network *net;
    double bytes;               /* of each message */
    int *first;                 /* per rank: the first rank on its host */
    struct sgrad__port *port;   /* per rank: its messages so far (cost.c) */
};
struct sgrad__round sgrad__round_begin(const struct sgrad_network *net, double bytes);
void sgrad__round_send(struct sgrad__round *round, int from, int to);   /* adds a message */
double sgrad__round_end(struct sgrad__round *round);       /* returns the seconds until all messages are complete; frees it */

/* Returns the seconds of one message of BYTES between ranks on different hosts; if all are on one host, between two of them. */
double sgrad__slowest(double bytes, const struct sgrad_network *net);

/* Returns the number of chunks with the smallest PRICE, in seconds, among FROM, 2 FROM, 4 FROM, … up to MOST. */
#define SGRAD__CHUNKS 64    /* sufficient for any pipeline: filling it then takes a few hundredths of the time */
int sgrad__best_chunks(double (*price)(double bytes, int chunks, const struct sgrad_network *net), int from, int most,
                       double bytes, const struct sgrad_network *net);

/* ---- plan.c ---------------------------------------------------------------------------------------------------- */

/* Returns the best number of chunks for METHOD; 1 if the group has one member. */
int sgrad__collective_chunks(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                             const struct sgrad_network *net);

/* ---- fold.c ---------------------------------------------------------------------------------------------------- */

/* Any number of ranks for algorithms that need 2^k (Rabenseifner 2004). 2^k ranks run the algorithm, with indices 0 to 2^k − 1.
 * The others, EXTRA in number, are the odd ones among the first 2 EXTRA ranks. Each of them first sends its value to the rank
 * before it, which adds it, and finally receives the result from that rank. */
struct sgrad__fold {
    int places, extra;      /* 2^k, the largest up to the number of ranks; the number of other ranks */
};
struct sgrad__fold sgrad__fold(int ranks);
int sgrad__fold_place(const struct sgrad__fold *fold, int rank);    /* index of RANK; −1: it is an extra rank */
int sgrad__fold_rank(const struct sgrad__fold *fold, int place);    /* the rank with index PLACE */
/* Append the actions of RANK before (in) and after (out) the algorithm, for all chunks of PLAN. */
void sgrad__fold_in(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank);
void sgrad__fold_out(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank);
/* Return the seconds of messages of BYTES. fold: from all extra ranks to the ranks before them, and back. exchange: between each
 * index i and i ^ DISTANCE, in both directions at the same time. */
double sgrad__fold_seconds(const struct sgrad__fold *fold, double bytes, const struct sgrad_network *net);
double sgrad__exchange_seconds(const struct sgrad__fold *fold, int distance, double bytes, const struct sgrad_network *net);

/* ---- tree.c ---------------------------------------------------------------------------------------------------- */

/* Append the actions of the member with index PLACE for one chunk: up sums it along a binary tree of MEMBERS members to the
 * member with index plan->root; down sends it from there to all. MEMBER: the rank of each member; NULL: its index. parent returns
 * the parent of an index other than 0 in the tree with root 0. */
void sgrad__tree_up(struct sgrad_plan *plan, int chunk, int place, int members, const int *member);
void sgrad__tree_down(struct sgrad_plan *plan, int chunk, int place, int members, const int *member);
static inline int sgrad__tree_parent(int place) { return place & (place - 1); }

/* ---- library.c ------------------------------------------------------------------------------------------------- */

/* For struct sgrad_collective: an allreduce by one call of a library. cost is a lower bound in seconds (Thakur, Rabenseifner and
 * Gropp 2005), chunks is 1, and the call is the only action of the plan. */
double sgrad__library_cost(double bytes, const struct sgrad_network *net);
int sgrad__library_chunks(double bytes, const struct sgrad_network *net);
void sgrad__library_schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net);

#endif
