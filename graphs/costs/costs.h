/* costs.h: measured and estimated costs of a run on this machine: rooflines, throughput, costs of meshes. Private to graphs/. */
#ifndef SGRAD_GRAPHS_COSTS_COSTS_H
#define SGRAD_GRAPHS_COSTS_COSTS_H

#include "graphs/api/costs.h"
#include "graphs/engine/run.h"

/* ---- mesh_choice.c: --mesh auto ---- */

/* Returns true if the mesh has yet to be chosen (--mesh auto). */
bool sgrad__run_mesh_is_open(const struct sgrad__run *run);
/* Chooses the mesh, if it has yet to be chosen; the number of ranks must be known. Sets options.parallel.mesh, and builds the
 * graph for the chosen mesh with BUILD, which builds run->graph for run->parallel.mesh. Collective. SGRAD_EINVAL: no mesh can be
 * used. */
int sgrad__run_choose_mesh(struct sgrad__run *run, int (*build)(struct sgrad__run *run));
/* Estimates the costs of the meshes of QUERY, or only of data-parallel ones if DATA_ALONE. Builds the graph for each of them;
 * that of the last one remains. The caller must free *RESULT (sgrad_mesh_result_free). */
void sgrad__run_price_meshes(struct sgrad__run *run, int (*build)(struct sgrad__run *run),
                             const struct sgrad_mesh_query *query, bool data_alone, struct sgrad_mesh_result *result);

/* ---- roof.c: the roofline: the throughput of each worker while all of them work ---- */

/* The throughput of one rank, by worker: 1e9 operations per second of a matrix product; 1e9 bytes per second of memory. Source:
 * Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures", Communications
 * of the ACM 52(4), 2009. */
struct sgrad__roof {
    int workers;
    double flops[SGRAD_MAX_WORKERS], bytes[SGRAD_MAX_WORKERS];
};
/* Measures the throughput, of products in PRECISION, on all workers of this rank. No other tasks may run meanwhile. Returns the
 * error of a task. */
int sgrad__roof_measure(enum sgrad_precision precision, struct sgrad__roof *roof);
/* Measures the throughput of all ranks, and writes it to trace/roof.json in the run directory; a failed write is only a warning.
 * Collective. Returns the error of a task. */
int sgrad__roof_write(const struct sgrad__run *run);

/* ---- throughput.c: the throughput of a GPU and of a core for this network, from the measured durations of tasks ---- */

/* Samples per second, forward and backward. */
struct sgrad__throughput {
    double gpu, cpu;        /* of one worker */
};
/* Reads the result of an earlier run with the same network, precision and number of GPUs from the on-disk cache. false: there is
 * none. */
bool sgrad__throughput_find(const struct sgrad__run *run, struct sgrad__throughput *rates);
/* Computes the rates of this run. false: the duration of a task is not known yet, or GPUs and CPUs do not both process samples of
 * the batch. */
bool sgrad__throughput_measure(const struct sgrad__run *run, struct sgrad__throughput *rates);
/* Computes the rates of this run and stores them for later runs. No effect if they are not known. */
void sgrad__throughput_keep(const struct sgrad__run *run);

#endif
