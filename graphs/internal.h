/* internal.h: the records that the files of graphs/ share.
 *
 *     graph    values, nodes, parameters: what is computed, for one sample
 *     program  buffers, calls, instructions: the same for a whole step, in the order of submission
 *     run      a program, the data set and the step's numbers: what the training loop turns */
#ifndef SGRAD_GRAPHS_INTERNAL_H
#define SGRAD_GRAPHS_INTERNAL_H

#include "config.h"
#include "datasets/datasets.h"
#include "graphs/graphs.h"
#include "runtime/allreduce.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- graph ---- */

struct sgrad__value {
    char *name;                 /* of the layer that makes it */
    struct sgrad_view view;     /* dim[0] is 1 */
    int root;                   /* the value whose memory this one shows; itself unless its node is a view */
    bool needs_gradient;
};

/* A tensor that outlives the step: a parameter, or a state of an operation. */
struct sgrad__parameter {
    char *name;                         /* "layer1.0.conv1.weight" */
    struct sgrad_parameter is;
    bool state;                         /* not trained */
    struct sgrad_tensor *tensor;        /* NULL until sgrad__parameters_allocate */
    struct sgrad_tensor *moment[2];     /* the optimizer's states, trained parameters only */
    struct sgrad_hyper hyper;           /* with this parameter's weight decay */
};

struct sgrad__node {
    char *name;
    const struct sgrad_op *op;
    void *attrs;
    struct sgrad_signature is;
    int input[SGRAD_MAX_INPUTS];
    int output;                         /* -1: none */
    int p[SGRAD_MAX_PARAMETERS], s[SGRAD_MAX_PARAMETERS];   /* indices of parameters; -1: none */
};

struct sgrad_graph {
    enum sgrad_dtype dtype;
    int error;
    int value_count, node_count, parameter_count;
    struct sgrad__value *value;
    struct sgrad__node *node;
    struct sgrad__parameter *parameter;
    int images, labels;     /* input values */
    int loss;               /* node, or -1 */
};

/* ---- parameters.c ---- */

/* Gives every parameter memory and its first value (Philox: seed, the parameter's name, element); the optimizer may be NULL. */
int sgrad__parameters_allocate(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, uint64_t seed);
void sgrad__parameters_free(struct sgrad_graph *graph);
/* Loads parameters and states from an open file, PyTorch's names and layouts. A missing or extra tensor or another shape is
 * an error that names the first that disagrees and both shapes. Nothing is changed on error. Entries that begin with
 * "optimizer." are the optimizer's; WITH_OPTIMIZER asks for them. */
int sgrad__parameters_load(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, const struct sgrad_safetensors *file,
                           bool with_optimizer);
/* Writes them (waits for the tasks that change them). */
int sgrad__parameters_save(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, const char *path, bool with_optimizer,
                           const char *const *metadata, int metadata_count);
/* Rank 0's values, and its optimizer's, to every rank. */
int sgrad__parameters_broadcast(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer);
int64_t sgrad__parameters_count(const struct sgrad_graph *graph);     /* trained numbers */

/* ---- program ---- */

#define SGRAD__MAX_WINDOW 8

/* Memory of a program, before it is memory. Parameters are lent by the graph. */
struct sgrad__buffer {
    char *name;
    struct sgrad_view view;
    enum sgrad_lifetime lifetime;
    int copies;                                         /* of the window: the step's inputs, so that the next ones can be read; 0: no memory of its own */
    bool lent;
    bool rows;                                          /* one for each sample of a micro-batch */
    int place;                                          /* the buffer whose memory it uses after it; -1: its own */
    struct sgrad_tensor *tensor[SGRAD__MAX_WINDOW];     /* NULL until sgrad__program_allocate */
};

struct sgrad__instruction {
    const struct sgrad_call *call;
    int operand[SGRAD_MAX_OPERANDS];                    /* buffers; -1: absent */
    int64_t first;                                      /* sample, within this rank's part of the batch */
    int priority;
    int peer;                                           /* of a message: the other rank, and its tag */
    int64_t tag;
    char *name;                                         /* "layer2.0.conv1 backward-weight #3" */
    uint32_t last;                                      /* bit i: nobody uses the content of operand i after this */
};

/* Parameters whose updates are one server's business. */
struct sgrad__shard {
    int server;
    int64_t tag;
    int count, *parameter;
};

struct sgrad__program {
    struct sgrad_graph *graph;
    int64_t batch, share, micro, group;                 /* samples: of all ranks, of this one, of a task, of batch norm */
    int64_t averaged;                                   /* samples over which gradients are averaged */
    bool training;
    int window;
    int buffer_count, call_count, instruction_count;
    struct sgrad__buffer *buffer;
    struct sgrad_call **call;
    struct sgrad__instruction *instruction;
    int *pixels, *labels;                               /* buffers of each micro-batch */
    int statistics;                                     /* buffer: [Σ loss, correct, samples] of the step, over all ranks */
    int votes;                                          /* buffer: how many ranks were asked to end the run, then how busy each
                                                           worker of all was, where that is watched; -1: one rank */
    int histograms, *histogram;                         /* buffers of counts, in the steps that ask for them; named kind/parameter */
    int buckets;                                        /* of gradients, over ranks */
    int64_t bucket_bytes;
    int shards;
    struct sgrad__shard *shard;
    int owned_count;
    void **owned;
    struct sgrad_tensor *workspace;
    struct sgrad_image image;                           /* attributes of the augmentation task */
    struct sgrad_dataset *dataset;                      /* attributes of the read task */
    int records;                                        /* buffer that it reads, lent for each step; -1: it reads DATASET */
    const struct sgrad_call *input_call[2];
};

struct sgrad__program_options {
    int64_t batch, micro, group;        /* group: samples of a batch-norm group; within a rank's share, or several shares */
    int rank, ranks;
    const struct sgrad_network *network;        /* these, like the next, for more than one rank */
    const struct sgrad_allreduce *allreduce;    /* of gradients; NULL: the cheapest */
    int64_t bucket;                     /* bytes; 0: chosen by cost */
    const struct sgrad_strategy *strategy;
    int servers, group_ranks, backup;   /* parameter servers; ranks of a group of mixed training; backup workers */
    bool training, deterministic, tf32, histograms;
    bool fuse;                          /* neighbouring operations become one task; without GPUs, activations have places for good */
    int cpus, cudas;                    /* workers */
    const struct sgrad_optimizer *optimizer;
    float clip_norm;
    int window;
    struct sgrad_image image;
    struct sgrad_dataset *dataset;      /* what its first tasks read */
    struct sgrad__placement *placement; /* which they take from memory, as its steps say; NULL: they read it */
    const struct sgrad__workers *workers;       /* watched; NULL: none */
};
int sgrad__program_build(struct sgrad_graph *graph, const struct sgrad__program_options *options, struct sgrad__program **program);
int sgrad__program_allocate(struct sgrad__program *program);
void sgrad__program_destroy(struct sgrad__program *program);
/* fuse.c: the operations that a call is made of, one after another; itself, if it is one. The samples of a slice; 0: it does all at once. */
int sgrad__call_parts(const struct sgrad_call *call);
const struct sgrad_call *sgrad__call_part(const struct sgrad_call *call, int part);
int64_t sgrad__call_slice(const struct sgrad_call *call);
bool sgrad__is_message(const struct sgrad_call *call);     /* between ranks, and no task */
/* Submits one instruction; DONE(ARG) is called when it has run. COPY: of the window. */
int sgrad__instruction_submit(const struct sgrad__program *program, int index, const struct sgrad_step *step, int copy, void (*done)(void *arg), void *arg);
int sgrad__by_address(const void *one, const void *other);      /* of calls, for qsort and bsearch */
void sgrad__program_print(const struct sgrad__program *program, FILE *to);
/* input.c: pixels U8 (N,H,W,C), labels I32 (N) of the step's samples; 1 when this rank was asked to end the run, then the shares of
 * its workers (F64, 1 + workers), when the second operand is there */
extern const struct sgrad_kernel sgrad__read_kernel, sgrad__vote_kernel;
/* reduce.c: what is handed to StarPU-MPI, and no task */
extern const struct sgrad_kernel sgrad__send_kernel, sgrad__receive_kernel, sgrad__whole_kernel;
void sgrad__graph_print(const struct sgrad_graph *graph, FILE *to);

/* ---- workers.c: how busy the workers of all ranks are ---- */

struct sgrad__workers {
    int count, first, own;      /* of all ranks; the first of this one's, and how many it has */
    char **name;                /* "cpu0"; with several ranks "rank1/cpu0" */
};
/* Every rank calls it. From here on they are watched, if rank 0 ASKED for it; else NULL. */
struct sgrad__workers *sgrad__workers_watch(const struct sgrad_context *context, bool asked);
/* The share of its time since the last call that each of this rank's spent in tasks; 0 for other ranks'. */
void sgrad__workers_busy(const struct sgrad__workers *workers, double *share);
void sgrad__workers_free(struct sgrad__workers *workers);

/* ---- step ---- */

/* A wait that may be in vain. Begins as { .before = -1 }. */
struct sgrad__idle {
    long before;                /* what was left to happen */
    double seconds;             /* for which nothing has happened */
};
/* Waits for CHANGED, some time at most. True: of what has to happen, of which so much is LEFT, nothing has for too long. Naps are
 * counted, not time: a process that was stopped for an hour has not waited for one. */
bool sgrad__nap(pthread_cond_t *changed, pthread_mutex_t *lock, long left, struct sgrad__idle *idle);

/* What an instruction leaves when it has ended. */
struct sgrad__mark {
    struct sgrad__slot *slot;
    atomic_bool done;
};
/* One step in flight. */
struct sgrad__slot {
    struct sgrad_step step;
    int64_t *sample;
    double statistics[3], *votes;
    struct sgrad_histogram *histogram;      /* as many as the program has, if the step asks for them */
    atomic_int pending;         /* tasks, messages, and the fetches of statistics, votes and histograms */
    struct sgrad__mark *mark;   /* of each of these */
    bool finished;
    double time;                /* when it finished: seconds of the monotonic clock */
    struct sgrad__runner *runner;
};
/* The window of steps in flight, in order: submit fills the next slot, wait empties the oldest. */
struct sgrad__runner {
    struct sgrad__program *program;
    struct sgrad__slot slot[SGRAD__MAX_WINDOW];
    long submitted, finished;
    struct sgrad__sync *sync;
};
struct sgrad__runner *sgrad__runner_create(struct sgrad__program *program);
void sgrad__runner_destroy(struct sgrad__runner *runner);
/* Submits one step; SAMPLE holds program->share indices and is copied. The caller keeps submitted - finished < window. */
int sgrad__runner_submit(struct sgrad__runner *runner, const struct sgrad_step *step, const int64_t *sample);
/* Waits for the oldest step in flight; *DONE is its slot, good until the next submit. */
int sgrad__runner_wait(struct sgrad__runner *runner, const struct sgrad__slot **done);

#endif
