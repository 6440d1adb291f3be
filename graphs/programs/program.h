/* program.h: a program, open: buffers, calls, instructions, in the order of submission; for graphs/ alone. */
#ifndef SGRAD_GRAPHS_PROGRAM_H
#define SGRAD_GRAPHS_PROGRAM_H

#include "config.h"
#include "codelets/updates.h"
#include "graphs/networks/graph.h"
#include "graphs/programs/programs.h"
#include "runtime/collectives.h"

#include <limits.h>

#define SGRAD__MAX_WINDOW 8

/* Memory of a program, before it is memory. Parameters are lent by the graph. */
struct sgrad__buffer {
    char *name;
    struct sgrad_view view;
    enum sgrad_lifetime lifetime;
    int copies; /* of the window: the step's inputs, so that the next ones can be read; 0: no memory of its own */
    bool lent;
    bool rows;                                          /* one for each sample of a micro-batch */
    int follows;                                        /* the buffer whose memory it uses after it; -1: none, it has its own */
    int whole, part, parts;                             /* PART of PARTS of the buffer WHOLE, which is lent; parts 0: no part */
    size_t room;                                        /* bytes of its memory, where others, which may be larger, use it too */
    struct sgrad_tensor *tensor[SGRAD__MAX_WINDOW];     /* NULL until sgrad__program_allocate */
};

/* Samples of this rank's share that tasks take together, and whose tasks these are: micros.c. */
enum { SGRAD__SIZES = 4 };      /* at most: two for each kind of worker */
struct sgrad__micro {
    int64_t first, samples;
    enum sgrad_workers workers;
    int size;                                           /* a number: those of one have as many samples, and the same workers */
    int gpu;                                            /* that computes it, counted from 1; 0: whichever is free */
};

/* The steps that something is part of: FROM, and those that come a multiple of EVERY later. EVERY 0: all. */
struct sgrad__when {
    long every, from;
};
#define SGRAD__ONCE LONG_MAX    /* EVERY of what is part of step FROM alone */
static inline bool sgrad__takes_part(struct sgrad__when when, long step) {
    return !when.every || (step >= when.from && (step - when.from) % when.every == 0);
}
/* How much of what a step does it does on average. */
static inline double sgrad__share_of_steps(struct sgrad__when when) {
    return !when.every ? 1 : when.every == SGRAD__ONCE ? 0 : 1 / (double)when.every;
}

struct sgrad__instruction {
    const struct sgrad_call *call;
    int operand[SGRAD_MAX_OPERANDS];                    /* buffers; -1: absent */
    int micro;                                          /* of a group's tasks its first; 0: they have no samples */
    int64_t first;                                      /* of its samples the first that it reads */
    enum sgrad_workers workers;
    int gpu;                                            /* counted from 1; 0: any */
    int priority;
    int peer;                                           /* of a message: the other rank, and its tag */
    int64_t tag;
    struct sgrad__when when;                            /* it takes part */
    bool outlives;                                      /* the step may end before it does */
    char *name;                                         /* "layer2.0.conv1 backward-weight #3" */
    int again;                                          /* the instruction that this one repeats, as they are numbered before
                                                           fusing; -1: none */
    bool passing;                                       /* one of forward's, made again in passing by backward's tasks */
    uint64_t last;                                      /* bit i: nobody uses the content of operand i after this */
    uint64_t else_last;                                 /* bit i: nobody does but in the steps UNLESS */
    struct sgrad__when unless;
};

/* What a step leaves for whoever waits for it: a buffer's content, in the steps that it is part of. */
struct sgrad__output {
    int buffer;
    struct sgrad__when when;
};

/* Parameters whose updates are one server's business. */
struct sgrad__shard {
    int server;
    int64_t tag, bucket_bytes;
    int count, *parameter;
};

struct sgrad__program {
    struct sgrad_graph *graph;
    struct sgrad_batch batch;
    int64_t share;                                      /* samples of this rank */
    int micros;
    struct sgrad__micro *micro;                         /* of a unit, GPUs' come first; of each kind the larger ones */
    bool training;
    bool grouped;                                       /* an operation adds over the samples of a group: batch norm */
    int window;
    int buffer_count, call_count, instruction_count;
    struct sgrad__buffer *buffer;
    struct sgrad_call **call;
    struct sgrad__instruction *instruction;
    int outputs;
    struct sgrad__output *output;
    int statistics;                                     /* output: the sums of the loss's metrics in the step, over all ranks */
    int *answer;                                        /* outputs, by micro-batch: what the loss compares, two each; NULL: it
                                                           is not asked for */
    int votes;                                          /* output: how many ranks were asked to end the run (less than one:
                                                           a checkpoint is wanted), then how busy each
                                                           worker of all was, where that is watched; -1: one rank */
    int histograms, *histogram;                         /* outputs: counts, of buffers named kind/parameter */
    int buckets;                                        /* of gradients, over ranks */
    int64_t bucket_bytes;
    int shards;
    struct sgrad__shard *shard;
    int owned_count;
    void **owned;
    struct sgrad_tensor *workspace;
    struct sgrad_failure *failure;                      /* whoever turns it has it; NULL: of all tasks */
    char *note;                                         /* of updates: a line that a run begins with, and those that this
                                                           one's print begins with; NULL: none */
    int records;                                        /* buffer that samples are taken from, lent for each step; -1: none */
};
/* What a use of BUFFER is a use of: the whole, of a part. */
static inline int sgrad__whole_of(const struct sgrad__program *p, int buffer) {
    return p->buffer[buffer].parts ? p->buffer[buffer].whole : buffer;
}

/* Where a step's samples come from: KERNEL, with ATTRS, writes the graph's inputs, in order, from RECORDS, its last operand, a
 * tensor that is lent for each step, where these have a rank. */
struct sgrad__source {
    const struct sgrad_kernel *kernel;
    const void *attrs;
    struct sgrad_view records;
};

/* Programs whose messages may be under way at the same time have ranges of tags of their own, the same on every rank. An
 * evaluation is several: their ranges follow its first. So many on, those of another run begin. */
enum { SGRAD__TAGS_STEPS, SGRAD__TAGS_BROADCAST, SGRAD__TAGS_SEARCH, SGRAD__TAGS_EVALUATION, SGRAD__TAGS_OF_A_RUN = 8 };

/* What second-order training is told (optimizers/kfac.c). */
struct sgrad__kfac {
    double decay;                       /* of running averages of factors */
    long factor_every, eigen_every;     /* steps from one factor to the next, from one decomposition */
    long lag;                           /* steps until what came of one is used; 0: it is waited for */
    const char *skip;                   /* layers that are left out: patterns, with commas between; NULL: none are */
    bool inverse;                       /* by damped inverses of factors, in place of their eigenvectors */
    double share;                       /* of the ranks, that precondition a layer, one at least; below 0: chosen by cost */
    double room;                        /* bytes that a rank may keep for it, where that is chosen; 0: no matter how many */
};

struct sgrad__program_options {
    int64_t batch, micro;               /* samples; of a task, at most */
    int64_t gpu_samples, gpu_micro;     /* of the share GPUs have, the first of each unit, CPUs the others; of a GPU's task, at
                                         * most; 0: every worker may take any */
    int64_t group;                      /* samples of a batch-norm group; within a rank's share, or several shares */
    int64_t unit;                       /* samples of which a micro-batch does not reach beyond the end; 0: a group's */
    int lanes;                          /* of gradients, of this rank: see program.c; 0: every micro-batch is one */
    int rank;                           /* this one */
    int first;                          /* of all ranks, rank 0: of a program of some alone, which are neighbours */
    const struct sgrad_group *peers;            /* who share the batch, this rank among them; NULL: it has all of it */
    const struct sgrad_network *network;        /* this, like the next, for peers */
    int tags;                           /* SGRAD__TAGS_… */
    const struct sgrad_collective *allreduce;   /* of gradients; NULL: the cheapest */
    int64_t bucket;                     /* bytes; 0: chosen by cost */
    const struct sgrad_strategy *strategy;
    int servers, group_ranks, backup;   /* parameter servers; ranks of a group of mixed training; backup workers */
    bool training, deterministic, tf32;
    long histograms;                    /* steps from one to the next, of all weights and gradients; 0: none */
    bool fuse;                          /* neighbouring operations become one task; activations have places for good */
    bool recorded;                      /* on GPUs, too, whose tasks are recorded as CUDA graphs; else there not */
    int cpus, cudas;                    /* workers */
    const struct sgrad_optimizer *optimizer;
    float clip_norm;
    struct sgrad_lookahead lookahead;   /* of the slow weights, which the graph keeps; every 0: there are none */
    double ema;                         /* decay of the weights' moving averages, which the graph keeps; 0: there are none */
    struct sgrad__kfac kfac;
    int window;
    struct sgrad_tensor *const *parameter;      /* by parameter: what it computes with; NULL: the graph's own */
    bool answers;                       /* what the network says of each sample, and what it is to say, are outputs */
    bool yields;                        /* its tasks come after those of programs that do not */
    struct sgrad__source source;        /* what its first tasks read */
    const struct sgrad__workers *workers;       /* watched; NULL: none */
};
static inline int sgrad__peer_count(const struct sgrad__program_options *o) { return o->peers ? o->peers->count : 1; }
/* Does some operation, in training, add over more samples than a micro-batch? */
bool sgrad__has_groups(const struct sgrad_graph *graph);
int sgrad__program_build(struct sgrad_graph *graph, const struct sgrad__program_options *options,
                         struct sgrad__program **program);
/* Bytes of one of a buffer's copies. */
static inline size_t sgrad__buffer_bytes(const struct sgrad__buffer *buffer) {
    const size_t bytes = sgrad_view_bytes(&buffer->view);
    return buffer->room > bytes ? buffer->room : bytes;
}
int sgrad__program_allocate(struct sgrad__program *program);        /* memory for its buffers */
void sgrad__program_destroy(struct sgrad__program *program);
/* Bytes of what a program has in memory besides what the graph keeps, where they are most in the course of a step: values and
 * what is kept of them; gradients and other sums; what is on its way between ranks; inputs of steps in flight; workspaces.
 * All is done in order, or what waits for other ranks' messages after the rest, whichever takes more; ON_TIME: bytes in order. */
struct sgrad__memory {
    double activations, gradients, messages, inputs, workspaces;
};
struct sgrad__memory sgrad__program_memory(const struct sgrad__program *program, int workers, double *on_time);
static inline double sgrad__memory_all(const struct sgrad__memory *m) {
    return m->activations + m->gradients + m->messages + m->inputs + m->workspaces;
}
double sgrad__graph_memory(const struct sgrad_graph *graph);        /* parameters, their states, statistics */
/* fusion.c: the operations that a call is made of, one after another; itself, if it is one. The samples of a slice; 0: all. */
int sgrad__call_links(const struct sgrad_call *call);
const struct sgrad_call *sgrad__call_link(const struct sgrad_call *call, int link);
int64_t sgrad__call_slice(const struct sgrad_call *call);
bool sgrad__is_message(const struct sgrad_call *call);     /* between ranks, and no task */
int sgrad__by_address(const void *one, const void *other);      /* of calls, for qsort and bsearch */
void sgrad__program_print(const struct sgrad__program *program, FILE *to);
/* bytes.c: what this rank has of each layer, and sends for it in a step */
void sgrad__program_print_bytes(const struct sgrad__program *program, FILE *to);
/* buckets.c: bytes of gradients that are summed at once over the peers, when there are BYTES in all */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad__program_options *options);
/* micros.c: into how many of MOST samples at most SAMPLES are cut; and how many a program's have, "25 or 24", or "60 on GPUs,
 * 4 on CPUs"; free it */
int sgrad__micros(int64_t samples, int64_t most);
char *sgrad__micros_text(const struct sgrad__program *program);
/* How many micro-batches a stage has memory for at least: two for each of its CPUS workers, and one more for each later stage. */
static inline int sgrad__micros_in_flight(const struct sgrad_graph *g, int stage, int cpus) {
    return (g->stages - stage + 1) * cpus;
}
/* input.c: the samples of a data set; 1 when this rank was asked to end the run, then the shares of its workers (F64, 1 +
 * workers), when the second operand is there */
struct sgrad_dataset;
struct sgrad_views;
struct sgrad__source sgrad__source_of(struct sgrad_dataset *dataset);
/* Views of a data set's samples, to be read alone: sample i·views + v is view v of sample i. */
struct sgrad__seen {
    const struct sgrad_dataset *dataset;
    const struct sgrad_views *views;
};
struct sgrad__source sgrad__source_of_views(const struct sgrad__seen *seen);
extern const struct sgrad_kernel sgrad__vote_kernel;
/* plans.c: what is handed to StarPU-MPI, and no task */
extern const struct sgrad_kernel sgrad__send_kernel, sgrad__receive_kernel, sgrad__whole_kernel,
    sgrad__whole_on_gpus_kernel;

/* ---- dealing.c: work that one rank does for several ---- */

bool sgrad__can_be_dealt(const struct sgrad_optimizer *optimizer);   /* it looks at a parameter at a time, and keeps its shape */
/* Those WANTED of the parameters that several ranks have whole get an owner each, the same on all ranks. */
void sgrad__deal_updates(struct sgrad_graph *graph, const struct sgrad__program_options *options, const bool *wanted);
/* Whose they are, as a program's note; NULL: none is dealt out. */
char *sgrad__dealt_text(const struct sgrad_graph *graph, const struct sgrad__program_options *options);

/* ---- push.c: a parameter server's half ---- */

/* What SHARD's server does for WORKER, on the MASTER weights. The first CHUNKS instructions receive a push; those up to REPLY are
 * an update by pushes that are lent to them; the rest sends the weights. */
struct sgrad__service {
    struct sgrad__program *program;
    int chunks;                 /* messages of a push */
    int *push, *member;         /* buffers; of each member its chunks, one after another */
    int reply;
};
struct sgrad__service sgrad__service_create(struct sgrad_graph *graph, const struct sgrad__program_options *options,
                                            const struct sgrad__shard *shard, int worker, int members,
                                            struct sgrad_tensor *const *master);

/* ---- broadcast.c ---- */

/* ROOT's FROM becomes TO on every rank; other ranks' FROM is not looked at. */
struct sgrad__broadcast {
    struct sgrad_tensor *from, *to;
    int root;
};
struct sgrad__program *sgrad__broadcast_build(const struct sgrad__program_options *options, const struct sgrad__broadcast *list,
                                              int count);

/* COUNT tensors to PEER, which RECEIVES them in the same order; the NUMBER tells apart transfers that are under way at once. */
struct sgrad__transfer {
    int peer, number, count;
    bool receives;
    struct sgrad_tensor *const *tensor;
};
struct sgrad__program *sgrad__transfer_build(const struct sgrad__program_options *options,
                                             const struct sgrad__transfer *transfer);

/* ---- total.c ---- */

/* TENSOR's sum over all ranks is the program's statistics. */
struct sgrad__program *sgrad__total_build(const struct sgrad__program_options *options, struct sgrad_tensor *tensor);

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

#endif
