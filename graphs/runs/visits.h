/* visits.h: many models over data that stays where it is: which of them trains on which partition, in which order. Arithmetic,
 * the same on every rank: knows no network and no message. Private to graphs/runs/. */
#ifndef SGRAD_GRAPHS_VISITS_H
#define SGRAD_GRAPHS_VISITS_H

#include "runtime/runtime.h"

/* One pass of a model over a partition: by the rank that has it, or by that rank's group of neighbours, where the model takes so
 * many ranks at once. */
struct sgrad__visit {
    int model, epoch, partition;
    int number;                     /* which of its model's visits it is, from the first of its first epoch on */
    double begin, end;              /* in the unit of costs, from the first visit on */
};

struct sgrad__visits_options {
    int models, partitions;
    int first_epoch, epochs;        /* the models' next epochs: each visits every partition once in each */
    int ranks;                      /* that partitions are dealt out to */
    const double *cost;             /* by model: of a visit; NULL: 1 each */
    uint64_t seed;
    int seats;                      /* models that a rank trains side by side, each as fast as one alone; 0: 1 */
    const int *width;               /* by model: ranks that it takes at once; NULL: 1 each */
};

/* In the order of their beginnings. */
struct sgrad__visits {
    const char *schedule;           /* its name */
    int count;
    struct sgrad__visit *visit;
    double makespan;                /* the last one's end */
};

/* A way to put visits in order, whoever costs what. */
struct sgrad__tour {
    const char *name, *summary, *source;
    void (*order)(const struct sgrad__visits_options *options, struct sgrad__visit *visit);
};
extern const struct sgrad__tour sgrad__tours[];     /* ends without a name */

/* By the schedule NAME, or, NULL, by that of the least makespan. Free it. SGRAD_ENAME: there is none of that name. */
int sgrad__visits_plan(const char *name, const struct sgrad__visits_options *options, struct sgrad__visits *visits);
void sgrad__visits_free(struct sgrad__visits *visits);
/* The same visits, in each model's order, as so many ranks make them. */
void sgrad__visits_time(const struct sgrad__visits_options *options, struct sgrad__visits *visits);

/* Of the WIDTH neighbours, of RANKS ranks in all, who visit PARTITION, the first. Five ranks and a width of 2:
 *
 *     partition   0 1 2 3 4 5 6 …          rank 4, which has no neighbour left, is in no group of two, and its partition is
 *     group       0 0 2 2 0 0 0            visited by another's                                                               */
static inline int sgrad__visits_rank(int partition, int ranks, int width) {
    return partition % ranks / width % (ranks / width) * width;
}
/* The visit that VISIT's model makes next; NULL: none. */
const struct sgrad__visit *sgrad__visits_next(const struct sgrad__visits *visits, const struct sgrad__visit *visit);

#endif
