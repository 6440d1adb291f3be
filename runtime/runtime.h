/* runtime.h: the floor that everything else stands on: errors, tensors, kernels as tasks, random numbers, files.
 *
 * A *tensor* is a named block of memory that StarPU moves between memory nodes. A *kernel* is a function on tensors, for CPUs and
 * perhaps for CUDA devices. Submitting a kernel makes a StarPU task: it runs when the tasks before it, that write its operands,
 * are done, on the worker that the scheduler picks. Functions do not wait unless their names say so.
 *
 *     static void twice(const struct sgrad_args *a) {
 *         const float *x = a->data[0];
 *         float *y = a->data[1];
 *         for (int64_t i = 0; i < sgrad_shape_count(&a->view[0].shape); i++) y[i] = 2 * x[i];
 *     }
 *     static const struct sgrad_kernel kernel = { .name = "twice", .cpu = twice };
 *
 *     struct sgrad_context *ctx;
 *     struct sgrad_tensor *x, *y;
 *     SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ 0 }, &ctx));
 *     SGRAD_TRY(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, 1000), SGRAD_PERSISTENT, &x));
 *     SGRAD_TRY(sgrad_tensor_create("y", SGRAD_F32, sgrad_shape(1, 1000), SGRAD_PERSISTENT, &y));
 *     SGRAD_TRY(sgrad_tensor_write(x, values));
 *     SGRAD_TRY(sgrad_task_submit_simple(&kernel, (struct sgrad_tensor *[]){ x, y },
 *                                        (enum sgrad_access[]){ SGRAD_R, SGRAD_W }, 2));
 *     SGRAD_TRY(sgrad_tensor_read(y, values));
 *
 * Functions return 0 or a negative SGRAD_E…; whoever decides an error logs it, once, as one line on standard error.
 * Output parameters are set only on success. Programmer mistakes assert. */
#ifndef SGRAD_RUNTIME_H
#define SGRAD_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors -------------------------------------------------------------------------------------------------- */

enum sgrad_error_index {
#define SGRAD_ERROR(name, message) SGRAD_INDEX_##name,
#include "runtime/errors.def"
#undef SGRAD_ERROR
    SGRAD_ERRORS
};
enum sgrad_error {
#define SGRAD_ERROR(name, message) SGRAD_##name = -1 - SGRAD_INDEX_##name,
#include "runtime/errors.def"
#undef SGRAD_ERROR
};

/* The message of an error code; "success" for 0. */
const char *sgrad_strerror(int error);

/* Logs "stargrad: " and the message as one line on standard error; returns ERROR, so that `return sgrad_fail(…)` reads. */
int sgrad_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Likewise "stargrad: warning: ". */
void sgrad_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Both kinds of lines go to HEAR from now on, from any thread and one at a time, with their "stargrad: " and their end; NULL: to
 * standard error again. For programs that tell their users otherwise. */
void sgrad_listen(void (*hear)(const char *line));

/* What goes wrong on this thread from now on is not said, but its last line left in TEXT of SIZE; NULL: it is said again. For
 * what is only tried. */
void sgrad_hush(char *text, size_t size);

/* Where standard error is a terminal: what is done just now, until the next such word, message or NULL takes its place. */
void sgrad_status(const char *doing);

/* Passes an error on to the caller. */
#define SGRAD_TRY(call)                             \
    do {                                            \
        int sgrad__error = (call);                  \
        if (sgrad__error) return sgrad__error;      \
    } while (0)

/* The name of NAMES (a NULL-terminated list) that WORD was most likely meant to be, or NULL when none is near. */
const char *sgrad_nearest(const char *word, const char *const *names);

/* The record called NAME of a NULL-terminated list of records, each of which begins with its name. When there is none: NULL, and
 * one line that says so and suggests the nearest; WHAT is "model", "optimizer", … */
const void *sgrad_record_find(const char *what, const char *name, const void *records);

/* calloc, realloc and vasprintf that never return NULL: they end the program with one line when memory is out. */
void *sgrad_alloc(size_t count, size_t size);
/* Room for one more element after COUNT elements of SIZE bytes: doubles when COUNT is 0 or a power of two. */
void *sgrad_grow(void *array, int count, size_t size);
char *sgrad_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A number with as many digits as are read, a loss for example: "0.5321", but from 10,000 on "1.23e+04". */
#define SGRAD_NUMBER_TEXT 32
const char *sgrad_number_text(double number, char text[SGRAD_NUMBER_TEXT]);
/* The word for COUNT things: printf("%d %s", n, sgrad_plural(n, "step", "steps")). */
const char *sgrad_plural(int64_t count, const char *one, const char *many);
/* A count of things that need not be whole: "12", "2.56", "0.855". */
#define SGRAD_AMOUNT_TEXT 32
const char *sgrad_amount_text(double amount, char text[SGRAD_AMOUNT_TEXT]);

/* FNV-1a (Fowler, Noll, Vo; draft-eastlake-fnv) of SIZE bytes; a name's is that of its characters. */
uint64_t sgrad_hash(const void *data, size_t size);

/* Seconds of a clock that only goes on; that this thread has had a core; doing nothing for some of the first. */
double sgrad_now(void);
double sgrad_thread_now(void);
void sgrad_sleep(double seconds);

/* What threads share, and wait for: looked at and changed between enter and leave. Who changed what others may wait for tells
 * them; who waits has entered, and is outside meanwhile. A wait ends when it is told, after SECONDS (0: not by itself), or for no
 * reason: look again. */
struct sgrad_monitor *sgrad_monitor_create(void);
void sgrad_monitor_destroy(struct sgrad_monitor *monitor);      /* NULL: nothing */
void sgrad_monitor_enter(struct sgrad_monitor *monitor);
void sgrad_monitor_leave(struct sgrad_monitor *monitor);
void sgrad_monitor_tell(struct sgrad_monitor *monitor);         /* within */
long sgrad_monitor_told(const struct sgrad_monitor *monitor);   /* how often it was; within */
void sgrad_monitor_wait(struct sgrad_monitor *monitor, double seconds);

/* A thread that runs WHAT(ARG); NULL: the system has none left. END waits until it has returned. */
struct sgrad_thread *sgrad_thread_start(void *(*what)(void *arg), void *arg);
void sgrad_thread_end(struct sgrad_thread *thread);             /* NULL: nothing */

/* ---- shapes and tensors -------------------------------------------------------------------------------------- */

/* F16: in files alone */
enum sgrad_dtype { SGRAD_F32, SGRAD_BF16, SGRAD_F16, SGRAD_F64, SGRAD_I32, SGRAD_I64, SGRAD_U8, SGRAD_U16 };
size_t sgrad_dtype_size(enum sgrad_dtype dtype);        /* bytes of one element */
const char *sgrad_dtype_name(enum sgrad_dtype dtype);   /* as safetensors spells it: "F32", "BF16", … */

/* bfloat16 is the upper half of a float; rounding is to nearest, ties to even. NaN stays NaN. */
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

#define SGRAD_MAX_RANK 5
struct sgrad_shape {
    int rank;
    int64_t dim[SGRAD_MAX_RANK];    /* outermost first; channels-last images are (N,H,W,C) */
};
struct sgrad_shape sgrad_shape(int rank, ...);                      /* sgrad_shape(2, 3, 4); the numbers are ints */
int64_t sgrad_shape_count(const struct sgrad_shape *shape);         /* number of elements */
bool sgrad_shape_equal(const struct sgrad_shape *a, const struct sgrad_shape *b);
#define SGRAD_SHAPE_TEXT 80
const char *sgrad_shape_text(const struct sgrad_shape *shape, char text[SGRAD_SHAPE_TEXT]);     /* "(16,32,32,3)" */

#define SGRAD_MAX_CHANNELS 4    /* of an image, at most */

struct sgrad_view {     /* what a block of memory holds */
    enum sgrad_dtype dtype;
    struct sgrad_shape shape;
};
size_t sgrad_view_bytes(const struct sgrad_view *view);

enum sgrad_lifetime {
    SGRAD_PERSISTENT,   /* has a home in main memory, starts as zeros */
    SGRAD_TRANSIENT,    /* allocated where it is first written, freed by sgrad_tensor_forget */
    SGRAD_SCRATCH,      /* sgrad_workspace_create's: every task that is handed it gets memory of its own */
};
struct starpu_codelet; struct _starpu_data_state;
struct sgrad_tensor {
    char *name;
    struct sgrad_view view;
    enum sgrad_lifetime lifetime;
    struct _starpu_data_state *handle;      /* starpu_data_handle_t */
    void *home;                             /* persistent tensors only; touch through read and write */
};
int sgrad_tensor_create(const char *name, enum sgrad_dtype dtype, struct sgrad_shape shape,
                        enum sgrad_lifetime lifetime, struct sgrad_tensor **tensor);
/* Room of so many bytes on a CPU, and on a GPU, for as long as a task runs. */
int sgrad_workspace_create(size_t of_cpus, size_t of_gpus, struct sgrad_tensor **tensor);
void sgrad_tensor_destroy(struct sgrad_tensor *tensor);                 /* waits for its tasks; NULL is fine */
int sgrad_tensor_read(struct sgrad_tensor *tensor, void *to);           /* waits for its last writer */
int sgrad_tensor_write(struct sgrad_tensor *tensor, const void *from);  /* waits for its last reader */
void sgrad_tensor_forget(struct sgrad_tensor *tensor);                  /* its content ends with the tasks submitted so far */
/* TO, of the same view, becomes what the tasks submitted so far leave in FROM; does not wait. */
int sgrad_tensor_copy(struct sgrad_tensor *from, struct sgrad_tensor *to);
/* Copies to TO what the tasks submitted so far leave in TENSOR, then calls DONE(ARG) on some thread; does not wait. */
int sgrad_tensor_fetch(struct sgrad_tensor *tensor, void *to, void (*done)(void *arg), void *arg);
/* Bytes of main memory that all tensors had at once so far, workspaces among them, at most: looked at whenever a task begins. */
size_t sgrad_tensors_most(void);

/* ---- kernels and tasks --------------------------------------------------------------------------------------- */

enum { SGRAD_MAX_OPERANDS = 63, SGRAD_FEW_OPERANDS = 15 };     /* StarPU is built for 16 a task, and can do more */

enum sgrad_access { SGRAD_R = 1, SGRAD_W = 2, SGRAD_RW = 3 };

/* What a task does for its program: the word and the colour that it has in every picture. */
struct sgrad_kind {
    const char *name;       /* "forward" */
    unsigned color;         /* 0xRRGGBB */
};

/* What a kernel is handed. The same record without data asks its costs and its workspace before anything runs. */
struct sgrad_step; struct sgrad_batch; struct sgrad_next; /* what tasks of a step share, and all steps; passed on unread */
enum { SGRAD_STEP_BYTES = 48 };
struct sgrad_args {
    const struct sgrad_view *view;  /* of each operand; an absent optional operand has rank -1 */
    void *const *data;              /* of each operand, on the kernel's device; NULL when absent */
    const void *attrs;              /* the operation's own attributes */
    const struct sgrad_step *step;  /* on a GPU, where it lies there: for what runs there, and not for the CPU that launches it */
    const struct sgrad_batch *batch;
    int64_t first;                  /* where the rows of these operands begin, among the step's */
    uint64_t accumulate;            /* bit i: operand i is added to, else overwritten */
    int packing;                    /* how the kernel's factor lies, as .packing told, whatever its view says; 0: as that says */
    bool deterministic;             /* same input, same bits */
    bool tf32;                      /* products of F32 may be rounded to TF32, where a device has it */
    void *workspace;
    size_t workspace_size;          /* bytes */
    const struct sgrad_args *next;  /* more of the same kernel and types, none of which needs another's: for .many */
};

struct sgrad_kernel {
    const char *name;                                       /* "conv2d backward-weight" */
    const struct sgrad_kind *kind;                          /* NULL: none */
    void (*cpu)(const struct sgrad_args *args);             /* one thread, the calling one; NULL: not on CPUs */
    void (*cuda)(const struct sgrad_args *args);            /* enqueues on sgrad_cuda_stream(), does not wait; NULL: no GPU */
    size_t (*workspace)(const struct sgrad_args *args);     /* bytes. NULL: none */
    size_t (*gpu_workspace)(const struct sgrad_args *args); /* on a GPU; NULL: the same there */
    double (*flops)(const struct sgrad_args *args);         /* NULL: one per element of the first operand */
    double (*bytes)(const struct sgrad_args *args);         /* memory traffic; NULL: every operand once */
    /* On CPUs: how operand FACTOR, which many tasks have in common, is best made ready once, and BYTES of that; 0: as it
     * is. NULL: likewise. And makes it: TO, which begins at a cache line, of FROM. ARGS have no data. */
    int factor, (*packing)(const struct sgrad_args *args, size_t *bytes);
    void (*pack)(const struct sgrad_args *args, const void *from, void *to);
    bool adds;                                              /* on CPUs every output can be added to */
    bool many;                                              /* on GPUs it does what args->next leads to as well, in one launch */
    /* As cuda, and what some of COUNT others do that come NEXT; how many of them. 0: nothing at all. NULL: it never can */
    int (*cuda_with)(const struct sgrad_args *args, const struct sgrad_next *next, int count);
};
double sgrad_no_flops(const struct sgrad_args *args);       /* 0, for kernels that only move data */
double sgrad_kernel_flops(const struct sgrad_kernel *kernel, const struct sgrad_args *args);
double sgrad_kernel_bytes(const struct sgrad_kernel *kernel, const struct sgrad_args *args, int operands);

/* A kernel bound to shapes: made once, shared by every task that does the same to other memory. */
struct sgrad_call {
    const struct sgrad_kernel *kernel;
    const void *attrs;
    int operands, packing;
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    enum sgrad_access access[SGRAD_MAX_OPERANDS];
    const struct sgrad_batch *batch;
    uint64_t accumulate, rows;      /* bit i of rows: operand i has them (dimension 0), and the kernel does each by itself */
    bool deterministic, tf32, recorded; /* recorded: on GPUs, as a CUDA graph for the same memory (recording.c) */
    size_t workspace, gpu_workspace;    /* filled by sgrad_call_prepare: on a CPU, on a GPU */
    double flops, bytes;            /* filled by sgrad_call_prepare */
    uint32_t hash;                  /* filled by sgrad_call_prepare: tells calls apart in performance models */
    struct starpu_codelet *codelet; /* filled by sgrad_call_prepare */
    struct sgrad_recordings *recordings;    /* filled by sgrad_call_prepare, if it is recorded */
    struct sgrad_tally *tally;      /* what its tasks took, since sgrad_call_watch (watch.h); NULL: nobody asks */
};
void sgrad_call_prepare(struct sgrad_call *call);
void sgrad_call_forget(struct sgrad_call *call);    /* its recordings and times, when no task of it runs any more */
/* A workspace may begin anywhere: what lies in it begins at multiples of a cache line, and has SGRAD_LINE more bytes for that. */
enum { SGRAD_LINE = 64 };
static inline size_t sgrad_larger(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t sgrad_aligned(size_t bytes) { return (bytes + SGRAD_LINE - 1) / SGRAD_LINE * SGRAD_LINE; }
/* What its kernel is handed, without data, step and workspace. */
struct sgrad_args sgrad_call_args(const struct sgrad_call *call);

/* Tasks that belong together have one: the first error that a kernel of theirs reports, which stops those that start later. */
struct sgrad_failure;
struct sgrad_failure *sgrad_failure_create(void);
void sgrad_failure_destroy(struct sgrad_failure *failure);
int sgrad_failure_error(const struct sgrad_failure *failure);      /* 0: there was none */

/* Who may run a task. */
enum sgrad_workers { SGRAD_ANY_WORKER, SGRAD_CPU_WORKERS, SGRAD_GPU_WORKERS };

/* What differs from task to task. NAME must live until the task has run. */
struct sgrad_submission {
    const struct sgrad_call *call;
    struct sgrad_tensor *const *operand;    /* NULL where an optional operand is absent */
    struct sgrad_tensor *workspace;         /* of at least the call's bytes, or NULL, where that has none */
    const struct sgrad_step *step;          /* must live until the task has run */
    int64_t first;
    int priority;                           /* larger goes first */
    enum sgrad_workers workers;             /* of GPUs, as far as they have a kernel for it */
    int gpu;                                /* then of the process's GPUs this one, counted from 1; 0: any */
    const char *name;                       /* "conv1 backward-weight #3", for traces */
    struct sgrad_failure *failure;          /* of those it belongs to; NULL: what sgrad_wait_all returns */
    struct sgrad_gate *gate;                /* of its step (gate.h), which lives until the task has run; NULL: it has none */
    bool stays;                             /* what it changes outlives the step */
    void (*done)(void *arg);                /* called, on some thread, when the task has run; NULL: nobody */
    void *done_arg;
};
int sgrad_task_submit(const struct sgrad_submission *submission);

/* For tests and small programs: submits a task, of a kernel without attributes, and waits for it and all tasks before it. */
int sgrad_task_submit_simple(const struct sgrad_kernel *kernel, struct sgrad_tensor *const *operand,
                             const enum sgrad_access *access, int operands);

/* Waits for every task submitted so far; the first error since the last wait, of those without a failure of their own. */
int sgrad_wait_all(void);

/* From inside a kernel, which has logged why (sgrad_fail): it could not. Tasks that belong to it and start later do nothing. */
void sgrad_task_fail(int error);
int sgrad_task_error(void);     /* 0, or the error that a wait for all would return */

/* ---- context: StarPU, MPI, devices --------------------------------------------------------------------------- */

struct sgrad_context_options {
    int cpus;                   /* CPU workers; 0: all cores (STARPU_NCPU respected), -1: none */
    int cudas;                  /* CUDA workers; 0: all, -1: none */
    const char *scheduler;      /* StarPU's name; NULL: lws without, dmdas with CUDA workers (STARPU_SCHED respected) */
    const char *trace;          /* folder for a trace; NULL: none */
    const struct sgrad_kind *const *kinds;      /* that it tells of, in their order; ends with NULL. NULL: none */
    const char *network;        /* JSON file, else measured: latency, bandwidth, host_latency, host_bandwidth (s, B/s) */
    double patience;            /* seconds for which nothing happens before a waiting rank gives up; 0: never */
};
struct sgrad_network; struct sgrad_group;
struct sgrad_context {
    int cpus, cudas;            /* workers */
    int rank, ranks;            /* 0 and 1 unless a launcher (mpirun, srun) started several */
    char scheduler[32];
    double patience;            /* as in the options */
    const struct sgrad_group *all;          /* collectives.h: the ranks; NULL, like the next, with one */
    const struct sgrad_network *network;    /* measured */
};
/* Starts MPI, where there are several ranks, and StarPU. One context at a time; of several ranks one a process, since MPI starts
 * only once. Sets malloc so that freed buffers are kept (page faults cost a fifth of a step). */
int sgrad_context_open(const struct sgrad_context_options *options, struct sgrad_context **context);
void sgrad_context_close(struct sgrad_context *context);
/* What happens between begin and end, any number of times, is recorded in the context's trace, if it has one: closing the
 * context leaves FOLDER/paje.trace, for ViTE, and tasks.rec. */
void sgrad_trace_begin(void);
void sgrad_trace_end(void);
void sgrad_trace_step(long step);           /* tasks submitted from here on belong to this step; -1: to none again */
void sgrad_trace_step_ends(long step);      /* a mark on the axis of time */
/* What RANKS simulated ranks have left in FOLDER becomes a trace as real ones leave it. */
int sgrad_trace_convert(const char *folder, int ranks);

/* ---- ranks: messages between them, and what all of them decide together ------------------------------------------ */

/* Sends TENSOR as the tasks submitted so far leave it; receives into it, as a task that writes it would. Neither waits: DONE(ARG)
 * is called, on some thread, when the message is through. Messages with one TAG from one rank to another arrive in the order of
 * submission. Larger PRIORITY goes first. */
struct sgrad_message {
    struct sgrad_tensor *tensor;
    int peer;                   /* the other rank */
    int64_t tag;                /* 0 to 2^50 */
    int priority;
    void (*done)(void *arg);
    void *arg;
};
int sgrad_send(const struct sgrad_message *message);    /* at most 2 GiB − 1 bytes, which is what MPI counts */
int sgrad_receive(const struct sgrad_message *message);
int64_t sgrad_sent_bytes(void);     /* of all tensors that this process has sent, or is about to */
int64_t sgrad_carried_bytes(void);  /* of those that it has sent to others, or received from them, likewise */
/* TENSOR (F32 or F64) becomes its sum over all ranks, by MPI_Iallreduce, without peer and tag; ranks have one order. */
int sgrad_allreduce(const struct sgrad_message *message);
int sgrad_allreduce_on_gpus(const struct sgrad_message *message);   /* by NCCL, once that is open (collectives.h) */

/* Collective: every rank calls them, in the same order, and they wait. With one rank they do nothing. */
void sgrad_ranks_sum(double *value, int count);                 /* to the sum over the ranks, in the order of ranks */
void sgrad_ranks_broadcast(void *data, size_t bytes, int from); /* from one rank */
void sgrad_ranks_swap(const void *mine, void *theirs, size_t bytes);    /* MINE has so many for each rank; THEIRS, from each */
int sgrad_ranks_least(int value);                               /* of the values of all ranks */
int sgrad_ranks_agree(int error);                               /* 0 when every rank says 0, else an error; silent */
/* The same, where some rank may work for longer than any patience lasts, on files say: the others wait for it, and when
 * patience would have ended, one of them warns. WHAT: what they wait for ("for rank 0, which writes a checkpoint"). Any
 * collective call that follows finds all ranks there. */
int sgrad_ranks_await(int error, const char *what);
/* Every rank has to say the same TEXT, lines of "what: value": else the line, the rank and what it says are told; EINVAL. */
int sgrad_ranks_compare(const char *text);

/* Ends all ranks at once, when one cannot go on and the others may be waiting for it. With one rank: nothing. */
void sgrad_ranks_abort(int status);

/* Waits that nothing ends. DUE: has a rank that WAITED so many seconds, while nothing happened, lost its patience? It then TELLs
 * WHAT it waits for ("in step 3 for …"), its OWN tasks or another rank, hears what the others tell, says in one line which ranks
 * are to blame, and ends all. One rank alone is warned, and may go on waiting. */
#define SGRAD_STALL_TEXT 200
#define SGRAD_STALL_SAYS "nothing has happened for"     /* the line begins so, after the program's name */
bool sgrad_stall_due(double waited);
void sgrad_stall_tell(bool own, const char *what);

/* The rank that a launcher gave this process: 0 without one. Before a context is open, too. */
int sgrad_launched_rank(void);
int sgrad_launched_ranks(void);     /* how many it started: 1 without one */

int sgrad_workers(void);        /* of this process */
int sgrad_cuda_workers(void);   /* of them; 0 before a context is open */
bool sgrad_worker_is_cuda(int i);
int sgrad_worker_here(void);    /* which of them runs this; -1: none */
double sgrad_call_expected(const struct sgrad_call *call, int worker);     /* seconds, as StarPU has measured; NAN: never */
/* Waits for all tasks, runs CALL, as a part of STEP, on memory of its own, on every worker at once, again and again, and leaves
 * the least time each took: SECONDS[sgrad_workers()]; infinite where a worker has no kernel for it, or no memory. A GPU's is what
 * passes between two events on its stream. _on: on WORKERS alone; the others' SECONDS stay. 0, or a former task's error. */
int sgrad_call_time(const struct sgrad_call *call, const struct sgrad_step *step, double *seconds);
int sgrad_call_time_on(const struct sgrad_call *call, const struct sgrad_step *step, enum sgrad_workers who, double *seconds);

/* "2 CPU cores (AVX-512), 1 NVIDIA H200"; where there are more workers than sgrad_cpus(), "8 CPU workers". */
const char *sgrad_devices_text(const struct sgrad_context *context, char *text, size_t size);
int sgrad_cpus(void);       /* that this process may run on */

/* Which instructions kernels of CPUs may use, the library's and oneDNN's: the best that both have on this processor, or what the
 * variable STARGRAD_MAX_ISA names (baseline, avx2, avx512, avx512_bf16, amx), if that is less. Each has all before it. */
enum sgrad_isa { SGRAD_BASELINE, SGRAD_AVX2, SGRAD_AVX512, SGRAD_AVX512_BF16, SGRAD_AMX };
enum sgrad_isa sgrad_isa(void);
const char *sgrad_isa_title(enum sgrad_isa isa);        /* "AVX-512 with bf16" */

#define SGRAD_MAX_WORKERS 1024     /* no StarPU that has more is compiled with */
/* A cache of whatever a kernel makes once per shape and keeps (primitive descriptors, algorithm choices): one cache
 * per kernel file and worker. KEY is compared byte by byte (clear its padding). Returns the slot of value_size bytes,
 * zeroed when new: *fresh says so. Slots never move and live until the context closes, when DESTROY is called on each. */
struct sgrad_cache {
    size_t key_size, value_size;
    void (*destroy)(void *value);
    struct sgrad__cache_table *worker[SGRAD_MAX_WORKERS + 1];   /* private, as is the rest; the last is for other threads */
    struct sgrad_cache *next;
    bool known;
};
void *sgrad_cache_get(struct sgrad_cache *cache, const void *key, bool *fresh);

/* What was measured once on this machine and is kept in a file for later runs: a VALUE by TOPIC (a file's name) and KEY, lines
 * of text without tabs. FIND copies the value to VALUE, of SIZE bytes, or returns false. */
bool sgrad_memo_find(const char *topic, const char *key, char *value, size_t size);
void sgrad_memo_add(const char *topic, const char *key, const char *value);

/* ---- files --------------------------------------------------------------------------------------------------- */

/* A file that appears whole or not at all: written beside its place, synced, renamed. */
struct sgrad_file {
    FILE *stream;
    char *path, *part;
};
int sgrad_file_begin(const char *path, struct sgrad_file *file);
int sgrad_file_commit(struct sgrad_file *file);     /* syncs and renames; on any error removes and logs */
void sgrad_file_abort(struct sgrad_file *file);

/* This process alone writes to FOLDER, until the release or its end, however it ends, seen from other machines, too; else
 * SGRAD_EIO. *LOCK is a number above 0. Leaves FOLDER/.lock there. No other descriptor of that file may be closed meanwhile. */
#define SGRAD_LOCK ".lock"
int sgrad_lock_take(const char *folder, int *lock);
void sgrad_lock_release(int lock);

/* The whole of a regular file of at most LIMIT bytes, in memory of its own, whatever happens to the file later; no empty one. */
struct sgrad_map {
    const unsigned char *data;
    size_t size;
};
int sgrad_map_open(const char *path, size_t limit, struct sgrad_map *map);
void sgrad_map_close(struct sgrad_map *map);

/* JSON files, by jansson. A file of at most LIMIT bytes, in which no key is twice; what is wrong is told with its line. */
struct json_t;
int sgrad_json_read(const char *path, size_t limit, struct json_t **json);
/* Beside, then renamed; real numbers of so many DIGITS. Takes JSON over. */
int sgrad_json_write(const char *path, struct json_t *json, int digits);
struct json_t *sgrad_json_real(double x);   /* null where X is no number, for JSON has none for that */

/* safetensors (huggingface.co/docs/safetensors): 8 bytes of header length, a JSON header, the data, which stay in the file until
 * they are read: checkpoints are as large as memory. Or several such files, by their index (model.safetensors.index.json). */
struct sgrad_entry {
    char *name;
    struct sgrad_view view;     /* rank 0 is a scalar */
    const void *data;           /* to write; of what was parsed from memory, into that, not aligned; NULL: in the file */
};
struct sgrad_other { char *name, *type; };      /* "h.0.attn.bias", "BOOL" */
struct sgrad_safetensors {
    char *path;
    int descriptor;             /* of the file; -1: parsed from memory, or there are shards */
    int count;
    struct sgrad_entry *entry;  /* sorted by name */
    size_t *at;                 /* of each entry: its first byte in the file, or in its shard */
    int others, shards;         /* tensors of types that sgrad_dtype has not; files of an index, 0: PATH is the only one */
    struct sgrad_other *other;
    struct sgrad_safetensors *shard;
    int *shard_of;              /* by entry: which of these */
    int metadata_count;
    char **metadata;            /* key, value, key, value…: metadata_count pairs */
};
int sgrad_safetensors_open(const char *path, struct sgrad_safetensors *file);
int sgrad_safetensors_parse(const char *name, const void *data, size_t size, struct sgrad_safetensors *file);   /* from memory */
void sgrad_safetensors_close(struct sgrad_safetensors *file);
/* All of an entry's data to TO; an error where the file has become shorter since it was opened. */
int sgrad_safetensors_read(const struct sgrad_safetensors *file, const struct sgrad_entry *entry, void *to);
const struct sgrad_entry *sgrad_safetensors_find(const struct sgrad_safetensors *file, const char *name);
const char *sgrad_safetensors_other(const struct sgrad_safetensors *file, const char *name);     /* its type, or NULL */
const char *sgrad_safetensors_metadata(const struct sgrad_safetensors *file, const char *key);   /* or NULL */
int sgrad_safetensors_write(const char *path, const struct sgrad_entry *entry, int count,
                            const char *const *metadata, int metadata_count);
/* Tells the contents of tensors apart, in whatever order they come: 8 hexadecimal digits (CRC-32). */
enum { SGRAD_CHECKSUM = 9 };
void sgrad_safetensors_checksum(const struct sgrad_entry *entry, int count, char text[SGRAD_CHECKSUM]);     /* in memory */
int sgrad_safetensors_file_checksum(const struct sgrad_safetensors *file, char text[SGRAD_CHECKSUM]);

#ifdef __cplusplus
}
#endif
#endif
