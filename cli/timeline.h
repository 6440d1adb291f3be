/* timeline.h: a trace, read: which worker ran what when, and which messages were under way; what report looks at. */
#ifndef SGRAD_CLI_TIMELINE_H
#define SGRAD_CLI_TIMELINE_H

#include "cli/cli.h"

struct sgrad__timeline_task {
    char *name;                         /* "layer1.0.conv1 backward-data #3" */
    enum sgrad_kind kind;
    int worker;                         /* index of a row */
    double begin, end;                  /* ms since the first task began */
    double gflop;
};
struct sgrad__timeline_message {
    int from, to;                       /* ranks */
    double begin, end;                  /* ms; from when it could be sent until it had been received */
    double bytes;
};
struct sgrad__timeline_row {
    int rank, worker;                   /* as StarPU numbers them, within a rank */
};
struct sgrad__timeline {
    int ranks, rows, tasks, messages;
    double length;                      /* ms, from the first begin to the last end */
    struct sgrad__timeline_row *row;    /* by rank, then worker */
    struct sgrad__timeline_task *task;  /* by begin */
    struct sgrad__timeline_message *message;
};

/* Reads FOLDER/trace. *THERE is false, without an error, when that folder does not exist. */
int sgrad__timeline_read(const char *folder, struct sgrad__timeline *timeline, bool *there);
void sgrad__timeline_free(struct sgrad__timeline *timeline);

/* ---- overlap.c: where the time went ---- */

struct sgrad__overlap_row {
    double kind[SGRAD_KINDS];           /* ms in tasks of a kind */
    double waiting;                     /* ms in no task, while a message to or from this rank was under way */
    double idle;                        /* ms in no task otherwise */
};
struct sgrad__overlap_rank {
    double communication;               /* ms in which a message to or from this rank was under way */
    double hidden;                      /* of these, those in which its workers ran tasks: their mean */
    double megabytes;                   /* received */
};
struct sgrad__overlap_layer {
    const char *name;                   /* LENGTH characters of a task's name */
    int length;
    double ms, gflop;                   /* of all its tasks, on all workers */
};
struct sgrad__overlap {
    struct sgrad__overlap_row *row;     /* as the timeline's */
    struct sgrad__overlap_rank *rank;
    int layers;
    struct sgrad__overlap_layer *layer; /* the longest first */
};
void sgrad__overlap_find(const struct sgrad__timeline *timeline, struct sgrad__overlap *overlap);
void sgrad__overlap_free(struct sgrad__overlap *overlap);

/* ---- gantt.c: the timeline as a picture ---- */

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *timeline);    /* as sgrad__curve_draw */

#endif
