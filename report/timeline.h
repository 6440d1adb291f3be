/* timeline.h: a trace, read: which worker ran what when, and which messages were under way; what report looks at. */
#ifndef SGRAD_CLI_TIMELINE_H
#define SGRAD_CLI_TIMELINE_H

#include "cli/cli.h"

struct sgrad__timeline_task {
    char *name;                         /* "layer1.0.conv1 backward-data #3" */
    enum sgrad_kind kind;
    int worker;                         /* index of a row */
    int step;                           /* of training; -1: none */
    double begin, end;                  /* ms since the first task began */
    double gflop, gbyte;                /* of arithmetic; of operands, each once */
};
struct sgrad__timeline_message {
    int from, to;                       /* ranks */
    int64_t sends, receives;            /* jobs; 0: unknown */
    uint64_t sent, received;            /* StarPU's handles, of the sender and of the receiver */
    double begin, end;                  /* ms; from when it could be sent until it had been received */
    double bytes;
    int parcel;
};
/* What messages are of: "bucket 3", and what that was put together from, the largest first. */
struct sgrad__timeline_part {
    char *name;                         /* "layer3.0.conv2.weight" */
    double bytes;
};
struct sgrad__timeline_parcel {
    char *name;
    int parts;                          /* 0: unknown */
    struct sgrad__timeline_part *part;
};
/* What StarPU's dependencies join: a task, or something of StarPU's own between tasks. */
struct sgrad__timeline_job {
    int64_t id;                         /* never 0 */
    double ms;                          /* of a task: how long it ran */
    int kind;                           /* of a task; -1: no task */
    int first, count;                   /* the jobs that it waited for: in the timeline's list BEFORE */
};
/* What a worker was in, by StarPU's states, besides tasks. */
enum sgrad__state { SGRAD__NOTHING, SGRAD__SCHEDULING, SGRAD__FETCHING };
struct sgrad__timeline_span {
    int row;
    enum sgrad__state state;
    double begin, end;                  /* ms */
};
/* How much of a memory node is in use from here on. */
struct sgrad__timeline_memory {
    int rank, node;                     /* node 0 is main memory */
    double ms, megabytes;
};
/* From one memory node of a rank to another: between main memory and a GPU's, over PCIe. */
struct sgrad__timeline_copy {
    int rank, from, to;                 /* to -1: it has not arrived */
    long number;                        /* StarPU's, within the rank */
    double bytes;
    char *name;                         /* of the tensor */
};
struct sgrad__timeline_row {
    int rank, worker;                   /* as StarPU numbers them, within a rank */
    double gflops, gbytes;              /* its roof: a second of arithmetic, of memory; 0: unknown */
};
struct sgrad__timeline {
    int ranks, rows, tasks, messages, parcels, spans, memories, copies, jobs, befores;
    int steps;                          /* of training that tasks belong to */
    double start;                       /* of the first task, ms of StarPU's clock */
    double length;                      /* ms, from the first begin to the last end */
    struct sgrad__timeline_row *row;    /* by rank, then worker */
    struct sgrad__timeline_task *task;  /* by begin */
    struct sgrad__timeline_message *message;
    struct sgrad__timeline_parcel *parcel;
    struct sgrad__timeline_span *span;
    struct sgrad__timeline_memory *memory;      /* of each rank by time; before and after the tasks, too */
    struct sgrad__timeline_copy *copy;
    struct sgrad__timeline_job *job;    /* by id */
    int64_t *before;                    /* ids; some are of jobs before the trace */
    double *step_end;                   /* ms */
};

/* Reads FOLDER/trace. *THERE is false, without an error, when that folder does not exist. */
int sgrad__timeline_read(const char *folder, struct sgrad__timeline *timeline, bool *there);
void sgrad__timeline_free(struct sgrad__timeline *timeline);

/* traffic.c: what the timeline's messages are of, by their handles. */
int sgrad__timeline_read_parcels(const char *folder, struct sgrad__timeline *timeline);
/* "bucket 3 (layer3.0.conv2.weight, layer3.0.bn1.weight and 3 more)"; free it. */
char *sgrad__timeline_parcel_text(const struct sgrad__timeline_parcel *parcel);

/* paje.c: what paje.trace adds to a timeline whose tasks are known. */
int sgrad__timeline_read_paje(const char *folder, struct sgrad__timeline *timeline);

/* The lines of a picture, from the top: each rank's workers, below them, where there are several ranks, what it receives. */
#define SGRAD__MESSAGE_COLOR 0xc0392b
int sgrad__timeline_lines(const struct sgrad__timeline *timeline);
int sgrad__timeline_line(const struct sgrad__timeline *timeline, int row);
int sgrad__timeline_receives(const struct sgrad__timeline *timeline, int rank);
char *sgrad__timeline_name(const struct sgrad__timeline *timeline, int line);      /* free it */

/* ---- overlap.c: where the time went ---- */

struct sgrad__overlap_row {
    double kind[SGRAD_KINDS];           /* ms in tasks of a kind */
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
enum { SGRAD__SHARES = SGRAD_KINDS + 4 };
const char *sgrad__share_name(int share);
double sgrad__share(const struct sgrad__overlap_row *row, int share);      /* ms */
void sgrad__overlap_find(const struct sgrad__timeline *timeline, struct sgrad__overlap *overlap);
void sgrad__overlap_free(struct sgrad__overlap *overlap);

/* ---- critical.c: what no number of workers, and what no order, would make shorter ---- */

struct sgrad__critical {
    double ms;                          /* of the longest chain of tasks and messages, each of which waits for the one before it */
    double kind[SGRAD_KINDS];           /* of these, in tasks of a kind */
    double messages;                    /* and in messages */
    double work;                        /* ms of tasks for each worker of a rank, the busiest rank's */
};
/* ms: no order of these tasks on these workers is shorter, as long as tasks take what they took. */
double sgrad__critical_bound(const struct sgrad__critical *critical);
void sgrad__critical_find(const struct sgrad__timeline *timeline, struct sgrad__critical *critical);

/* ---- memory.c: how much memory was in use, when ---- */

/* For each memory node of each rank its maximum and its course. */
json_t *sgrad__memory_as_json(const struct sgrad__timeline *timeline);
void sgrad__memory_print(const json_t *memory);

/* ---- copies.c: what went between memory nodes ---- */

/* NULL: nothing did. */
json_t *sgrad__copies_as_json(const struct sgrad__timeline *timeline);
void sgrad__copies_print(const json_t *copies);

/* ---- findings.c: what stands out, in plain sentences ---- */

/* An array of strings, the weightiest first; empty when nothing stands out. */
json_t *sgrad__findings(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap);

/* ---- report_trace.c: all of this, told ---- */

json_t *sgrad__trace_as_json(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap, const struct sgrad__critical *critical);
/* FOUND: what as_json made of the same. */
void sgrad__trace_print(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap, const struct sgrad__critical *critical, const json_t *found);

/* ---- page.c ---- */

/* Writes FOLDER/report.html from what --json prints, the timeline (NULL: not traced) and curve.svg. An error is told. */
bool sgrad__page_write(const char *folder, const json_t *report, const struct sgrad__timeline *timeline, bool curve);

/* ---- compare.c ---- */

/* Prints what the runs in these folders, a list that ends with NULL, have in common and what not. An error is told. */
int sgrad__compare(char *const *folder, bool json);

/* ---- gantt.c: the timeline as a picture ---- */

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *timeline);    /* as sgrad__curve_draw */

#endif
