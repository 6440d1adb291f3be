/* placement.h: the training set spread over the ranks: each holds in memory the records that it needs in the present epoch.
 * Private to graphs/runs/. */
#ifndef SGRAD_GRAPHS_PLACEMENT_H
#define SGRAD_GRAPHS_PLACEMENT_H

#include "graphs/programs/order.h"
#include "graphs/programs/program.h"
#include "datasets/datasets.h"

/* ---- partition.c: who has what, and when: arithmetic, the same on every rank ------------------------------------- */

/* COUNT places of an epoch's order, dealt out to RANKS ranks as batches of BATCH are, whatever samples stand there. */
struct sgrad__partition {
    int64_t count, batch;
    int ranks;
};
struct sgrad__place {
    int rank;
    int64_t slot;               /* in that rank's memory: 0 to slots - 1, in the order of positions */
};
struct sgrad__place sgrad__partition_place(const struct sgrad__partition *partition, int64_t position);
int64_t sgrad__partition_position(const struct sgrad__partition *partition, struct sgrad__place place);
int64_t sgrad__partition_slots(const struct sgrad__partition *partition, int rank);

/* How RANK comes from one epoch's records to the next one's. The n-th record that a rank sends to another is the n-th that that
 * one gets from it. */
struct sgrad__slots {
    int64_t count, *slot;
};
struct sgrad__exchange {
    int ranks;
    int64_t longest;            /* records that a rank has for another, or for itself, at most: the same on every rank */
    struct sgrad__slots *out;   /* by receiving rank: where this epoch has what goes there */
    struct sgrad__slots *in;    /* by sending rank: where the next epoch has what comes from there; its own: what stays */
};
/* From EPOCH, whose permutation ORDER has or makes, to the next. */
struct sgrad__exchange sgrad__exchange_plan(const struct sgrad__partition *partition, struct sgrad__order *order, uint32_t epoch,
                                            int rank);
/* All that RANK holds, as if it came from itself. */
struct sgrad__exchange sgrad__exchange_of_files(const struct sgrad__partition *partition, int rank);
void sgrad__exchange_free(struct sgrad__exchange *exchange);

/* ---- placement.c: the records, and the tasks and messages that move them ----------------------------------------- */

struct sgrad__placement_options {
    struct sgrad_dataset *dataset;
    struct sgrad__order *order;         /* of the run: lent, and set by the time of load */
    int64_t batch;
    long steps;                         /* of the whole run */
    int rank, ranks;
    bool shuffle;
};
struct sgrad__placement *sgrad__placement_create(const struct sgrad__placement_options *options);
void sgrad__placement_destroy(struct sgrad__placement *placement);      /* NULL is fine */

/* This rank's records of EPOCH come from the files; the data set's own copy of samples, if it has one, is given back. Waits. */
int sgrad__placement_load(struct sgrad__placement *placement, uint32_t epoch);

/* Before STEP (0 is the run's first) is submitted: what has to move meanwhile is. *RECORDS has the step's. Steps come in order;
 * those of the epoch before have ended. */
int sgrad__placement_step(struct sgrad__placement *placement, long step, struct sgrad_tensor **records);

/* A record is a sample's fields, one after another, each where a number may begin: U8 (slots, bytes). */
struct sgrad_view sgrad__placement_view(const struct sgrad__placement *placement);

/* What the program of a step reads. */
struct sgrad__source sgrad__placement_source(const struct sgrad__placement *placement);

#endif
