/* builder.h: the state and the functions with which a program is built from a graph. Private to graphs/compiler/. */
#ifndef SGRAD_GRAPHS_COMPILER_BUILDER_H
#define SGRAD_GRAPHS_COMPILER_BUILDER_H

#include "graphs/compiler/program.h"

/* The three forms of a node's results: computed by forward; recomputed during backward; recomputed inline by backward tasks
 * (fuse.c). */
enum made { AT_FIRST, ONCE_MORE, IN_PASSING, MADE };

/* The phases of a node's tasks: forward; forward for recomputed results, once or inline; backward; after all micro-batches. */
enum phase { FORWARD, AGAIN, PASSING, BACKWARD, FINISH, PHASES };

/* The ranks that store the same shard of the parameters that are split over AXES (0: whole parameters). They sum the gradients of
 * these parameters. */
struct sgrad__sharing {
    unsigned axes;
    uint64_t stages;                            /* bit i: stage i of a pipeline uses these parameters; 0: no pipeline */
    struct sgrad_group group;
    struct sgrad_bucket *bucket;                /* of gradients, being filled; NULL: none is open */
};

/* One execution of the tasks of a node in a ring, for the shard of one rank. The first one is for this rank's shard. */
struct sgrad__turn {
    int place;                                  /* index on the axis of the rank that has the shard */
    bool later;                                 /* it is not the first */
    void *attrs;                                /* of the node, for this shard */
    const struct sgrad_bound_kernel *call[PHASES][SGRAD__SIZES];    /* the last one created */
};

struct sgrad_builder {
    struct sgrad__program *p;
    struct sgrad_graph *g;
    const struct sgrad_program_options *o;
    int micros, group_micros;                   /* micro-batches of this rank; of a batch-norm group on this rank */
    int wave;                                   /* micro-batches that are computed layer by layer, together; whole groups */
    int lanes;                                  /* number of gradient-accumulation buffers */
    int place, peers;                           /* index of this rank among the peers; number of peers */
    struct sgrad_group others;                  /* the peers with different samples, including this rank */
    struct sgrad_group stage;                   /* per pipeline stage: the rank with this rank's other coordinates */
    struct sgrad_group span;                    /* those of OTHERS that form a batch-norm group with this rank */
    /* Buffers by (object, micro-batch). Those of a group are at its first micro-batch, those of a step at 0. -1: not created
     * yet. */
    int *activation[MADE], *gradient;           /* by value; activations for each enum made */
    int *keep[MADE], *part, *sum, *leaf, *total;   /* by node and index, keep for each enum made; leaf, total: statistics */
    int *first;                                 /* instruction, by node, forward task and micro-batch */
    int *piece;                                 /* of the node that is being added: shards, then DSHARD, by micro-batch */
    struct sgrad__turn **turn;                  /* by node, if it has tasks in a ring: one turn per rank; NULL: not created */
    /* By parameter: as stored; as used by layers; the same rounded to bf16. If a rank stores a share, GATHERED and ROUNDED have
     * separate buffers in forward (first half) and backward (second half), and so has WHOLE, with all shares of the parameter. */
    int *parameter, *gathered, *rounded, *whole;
    int *updated;                               /* by parameter: its shard that this rank has updated */
    int scatters, *scattered;                   /* buffers with this rank's shares of the buckets that are scattered, in order */
    int held_count;                             /* number of buckets that are gathered once the gradient norm is known */
    struct sgrad_bucket **held;
    int *dparameter;                            /* gradient terms by node, index and first micro-batch of the lane */
    bool *passing;                              /* by node: backward tasks recompute its output inline */
    bool *elsewhere;                            /* by parameter: the group's first rank has terms of its gradient */
    /* The last call created for each node, phase, task, size (struct sgrad__micro) and state of the lane: empty, or to be added
     * to. */
    const struct sgrad_bound_kernel **call;
    int *packed;                                /* by node, phase, task, size: its packed factor; -1: not created */
    int shared[1024];                           /* hash table of sgrad__shared_call: 1 + index of the last call; 0: none */
    struct sgrad__when when;                    /* the steps of the instructions that are added now */
    bool outlive;                               /* instructions that are added now may end after their step */
    double most_bytes;                          /* of the operands of a fused GPU task, if memory is limited; 0: any number */
    int norm;                                   /* buffer of Σ g² over all parameters (K-FAC: Σ V·∇); -1: none */
    int collectives;                            /* number of collectives so far, for tags; equal on all ranks of a stage */
    struct sgrad__sharing *sharing;             /* SHARINGS elements; the first is for all peers (gradients.c) */
    int sharings;
    int64_t rest;                               /* bytes of gradients that are not in a bucket yet */
    void *watched;                              /* state of the optimizer's hooks (training.h); NULL: none yet */
};

/* Priorities of tasks, the lowest first. The more tasks wait for a task, the higher its priority is. */
enum {
    SGRAD__PRIORITY_INPUT,
    SGRAD__PRIORITY_OWN_UPDATE,
    SGRAD__PRIORITY_WEIGHT,
    SGRAD__PRIORITY_FORWARD,        /* with pipeline stages: of later micro-batches, therefore below backward */
    SGRAD__PRIORITY_CHAIN,
    SGRAD__PRIORITY_SENT_WEIGHT,
    SGRAD__PRIORITY_UPDATE,
    SGRAD__PRIORITIES
};
/* Returns the priority of sums and updates of gradients: other ranks may wait for them; without other ranks only the next step
 * does. */
static inline int sgrad__update_priority(const struct sgrad_builder *builder) {
    return builder->peers > 1 ? SGRAD__PRIORITY_UPDATE : SGRAD__PRIORITY_OWN_UPDATE;
}

/* ---- nodes.c ---- */

/* Returns the buffer of operand USE of a task of node N for micro-batch M (of a group: its first one), and sets *VIEW; -1: the
 * operand is absent. Buffers and recomputations that do not exist yet are added. */
int sgrad__resolve(struct sgrad_builder *builder, int n, enum phase phase, struct sgrad_use use, int m, struct sgrad_view *view);
/* The same for a backward task that is not one of the node's. Results that are recomputed inline are recomputed for this operand
 * only. */
int sgrad__add_operand(struct sgrad_builder *builder, int n, struct sgrad_use use, int m, struct sgrad_view *view);
/* Returns the first micro-batch of the lane of micro-batch M. */
int sgrad__lane_first(const struct sgrad_builder *builder, int m);
/* Adds the tasks of node N for the group that begins at micro-batch START (phase FINISH: for the step). */
void sgrad__add_node(struct sgrad_builder *builder, int n, enum phase phase, int start);

/* ---- instructions.c: the functions take ownership of a NAME that is not const ---- */

struct sgrad__program *sgrad__program_create(void);     /* empty, with one step in flight */

/* Add a buffer and return its index. sgrad__add_buffer: with memory of the program. sgrad__add_lent: external; its tensor is set
 * later. sgrad__lend_buffer: external, TENSOR. sgrad__add_part: chunk PART of PARTS of WHOLE, an external buffer of floats. */
int sgrad__add_buffer(struct sgrad_builder *builder, char *name, struct sgrad_view view);
int sgrad__add_lent(struct sgrad_builder *builder, const char *name, struct sgrad_view view);
int sgrad__lend_buffer(struct sgrad_builder *builder, struct sgrad_tensor *tensor);
int sgrad__add_part(struct sgrad_builder *builder, int whole, int part, int parts);
/* Adds a copy of CALL, which is prepared (sgrad_bound_kernel_prepare) and belongs to the program. */
const struct sgrad_bound_kernel *sgrad__add_call(struct sgrad_builder *builder, struct sgrad_bound_kernel call);
/* Returns an existing call with the kernel, the attributes and the views of CALL, if it is found; else adds it. */
const struct sgrad_bound_kernel *sgrad__shared_call(struct sgrad_builder *builder, struct sgrad_bound_kernel call);
/* Appends an instruction. The result is valid until the next instruction is appended. */
struct sgrad__instruction *sgrad__add_instruction(struct sgrad_builder *builder, const struct sgrad_bound_kernel *call,
                                                  const int *operand, int micro, int priority, char *name);
/* Makes BUFFER an output of the steps b->when. Returns the index of the output. */
int sgrad__add_output(struct sgrad_builder *builder, int buffer);
/* Instructions that were appended to a program, in the order in which they must precede, or follow, another one. insert adds one;
 * its memory is freed by put_in_order, which moves the instructions from COUNT on to their places. BEFORE, AFTER: COUNT elements,
 * by instruction; NULL: none. */
struct sgrad__insertion {
    int count, *instruction;
};
void sgrad__insert(struct sgrad__insertion *at, int instruction);
void sgrad__put_in_order(struct sgrad__program *program, int count, struct sgrad__insertion *before,
                         struct sgrad__insertion *after);
void *sgrad__own(struct sgrad__program *program, void *memory);     /* returns MEMORY, which is freed with the program */
static inline struct sgrad_view sgrad__doubles(struct sgrad_shape shape) { return (struct sgrad_view){ SGRAD_F64, shape }; }

/* Returns true if tasks of WORKERS are built for GPUs: whole operations, without slices of samples. */
static inline bool sgrad__on_gpus(const struct sgrad_builder *builder, enum sgrad_workers workers) {
    return builder->o->gpus && workers != SGRAD_CPU_WORKERS;
}

/* Returns true if GPUs process all micro-batches. Then sums and updates run on GPUs too, because a CPU would need copies of their
 * operands. */
static inline bool sgrad__gpus_have_all(const struct sgrad_builder *builder) {
    return builder->o->gpu_samples && builder->o->gpu_samples >= builder->p->share;
}

/* ---- micro_batches.c ---- */

/* Divides the local batch of PROGRAM into micro-batches, none of which has more samples than the options allow, or crosses a
 * multiple of UNIT samples. */
void sgrad__cut_share(struct sgrad__program *program, const struct sgrad_program_options *options, int64_t unit);
/* Returns the number of micro-batches with separate memory: at least those of a group, and enough that no worker waits for
 * memory. FEW: one per worker. If GPUs process fixed samples, it is the number of all micro-batches, so that no memory is used by
 * both GPUs and CPUs. */
int sgrad__micros_at_once(const struct sgrad_builder *builder, bool few);

/* ---- updates.c ---- */

/* Returns true if updates must wait until all gradients exist: with clipping, or if the optimizer adds all updates at once. */
static inline bool sgrad__updates_wait(const struct sgrad_builder *builder) {
    return builder->o->clip_norm > 0 || builder->o->training->hooks;
}
/* Adds the update of PARAMETER by the buffer GRADIENT, unless another rank does this update. */
void sgrad__add_update(struct sgrad_builder *builder, int parameter, int gradient);
/* Returns the number of chunks in which a parameter is updated and its gradient is summed, so that several cores do this; 1: it
 * is not divided. */
int sgrad__update_parts(const struct sgrad_builder *builder, int parameter);
/* Adds the update of chunk PART of PARTS of PARAMETER by GRADIENT, the gradient of this chunk. */
void sgrad__add_update_part(struct sgrad_builder *builder, int parameter, int part, int parts, int gradient);
/* Adds the norm of all gradients and then all updates. SUMMED: the buffer of the gradient of each parameter, or -1. */
void sgrad__add_clipped_updates(struct sgrad_builder *builder, const int *summed);
/* Add the updates of averages and of slow weights (lookahead). They must be called after all updates are added. */
void sgrad__add_averages(struct sgrad_builder *builder);
void sgrad__add_lookahead(struct sgrad_builder *builder);

/* ---- reading.c ---- */

void sgrad__add_input(struct sgrad_builder *builder, int m);      /* adds the tasks that read the fields of micro-batch M */

/* ---- rematerialization.c ---- */

/* Returns, by node, whether backward tasks recompute its output inline. The caller must free the array. */
bool *sgrad__made_in_passing(const struct sgrad_builder *builder);

/* ---- histograms.c ---- */

/* Adds, if options request histograms, a task that counts the values of BUFFER, the weights or the gradient of PARAMETER. The
 * counts are an output; the name of its buffer is KIND, a slash and the name of the parameter. */
void sgrad__add_histogram(struct sgrad_builder *builder, const char *kind, int parameter, int buffer);

/* ---- passes over a whole program: fuse.c, gathering.c, memory.c ---- */

/* Fuses consecutive operations on the same samples to one task. */
void sgrad__fuse(struct sgrad_builder *builder);
/* Makes each recomputation wait for the gradient that the consumer of its result also reads, so that the result does not occupy
 * memory long before it is used. */
void sgrad__hold_back(struct sgrad_builder *builder);
/* Gathers weights of which this rank stores a share, in buckets, ahead of their use. */
void sgrad__gather_weights(struct sgrad_builder *builder);
/* Sets last, else_last and unless of all instructions. */
void sgrad__mark_last_uses(struct sgrad__program *program);
/* Plans the memory of buffers with samples: a buffer may use the memory of one whose content is not needed any more; micro-batch
 * m uses that of m - DISTANCE. Must be called after sgrad__mark_last_uses. LITTLE: buffers of different sizes may use the same
 * memory. FOR_GOOD: buffers without samples are never freed; otherwise those above 64 KiB are freed after their last use. */
void sgrad__share_memory(struct sgrad__program *program, int distance, bool little, bool for_good);
/* passes/arena.c: places the planned buffers, which may have bytes in common. Must be called after sgrad__mark_last_uses. */
void sgrad__place_in_arena(struct sgrad_builder *builder);
/* passes/spill.c: inserts moves to and from a file, so that the planned buffers occupy at most BYTES at any time. RUNNING: tasks
 * that run at the same time. Must be called before sgrad__mark_last_uses. Returns false if that is too little. */
bool sgrad__spill(struct sgrad_builder *builder, int running, double bytes);
/* Returns the predicted seconds of a step of PROGRAM without moves. */
double sgrad__spill_seconds(const struct sgrad__program *program, const struct sgrad_program_options *options);

/* ---- sums.c ---- */

/* Returns the buffer with the sum of those of BUFFER[0…count-1] that exist (are not -1), added in a binary tree by halving. If
 * only one exists, returns it; -1: none exists. */
int sgrad__add_sum(struct sgrad_builder *builder, const int *buffer, int count, const char *name);
/* The same for the elements from FIRST on, as many as VIEW has. */
int sgrad__add_sum_of(struct sgrad_builder *builder, const int *buffer, int count, int64_t first, struct sgrad_view view,
                      const char *name);
/* The elements of a buffer from FIRST on. */
struct sgrad__slice {
    int buffer;
    int64_t first;
};
/* Returns the buffer with the sum ((0+1)+2)+3 of up to four slices, each of as many elements as VIEW has. */
enum { SGRAD__CHAIN = 4 };
int sgrad__add_chain(struct sgrad_builder *builder, const struct sgrad__slice *slice, int count, struct sgrad_view view,
                     const char *name);

/* ---- plans.c ---- */

/* Messages of this rank. sgrad__next_tag returns the first tag for the next plan, or exchange of a strategy; each has separate
 * tags in the range of the program, the same on every rank. sgrad__add_receive returns a new buffer; sgrad__add_receive_into
 * receives to BUFFER. */
int64_t sgrad__next_tag(struct sgrad_builder *builder);
void sgrad__add_send(struct sgrad_builder *builder, int buffer, int peer, int64_t tag, int priority, const char *name);
int sgrad__add_receive(struct sgrad_builder *builder, struct sgrad_view view, int peer, int64_t tag, int priority,
                       const char *name);
void sgrad__add_receive_into(struct sgrad_builder *builder, int buffer, int peer, int64_t tag, int priority, const char *name);
/* Returns the number of messages for a value of VIEW. A value above the size limit is sent as several messages, with TAG and the
 * tags that follow it. */
int sgrad__message_pieces(const struct sgrad_view *view);
/* Adds the messages and sums of PLAN. CHUNK: the buffer with this rank's value of each chunk, of any size; replaced by the buffer
 * with the result. */
void sgrad__add_plan(struct sgrad_builder *builder, const struct sgrad_plan *plan, int *chunk, int priority, const char *name);
/* sgrad__peers returns the COUNT peers from index FIRST on. sgrad__along returns the ranks that differ from this one only along
 * AXES. */
struct sgrad_group sgrad__peers(const struct sgrad_builder *builder, int first, int count);
struct sgrad_group sgrad__along(struct sgrad_builder *builder, unsigned axes);
/* Adds a collective by the cheapest algorithm. GROUP must contain this rank. CHUNK: the buffers of this rank; replaced by those
 * with the results. ROOT: a rank, for reduce and broadcast; else -1. */
void sgrad__add_exchange(struct sgrad_builder *builder, enum sgrad_collective_kind kind, const struct sgrad_group *group,
                         int root, int *chunk, int chunks, int priority, const char *name);
/* The same for BUFFER as one chunk. Returns the buffer with the result; with one rank in GROUP it is BUFFER. */
int sgrad__add_collective(struct sgrad_builder *builder, enum sgrad_collective_kind kind, const struct sgrad_group *group,
                          int root, int buffer, int priority, const char *name);

/* Makes the receives among the instructions from BEGIN on wait until earlier tasks have used the COUNT buffers in BUFFER: with
 * ACCESS SGRAD_R, until these are written; SGRAD_W, until they are not used any more, and their content is lost. Received data
 * have no memory before that. */
void sgrad__add_wait(struct sgrad_builder *builder, int begin, const int *buffer, int count, enum sgrad_access access);

/* ---- pipeline.c: messages between pipeline stages ---- */

bool sgrad__is_here(const struct sgrad_builder *builder, int n);      /* true: this rank's stage computes node N */
/* Add messages of the group of micro-batches that begins at START. arrivals: receive the values that forward needs from other
 * stages. departures: send the output of node N to the stages that use it. gradient_arrivals, before backward: receive gradients.
 * gradient_departures, after backward: send gradients. */
void sgrad__add_arrivals(struct sgrad_builder *builder, int start);
void sgrad__add_departures(struct sgrad_builder *builder, int n, int start);
void sgrad__add_gradient_arrivals(struct sgrad_builder *builder, int start);
void sgrad__add_gradient_departures(struct sgrad_builder *builder, int start);
/* The number of a collective determines its tags. sgrad__number_from sets the number of the next collective, and returns the
 * previous value. Collectives between several stages have fixed numbers, because the stages add different numbers of collectives:
 * sgrad__is_common returns true for such a NUMBER; the other functions return the number for statistics, for the gradient norm,
 * and for the gradient of PARAMETER. */
int sgrad__number_from(struct sgrad_builder *builder, int number);
bool sgrad__is_common(int number);
int sgrad__statistics_number(const struct sgrad_builder *builder);
int sgrad__norm_number(void);
int sgrad__parameter_number(int parameter);

/* ---- moves.c ---- */

/* Adds TASK of node N, a move (codelets.h), for micro-batch M. If the destination already has a value (a gradient), the result is
 * added to it. */
void sgrad__add_move(struct sgrad_builder *builder, int n, const struct sgrad_task *task, int m);
/* Sends BUFFER to the next rank along the axis of node N. Returns the buffer that is received from the previous rank. */
int sgrad__add_shift(struct sgrad_builder *builder, int n, int buffer);

/* ---- packing.c ---- */

/* Sets call->packing to the layout in which TASK's kernel prefers its factor for micro-batch M; 0: the factor is not packed. */
void sgrad__plan_packing(const struct sgrad_builder *builder, const struct sgrad_task *task, int m,
                         struct sgrad_bound_kernel *call);
/* If CALL uses a packed factor, replaces it in OPERAND by the buffer *PACKED. If *PACKED is -1, first adds this buffer and the
 * task that packs it. */
void sgrad__add_packed(struct sgrad_builder *builder, const struct sgrad_bound_kernel *call, int *operand, int *packed);
/* Moves the packing of factors that no earlier task of the step changes to the beginning of the program. */
void sgrad__pack_first(struct sgrad_builder *builder);

/* ---- gathers.c ---- */

/* Returns the buffer of PARAMETER as layers use it in PHASE. If its shards must be gathered, this is added once per step. If this
 * rank stores only a share of it, sgrad__gather_weights gathers it. */
int sgrad__add_gathered(struct sgrad_builder *builder, int parameter, enum phase phase);
int sgrad__add_rounded(struct sgrad_builder *builder, int parameter, enum phase phase);  /* the same, rounded to bf16, for GPUs */
/* GRADIENT is the gradient of PARAMETER as layers use it. Returns the buffer with the gradient of the shard that this rank
 * stores, summed over the ranks that gather it. */
int sgrad__add_scattered(struct sgrad_builder *builder, int parameter, int gradient);

/* ---- gradients.c ---- */

/* Creates b->sharing[0], for all peers. */
void sgrad__open_gradients(struct sgrad_builder *builder);
/* Returns the ranks that sum the gradient of PARAMETER; creates the element of b->sharing if it does not exist. */
struct sgrad__sharing *sgrad__sharing_of(struct sgrad_builder *builder, int parameter);
/* Must be called once all gradients of node N's parameters exist. Sums their terms over the micro-batches, and puts the sums in
 * buckets. Adds the updates, unless these wait for the norm of all gradients. SUMMED: the buffer of the sum for each parameter,
 * or -1. */
void sgrad__add_node_updates(struct sgrad_builder *builder, int n, int *summed);
void sgrad__close_gradients(struct sgrad_builder *builder);     /* exchanges the last buckets */
/* Adds a sum over all ranks, in one bucket: statistics of all nodes; whether a rank requests the end of the run; the load of the
 * ranks' workers since the previous step. */
void sgrad__add_statistics(struct sgrad_builder *builder);

/* ---- copies.c ---- */

/* A run of elements to copy; FROM: a buffer; -1: the elements are set to -0. */
struct sgrad__piece {
    int from;
    struct sgrad_copy_block is;
};
/* Adds the tasks that assemble TO from COUNT runs of elements. */
void sgrad__add_copies(struct sgrad_builder *builder, const struct sgrad__piece *piece, int count, int to, const char *name);
/* Copy as many elements as TO has from one buffer: from its beginning, or from element FIRST on. FROM -1: TO is set to -0. */
void sgrad__add_copy(struct sgrad_builder *builder, int from, int to);
void sgrad__add_slice(struct sgrad_builder *builder, int from, int64_t first, int to);

/* ---- buckets.c ---- */

/* A bucket collects buffers that are exchanged together within a group, so that few messages are sent. The caller frees it with
 * sgrad__bucket_free, unless sgrad__bucket_is_held. All ranks of the group must put the same entries in the same order. BUFFER
 * -1: this rank has no value; it contributes -0. *DONE is set to the buffer with the result; DONE may be NULL if the bucket is
 * only broadcast. PARAMETER: the parameter whose gradient the entry is, which is updated by the result unless updates wait for
 * the norm of all gradients; -1: none. */
struct sgrad_bucket *sgrad__bucket_open(enum sgrad_dtype dtype, struct sgrad_group group);
void sgrad__bucket_put(struct sgrad_bucket *bucket, int buffer, struct sgrad_view view, int *done, int parameter,
                       const char *name);
int64_t sgrad__bucket_bytes(const struct sgrad_bucket *bucket);
int64_t sgrad__bucket_chunk(const struct sgrad_bucket *bucket, int chunks, int chunk);      /* elements of CHUNK */
void sgrad__bucket_free(struct sgrad_bucket *bucket);

/* Returns the size of buckets in bytes: that of the options, or one chosen for all gradients; 0: no training, or no peers. */
int64_t sgrad__bucket_bytes_of(const struct sgrad_graph *graph, const struct sgrad_program_options *options);
enum { SGRAD__BUCKETS_AHEAD = 3 };      /* a bucket of weights is gathered so many buckets ahead of its use */
/* Returns the size of buckets of weights that are gathered for each use: that of the options, or 1/24 of all of them, so that few
 * weights are in memory. Buckets of their gradients are not larger. */
int64_t sgrad__weights_bucket_bytes(const struct sgrad_graph *graph, const struct sgrad_program_options *options);

/* Sums the bucket over its group by METHOD (NULL: the cheapest algorithm), and updates its parameters. */
void sgrad__bucket_sum(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const struct sgrad_collective *method,
                       int priority, const char *name);
/* Reduces and scatters the bucket over its group, updates this rank's shards, and gathers the weights: at once, or, if updates
 * wait, in sgrad__close_shares. The result of a gradient is the sum for this rank's shard. */
void sgrad__bucket_share(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int priority, const char *name);
/* For a bucket that was summed on all ranks: gathers the weights that one rank has updated for all, at the same point as
 * sgrad__bucket_share does. */
void sgrad__bucket_join(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const char *name);
/* Returns true if sgrad__close_shares will gather and free the bucket, the last one that was exchanged. */
bool sgrad__bucket_is_held(const struct sgrad_builder *builder, const struct sgrad_bucket *bucket);
/* Gathers the weights of the buckets that waited for updates, and frees these buckets. */
void sgrad__close_shares(struct sgrad_builder *builder);
/* Returns the number of messages of equal size in which the bucket should be sent. */
int sgrad__bucket_cuts(const struct sgrad_builder *builder, const struct sgrad_bucket *bucket);
/* gather assembles the bucket in CHUNKS new buffers. spread distributes such buffers, with sums, to the results of the entries,
 * and updates the parameters. */
void sgrad__bucket_gather(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int *chunk, int chunks,
                          const char *name);
void sgrad__bucket_spread(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const int *chunk, int chunks);
/* weights replaces the entries by the values of their parameters, for gather and take. take copies such buffers to the
 * entries. */
void sgrad__bucket_weights(struct sgrad_builder *builder, struct sgrad_bucket *bucket);
void sgrad__bucket_take(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, const int *chunk, int chunks);
/* Sends the entries of rank ROOT to its whole group by the cheapest algorithm; the other ranks copy them to their entries. */
void sgrad__bucket_broadcast(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int root, int priority,
                             const char *name);
int *sgrad__bucket_parameters(const struct sgrad_bucket *bucket, int *count);      /* the caller frees it */

/* ---- push.c: worker side ---- */

/* sgrad__add_shard records that SERVER updates the parameters of the bucket. sgrad__add_push pushes the sum of the gradients of
 * RANKS ranks to a server, selected by NUMBER, the index of the bucket, and receives the updated weights. */
void sgrad__add_shard(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int server, int64_t tag);
void sgrad__add_push(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int ranks, int number, const char *name);

#endif
