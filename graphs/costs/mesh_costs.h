/* mesh_costs.h: the estimated cost of a step on a mesh. Private to graphs/. */
#ifndef SGRAD_GRAPHS_COSTS_MESH_COSTS_H
#define SGRAD_GRAPHS_COSTS_MESH_COSTS_H

#include "graphs/compiler/program.h"

/* The parameters of the cost model (mesh_costs.c). */
struct sgrad__terms {
    const struct sgrad_network *network; /* latency and bandwidth between ranks */
    int64_t batch, micro;           /* samples; of a micro-batch, 0: 32, or with S stages a 4·S-th of the local batch */
    bool turns;                     /* pipeline stages: no micro-batch enters the next stage before all have left this one,
                                       because batch normalization combines them */
    double flops, bandwidth;        /* of a rank, per second: operations; bytes of its memory */
    int workers;                    /* number of workers of a rank */
    double states;                  /* mean number of values stored for each trained one: optimizer states, … */
    bool shares;                    /* these values and the updates are sharded over ranks with the same parameters (--shard) */
    bool gathers;                   /* so are parameters, which are gathered for forward and for backward (--shard parameters) */
};
/* The cost of a step; times are in seconds. step: its total time. computing, sending, waiting: of the slowest stage; they
 * overlap, so that step may be less than their sum. */
struct sgrad__price {
    double step, computing, sending, waiting;
    double memory;                  /* bytes; of the rank that needs most */
    int64_t micros;                 /* micro-batches of the local batch */
};
/* Estimates the cost of a step of GRAPH, which must have been built for its mesh and divided into its stages. */
struct sgrad__price sgrad__graph_price(const struct sgrad_graph *graph, const struct sgrad__terms *terms);

#endif
