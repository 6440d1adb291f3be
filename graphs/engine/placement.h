/* placement.h: the training set partitioned over the ranks: each rank stores in memory the records that it needs in the current
 * epoch. Private to graphs/. */
#ifndef SGRAD_GRAPHS_ENGINE_PLACEMENT_H
#define SGRAD_GRAPHS_ENGINE_PLACEMENT_H

#include "datasets/sampler.h"
#include "graphs/compiler/program.h"
#include "datasets/datasets.h"

/* ---- partition.c: which rank stores which sample in which epoch; computed identically on every rank -------------- */

/* The COUNT positions of an epoch's order, distributed over RANKS ranks like the batches of BATCH samples; RANKS must divide
 * BATCH. The rank of a position does not depend on the sample at this position. */
struct sgrad__partition {
    int64_t count, batch;
    int ranks;
};
/* Where the record of a position is stored. */
struct sgrad__place {
    int rank;
    int64_t slot;               /* index in that rank's memory: 0 to slots - 1, in the order of positions */
};
/* Returns the rank and the slot of POSITION (0 to COUNT - 1). */
struct sgrad__place sgrad__partition_place(const struct sgrad__partition *partition, int64_t position);
/* The inverse of this function: returns the position of a slot. */
int64_t sgrad__partition_position(const struct sgrad__partition *partition, struct sgrad__place place);
/* Returns the number of slots of RANK. */
int64_t sgrad__partition_slots(const struct sgrad__partition *partition, int rank);

/* The records that RANK sends and receives between two epochs. Record n of those that one rank sends to another is record n of
 * those that the other receives from it. */
struct sgrad__slots {
    int64_t count, *slot;
};
struct sgrad__exchange {
    int ranks;
    int64_t longest;            /* largest number of records from one rank to one rank, itself included; the same on all ranks */
    struct sgrad__slots *out;   /* by receiving rank: slots of the current epoch that are sent */
    struct sgrad__slots *in;    /* by sending rank: slots of the next epoch that are received; by this rank: those that stay */
};
/* Plans the exchange from EPOCH to the next epoch, for RANK. ORDER computes the permutation of EPOCH, unless it has it already.
 * The caller must free the result (sgrad__exchange_free). */
struct sgrad__exchange sgrad__exchange_plan(const struct sgrad__partition *partition, struct sgrad__sampler *order,
                                            uint32_t epoch, int rank);
/* Returns an exchange in which RANK receives all its records from itself, for the first epoch, whose records are read from files.
 * The caller must free it (sgrad__exchange_free). */
struct sgrad__exchange sgrad__exchange_of_files(const struct sgrad__partition *partition, int rank);
void sgrad__exchange_free(struct sgrad__exchange *exchange);            /* frees the lists and clears the record */

/* ---- placement.c: the records, and the tasks and messages that move them ------------------------------------------- */

struct sgrad__placement_options {
    struct sgrad_dataset *dataset;      /* borrowed; the training set */
    struct sgrad__sampler *order;       /* borrowed; of the run; must be initialized before sgrad__placement_load is called */
    int64_t batch;                      /* samples of a step, of all ranks; a multiple of ranks */
    long steps;                         /* number of steps of the run */
    int rank, ranks;
    bool shuffle;                       /* false: all epochs have the same order, so that no records move */
};
/* Returns a placement, as yet without memory for records. The caller must free it (sgrad__placement_destroy). */
struct sgrad__placement *sgrad__placement_create(const struct sgrad__placement_options *options);
void sgrad__placement_destroy(struct sgrad__placement *placement);      /* NULL is allowed; its tasks must have ended */

/* Allocates memory for records, reads those of this rank in EPOCH from the files, and waits. Releases the data set's own memory
 * for samples, if it has any. Must be called once, before the first step. Returns the first error of these tasks. */
int sgrad__placement_load(struct sgrad__placement *placement, uint32_t epoch);

/* Must be called before each step, in order, all steps of the previous epoch having ended. STEP: its number; the first step of
 * the run is 0. Submits the transfers of records that are due, which run concurrently with steps. Stores in *RECORDS the tensor
 * with the records of the step's epoch, which belongs to the placement. */
int sgrad__placement_step(struct sgrad__placement *placement, long step, struct sgrad_tensor **records);

/* Returns type and shape of this rank's records: U8 (slots,bytes). A record consists of the fields of a sample, in order, each
 * aligned to 4 bytes. */
struct sgrad_view sgrad__placement_view(const struct sgrad__placement *placement);

/* Returns the source of samples for the program of a training step. The placement must outlive it. */
struct sgrad__source sgrad__placement_source(const struct sgrad__placement *placement);

#endif
