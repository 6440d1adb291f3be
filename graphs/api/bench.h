/* bench.h: the durations of a training step on this machine, measured, and the limits that the hardware sets. */
#ifndef SGRAD_GRAPHS_API_BENCH_H
#define SGRAD_GRAPHS_API_BENCH_H

#include "graphs/api/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All calls of one kernel in a step of this rank, each measured in isolation: every worker runs the same call at the same time,
 * repeatedly, and the shortest time of each worker counts. */
struct sgrad_bench_kernel {
    const char *name;               /* "conv2d backward-weight"; owned by the library */
    int64_t calls;                  /* in a step */
    double ms;                      /* sum over the calls; of each call, the mean over the workers that have a kernel for it */
    double gflop, gbyte;            /* sums over the calls: operations, bytes of the operands */
};
/* One kind of task of the measured steps, identified by kernel and hash (runtime.h: sgrad_bound_kernel). */
struct sgrad_bench_call {
    const char *kernel;             /* owned by the library */
    uint32_t hash;
    double flops, bytes;            /* of one task */
    double seconds;                 /* mean time of a task on a CPU worker during the steps, with other tasks in progress */
    int64_t tasks;                  /* number of measured tasks */
};
struct sgrad_bench_result {
    int kernels, calls;
    struct sgrad_bench_kernel *kernel;      /* the longest first; free it */
    struct sgrad_bench_call *call;          /* free it */
    double task_overhead,
        seconds_per_byte;           /* CPU worker's overhead in seconds: of a task; of a byte sent or received by the rank */
    long batch;                     /* samples of a step, of all ranks */
    int ranks, workers;             /* workers: of this rank */
    double limit_ms;                /* lower bound of a step: its operations at their shortest times on all workers */
    double step_ms;                 /* median of the measured steps */
    double memory_gbyte, memory_ms; /* main memory that a step's tasks read and write; the time that all workers need for it */
    double gflops, gbytes;          /* 1e9 per second, peak of all workers of this rank: operations; bytes of main memory */
    double gflop, arithmetic_ms;    /* operations of a step's kernels, in 1e9; their time at the peak */
    int tasks;                      /* of a step */
    double submission_ms;           /* median CPU time of the thread that submits the tasks of a step */
    double tasks_ms;                /* median of steps with empty kernels; 0: not measured (with GPUs or with several ranks) */
    char scheduler[32];             /* StarPU's scheduler during these steps */
    double latency, bandwidth;      /* of the network, measured, in seconds and bytes per second; 0: one rank */
    double host_latency, host_bandwidth;        /* the same between ranks of one host */
};
/* Measures a training step of OPTIONS: runs some steps, then the kernels in isolation. Prints the configuration, unless
 * options.output.json is set; writes no files. Images are not normalized. Every rank must call it. The caller must free kernel
 * and call of *RESULT, also after an error. The errors are those of sgrad_train. */
int sgrad_bench(const struct sgrad_train_options *options, struct sgrad_bench_result *result);
/* A measured step, and its moves between memory and a file (--memory, --spill) on this rank. */
struct sgrad_timed_step {
    double seconds;         /* from the end of the preceding step to its end */
    double written, read;   /* bytes */
    double moving, waiting; /* seconds in which at least one move was in progress; that workers waited for moves */
};
/* Measures STEPS training steps that follow WARM unmeasured ones: STEP[STEPS]. *RANK: the rank of this process. TRACE: directory
 * for a trace of all these steps; NULL: no trace. No other files are written. Images are not normalized. Every rank must call it.
 * The errors are those of sgrad_train. */
int sgrad_steps_time(const struct sgrad_train_options *options, const char *trace, long warm, long steps,
                     struct sgrad_timed_step *step, int *rank);

#ifdef __cplusplus
}
#endif
#endif
