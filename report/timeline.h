/* timeline.h: a trace, read: which worker ran what when, and which messages were under way; what report looks at. */
#ifndef SGRAD_REPORT_TIMELINE_H
#define SGRAD_REPORT_TIMELINE_H

#include "report/kinds.h"
#include "report/numbers.h"

#include <stdbool.h>
#include <stdint.h>

struct sgrad__timeline_task {
    char *name;                         /* "layer1.0.conv1 backward-data #3" */
    int kind;                           /* index of the timeline's */
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
    int messages;
    double bytes;                       /* of them */
    int parts;                          /* 0: unknown */
    struct sgrad__timeline_part *part;
};
/* What StarPU's dependencies join: a task, or something of StarPU's own between tasks. */
struct sgrad__timeline_job {
    int64_t id;                         /* never 0 */
    double ms;                          /* of a task: how long it ran */
    int kind;                           /* of a task, as its; -1: no task */
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
    int first, tasks;                   /* of the timeline's tasks: the worker's own */
    int first_span, spans;              /* likewise */
};
struct sgrad__timeline {
    int ranks, rows, tasks, messages, parcels, spans, memories, copies, jobs, befores;
    int steps, first_step;              /* of training that tasks belong to: how many, and the first one's number */
    double start;                       /* of the first task, ms of StarPU's clock */
    double length;                      /* ms, from the first begin to the last end */
    struct sgrad__kinds kinds;
    struct sgrad__timeline_row *row;    /* by rank, then worker */
    struct sgrad__numbers workers;      /* of {rank, worker}, two ints: its row */
    int *first_row;                     /* [ranks + 1]: of each rank's own, and how many rows there are */
    struct sgrad__timeline_task *task;  /* by row, then begin */
    struct sgrad__timeline_message *message;
    struct sgrad__timeline_parcel *parcel;
    struct sgrad__timeline_span *span;  /* by row, then begin */
    struct sgrad__timeline_memory *memory;      /* of each rank by time; before and after the tasks, too */
    struct sgrad__timeline_copy *copy;
    struct sgrad__timeline_job *job;    /* by id */
    int64_t *before;                    /* ids; some are of jobs before the trace */
    double *step_end;                   /* ms */
};

/* Reads FOLDER/trace. *THERE is false, without an error, when that folder does not exist. */
int sgrad__timeline_read(const char *folder, struct sgrad__timeline *timeline, bool *there);
void sgrad__timeline_free(struct sgrad__timeline *timeline);

/* tasks.c: tasks.rec; tasks and rows are in the order of the file. */
int sgrad__timeline_read_tasks(const char *folder, struct sgrad__timeline *timeline);

/* messages.c: comms.rec. */
int sgrad__timeline_read_messages(const char *folder, struct sgrad__timeline *timeline);

/* traffic.c: what the timeline's messages are of, by their handles. */
int sgrad__timeline_read_parcels(const char *folder, struct sgrad__timeline *timeline);
/* "bucket 3 (layer3.0.conv2.weight, layer3.0.bn1.weight and 3 more)"; free it. */
char *sgrad__timeline_parcel_text(const struct sgrad__timeline_parcel *parcel);

/* paje.c: what paje.trace adds to a timeline whose tasks are known. */
int sgrad__timeline_read_paje(const char *folder, struct sgrad__timeline *timeline);

#endif
