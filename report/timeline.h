/* timeline.h: a trace as read from its files: which worker ran which task at which time, and which messages were in progress. All
 * analyses of report/ use it. */
#ifndef SGRAD_REPORT_TIMELINE_H
#define SGRAD_REPORT_TIMELINE_H

#include "report/kinds.h"
#include "report/numbers.h"

#include <stdbool.h>
#include <stdint.h>

struct sgrad__timeline_task {
    char *name;                         /* "layer1.0.conv1 backward-data #3" */
    int kind;                           /* index in timeline.kinds */
    int worker;                         /* index in timeline.row */
    int step;                           /* training step; -1: none */
    double begin, end;                  /* ms since the start of the first task */
    double gflop, gbyte;                /* 1e9 operations; 1e9 bytes of operands, each counted once */
};
struct sgrad__timeline_message {
    int from, to;                       /* ranks */
    int64_t sends, receives;            /* ids of the jobs that send and receive it; 0: unknown */
    uint64_t sent, received;            /* StarPU's handles of the tensor on the sender and on the receiver; 0: unknown */
    double begin, end;                  /* ms: from the time at which it can be sent until it is received */
    double bytes;
    int parcel;                         /* index in timeline.parcel */
};
/* A parcel is the content of messages, for example "bucket 3", with the tensors from which it was assembled. */
struct sgrad__timeline_part {
    char *name;                         /* of a tensor: "layer3.0.conv2.weight" */
    double bytes;
};
struct sgrad__timeline_parcel {
    char *name;
    int messages;                       /* number of messages */
    double bytes;                       /* of all messages */
    int parts;                          /* number of tensors; 0: unknown */
    struct sgrad__timeline_part *part;  /* the largest first */
};
/* A node of StarPU's dependency graph: a task, or an internal operation of StarPU between tasks. */
struct sgrad__timeline_job {
    int64_t id;                         /* never 0 */
    double ms;                          /* duration of a task; else 0 */
    int kind;                           /* of a task, index in timeline.kinds; -1: not a task */
    int first, count;                   /* the jobs on which it depends: first index and number in timeline.before */
};
/* The state of a worker outside tasks, derived from StarPU's states. */
enum sgrad__state { SGRAD__NOTHING, SGRAD__SCHEDULING, SGRAD__FETCHING };
struct sgrad__timeline_span {
    int row;                            /* index in timeline.row */
    enum sgrad__state state;
    double begin, end;                  /* ms */
};
/* A change of the memory in use on a memory node of a rank. */
struct sgrad__timeline_memory {
    int rank, node;                     /* node 0 is main memory */
    double ms, megabytes;               /* time of the change; 1e6 bytes in use from then on */
};
/* A copy from one memory node of a rank to another: between main memory and a GPU, over PCIe, or between GPUs. */
struct sgrad__timeline_copy {
    int rank, from, to;                 /* rank; memory nodes, to is -1 if the trace has no arrival */
    long number;                        /* StarPU's number of the copy within the rank */
    double bytes;
    char *name;                         /* of the tensor */
};
/* A move of a tensor between memory and a file (--spill). */
struct sgrad__timeline_move {
    int rank;
    bool reads;        /* from the file */
    char *name;        /* of the tensor */
    double begin, end; /* ms */
};
/* A worker. */
struct sgrad__timeline_row {
    int rank, worker;                   /* the worker's number within the rank, from StarPU */
    double gflops, gbytes;              /* its peak: 1e9 operations, 1e9 bytes of memory per second; 0: unknown */
    int first, tasks;                   /* its tasks: first index and number in timeline.task */
    int first_span, spans;              /* its spans: first index and number in timeline.span */
};
struct sgrad__timeline {
    int ranks, rows, tasks, messages, parcels, spans, memories, copies, moves, jobs, befores;
    int steps, first_step;              /* number of training steps, from the first to the last with tasks; the first one */
    double start;                       /* start of the first task: ms of StarPU's clock */
    double length;                      /* ms from the start of the first task to the end of the last */
    struct sgrad__kinds kinds;
    struct sgrad__timeline_row *row;    /* sorted by rank, then worker */
    struct sgrad__numbers workers;      /* Maps {rank, worker}, two ints, to the index in row. */
    int *first_row;                     /* [ranks + 1]: index of the first row of each rank; the last element: rows */
    struct sgrad__timeline_task *task;  /* sorted by row, then begin */
    struct sgrad__timeline_message *message;
    struct sgrad__timeline_parcel *parcel;
    struct sgrad__timeline_span *span;  /* sorted by row, then begin */
    struct sgrad__timeline_memory *memory;      /* of each rank in order of time; also before and after the tasks */
    struct sgrad__timeline_copy *copy;
    struct sgrad__timeline_move *move;  /* in the order in which they begin */
    struct sgrad__timeline_job *job;    /* sorted by id */
    int64_t *before;                    /* ids of jobs; some of these jobs are older than the trace and not in job */
    double *step_end;                   /* [steps]: end of the last task of each step, in ms */
};

/* Reads FOLDER/trace. The caller must free *TIMELINE. If this folder does not exist, sets *THERE to false and returns 0.
 * SGRAD_EIO, SGRAD_EFORMAT: a file is missing, incomplete or malformed. */
int sgrad__timeline_read(const char *folder, struct sgrad__timeline *timeline, bool *there);
void sgrad__timeline_free(struct sgrad__timeline *timeline);

/* tasks.c: reads tasks.rec. Tasks and rows are in the order of the file; sgrad__timeline_read sorts them. */
int sgrad__timeline_read_tasks(const char *folder, struct sgrad__timeline *timeline);

/* messages.c: reads comms.rec, if there are several ranks. */
int sgrad__timeline_read_messages(const char *folder, struct sgrad__timeline *timeline);

/* traffic.c: finds the parcels of the messages, from the handles of their tensors. */
int sgrad__timeline_read_parcels(const char *folder, struct sgrad__timeline *timeline);
/* Returns "bucket 3 (layer3.0.conv2.weight, layer3.0.bn1.weight and 3 more)"; the caller must free it. */
char *sgrad__timeline_parcel_text(const struct sgrad__timeline_parcel *parcel);

/* paje.c: adds spans, memory use, copies and moves from paje.trace. Tasks and rows must be sorted. */
int sgrad__timeline_read_paje(const char *folder, struct sgrad__timeline *timeline);

#endif
