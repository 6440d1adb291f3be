/* residence.h: which buffers of a sequence of tasks are in memory, and when they are moved to and from a file. Private to
 * graphs/compiler/. The plan depends on sizes and times only; spill.c applies it to a program. */
#ifndef SGRAD_GRAPHS_COMPILER_PASSES_RESIDENCE_H
#define SGRAD_GRAPHS_COMPILER_PASSES_RESIDENCE_H

#include <stdbool.h>

/* A task of the sequence: the buffers that it uses. */
struct sgrad__task_uses {
    double seconds;                 /* its duration */
    int count;
    const int *buffer;              /* COUNT indices, without repetition */
    const bool *writes;             /* by index of BUFFER: the task changes it */
};

struct sgrad__residence_problem {
    int tasks, buffers;
    int running;                    /* tasks that run at the same time, if there is enough memory for their buffers */
    const struct sgrad__task_uses *task;
    const double *bytes;            /* by buffer */
    const bool *fixed;              /* by buffer: it stays in memory from its first to its last use */
    /* By buffer: number of the place in the file that has its content before the first task, and again after each task that
     * writes it; -1: none. Buffers with the same number are copies of the same content, or of parts of it. */
    const int *home;
    const int *over;                /* by buffer: another one, whose memory it has from its first use, the last one of the other,
                                       on; -1: none */
    double limit;                   /* bytes in memory at any time */
    double write, read;             /* bandwidth of the file, bytes per second */
    bool simple;                    /* buffers leave by the first rule only */
};

/* Buffer BUFFER is not in memory between two of its uses. */
struct sgrad__absence {
    int buffer;
    int store;                      /* it is written to the file after this task; -1: the file has its content already */
    int release;                    /* its memory is used by others from this task on; 0, if it was not in memory before */
    int from;                       /* the file has the content, and there is memory for it, from this task on */
    int fetch;                      /* it is read to memory before this task; at least FROM */
    int use;                        /* the next task that uses it; at least FETCH */
};

struct sgrad__residence {
    int count;
    struct sgrad__absence *absence; /* in the order of USE */
    int *end;                       /* by buffer: others use its memory from this task on, for good */
    double peak;                    /* bytes in memory at most */
    double written, read;           /* bytes that are moved */
    double seconds, waited;         /* predicted time of all tasks, with waits for moves; these waits */
};

/* Plans the sequence, so that at most limit bytes are in memory at any time. The caller must free *RESULT with
 * sgrad__residence_free. Returns 0, or the bytes that some tasks need together, more than the limit; *RESULT is then not set. */
double sgrad__residence_plan(const struct sgrad__residence_problem *problem, struct sgrad__residence *result);
void sgrad__residence_free(struct sgrad__residence *result);
/* Returns the maximum number of bytes in memory if nothing is moved. */
double sgrad__residence_peak(const struct sgrad__residence_problem *problem);

#endif
