/* program.h: a compiled program: buffers, bound kernels and instructions, in the order of submission. Private to graphs/. */
#ifndef SGRAD_GRAPHS_COMPILER_PROGRAM_H
#define SGRAD_GRAPHS_COMPILER_PROGRAM_H

#include "config.h"
#include "codelets/updates.h"
#include "graphs/compiler/training.h"
#include "runtime/collectives.h"
#include "runtime/spill.h"

#include <limits.h>

#define SGRAD__MAX_WINDOW 8

/* A buffer of a program. It has no memory before sgrad__program_allocate. */
struct sgrad__buffer {
    char *name;
    struct sgrad_view view;
    enum sgrad_lifetime lifetime;
    int copies; /* one tensor per step in flight for inputs, which are read ahead; else 1; 0: no separate memory */
    bool counted;                                       /* messages have only its bytes in use (sgrad_tensor_set_counted) */
    bool lent;                                          /* external: its tensor belongs to the graph or to the caller */
    bool rows;                                          /* dimension 0 is the samples of a micro-batch */
    int result_of;                                      /* node whose result is stored in it for backward; -1: none */
    bool output;                                        /* that is the output, not a value that is saved beside it */
    bool planned;                                       /* its memory is planned, because memory is limited (passes/spill.c) */
    bool leaves;                                        /* planned buffer that is moved to the file and back */
    int over;                                           /* planned buffer that it replaces in the same memory; -1: none */
    int follows;                                        /* buffer whose memory it reuses after that buffer's end; -1: none */
    int whole, part, parts;                             /* chunk PART of PARTS of the external buffer WHOLE; PARTS 0: none */
    size_t room;                                        /* bytes of its memory if other buffers reuse it; 0: those of view */
    bool placed;                                        /* its memory begins at OFFSET of the arena */
    size_t offset;
    int release;                                        /* after its last use, others reuse its memory from this instruction on */
    struct sgrad_tensor *tensor[SGRAD__MAX_WINDOW];     /* one per copy; NULL before sgrad__program_allocate */
};

/* A micro-batch: consecutive samples of this rank's local batch, which one task processes (micro_batches.c). */
enum { SGRAD__SIZES = 4 };      /* maximum number of sizes: two for each kind of worker */
struct sgrad__micro {
    int64_t first, samples;                             /* index of its first sample in the local batch; number of samples */
    enum sgrad_workers workers;                         /* the workers that may run its tasks */
    int size;                                           /* an index, equal for micro-batches with equal samples and workers */
    int gpu;                                            /* GPU that must run its tasks, counted from 1; 0: not fixed */
};

/* A set of steps: step FROM and every EVERY-th step after it. EVERY 0: all steps. Steps are counted from 1. */
struct sgrad__when {
    long every, from;
};
#define SGRAD__ONCE LONG_MAX    /* value of EVERY: only step FROM */
/* Returns true if the set WHEN contains STEP. */
static inline bool sgrad__takes_part(struct sgrad__when when, long step) {
    return !when.every || (step >= when.from && (step - when.from) % when.every == 0);
}
/* Returns the mean fraction of all steps that WHEN contains; 0 for SGRAD__ONCE. */
static inline double sgrad__share_of_steps(struct sgrad__when when) {
    if (!when.every) return 1;
    return when.every == SGRAD__ONCE ? 0 : 1 / (double)when.every;
}

/* An instruction: one task or message of a step. Instructions are submitted in the order in which the program lists them. */
struct sgrad__instruction {
    const struct sgrad_bound_kernel *call;
    int operand[SGRAD_MAX_OPERANDS];                    /* indices of buffers; -1: absent */
    int micro;                                          /* micro-batch; of a task for a group: its first; 0: no samples */
    int64_t first;                                      /* index in the micro-batch of the first sample that it processes */
    enum sgrad_workers workers;
    int gpu;                                            /* counted from 1; 0: any */
    int priority;
    int peer;                                           /* of a message: number of the other rank; -1: all ranks */
    int64_t tag;                                        /* of a message */
    struct sgrad__when when;                            /* the steps in which it is submitted */
    bool outlives;                                      /* it may end after the end of its step */
    char *name;                                         /* "layer2.0.conv1 backward-weight #3" */
    int again;                                          /* recomputation of this instruction (index before fusion); -1: none */
    bool passing;                                       /* forward task that backward tasks recompute inline */
    uint64_t last;                                      /* bit i: last use of the content of operand i, which is then freed */
    uint64_t else_last;                                 /* bit i: last use of operand i except in the steps UNLESS */
    struct sgrad__when unless;
};

/* An output of a program: in each of the steps WHEN, the content of a buffer is copied to host memory. */
struct sgrad__output {
    int buffer;
    struct sgrad__when when;
};

/* The parameters of one bucket, which one parameter server updates. */
struct sgrad__shard {
    int server;                                         /* its rank */
    int64_t tag, bucket_bytes;                          /* tag of its first message; bucket size of the program */
    int count, *parameter;                              /* indices of the COUNT parameters; owned by the program */
};

/* The buffers that are moved to a file and back, because memory is limited (passes/spill.c). An instruction with the kernel
 * sgrad__store_kernel or sgrad__fetch_kernel moves its first operand to or from its second one, a tensor whose memory is in the
 * file; if it has one operand, the slot in its tag. */
struct sgrad__spilling {
    int slots;                                          /* of buffers without a home in the file */
    size_t *bytes;                                      /* by slot */
    struct sgrad_spill *file;
    int first;                                          /* number of the first slot; -1 before sgrad__program_allocate */
    double written, read;                               /* bytes of one step */
    double seconds, waited;                             /* predicted: of the step's tasks; of their waits */
};

struct sgrad__program {
    struct sgrad_graph *graph;
    struct sgrad_batch batch;
    int64_t share;                                      /* samples of this rank's local batch */
    int micros;
    struct sgrad__micro *micro;                         /* per unit, GPU micro-batches first; of one kind, larger ones first */
    bool training;
    bool shared;                                        /* ranks store shares of parameters (--shard parameters) */
    bool grouped;                                       /* an operation sums over the samples of a group (batch norm) */
    int window;                                         /* maximum number of steps in flight */
    int buffer_count, call_count, instruction_count;
    struct sgrad__buffer *buffer;
    struct sgrad_bound_kernel **call;
    struct sgrad__instruction *instruction;
    int outputs;
    struct sgrad__output *output;
    int statistics;                                     /* output: sums of the loss's metrics over the step and all ranks */
    /* answer[2m] and answer[2m + 1] are the outputs with the two inputs of the loss for micro-batch m; NULL: not requested. */
    int *answer;
    /* Output: element 0 is the sum of step->stop over all ranks: at least 1 if a rank requests the end of the run, above 0 and
     * below 1 if only a checkpoint is requested. The other elements are the busy fractions of the workers of all ranks, if these
     * are measured. -1: there is one rank and no such output. */
    int votes;
    int histograms, *histogram;                         /* outputs: counts; the buffers are named KIND/PARAMETER */
    int buckets;                                        /* number of gradient buckets that ranks exchange */
    int64_t bucket_bytes, exchanged_bytes;              /* target size of a bucket; sum of the sizes of all of them */
    int shards;
    struct sgrad__shard *shard;
    struct sgrad__spilling spilling;
    size_t arena_bytes;                                 /* memory of the buffers that are placed; 0: none is */
    bool on_gpu;                                        /* this memory is on the GPU */
    struct sgrad_tensor *arena;                         /* NULL before sgrad__program_allocate */
    int owned_count;
    void **owned;                                       /* memory that is freed with the program */
    struct sgrad_tensor *workspace;
    struct sgrad_failure *failure;                      /* set and owned by its runner; NULL: errors go to sgrad_wait_all */
    /* Text about the updates, owned by the program: a run prints its first line when it starts, and sgrad__program_print the
     * other lines. NULL: none. */
    char *note;
    int records;                                        /* external buffer that samples are read from, set per step; -1: none */
};
/* Returns the buffer that BUFFER is a chunk of (sgrad__add_part); BUFFER itself if it is not a chunk. */
static inline int sgrad__whole_of(const struct sgrad__program *program, int buffer) {
    return program->buffer[buffer].parts ? program->buffer[buffer].whole : buffer;
}

/* The source of the samples of a step: KERNEL, with attributes ATTRS, writes the inputs of the graph, in their order, to its
 * first operands. If the rank of RECORDS is not 0, its last operand is a tensor of that view, which the caller sets before each
 * step. */
struct sgrad__source {
    const struct sgrad_kernel *kernel;
    const void *attrs;
    struct sgrad_view records;
};

/* Ranges of message tags. Programs whose messages may be in flight concurrently must have different ranges, the same on every
 * rank. An evaluation has several programs, whose ranges start at SGRAD__TAGS_EVALUATION. Each run has SGRAD__TAGS_OF_A_RUN
 * ranges. */
enum { SGRAD__TAGS_STEPS, SGRAD__TAGS_BROADCAST, SGRAD__TAGS_SEARCH, SGRAD__TAGS_EVALUATION, SGRAD__TAGS_OF_A_RUN = 8 };

/* Large tensors of a training, which can be in the file, and in memory only while tasks use them. They move to the file in this
 * order: first the optimizer states and moving averages, from the last parameter to the first, then the weights. */
struct sgrad__homes {
    int count, states;                  /* STATES: the first ones, before the weights */
    struct sgrad_tensor **tensor;
};
struct sgrad__homes sgrad__homes_find(const struct sgrad__training *training);
void sgrad__homes_free(struct sgrad__homes *homes);
double sgrad__homes_bytes(const struct sgrad__homes *homes, int first, int end);   /* of tensors FIRST to END - 1 */
enum { SGRAD__SMALLEST_MOVE = 256 << 10 };      /* bytes: smaller buffers and tensors are not moved */

/* The limit of a program's memory. */
struct sgrad__memory_limit {
    double bytes;                       /* of buffers and workspaces; 0: no limit */
    bool gpu;                           /* it is a limit of the memory of the rank's only GPU; moves go to main memory */
    bool waves;                         /* a rank of the run has a limit: see wave_of (program.c); the same on all ranks */
    bool spills;                        /* buffers are moved */
    bool simple;                        /* by the first rule only (passes/residence.c), which needs few moves */
    struct sgrad_spill *file;           /* to this file; may be NULL if the program is never allocated */
    int moved;                          /* number of the first tensors of sgrad__homes that are in the file */
    struct sgrad_spill_speed speed;     /* of this folder */
    double flops, bandwidth;            /* of a worker, per second: for tasks that have not been measured */
    double instruction;                 /* bytes that each added instruction takes in other memory */
    int instructions;                   /* those of the step without a limit, whose bytes are not part of the limit */
};

/* Options of second-order training (optimizers/kfac.c). */
struct sgrad__kfac {
    double decay;                       /* of the running averages of factors */
    long factor_every, eigen_every;     /* steps between two updates of the factors, two decompositions */
    long lag;                           /* steps from the start of a decomposition to its use; 0: steps wait for it */
    const char *skip;                   /* layers that are left out: comma-separated patterns; NULL: none */
    bool inverse;                       /* use damped inverses of the factors instead of their eigenvectors */
    double share;                       /* fraction of ranks that precondition a layer, at least one; below 0: chosen by cost */
    double room;                        /* bytes that a rank may store for it, if it is chosen by cost; 0: no limit */
};

struct sgrad_program_options {
    int64_t batch, micro;               /* samples of the batch; maximum samples of a task */
    /* Samples of the local batch that GPUs process: the first ones of each unit (CPUs process the others); maximum samples of a
     * GPU task. 0: any worker may process any samples. */
    int64_t gpu_samples, gpu_micro;
    int64_t group;                      /* samples of a batch-norm group, within one local batch or spanning several */
    int64_t unit;                       /* micro-batches do not cross multiples of this many samples; 0: group size */
    int lanes;                          /* gradient-accumulation buffers on this rank (nodes.c); 0: one per micro-batch */
    int rank;                           /* number of this rank */
    int first;                          /* number, among all ranks, of rank 0 of a program that only some consecutive ranks run */
    const struct sgrad_group *peers;            /* the ranks that process the batch, including this one; NULL: only this one */
    const struct sgrad_network *network;        /* between the peers; not used without peers */
    int tags;                           /* SGRAD__TAGS_…: the range of tags of its messages */
    const struct sgrad_collective *allreduce;   /* algorithm for gradients; NULL: the cheapest */
    int64_t bucket;                     /* size of gradient buckets in bytes; 0: chosen by cost */
    const struct sgrad_strategy *strategy;
    int servers, group_ranks, backup;   /* parameter servers; ranks per group (mixed); backup workers */
    const struct sgrad__training *training;     /* how parameters are updated; NULL: inference */
    const struct sgrad__training *shares;       /* which elements of parameters each rank stores, also in an evaluation; NULL:
                                                   every rank stores all elements that its layers use */
    bool deterministic, tf32;
    long histograms;                    /* steps between two histograms of all weights and gradients; 0: none */
    bool fuse;                          /* fuse neighbouring operations into one task; in training, preallocate activations */
    bool recorded;                      /* record GPU tasks as CUDA graphs; required to preallocate activations on GPUs */
    int cpus, gpus;                    /* numbers of CPU and CUDA workers */
    float clip_norm;                    /* maximum norm of all gradients; 0: no clipping */
    struct sgrad_lookahead lookahead;   /* of the slow weights, which belong to TRAINING; every 0: off */
    double ema;                         /* decay of the moving averages of weights, which belong to TRAINING; 0: off */
    struct sgrad__kfac kfac;
    int window;                         /* maximum number of steps in flight */
    struct sgrad_tensor *const *parameter;      /* per parameter: the tensor to use instead of the graph's; NULL, or an element
                                                   NULL: the graph's */
    bool answers;                       /* make the inputs of the loss (predictions, targets) outputs */
    bool yields;                        /* its tasks have a lower priority than those of programs without it */
    struct sgrad__source source;        /* of the samples */
    const struct sgrad__workers *workers;       /* whose load is measured; NULL: none */
    struct sgrad__memory_limit limit;
};
/* Returns the number of peers, at least 1. */
static inline int sgrad__peer_count(const struct sgrad_program_options *options) {
    return options->peers ? options->peers->count : 1;
}
/* Returns true if an operation, in training, sums over more samples than a micro-batch has (batch norm). */
bool sgrad__has_groups(const struct sgrad_graph *graph);
/* Compiles GRAPH, which must be complete (sgrad_graph_finalize), to *PROGRAM. GRAPH and the pointers in OPTIONS must outlive the
 * program. The caller must free it with sgrad__program_destroy. Inconsistent sizes fail an assertion. SGRAD_ENOMEM: the limit is
 * too low (options->limit); nothing is logged. */
int sgrad__program_build(struct sgrad_graph *graph, const struct sgrad_program_options *options,
                         struct sgrad__program **program);
/* passes/recomputation.c: layers that are recomputed because of the limit; predicted seconds of a step without and with this
 * (INFINITY: it does not fit). */
struct sgrad__recomputation {
    int layers;
    double before, after;
};
/* Marks layers of GRAPH as recomputed, if a step within the limit then takes less time, or only then fits. */
struct sgrad__recomputation sgrad__program_choose_recomputed(struct sgrad_graph *graph,
                                                             const struct sgrad_program_options *options);
/* Returns the predicted seconds of a step of that program; 0: it moves nothing; INFINITY: it cannot be built. */
double sgrad__program_predict(struct sgrad_graph *graph, const struct sgrad_program_options *options);
/* The lowest limit of memory, in bytes, for which sgrad__program_build succeeds, to about a hundredth. */
double sgrad__program_least_memory(struct sgrad_graph *graph, const struct sgrad_program_options *options);

/* ---- limit_choice.c ---- */

/* The memory of a rank or a GPU that its steps do not use, in bytes: other parts; an evaluation, when no steps run, with the
 * weights that it reads from the file. */
struct sgrad__memory_use {
    double other, evaluation;
};
/* A search for a program that fits a limit. */
struct sgrad__limit_search {
    struct sgrad_graph *graph;              /* its marks of recomputed layers change */
    struct sgrad_program_options options;   /* of the program; the search sets limit.bytes and limit.moved */
    double bytes;                           /* the limit, of which USE is a part */
    int most;                               /* number of homes that may be in the file */
    bool recomputes;                        /* layers may be recomputed */
    bool layers_may_be_dropped;             /* the caller may undo the choice of layers: homes must suffice without it */
    struct sgrad__memory_use (*use)(void *arg, int moved);      /* with MOVED homes in the file */
    void *arg;
};
struct sgrad__limit_choice {
    int moved;                              /* homes in the file; -1: the limit is too low */
    struct sgrad__recomputation recomputation;      /* its layers are marked in the graph */
};
struct sgrad__limit_choice sgrad__limit_choose(const struct sgrad__limit_search *search);
/* Returns the predicted seconds of a step with MOVED homes in the file, and the layers that are marked; 0: nothing is moved;
 * INFINITY: the limit is too low. */
double sgrad__limit_predict(const struct sgrad__limit_search *search, int moved);
/* Returns the lowest possible limit in bytes, and sets *OTHER to the part of it that steps do not use. */
double sgrad__limit_least(const struct sgrad__limit_search *search, double *other);
/* Returns, by layer, 1 if it is recomputed, else 0. The caller must free the array. */
double *sgrad__limit_marks(const struct sgrad_graph *graph);
/* Marks the layers whose value is above 0 as recomputed, and no others. */
void sgrad__limit_set_marks(struct sgrad_graph *graph, const double *marks);
/* Returns the bytes of one copy of BUFFER. */
static inline size_t sgrad__buffer_bytes(const struct sgrad__buffer *buffer) {
    const size_t bytes = sgrad_view_bytes(&buffer->view);
    return buffer->room > bytes ? buffer->room : bytes;
}
int sgrad__program_allocate(struct sgrad__program *program);        /* creates its tensors; SGRAD_ENOMEM */
void sgrad__program_destroy(struct sgrad__program *program);        /* NULL is allowed */
/* Memory of a program in bytes, in addition to that of the graph: values and values saved for backward; gradients and other sums;
 * messages; inputs of steps in flight; workspaces. sgrad__program_memory returns the memory at the peak of a step. It computes
 * two peaks, and returns the larger one: instructions run in the order of submission, or those that wait for messages of other
 * ranks run after all others. *ON_TIME (may be NULL) is set to the first peak. Each of WORKERS CPU workers has a workspace. */
struct sgrad__memory {
    double activations, gradients, messages, inputs, workspaces;
};
struct sgrad__memory sgrad__program_memory(const struct sgrad__program *program, int workers, double *on_time);
size_t sgrad__program_gpu_workspace(const struct sgrad__program *program);     /* bytes of the workspace of a GPU */
/* Returns the sum of the members. */
static inline double sgrad__memory_all(const struct sgrad__memory *memory) {
    return memory->activations + memory->gradients + memory->messages + memory->inputs + memory->workspaces;
}
/* Return the bytes of parameters and states of operations; the same with all states of the training. */
double sgrad__graph_memory(const struct sgrad_graph *graph);
double sgrad__training_memory(const struct sgrad__training *training);
/* fusion.c. sgrad__call_links returns the number of operations of CALL: 1 if it is not fused. sgrad__call_link returns operation
 * LINK of CALL; CALL itself if it is not fused. sgrad__call_slice returns the maximum number of samples of a slice; 0: no
 * slices. */
int sgrad__call_links(const struct sgrad_bound_kernel *call);
const struct sgrad_bound_kernel *sgrad__call_link(const struct sgrad_bound_kernel *call, int link);
int64_t sgrad__call_slice(const struct sgrad_bound_kernel *call);
bool sgrad__is_message(const struct sgrad_bound_kernel *call);     /* true: between ranks, not a task */
int sgrad__by_address(const void *one, const void *other);      /* orders pointers to calls, for qsort and bsearch */
/* Writes the program to TO as text, one line per call. */
void sgrad__program_print(const struct sgrad__program *program, FILE *to);
/* bytes.c: writes a table of the bytes that this rank stores, uses, computes and sends for each layer in a step. */
void sgrad__program_print_bytes(const struct sgrad__program *program, FILE *to);
/* buckets.c: returns the size of a bucket in bytes, chosen by the cost of summing BYTES of gradients over the peers. */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad_program_options *options);
/* micro_batches.c. sgrad__micros returns the number of micro-batches of at most MOST samples that SAMPLES samples are divided
 * into. sgrad__micros_text returns the sizes of the micro-batches of PROGRAM, "25 or 24" or "60 on GPUs, 4 on CPUs"; the caller
 * must free it. */
int sgrad__micros(int64_t samples, int64_t most);
char *sgrad__micros_text(const struct sgrad__program *program);
/* Returns the minimum number of micro-batches that pipeline stage STAGE has memory for: two per worker, of CPUS workers, and one
 * more per worker for each later stage. */
static inline int sgrad__micros_in_flight(const struct sgrad_graph *graph, int stage, int cpus) {
    return (graph->stages - stage + 1) * cpus;
}
struct sgrad_dataset;
struct sgrad_views;
/* input.c: returns the source that reads samples of DATASET; in training it draws and augments them. */
struct sgrad__source sgrad__source_of(struct sgrad_dataset *dataset);
/* Views of samples for test-time augmentation: the source reads of each sample of DATASET the view that the sample specifies. */
struct sgrad__seen {
    const struct sgrad_dataset *dataset;
    const struct sgrad_views *views;
};
struct sgrad__source sgrad__source_of_views(const struct sgrad__seen *seen);
/* Writes this rank's step->stop to element 0 of operand 0, F64 (1 + workers of all ranks), then the busy fraction of each of its
 * workers and 0 for those of other ranks. Attributes: struct sgrad__workers; NULL: operand 0 has one element. Operand 1, the
 * statistics of the loss, may be absent; it makes the task run late in the step. */
extern const struct sgrad_kernel sgrad__vote_kernel;
/* plans.c: the kernels of messages, which are passed to StarPU-MPI and are not tasks. */
extern const struct sgrad_kernel sgrad__send_kernel, sgrad__receive_kernel, sgrad__whole_kernel,
    sgrad__whole_on_gpus_kernel;
/* passes/spill.c: the kernels of moves to and from a file, which are not tasks either. */
extern const struct sgrad_kernel sgrad__store_kernel, sgrad__fetch_kernel;
bool sgrad__is_move(const struct sgrad_bound_kernel *call);     /* true: it is one of them */
/* passes/arena.c: does nothing, but waits for all of its operands. */
extern const struct sgrad_kernel sgrad__claim_kernel;

/* ---- dependencies.c ---- */

/* The earlier instructions of the step on which an instruction depends; an instruction may be listed twice. */
struct sgrad__dependencies {
    int count, *on;
};
/* Returns an array with an element for each instruction of PROGRAM, which the caller must free with sgrad__dependencies_free. */
struct sgrad__dependencies *sgrad__dependencies_find(const struct sgrad__program *program);
void sgrad__dependencies_free(struct sgrad__dependencies *list, const struct sgrad__program *program);

/* ---- load_balance.c: assignment of updates to ranks ---- */

/* Assigns the update of each parameter i with WANTED[i], if several ranks store it whole, to one of these ranks, by cost: sets
 * ranks and owner of the update, the same on all ranks. options->peers must be set. */
void sgrad__assign_updates(struct sgrad__training *training, const struct sgrad_program_options *options, const bool *wanted);
/* Returns the assignment as the note of a program; the caller must free it. NULL: no update is assigned. */
char *sgrad__assignment_text(const struct sgrad__training *training, const struct sgrad_program_options *options);

/* ---- push.c: parameter-server side ---- */

/* The program with which the server of a shard serves one worker. The first CHUNKS instructions receive a push; those before
 * REPLY update the weights by the pushes in MEMBER; the others send the weights. */
struct sgrad__service {
    struct sgrad__program *program;
    int chunks;                 /* messages of a push */
    int *push, *member;         /* buffers: of the worker's push; external ones of member i from i·chunks on */
    int reply;                  /* index of the first instruction that sends weights */
};
/* Builds the program for WORKER. MEMBERS: number of pushes that one update sums. MASTER: the weights, by parameter, which must
 * outlive the program. The caller must free the program, which owns both arrays. */
struct sgrad__service sgrad__service_create(struct sgrad_graph *graph, const struct sgrad_program_options *options,
                                            const struct sgrad__shard *shard, int worker, int members,
                                            struct sgrad_tensor *const *master);

/* ---- broadcast.c ---- */

/* A broadcast: on every rank, TO is set to FROM of rank ROOT. FROM of other ranks is not used. */
struct sgrad__broadcast {
    struct sgrad_tensor *from, *to;
    int root;
};
/* Builds a program of the COUNT broadcasts in LIST between all peers. The caller must free it. */
struct sgrad__program *sgrad__broadcast_build(const struct sgrad_program_options *options, const struct sgrad__broadcast *list,
                                              int count);

/* A transfer of COUNT tensors to PEER or, if RECEIVES is set, from PEER, in the same order on both ranks. Transfers that are in
 * progress concurrently must have different NUMBERs. */
struct sgrad__transfer {
    int peer, number, count;
    bool receives;
    struct sgrad_tensor *const *tensor;
};
/* Builds the program of a transfer. The caller must free it, before the tensors. */
struct sgrad__program *sgrad__transfer_build(const struct sgrad_program_options *options,
                                             const struct sgrad__transfer *transfer);

/* ---- total.c ---- */

/* Builds a program whose statistics are the sum of TENSOR over all peers. The caller must free it. */
struct sgrad__program *sgrad__total_build(const struct sgrad_program_options *options, struct sgrad_tensor *tensor);

/* ---- workers.c: load of the workers of all ranks ---- */

struct sgrad__workers {
    int count, first, own;      /* number of workers of all ranks; first worker of this rank; number of its workers */
    char **name;                /* "cpu0"; with several ranks "rank1/cpu0" */
};
/* Collective. Starts measuring the load of all workers, if rank 0 passes true, and returns their list, which the caller must free
 * with sgrad__workers_free. Returns NULL if rank 0 passes false. */
struct sgrad__workers *sgrad__workers_watch(const struct sgrad_context *context, bool asked);
/* Writes COUNT numbers: for each worker of this rank the fraction of the time since the last call that it spent in tasks, for
 * each worker of other ranks 0. */
void sgrad__workers_busy(const struct sgrad__workers *workers, double *share);
void sgrad__workers_free(struct sgrad__workers *workers);           /* NULL is allowed */

#endif
