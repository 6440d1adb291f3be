/* overlap.h: where the time of a timeline went. */
#ifndef SGRAD_REPORT_OVERLAP_H
#define SGRAD_REPORT_OVERLAP_H

#include "report/timeline.h"

struct sgrad__overlap_row {
    double kind[SGRAD__KINDS];          /* ms in tasks of a kind */
    double scheduling;                  /* ms in no task, but in StarPU: pushing and popping tasks, dependencies, callbacks */
    double fetching;                    /* ms in none of these, fetching what a task reads into its memory */
    double waiting;                     /* ms in none of these, while a message to or from this rank was under way */
    double idle;                        /* ms in none of these otherwise */
};
struct sgrad__overlap_rank {
    double communication;               /* ms in which a message to or from this rank was under way */
    double hidden;                      /* of these, those in which its workers did not wait: their mean */
    double megabytes;                   /* received */
    const char *awaited;                /* the task that began after most of the waiting; NULL: there was none */
    double awaited_ms;
};
struct sgrad__overlap_layer {
    const char *name;                   /* LENGTH characters of a task's name */
    int length;
    double ms, gflop, gbyte;            /* of all its tasks, on all workers */
    double roof_ms;                     /* what these take where a worker reaches its roof; 0: that is unknown */
};
struct sgrad__overlap {
    struct sgrad__overlap_row *row;     /* as the timeline's */
    struct sgrad__overlap_rank *rank;
    double *exposed;                    /* ms of a parcel's messages on a rank: [parcel * ranks + rank] */
    int layers;
    struct sgrad__overlap_layer *layer; /* the longest first */
};
/* Where a worker's time went: its kinds of task, then what else it did. */
int sgrad__shares(const struct sgrad__timeline *timeline);                      /* how many */
const char *sgrad__share_name(const struct sgrad__timeline *timeline, int share);
double sgrad__share(const struct sgrad__timeline *timeline, const struct sgrad__overlap_row *row, int share);   /* ms */
/* layers.c: what *LAYER, which is the caller's, holds afterwards: the longest first. Returns how many. */
int sgrad__layers_find(const struct sgrad__timeline *timeline, struct sgrad__overlap_layer **layer);

void sgrad__overlap_find(const struct sgrad__timeline *timeline, struct sgrad__overlap *overlap);
void sgrad__overlap_free(struct sgrad__overlap *overlap);

#endif
