/* overlap.h: the time of each worker by activity, and the overlap of communication with computation, from a timeline. */
#ifndef SGRAD_REPORT_OVERLAP_H
#define SGRAD_REPORT_OVERLAP_H

#include "report/timeline.h"

struct sgrad__overlap_row {
    double kind[SGRAD__KINDS];          /* ms in tasks of each kind */
    double scheduling;                  /* ms outside tasks in StarPU: pushing and popping tasks, dependencies, callbacks */
    double fetching;                    /* of the remaining ms: copying operands of a task to the worker's memory */
    double waiting;                     /* of the remaining ms: a message to or from this rank was in progress */
    double idle;                        /* the remaining ms */
};
struct sgrad__overlap_rank {
    double communication;               /* ms with a message to or from this rank in progress */
    double hidden;                      /* of these, the ms in which its workers did not wait: mean over the workers */
    double megabytes;                   /* received, in 1e6 bytes */
    const char *awaited;                /* the task before which one of its workers waited longest for messages; NULL: none */
    double awaited_ms;                  /* sum of these waits: over all micro-batches and steps */
};
struct sgrad__overlap_layer {
    const char *name;                   /* the first LENGTH characters of the name of a task, not NUL-terminated */
    int length;
    double ms, gflop, gbyte;            /* sums over all its tasks: on all workers */
    double roof_ms;                     /* minimum ms of these tasks by the roofline model (Williams et al. 2009); 0: unknown */
};
struct sgrad__overlap {
    struct sgrad__overlap_row *row;     /* per row of the timeline */
    struct sgrad__overlap_rank *rank;   /* per rank */
    double *exposed;                    /* [parcel * ranks + rank]: mean ms that a worker of the rank waited for the parcel */
    int layers;
    struct sgrad__overlap_layer *layer; /* sorted by ms, the longest first */
};
/* The activities of a worker: each kind of task, then scheduling, fetching, waiting and idle. */
int sgrad__shares(const struct sgrad__timeline *timeline);                      /* number of activities */
const char *sgrad__share_name(const struct sgrad__timeline *timeline, int share);
double sgrad__share(const struct sgrad__timeline *timeline, const struct sgrad__overlap_row *row, int share);   /* ms */
/* layers.c: sets *LAYER to an array of all layers, the longest first, which the caller must free. Their names are those of tasks
 * of TIMELINE. Returns the number of layers. */
int sgrad__layers_find(const struct sgrad__timeline *timeline, struct sgrad__overlap_layer **layer);

void sgrad__overlap_find(const struct sgrad__timeline *timeline, struct sgrad__overlap *overlap);
void sgrad__overlap_free(struct sgrad__overlap *overlap);       /* TIMELINE must be freed later than OVERLAP */

#endif
