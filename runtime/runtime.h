/* runtime.h: the base module of Stargrad: errors, threads, tensors, kernels as StarPU tasks, ranks, files.
 *
 * A *tensor* is a named block of memory that StarPU moves between memory nodes. A *kernel* is a function on tensors, for CPUs,
 * CUDA devices, or both. Submitting a kernel creates a StarPU task. The task starts once all earlier tasks with conflicting
 * accesses to its operands have ended, on the worker that the scheduler picks. A function waits only where its comment states it.
 *
 *     static void twice(const struct sgrad_args *a) {
 *         const float *x = a->data[0]; float *y = a->data[1];
 *         for (int64_t i = 0; i < sgrad_shape_count(&a->view[0].shape); i++) y[i] = 2 * x[i];
 *     }
 *     static const struct sgrad_kernel kernel = { .name = "twice", .cpu = twice };
 *
 *     struct sgrad_context *ctx; struct sgrad_tensor *x, *y;
 *     SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ 0 }, &ctx));
 *     SGRAD_TRY(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, 1000), SGRAD_PERSISTENT, &x));
 *     SGRAD_TRY(sgrad_tensor_create("y", SGRAD_F32, sgrad_shape(1, 1000), SGRAD_PERSISTENT, &y));
 *     SGRAD_TRY(sgrad_tensor_write(x, values));
 *     SGRAD_TRY(sgrad_task_run(&kernel, (struct sgrad_tensor *[]){ x, y }, (enum sgrad_access[]){ SGRAD_R, SGRAD_W }, 2));
 *     SGRAD_TRY(sgrad_tensor_read(y, values));
 *
 * Functions return 0 or a negative SGRAD_E… code; the one that detects an error logs it, as a line on standard error. Output
 * parameters are set only on success, unless stated otherwise. Programming errors fail an assertion. */
#ifndef SGRAD_RUNTIME_RUNTIME_H
#define SGRAD_RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors -------------------------------------------------------------------------------------------------- */

enum sgrad_error_index {    /* the position of each error in errors.def; SGRAD_ERRORS is their number */
#define SGRAD_ERROR(name, message) SGRAD_INDEX_##name,
#include "runtime/errors.def"
#undef SGRAD_ERROR
    SGRAD_ERRORS
};
enum sgrad_error {          /* the error codes, all negative: SGRAD_EINVAL is -1 */
#define SGRAD_ERROR(name, message) SGRAD_##name = -1 - SGRAD_INDEX_##name,
#include "runtime/errors.def"
#undef SGRAD_ERROR
};

const char *sgrad_strerror(int error);  /* static message of a code: "success" for 0, "unknown error" for an unknown code */

/* Logs "stargrad: " and the message as one line on standard error. Returns ERROR, for use as `return sgrad_log_error(…)`. */
int sgrad_log_error(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sgrad_log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* with "stargrad: warning: " */

/* Sends all log lines to CALLBACK, complete with prefix and newline, from any thread, one at a time. NULL: to standard error. */
void sgrad_log_set_callback(void (*callback)(const char *line));

/* Suppresses the log lines of this thread. The last message is stored in TEXT, of SIZE bytes, without prefix and newline. NULL
 * restores logging. For speculative calls. */
void sgrad_log_capture(char *text, size_t size);
/* If standard error is a terminal, shows DOING, the current activity, until the next such line or log message; NULL clears it. */
void sgrad_log_progress(const char *doing);

/* Evaluates CALL. If the result is not 0, returns it from the enclosing function. */
#define SGRAD_TRY(call)                                 \
    do {                                                \
        int sgrad_priv_error = (call);                  \
        if (sgrad_priv_error) return sgrad_priv_error;  \
    } while (0)

/* calloc, realloc and vasprintf that never return NULL: if memory is exhausted, they log it and exit. The caller frees. */
void *sgrad_xcalloc(size_t count, size_t size);
/* Returns ARRAY with capacity for one element after COUNT elements of SIZE bytes: doubled if COUNT is 0 or a power of two. */
void *sgrad_array_grow(void *array, int count, size_t size);
char *sgrad_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Formats a number, for example a loss, for display: "0.5321", from 10,000 on "1.23e+04". Returns TEXT. */
#define SGRAD_NUMBER_TEXT 32
const char *sgrad_number_text(double number, char text[SGRAD_NUMBER_TEXT]);
const char *sgrad_plural(int64_t count, const char *one, const char *many);     /* returns ONE if COUNT is 1, else MANY */
bool sgrad_ends_with(const char *text, const char *end);        /* true also if they are equal */
/* Formats a count that may be fractional: "12", "2.56", "0.855". Returns TEXT. */
#define SGRAD_AMOUNT_TEXT 32
const char *sgrad_amount_text(double amount, char text[SGRAD_AMOUNT_TEXT]);

/* FNV-1a hash (Fowler, Noll, Vo; draft-eastlake-fnv) of SIZE bytes. Names are hashed without their final NUL. */
uint64_t sgrad_hash(const void *data, size_t size);
double sgrad_time_monotonic(void);      /* seconds of a monotonic clock */
double sgrad_time_thread_cpu(void);     /* CPU seconds of the calling thread */
void sgrad_sleep(double seconds);       /* blocks the calling thread */

/* A mutex with a condition variable. Threads read and change shared data between lock and unlock. After a change that others may
 * wait for, call notify. wait releases the lock and takes it again before it returns: after a notification, after SECONDS (0: no
 * timeout), or spuriously. The caller must therefore check its condition again. */
struct sgrad_monitor *sgrad_monitor_create(void);
void sgrad_monitor_destroy(struct sgrad_monitor *monitor);      /* NULL is allowed */
void sgrad_monitor_lock(struct sgrad_monitor *monitor);
void sgrad_monitor_unlock(struct sgrad_monitor *monitor);
void sgrad_monitor_notify(struct sgrad_monitor *monitor);       /* wakes all waiting threads; requires the lock */
long sgrad_monitor_generation(const struct sgrad_monitor *monitor);   /* number of notifications; requires the lock */
void sgrad_monitor_wait(struct sgrad_monitor *monitor, double seconds);     /* requires the lock */

/* Starts a thread that runs WHAT(ARG). Returns NULL if the system cannot create one. join waits for its end and frees it. */
struct sgrad_thread *sgrad_thread_start(void *(*what)(void *arg), void *arg);
void sgrad_thread_join(struct sgrad_thread *thread);            /* NULL is allowed */

/* ---- shapes and tensors -------------------------------------------------------------------------------------- */

/* Element types. SGRAD_F16 occurs only in files. */
enum sgrad_dtype { SGRAD_F32, SGRAD_BF16, SGRAD_F16, SGRAD_F64, SGRAD_I32, SGRAD_I64, SGRAD_U8, SGRAD_U16 };
size_t sgrad_dtype_size(enum sgrad_dtype dtype);        /* bytes per element */
const char *sgrad_dtype_name(enum sgrad_dtype dtype);   /* the safetensors name: "F32", "BF16", …; static */

/* Conversion between bfloat16, the upper half of a float, and float. Rounds to nearest, ties to even. NaN stays NaN. */
static inline float sgrad_bf16_to_f32(uint16_t x) {
    union { uint32_t u; float f; } v;
    v.u = (uint32_t)x << 16;
    return v.f;
}
static inline uint16_t sgrad_f32_to_bf16(float x) {
    union { float f; uint32_t u; } v;
    v.f = x;
    uint32_t rounded = (v.u + 0x7fffu + ((v.u >> 16) & 1)) >> 16;
    return (uint16_t)(x == x ? rounded : (v.u >> 16) | 0x40u);
}

#define SGRAD_MAX_RANK 5            /* dimensions of a tensor at most */
struct sgrad_shape {
    int rank;
    int64_t dim[SGRAD_MAX_RANK];    /* outermost first; channels-last images are (N,H,W,C) */
};
struct sgrad_shape sgrad_shape(int rank, ...);                      /* sgrad_shape(2, 3, 4); dimensions are passed as ints */
int64_t sgrad_shape_count(const struct sgrad_shape *shape);         /* number of elements; 1 if the rank is 0 */
bool sgrad_shape_equal(const struct sgrad_shape *one, const struct sgrad_shape *other);
#define SGRAD_SHAPE_TEXT 80
const char *sgrad_shape_text(const struct sgrad_shape *shape, char text[SGRAD_SHAPE_TEXT]);     /* "(16,32,32,3)"; returns TEXT */

#define SGRAD_MAX_CHANNELS 4    /* Maximum number of channels of an image. */

struct sgrad_view {     /* Type and shape of a block of memory. */
    enum sgrad_dtype dtype;
    struct sgrad_shape shape;
};
size_t sgrad_view_bytes(const struct sgrad_view *view);

enum sgrad_lifetime {
    SGRAD_PERSISTENT,   /* has a host buffer, initially zeros */
    SGRAD_TRANSIENT,    /* allocated on the memory node of its first write; freed by sgrad_tensor_invalidate */
    SGRAD_SCRATCH,      /* from sgrad_workspace_create; each task that uses it gets a separate buffer */
};
struct starpu_codelet; struct _starpu_data_state;
struct sgrad_tensor {
    char *name;
    struct sgrad_view view;
    enum sgrad_lifetime lifetime;
    struct _starpu_data_state *handle;      /* starpu_data_handle_t */
    void *home;                             /* host buffer, only if persistent; access it with read and write */
    bool borrows, paged, mapped, counted;   /* belongs to another; from mmap; part of a file (spill.h); see partitions.h */
    int64_t at;                             /* its first byte in this file */
    int node;                               /* StarPU's memory node of HOME; 0: main memory; else a GPU (gpu_memory.h) */
};
int sgrad_tensor_create(const char *name, enum sgrad_dtype dtype, struct sgrad_shape shape,
                        enum sgrad_lifetime lifetime, struct sgrad_tensor **tensor);    /* copies NAME; SGRAD_ENOMEM */
/* Scratch memory of OF_CPUS bytes on a CPU, OF_GPUS on a GPU, while a task runs. If both are 0, returns 0 and creates nothing. */
int sgrad_workspace_create(size_t of_cpus, size_t of_gpus, struct sgrad_tensor **tensor);
void sgrad_tensor_destroy(struct sgrad_tensor *tensor);                 /* waits for its tasks; NULL is allowed */
int sgrad_tensor_read(struct sgrad_tensor *tensor, void *to);           /* waits for its writers; returns sgrad_task_error() */
int sgrad_tensor_write(struct sgrad_tensor *tensor, const void *from);  /* waits for its last reader and writer; SGRAD_EDEVICE */
void sgrad_tensor_invalidate(struct sgrad_tensor *tensor);              /* drops its content after the tasks submitted so far */
/* Copies FROM to TO, of the same view, after the tasks submitted so far. Does not wait. SGRAD_EDEVICE: StarPU fails. */
int sgrad_tensor_copy(struct sgrad_tensor *from, struct sgrad_tensor *to);
/* Copies TENSOR to TO after the tasks submitted so far, then calls DONE(ARG) on any thread. Does not wait. SGRAD_EDEVICE. */
int sgrad_tensor_fetch(struct sgrad_tensor *tensor, void *to, void (*done)(void *arg), void *arg);
/* Peak main memory of all tensors so far, workspaces included, in bytes. Sampled at the start of each task. */
size_t sgrad_tensors_peak_bytes(void);

/* ---- kernels and tasks --------------------------------------------------------------------------------------- */

enum { SGRAD_MAX_OPERANDS = 63, SGRAD_FEW_OPERANDS = 15 };     /* of a kernel; StarPU is built for 16 and can allocate more */

enum sgrad_access { SGRAD_R = 1, SGRAD_W = 2, SGRAD_RW = 3 };

/* A category of tasks, with the name and the colour that all plots and traces use for it. */
struct sgrad_kind {
    const char *name;       /* "forward" */
    unsigned color;         /* 0xRRGGBB */
};

/* The arguments of a kernel. Before anything runs, the same record without data is passed to the cost and workspace functions. */
struct sgrad_step; struct sgrad_batch; struct sgrad_next; /* data of one step, of all steps; a next kernel: opaque here */
enum { SGRAD_STEP_BYTES = 56 };     /* sizeof(struct sgrad_step) */
struct sgrad_args {
    const struct sgrad_view *view;  /* per operand; an absent optional operand has rank -1 */
    void *const *data;              /* per operand, on the kernel's device; NULL if absent */
    const void *attrs;              /* attributes of the operation */
    const struct sgrad_step *step;  /* on a GPU: in device memory, readable by its kernels, not by the launching CPU thread */
    const struct sgrad_batch *batch;
    int64_t first;                  /* index of the operands' first row among the rows of the step */
    uint64_t accumulate;            /* bit i: add to operand i, else overwrite it */
    int packing; /* layout of operand weight_operand as returned by .pack_layout, overrides its view; 0: not packed */
    bool deterministic;             /* true: the same input must give the same bits */
    bool tf32;                      /* true: F32 products may be rounded to TF32 on devices that support it */
    void *workspace;
    size_t workspace_size;          /* bytes */
    const struct sgrad_args *next;  /* more independent calls of the same kernel and types, if it is .batched; NULL: none */
};

struct sgrad_kernel {
    const char *name;                                       /* "conv2d backward-weight" */
    const struct sgrad_kind *kind;                          /* NULL: none */
    void (*cpu)(const struct sgrad_args *args);             /* runs on the calling thread only; NULL: none */
    void (*cuda)(const struct sgrad_args *args);            /* enqueues on sgrad_cuda_stream(), does not wait; NULL: none */
    size_t (*workspace)(const struct sgrad_args *args);     /* bytes; NULL: none */
    size_t (*gpu_workspace)(const struct sgrad_args *args); /* bytes on a GPU; NULL: as workspace */
    double (*flops)(const struct sgrad_args *args);         /* NULL: one per element of the first operand */
    double (*bytes)(const struct sgrad_args *args);         /* memory traffic; NULL: every operand once */
    /* CPU only. pack_layout returns the preferred packed layout of operand weight_operand, which many tasks read, and its size in
     * *BYTES. 0, or NULL: do not pack. pack writes FROM in that layout to TO (64-byte aligned). ARGS have no data. */
    int weight_operand, (*pack_layout)(const struct sgrad_args *args, size_t *bytes);
    void (*pack)(const struct sgrad_args *args, const void *from, void *to);
    bool accumulates, in_place;     /* on CPUs: accumulate is supported for every output; outputs may replace equal inputs */
    bool batched;                                              /* on GPUs: one launch also does the calls linked by args->next */
    /* Like cuda, but may also run the first of the COUNT kernels in NEXT, which follow in the same task. Returns the number of
     * these that it ran. 0: it ran nothing, not even this kernel. NULL: no fusion. */
    int (*cuda_fused)(const struct sgrad_args *args, const struct sgrad_next *next, int count);
};
double sgrad_no_flops(const struct sgrad_args *args);       /* returns 0, for kernels that only move data */
double sgrad_kernel_flops(const struct sgrad_kernel *kernel, const struct sgrad_args *args);   /* .flops or its default */
double sgrad_kernel_bytes(const struct sgrad_kernel *kernel, const struct sgrad_args *args, int operands);   /* likewise */

/* A kernel bound to shapes. Created once, and shared by all tasks that run it on different tensors. */
struct sgrad_bound_kernel {
    const struct sgrad_kernel *kernel;
    const void *attrs;
    int operands, packing;
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    enum sgrad_access access[SGRAD_MAX_OPERANDS];
    const struct sgrad_batch *batch;
    uint64_t accumulate, rows;      /* bit i of rows: operand i has rows (dimension 0), each processed independently */
    bool deterministic, tf32, recorded; /* recorded: on GPUs, as a CUDA graph per set of addresses (recording.c) */
    size_t workspace, gpu_workspace;    /* bytes on a CPU, on a GPU; set by sgrad_bound_kernel_prepare */
    double flops, bytes;            /* set by sgrad_bound_kernel_prepare */
    uint32_t hash;                  /* set by sgrad_bound_kernel_prepare: identifies it in StarPU's performance models */
    struct starpu_codelet *codelet; /* set by sgrad_bound_kernel_prepare */
    struct sgrad_recordings *recordings;    /* set by sgrad_bound_kernel_prepare if recorded */
    struct sgrad_tally *tally;      /* task times since sgrad_bound_kernel_profile (profile.h); NULL: not profiled */
};
void sgrad_bound_kernel_prepare(struct sgrad_bound_kernel *call); /* must be called once, before its first task */
void sgrad_bound_kernel_release(struct sgrad_bound_kernel *call); /* frees recordings and times; no task of it may be running */
/* A workspace may start at any address. Data in it must be aligned to cache lines: request SGRAD_LINE more bytes for that. */
enum { SGRAD_LINE = 64 };
static inline size_t sgrad_larger(size_t a, size_t b) { return a > b ? a : b; }
/* Returns the number from LOW to HIGH that is nearest to VALUE; LOW if HIGH is less. */
static inline int64_t sgrad_clamp(int64_t value, int64_t low, int64_t high) {
    if (value > high) value = high;
    return value > low ? value : low;
}
static inline size_t sgrad_aligned(size_t bytes) { return (bytes + SGRAD_LINE - 1) / SGRAD_LINE * SGRAD_LINE; }
struct sgrad_args sgrad_bound_kernel_args(const struct sgrad_bound_kernel *call);   /* without data, step and workspace */

/* Shared by a set of related tasks: stores the first error that one of them reports. Those that start later do nothing. */
struct sgrad_failure;
struct sgrad_failure *sgrad_failure_create(void);
void sgrad_failure_destroy(struct sgrad_failure *failure);
int sgrad_failure_error(const struct sgrad_failure *failure);      /* 0: no error */

enum sgrad_workers { SGRAD_ANY_WORKER, SGRAD_CPU_WORKERS, SGRAD_GPU_WORKERS };      /* the workers that may run a task */

/* The parameters of one task. CALL, STEP, NAME, FAILURE and GATE must live until the task has run. */
struct sgrad_submission {
    const struct sgrad_bound_kernel *call;
    struct sgrad_tensor *const *operand;    /* NULL for an absent optional operand */
    struct sgrad_tensor *workspace;         /* at least as large as the call's workspaces; NULL if it has none */
    const struct sgrad_step *step;          /* as in struct sgrad_args */
    int64_t first;                          /* as in struct sgrad_args */
    int priority;                           /* larger goes first */
    enum sgrad_workers workers;             /* GPU settings: ignored if the kernel has no GPU version */
    int gpu;                                /* GPU of this process that must run it, counted from 1; 0: any */
    const char *name;                       /* "conv1 backward-weight #3", for traces */
    struct sgrad_failure *failure;          /* of the set of tasks it belongs to; NULL: sgrad_wait_all returns its error */
    struct sgrad_gate *gate;                /* of its step (gate.h); NULL: none */
    bool stays;                             /* the task changes data that outlives the step */
    void (*done)(void *arg);                /* called on any thread when the task has ended; NULL: not called */
    void *done_arg;
};
int sgrad_task_submit(const struct sgrad_submission *submission);   /* SGRAD_EDEVICE: no worker can run it */

/* For tests and small programs: submits a task whose kernel needs no attributes, then waits for it and all earlier tasks. */
int sgrad_task_run(const struct sgrad_kernel *kernel, struct sgrad_tensor *const *operand,
                   const enum sgrad_access *access, int operands);

/* Waits for all tasks submitted so far. Returns and clears the first error of tasks without a struct sgrad_failure. */
int sgrad_wait_all(void);

/* Called inside a kernel that has failed and logged the reason. Tasks of the same failure set that start later do nothing. */
void sgrad_task_fail(int error);
int sgrad_task_error(void);     /* the error that sgrad_wait_all would return; 0: none */

/* ---- context: StarPU, MPI, devices --------------------------------------------------------------------------- */

struct sgrad_context_options {
    int cpus;                   /* CPU workers; 0: STARPU_NCPU, default: all cores; -1: none */
    int gpus;                  /* CUDA workers; 0: all, -1: none */
    const char *scheduler;      /* StarPU's name; NULL: STARPU_SCHED, default: dmdas with CUDA workers, lws without */
    const char *trace;          /* folder for a trace; NULL: none */
    const struct sgrad_kind *const *kinds;      /* the kinds listed in the trace, in order, NULL-terminated; NULL: none */
    const char *network;        /* JSON file: latency, bandwidth, host_latency, host_bandwidth (s, B/s); NULL: measured */
    double timeout;            /* timeout: seconds without progress after which a waiting rank gives up; 0: none */
};
struct sgrad_network; struct sgrad_group;
struct sgrad_context {
    int cpus, gpus;            /* numbers of workers */
    int rank, ranks;            /* 0 and 1 unless a launcher (mpirun, srun) started several */
    char scheduler[32];
    double timeout;            /* as in the options */
    const struct sgrad_group *all;          /* all ranks (collectives.h); NULL with one rank, as is the network */
    const struct sgrad_network *network;    /* measured, or read from the file */
};
/* Starts StarPU, and MPI if there are several ranks. Only one context may be open at a time. MPI ends with the process, unless
 * the program has started it itself. Sets malloc to retain freed buffers (page faults cost a fifth of a step). Errors:
 * SGRAD_EDEVICE, SGRAD_ENAME (scheduler), SGRAD_EINVAL (options), SGRAD_EIO, SGRAD_EFORMAT. If MPI runs, they end all ranks. */
int sgrad_context_open(const struct sgrad_context_options *options, struct sgrad_context **context);
void sgrad_context_close(struct sgrad_context *context);    /* waits for all tasks and ranks; NULL is allowed */
/* begin and end start and stop recording in the context's trace, if it has one; they may be called any number of times. Closing
 * the context writes FOLDER/paje.trace, for ViTE, and FOLDER/tasks.rec. */
void sgrad_trace_begin(void);
void sgrad_trace_end(void);
void sgrad_trace_step(long step);           /* assigns the tasks submitted from now on to this step; -1: to none */
void sgrad_trace_step_ends(long step);      /* marks the time at which the step ends */
/* Converts the events that RANKS simulated ranks wrote to FOLDER into the trace files of a real run. SGRAD_EDEVICE. */
int sgrad_trace_convert(const char *folder, int ranks);

/* ---- ranks: messages and collective decisions ------------------------------------------------------------------ */

/* send transmits TENSOR as the tasks submitted so far leave it. receive acts as a task that writes TENSOR. Neither waits:
 * DONE(ARG) is called on any thread when the transfer is complete. Messages with one TAG from one rank to another arrive in
 * submission order. SGRAD_EINVAL: TENSOR exceeds 2 GiB − 1 bytes (MPI's count is an int). SGRAD_EDEVICE: StarPU-MPI fails. */
struct sgrad_message {
    struct sgrad_tensor *tensor;
    int peer;                   /* the other rank */
    int64_t tag;                /* 0 to 2^50 */
    int priority;               /* larger goes first */
    void (*done)(void *arg);
    void *arg;
};
int sgrad_send(const struct sgrad_message *message);
int sgrad_receive(const struct sgrad_message *message);
int64_t sgrad_sent_bytes(void);     /* Bytes of all tensors submitted to sgrad_send by this process. */
int64_t sgrad_remote_bytes(void);   /* Bytes of all tensors sent to or received from other ranks, including submitted ones. */
/* Replaces TENSOR (F32 or F64) by its sum over all ranks, with MPI_Iallreduce. Does not wait. Peer and tag are not used. All
 * ranks must submit their allreduces in the same order. SGRAD_EDEVICE: StarPU fails. */
int sgrad_allreduce(const struct sgrad_message *message);
int sgrad_allreduce_on_gpus(const struct sgrad_message *message);   /* with NCCL; requires sgrad_nccl_open (collectives.h) */

/* Collective and blocking: every rank must call them, in the same order. With one rank, the input is the result. */
void sgrad_ranks_sum(double *value, int count);                 /* replaces each value by its sum over the ranks (MPI_SUM) */
void sgrad_ranks_broadcast(void *data, size_t bytes, int from); /* copies DATA of rank FROM to all ranks */
void sgrad_ranks_swap(const void *mine, void *theirs, size_t bytes);    /* all-to-all; both buffers have BYTES per rank */
int sgrad_ranks_least(int value);                               /* returns the minimum over all ranks */
int sgrad_ranks_agree(int error);                               /* returns 0 if all ranks pass 0, else an error; logs nothing */
/* Like sgrad_ranks_agree, without a timeout, if a rank may work for long, for example on files. When it would expire, one of the
 * ranks that wait logs a warning with WHAT, the reason ("for rank 0, which writes a checkpoint"). It is a barrier. */
int sgrad_ranks_await(int error, const char *what);
/* Checks that all ranks pass the same TEXT, lines of "name: value". Else logs the first different line of a rank, next to that of
 * rank 0, and returns SGRAD_EINVAL on all ranks. */
int sgrad_ranks_compare(const char *text);

/* Ends all ranks at once with exit STATUS, if one cannot continue and others may wait for it. With one rank: no effect. */
void sgrad_ranks_abort(int status);

/* Timeout of waits. expired returns true if a wait of WAITED seconds without progress has reached the timeout; then call report.
 * It sends WHAT ("in step 3 for …") to all ranks, collects theirs, logs a line with the responsible ranks, and ends all ranks.
 * OWN: this rank waits for its own tasks, not for another rank. With one rank, report logs a warning and returns. */
#define SGRAD_STALL_TEXT 200                            /* bytes of WHAT at most */
#define SGRAD_STALL_MESSAGE "nothing has happened for"     /* begins the line, after the program's name */
bool sgrad_watchdog_expired(double waited);
void sgrad_watchdog_report(bool own, const char *what);

int sgrad_launched_rank(void);      /* the rank that the launcher assigned; 0 without one; available before a context is open */
int sgrad_launched_ranks(void);     /* the number of ranks that it started; 1 without one; available before a context is open */
const char *sgrad_rank_host(int rank);      /* name of the host on which RANK runs; valid until the context closes */

int sgrad_workers(void);        /* number of workers of this process */
int sgrad_cuda_workers(void);   /* number of CUDA workers; 0 before a context is open */
bool sgrad_worker_is_cuda(int i);   /* I from 0 to sgrad_workers() - 1 */
int sgrad_worker_here(void);    /* index of the calling worker; -1: the thread is not a worker */
double sgrad_bound_kernel_expected(const struct sgrad_bound_kernel *call, int worker);  /* seconds, as measured; NAN: unknown */
/* Waits for all tasks, then runs CALL for STEP repeatedly on all workers at once, each with separate buffers. Stores the minimum
 * time of each in SECONDS[sgrad_workers()]: on a GPU, between two events of its stream; INFINITY without a kernel or memory.
 * _on: only on workers WHO; other elements are unchanged. Returns 0, or the error of an earlier task. */
int sgrad_bound_kernel_time(const struct sgrad_bound_kernel *call, const struct sgrad_step *step, double *seconds);
int sgrad_bound_kernel_time_on(const struct sgrad_bound_kernel *call, const struct sgrad_step *step, enum sgrad_workers who,
                               double *seconds);

/* Writes "2 CPU cores (AVX-512), 1 NVIDIA H200" to TEXT; with more workers than sgrad_cpus(), "8 CPU workers". Returns TEXT. */
const char *sgrad_devices_text(const struct sgrad_context *context, char *text, size_t size);
int sgrad_cpus(void);       /* number of CPUs that this process may run on */

/* Instruction sets for CPU kernels, those of the library and of oneDNN. Each includes all before it. sgrad_isa returns the best
 * that both support on this CPU, limited by the variable STARGRAD_MAX_ISA (baseline, avx2, avx512, avx512_bf16, amx). */
enum sgrad_isa { SGRAD_BASELINE, SGRAD_AVX2, SGRAD_AVX512, SGRAD_AVX512_BF16, SGRAD_AMX };
enum sgrad_isa sgrad_isa(void);
const char *sgrad_isa_title(enum sgrad_isa isa);        /* "AVX-512 with bf16"; static */

#define SGRAD_MAX_WORKERS 1024     /* the most that StarPU may be built for */
/* A per-worker cache of objects that a kernel creates once per shape (primitive descriptors, algorithm choices). Each kernel file
 * defines one static struct. KEY is compared bytewise (clear its padding). get returns the slot of VALUE_SIZE bytes; *created:
 * the slot is new and zeroed. Slots never move and live until the context closes, when DESTROY is called on each. */
struct sgrad_cache {
    size_t key_size, value_size;
    void (*destroy)(void *value);       /* NULL: no destructor */
    struct sgrad_cache_table *worker[SGRAD_MAX_WORKERS + 1];    /* private, like the following members; the last: other threads */
    struct sgrad_cache *next;
    bool known;
};
void *sgrad_cache_get(struct sgrad_cache *cache, const void *key, bool *created);

/* On-disk cache of measurements on this machine, for later runs: maps TOPIC (a file name) and KEY to VALUE, lines of text without
 * tabs. get copies the value to VALUE, of SIZE bytes; false: no entry, or too long. A failed put is logged once, as a warning. */
bool sgrad_tuning_cache_get(const char *topic, const char *key, char *value, size_t size);
void sgrad_tuning_cache_put(const char *topic, const char *key, const char *value);

/* ---- files --------------------------------------------------------------------------------------------------- */

/* Atomic file replacement: writes to a temporary file in the same folder, syncs it, then renames it. Errors: SGRAD_EIO. */
struct sgrad_file {
    FILE *stream;
    char *path, *temporary;     /* the final and the temporary path */
};
int sgrad_file_begin(const char *path, struct sgrad_file *file);
int sgrad_file_commit(struct sgrad_file *file);     /* syncs and renames; a failed write removes the temporary file */
void sgrad_file_abort(struct sgrad_file *file);     /* removes the temporary file; no effect after commit */

/* Locks FOLDER for this process, also across hosts, until the release or its end. Creates FOLDER/.lock, which stays; closing any
 * descriptor of that file releases the lock. *LOCK is positive. SGRAD_EIO: locked by another process, or not writable. */
#define SGRAD_LOCK ".lock"
int sgrad_lock_take(const char *folder, int *lock);
void sgrad_lock_release(int lock);
/* Returns the process that holds the lock of FOLDER; 0: none. Must not be called by a process that holds it. */
long sgrad_lock_holder(const char *folder);

/* Reads a regular file of 1 to LIMIT bytes into memory; later changes to the file have no effect. SGRAD_EIO; SGRAD_EFORMAT: the
 * file is empty or longer; SGRAD_ENOMEM. close frees the memory. */
struct sgrad_map { const unsigned char *data; size_t size; };
int sgrad_map_open(const char *path, size_t limit, struct sgrad_map *map);
void sgrad_map_close(struct sgrad_map *map);
int sgrad_file_copy(const char *from, const char *to, size_t limit);       /* errors: as sgrad_map_open and sgrad_file_commit */

/* JSON, with jansson. */
struct json_t *sgrad_json_real(double x);   /* a new reference; null if X is NaN or infinite, which JSON cannot represent */
struct json_t *sgrad_json_text(const char *text);   /* as above; null for NULL. If not UTF-8, bytes above 127 become U+FFFD */
/* Reads at most LIMIT bytes of a file. SGRAD_EFORMAT: syntax error or duplicate key, logged with its line. On error *JSON is
 * NULL; else the caller must json_decref it. Other errors: as sgrad_map_open. */
int sgrad_json_read(const char *path, size_t limit, struct json_t **json);
/* Writes JSON atomically, reals with DIGITS significant digits, and releases JSON, also on error. */
int sgrad_json_write(const char *path, struct json_t *json, int digits);

/* safetensors (huggingface.co/docs/safetensors): 8 bytes of header length, a JSON header, the data. The data stay in the file
 * until read, because checkpoints are as large as memory. An index (model.safetensors.index.json) combines several such files. */
struct sgrad_entry {
    char *name;
    struct sgrad_view view;     /* rank 0 is a scalar */
    const void *data;           /* for writing: the data; parsed from memory: points into it, unaligned; NULL: in the file */
};
struct sgrad_other { char *name, *type; };      /* a tensor of unsupported type: "h.0.attn.bias", "BOOL" */
struct sgrad_safetensors {
    char *path;
    int descriptor;             /* of the file; -1: parsed from memory, or opened by an index */
    int count;
    struct sgrad_entry *entry;  /* sorted by name */
    size_t *at;                 /* per entry: offset of its data in its file, in bytes */
    int others, shards;         /* tensors of type U16 or of types not in sgrad_dtype; files of an index, 0: only PATH */
    struct sgrad_other *other;
    struct sgrad_safetensors *shard;
    int *shard_of;              /* per entry: index in shard */
    int metadata_count;
    char **metadata;            /* key, value, key, value…: metadata_count pairs */
};
/* open and parse fail with SGRAD_EFORMAT or SGRAD_EIO. The memory passed to parse must outlive FILE. close frees all members. */
int sgrad_safetensors_open(const char *path, struct sgrad_safetensors *file);
int sgrad_safetensors_parse(const char *name, const void *data, size_t size, struct sgrad_safetensors *file);   /* from memory */
void sgrad_safetensors_close(struct sgrad_safetensors *file);
/* Copies all data of ENTRY to TO. SGRAD_EIO: the file cannot be read, or is shorter than when it was opened. */
int sgrad_safetensors_read(const struct sgrad_safetensors *file, const struct sgrad_entry *entry, void *to);
const struct sgrad_entry *sgrad_safetensors_find(const struct sgrad_safetensors *file, const char *name);   /* or NULL */
const char *sgrad_safetensors_other(const struct sgrad_safetensors *file, const char *name);     /* its type, or NULL */
const char *sgrad_safetensors_metadata(const struct sgrad_safetensors *file, const char *key);   /* its value, or NULL */
int sgrad_safetensors_write(const char *path, const struct sgrad_entry *entry, int count,
                            const char *const *metadata, int metadata_count);   /* SGRAD_EINVAL (names), SGRAD_EIO */
/* Checksum of names and contents, independent of the order of tensors: 8 hexadecimal digits (CRC-32). */
enum { SGRAD_CHECKSUM = 9 };
void sgrad_safetensors_checksum(const struct sgrad_entry *entry, int count, char text[SGRAD_CHECKSUM]);     /* data in memory */
int sgrad_safetensors_file_checksum(const struct sgrad_safetensors *file, char text[SGRAD_CHECKSUM]);   /* FILE from open */

#ifdef __cplusplus
}
#endif
#endif
