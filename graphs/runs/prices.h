/* prices.h: what a mesh costs, for files of graphs/runs/ alone. */
#ifndef SGRAD_GRAPHS_PRICES_H
#define SGRAD_GRAPHS_PRICES_H

#include "graphs/programs/program.h"

/* What a step on a mesh is priced by. */
struct sgrad__terms {
    const struct sgrad_network *network;
    int64_t batch, micro;           /* samples; of a micro-batch, 0: the usual 32 */
    bool turns;                     /* micro-batches of a stage are one group: none goes on before all are through */
    double flops, bandwidth;        /* a second, of a rank: arithmetic; bytes of its memory */
    int workers;                    /* of a rank */
    double states;                  /* numbers that are kept for each parameter besides it, on average */
    bool shares;                    /* of them, and of updates (--shard) */
};
/* Of the slowest stage, seconds of a step; they are told apart, and overlap: STEP is less than their sum. */
struct sgrad__price {
    double step, computing, sending, waiting;
    double memory;                  /* bytes of the rank that wants most */
    int64_t micros;
};
struct sgrad__price sgrad__graph_price(const struct sgrad_graph *graph, const struct sgrad__terms *terms);

#endif
