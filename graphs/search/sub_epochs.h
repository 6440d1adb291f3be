/* sub_epochs.h: schedules of a hyperparameter search: which model trains on which partition of the training set, and when.
 * Computed identically on every rank; independent of networks and messages. Private to graphs/. */
#ifndef SGRAD_GRAPHS_SEARCH_SUB_EPOCHS_H
#define SGRAD_GRAPHS_SEARCH_SUB_EPOCHS_H

#include "runtime/runtime.h"

/* One pass of a model over a partition. It is made by the rank that has the partition or, if the model needs several ranks at
 * once, by the group of consecutive ranks to which that rank belongs. */
struct sgrad__sub_epoch {
    int model, epoch, partition;
    int number;                     /* number of the sub-epoch among those of its model, over all epochs; 0 is the first */
    double begin, end;              /* time, in the unit of costs; 0: start of the first sub-epoch */
};

struct sgrad__sub_epochs_options {
    int models, partitions;         /* number of models; of partitions */
    int first_epoch, epochs;        /* the next epochs of all models; in each of them a model visits every partition once */
    int ranks;                      /* ranks over which the partitions are distributed */
    const double *cost;             /* by model: duration of a sub-epoch; NULL: 1 each */
    uint64_t seed;                  /* of random orders */
    int slots;                      /* models that a rank trains concurrently, each as fast as a single one; 0: 1 */
    const int *width;               /* by model: ranks that it needs at once; NULL: 1 each */
};

/* Sub-epochs, sorted by their start. */
struct sgrad__sub_epochs {
    const char *schedule;           /* name of the schedule; static */
    int count;
    struct sgrad__sub_epoch *sub_epoch;
    double makespan;                /* end of the last sub-epoch */
};

/* An algorithm that orders sub-epochs. order writes models·partitions·epochs of them to SUB_EPOCH; their times are computed
 * later. source: paper of the method, or NULL. */
struct sgrad__sub_epoch_order {
    const char *name, *summary, *source;
    void (*order)(const struct sgrad__sub_epochs_options *options, struct sgrad__sub_epoch *sub_epoch);
};
extern const struct sgrad__sub_epoch_order sgrad__sub_epoch_orders[];     /* ends at name NULL */

/* Plans the sub-epochs by the algorithm NAME, or, if NAME is NULL, by the one with the shortest makespan. The caller must free
 * *SUB_EPOCHS (sgrad__sub_epochs_free). SGRAD_ENAME: there is no such algorithm. */
int sgrad__sub_epochs_plan(const char *name, const struct sgrad__sub_epochs_options *options,
                           struct sgrad__sub_epochs *sub_epochs);
void sgrad__sub_epochs_free(struct sgrad__sub_epochs *sub_epochs);      /* frees the list, not the record */
/* Computes start, end and makespan again, for the ranks and slots of OPTIONS, and sorts the sub-epochs by start. The order of the
 * sub-epochs of each model is unchanged. */
void sgrad__sub_epochs_time(const struct sgrad__sub_epochs_options *options, struct sgrad__sub_epochs *sub_epochs);

/* Returns the first of the WIDTH consecutive ranks, of RANKS in all, that train on PARTITION. Example with 5 ranks and width 2:
 *
 *     partition    0 1 2 3 4 5 6 …         rank 4 belongs to no group of two; its partition is visited by
 *     first rank   0 0 2 2 0 0 0           the group of ranks 0 and 1 */
static inline int sgrad__sub_epochs_rank(int partition, int ranks, int width) {
    return partition % ranks / width % (ranks / width) * width;
}
/* Returns the sub-epoch of the same model that follows BEFORE, an element of SUB_EPOCHS; NULL: BEFORE is the last one. */
const struct sgrad__sub_epoch *sgrad__sub_epochs_next(const struct sgrad__sub_epochs *sub_epochs,
                                                      const struct sgrad__sub_epoch *before);

#endif
