/* visit_schedule.h: schedules of a hyperparameter search: which model trains on which partition of the training set, and when.
 * Computed identically on every rank; independent of networks and messages. Private to graphs/. */
#ifndef SGRAD_GRAPHS_SEARCH_VISIT_SCHEDULE_H
#define SGRAD_GRAPHS_SEARCH_VISIT_SCHEDULE_H

#include "runtime/runtime.h"

/* One pass of a model over a partition. It is made by the rank that has the partition or, if the model needs several ranks at
 * once, by the group of consecutive ranks to which that rank belongs. */
struct sgrad__visit {
    int model, epoch, partition;
    int number;                     /* number of the visit among those of its model, over all epochs; 0 is the first */
    double begin, end;              /* time, in the unit of costs; 0: start of the first visit */
};

struct sgrad__visits_options {
    int models, partitions;         /* number of models; of partitions */
    int first_epoch, epochs;        /* the next epochs of all models; in each of them a model visits every partition once */
    int ranks;                      /* ranks over which the partitions are distributed */
    const double *cost;             /* by model: duration of a visit; NULL: 1 each */
    uint64_t seed;                  /* of random orders */
    int seats;                      /* models that a rank trains concurrently, each as fast as a single one; 0: 1 */
    const int *width;               /* by model: ranks that it needs at once; NULL: 1 each */
};

/* Visits, sorted by their start. */
struct sgrad__visits {
    const char *schedule;           /* name of the schedule; static */
    int count;
    struct sgrad__visit *visit;
    double makespan;                /* end of the last visit */
};

/* An algorithm that orders visits. order writes models·partitions·epochs of them to VISIT; their times are computed later.
 * source: paper of the method, or NULL. */
struct sgrad__tour {
    const char *name, *summary, *source;
    void (*order)(const struct sgrad__visits_options *options, struct sgrad__visit *visit);
};
extern const struct sgrad__tour sgrad__tours[];     /* ends at name NULL */

/* Plans the visits by the algorithm NAME, or, if NAME is NULL, by the one with the shortest makespan. The caller must free
 * *VISITS (sgrad__visits_free). SGRAD_ENAME: there is no such algorithm. */
int sgrad__visits_plan(const char *name, const struct sgrad__visits_options *options, struct sgrad__visits *visits);
void sgrad__visits_free(struct sgrad__visits *visits);      /* frees the list, not the record */
/* Computes start, end and makespan again, for the ranks and slots of OPTIONS, and sorts the visits by start. The order of the
 * visits of each model is unchanged. */
void sgrad__visits_time(const struct sgrad__visits_options *options, struct sgrad__visits *visits);

/* Returns the first of the WIDTH consecutive ranks, of RANKS in all, that train on PARTITION. Example with 5 ranks and width 2:
 *
 *     partition    0 1 2 3 4 5 6 …         rank 4 belongs to no group of two; its partition is visited by
 *     first rank   0 0 2 2 0 0 0           the group of ranks 0 and 1 */
static inline int sgrad__visits_rank(int partition, int ranks, int width) {
    return partition % ranks / width % (ranks / width) * width;
}
/* Returns the next visit in VISITS of the model of VISIT, an element of VISITS; NULL: there is none. */
const struct sgrad__visit *sgrad__visits_next(const struct sgrad__visits *visits, const struct sgrad__visit *visit);

#endif
