/* internal.h: what several collectives share: their cost model, hosts, folding, the binary tree. */
#ifndef SGRAD_COLLECTIVES_INTERNAL_H
#define SGRAD_COLLECTIVES_INTERNAL_H

#include "runtime/collectives.h"

/* ---- cost.c ---------------------------------------------------------------------------------------------------- */

/* FIRST[r] becomes the first rank on r's host; ORDER, if not NULL, all ranks, one host's after another's. Returns the number of
 * hosts. */
int sgrad__hosts(const struct sgrad_network *net, int *first, int *order);

/* Messages of equal length that are under way together. A rank sends one at a time and receives one at a time, at once;
 * each takes latency + bytes / bandwidth. What leaves a host shares its wire, and so does what enters it. */
struct sgrad__round {
    const struct sgrad_network *net;
    double bytes;
    int *first;
    struct sgrad__port *port;
};
struct sgrad__round sgrad__round_begin(const struct sgrad_network *net, double bytes);
void sgrad__round_send(struct sgrad__round *round, int from, int to);
double sgrad__round_end(struct sgrad__round *round);       /* its seconds; frees it */

/* Seconds of one message of BYTES between the two ranks that are furthest apart. */
double sgrad__slowest(double bytes, const struct sgrad_network *net);

/* The cheapest of FROM, 2 FROM, 4 FROM, … chunks up to MOST. */
#define SGRAD__CHUNKS 64    /* enough for any pipeline: filling it then costs a few hundredths */
int sgrad__best_chunks(double (*price)(double bytes, int chunks, const struct sgrad_network *net), int from, int most,
                       double bytes, const struct sgrad_network *net);

/* ---- plan.c ---------------------------------------------------------------------------------------------------- */

/* How many serve METHOD best. */
int sgrad__collective_chunks(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                             const struct sgrad_network *net);

/* ---- fold.c ---------------------------------------------------------------------------------------------------- */

/* 2^k ranks do the work, at places 0 … 2^k − 1. Where there are EXTRA more, each odd one of the first 2 EXTRA ranks first hands
 * its value to the rank before it, and has the sum from there in the end. */
struct sgrad__fold {
    int places, extra;
};
struct sgrad__fold sgrad__fold(int ranks);
int sgrad__fold_place(const struct sgrad__fold *fold, int rank);    /* −1: it has handed its value over */
int sgrad__fold_rank(const struct sgrad__fold *fold, int place);
void sgrad__fold_in(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank);
void sgrad__fold_out(struct sgrad_plan *plan, const struct sgrad__fold *fold, int rank);
/* Seconds for one message of BYTES: handed over and back; exchanged by all places that are DISTANCE apart. */
double sgrad__fold_seconds(const struct sgrad__fold *fold, double bytes, const struct sgrad_network *net);
double sgrad__exchange_seconds(const struct sgrad__fold *fold, int distance, double bytes, const struct sgrad_network *net);

/* ---- tree.c ---------------------------------------------------------------------------------------------------- */

/* One chunk up the binary tree over MEMBER[0 … members), to plan->root of them, or down again: what member PLACE does. */
void sgrad__tree_up(struct sgrad_plan *plan, int chunk, int place, int members, const int *member);
void sgrad__tree_down(struct sgrad_plan *plan, int chunk, int place, int members, const int *member);
static inline int sgrad__tree_parent(int place) { return place & (place - 1); }

/* ---- library.c ------------------------------------------------------------------------------------------------- */

/* Of an allreduce that a library does in one call: seconds at least, one chunk, that call. */
double sgrad__library_cost(double bytes, const struct sgrad_network *net);
int sgrad__library_chunks(double bytes, const struct sgrad_network *net);
void sgrad__library_schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net);

#endif
