/* builder.h: what the files that build a program share. Private to graphs/programs/. */
#ifndef SGRAD_GRAPHS_BUILDER_H
#define SGRAD_GRAPHS_BUILDER_H

#include "graphs/programs/program.h"

/* What a node makes: in forward; computed once more; by tasks of backward, in passing (fuse.c). */
enum made { AT_FIRST, ONCE_MORE, IN_PASSING, MADE };

/* What ranks have the same of: parameters that are split over AXES, or, where these are none, whole. */
struct sgrad__sharing {
    unsigned axes;
    uint64_t stages;                            /* of a network that is cut: that use it */
    struct sgrad_group group;
    struct sgrad__bucket *bucket;               /* of gradients, being filled; NULL: none is */
};

struct sgrad__builder {
    struct sgrad__program *p;
    struct sgrad_graph *g;
    const struct sgrad__program_options *o;
    int micros, group_micros;                   /* of this rank's share; of a group, on this rank */
    int lanes;                                  /* of gradients */
    int place, peers;                           /* of this rank, among those who share the batch */
    struct sgrad_group others;                  /* of them, those that have other samples, and this one; by its place here */
    struct sgrad_group stage;                   /* by stage: the rank of it that stands where this one does */
    struct sgrad_group span;                    /* of these, those that share a group of samples: alone, it ends within a rank */
    /* Buffers by (thing, micro-batch); a group's are at its first micro-batch, a step's at 0. -1: not made yet. */
    int *activation[MADE], *gradient;           /* by value; of activations, and of what is kept, those computed again, too */
    int *keep[MADE], *part, *sum, *leaf, *total;   /* by node and index; leaf and total are statistics' */
    int *first;                                 /* instruction: by node and forward task */
    int *piece;                                 /* by index: of the node that is being added */
    int *parameter, *gathered, *rounded;        /* by parameter: what this rank keeps of it, what layers use, and that as bf16 */
    int *updated;                               /* by parameter: the share of it that this rank has updated */
    int held_count;                             /* buckets whose shares are updated once the norm of all gradients is known */
    struct sgrad__bucket **held;
    int *dparameter;                            /* leaves of gradients, by node and index and a lane's first micro-batch */
    bool *passing;                              /* by node: its output is made again in passing */
    bool *elsewhere;                            /* by parameter: the group's first rank has leaves of its gradient */
    const struct sgrad_call **call;             /* by node, phase, task, size as above, and whether its lane has begun: the last
                                                   one made */
    int *packed;                                /* by node, phase, task and size: buffer of the factor packed; -1: not made */
    int shared[1024];                           /* 1 + the call last made for sums or messages on such views; 0: none */
    struct sgrad__when when;                    /* of the instructions that are added now */
    bool outlive;                               /* may they? */
    int norm;                                   /* Σ g² over all parameters; -1: no clipping */
    int collectives;                            /* sums over ranks so far; the same on every rank of a stage */
    struct sgrad__sharing *sharing;             /* as many as there are SHARINGS; first all peers' (gradients.c) */
    int sharings;
    int64_t rest;                               /* bytes of gradients that are in no bucket yet */
    void *watched;                              /* the optimizer's own */
};

/* What is submitted first when several tasks could run: what the most others wait for. */
enum {
    SGRAD__PRIORITY_INPUT,
    SGRAD__PRIORITY_OWN_UPDATE,
    SGRAD__PRIORITY_WEIGHT,
    SGRAD__PRIORITY_FORWARD,        /* of stages: later micro-batches', so it comes after backward */
    SGRAD__PRIORITY_CHAIN,
    SGRAD__PRIORITY_SENT_WEIGHT,
    SGRAD__PRIORITY_UPDATE,
    SGRAD__PRIORITIES
};
/* Other ranks may wait for what a gradient's sum and update give; of a rank alone only its next step does. */
static inline int sgrad__update_priority(const struct sgrad__builder *b) {
    return b->peers > 1 ? SGRAD__PRIORITY_UPDATE : SGRAD__PRIORITY_OWN_UPDATE;
}

/* ---- program.c ---- */

/* The buffer of operand USE, in backward, of node N's task for micro-batch M, and its view; -1: there is none. */
int sgrad__add_operand(struct sgrad__builder *b, int n, struct sgrad_use use, int m, struct sgrad_view *view);
/* The first micro-batch of M's lane. */
int sgrad__lane_first(const struct sgrad__builder *b, int m);

/* ---- instructions.c; NAMEs that are not const are given away ---- */

struct sgrad__program *sgrad__program_create(void);     /* empty, of one step at a time */

int sgrad__add_buffer(struct sgrad__builder *b, char *name, struct sgrad_view view);
int sgrad__add_lent(struct sgrad__builder *b, const char *name, struct sgrad_view view);    /* its memory is lent later */
int sgrad__lend_buffer(struct sgrad__builder *b, struct sgrad_tensor *tensor);
int sgrad__add_part(struct sgrad__builder *b, int whole, int part, int parts);  /* of a lent buffer of floats (runtime/parts.h) */
const struct sgrad_call *sgrad__add_call(struct sgrad__builder *b, struct sgrad_call call);
/* The call of this kernel with these attributes on these views, made when it is first asked for. */
const struct sgrad_call *sgrad__shared_call(struct sgrad__builder *b, struct sgrad_call call);
struct sgrad__instruction *sgrad__add_instruction(struct sgrad__builder *b, const struct sgrad_call *call, const int *operand,
                                                  int micro, int priority, char *name);
int sgrad__add_output(struct sgrad__builder *b, int buffer);
void *sgrad__own(struct sgrad__program *p, void *memory);     /* freed with the program */
static inline struct sgrad_view sgrad__doubles(struct sgrad_shape shape) { return (struct sgrad_view){ SGRAD_F64, shape }; }

/* Are tasks of WORKERS made for GPUs, whole operations that leave the slices to the device? */
static inline bool sgrad__on_gpus(const struct sgrad__builder *b, enum sgrad_workers workers) {
    return b->o->cudas && workers != SGRAD_CPU_WORKERS;
}

/* Whether GPUs have all micro-batches. Then sums and updates run there, too: a CPU would need copies of their operands. */
static inline bool sgrad__gpus_have_all(const struct sgrad__builder *b) {
    return b->o->gpu_samples && b->o->gpu_samples >= b->p->share;
}

/* ---- micros.c ---- */

/* The program's share is cut: no micro-batch has more samples than the options say, or reaches beyond a unit of UNIT. */
void sgrad__cut_share(struct sgrad__program *p, const struct sgrad__program_options *o, int64_t unit);
/* Micro-batches that have memory of their own: a group's at least, and enough that no worker waits for another's. Where GPUs and
 * CPUs have shares, no memory is both's. */
int sgrad__micros_at_once(const struct sgrad__builder *b);

/* ---- updates.c ---- */

/* Do updates wait until all gradients are there? */
static inline bool sgrad__updates_wait(const struct sgrad__builder *b) {
    return b->o->clip_norm > 0 || b->o->optimizer->update_all;
}
void sgrad__add_update(struct sgrad__builder *b, int parameter, int gradient);
/* Into how many parts a parameter is cut whose update several cores share, with the sums of its gradient's parts; 1: none is. */
int sgrad__update_parts(const struct sgrad__builder *b, int parameter);
void sgrad__add_update_part(struct sgrad__builder *b, int parameter, int part, int parts, int gradient);
/* Of all parameters, once the norm of all gradients is known: SUMMED has each one's, or -1. */
void sgrad__add_clipped_updates(struct sgrad__builder *b, const int *summed);
/* Once all is updated. */
void sgrad__add_averages(struct sgrad__builder *b);
void sgrad__add_lookahead(struct sgrad__builder *b);

/* ---- reading.c ---- */

void sgrad__add_input(struct sgrad__builder *b, int m);     /* the fields of micro-batch M's samples */

/* ---- passing.c ---- */

bool *sgrad__made_in_passing(const struct sgrad__builder *b);      /* by node: is its output? Free it. */

/* ---- histograms.c ---- */

/* Where they are wanted, counts of BUFFER, PARAMETER's weights or gradient, are made and called KIND/NAME. */
void sgrad__add_histogram(struct sgrad__builder *b, const char *kind, int parameter, int buffer);

/* ---- passes over a whole program: fuse.c, memory.c ---- */

/* Operations on the same samples, one after another, become one task. */
void sgrad__fuse(struct sgrad__builder *b);
/* What is computed again waits for the gradient that comes to whoever takes it. */
void sgrad__hold_back(struct sgrad__builder *b);
void sgrad__mark_last_uses(struct sgrad__program *p);
/* After that: micro-batch m uses the memory of m - APART. LITTLE: buffers of different sizes use the same, too.
 * FOR_GOOD: what is no samples' keeps its memory, however large. */
void sgrad__share_memory(struct sgrad__program *p, int apart, bool little, bool for_good);

/* ---- sums.c ---- */

/* The sum of those of BUFFER[0…count-1] that were made (are not -1), in the tree made by halving. -1: none was. */
int sgrad__add_sum(struct sgrad__builder *b, const int *buffer, int count, const char *name);
/* Of their elements from FIRST on, as many as VIEW has. */
int sgrad__add_sum_of(struct sgrad__builder *b, const int *buffer, int count, int64_t first, struct sgrad_view view,
                      const char *name);
/* Elements of a buffer from FIRST on. */
struct sgrad__slice {
    int buffer;
    int64_t first;
};
/* ((0+1)+2)+3: the sum of up to four of these, as many elements as VIEW has. */
enum { SGRAD__CHAIN = 4 };
int sgrad__add_chain(struct sgrad__builder *b, const struct sgrad__slice *slice, int count, struct sgrad_view view,
                     const char *name);

/* ---- plans.c ---- */

/* Messages of this rank. A strategy's and a plan's have tags of their own, in the program's range, the same on every rank. */
int64_t sgrad__next_tag(struct sgrad__builder *b);
void sgrad__add_send(struct sgrad__builder *b, int buffer, int peer, int64_t tag, int priority, const char *name);
int sgrad__add_receive(struct sgrad__builder *b, struct sgrad_view view, int peer, int64_t tag, int priority, const char *name);
void sgrad__add_receive_into(struct sgrad__builder *b, int buffer, int peer, int64_t tag, int priority, const char *name);
/* What is longer than a message may be goes in so many, with TAG and those that follow it. */
int sgrad__message_pieces(const struct sgrad_view *view);
/* CHUNK holds this rank's values, by the plan's chunks, of any sizes, and takes the results. */
void sgrad__add_plan(struct sgrad__builder *b, const struct sgrad_plan *plan, int *chunk, int priority, const char *name);
/* The COUNT peers from place FIRST on; the ranks that differ from this one along AXES alone. */
struct sgrad_group sgrad__peers(const struct sgrad__builder *b, int first, int count);
struct sgrad_group sgrad__along(struct sgrad__builder *b, unsigned axes);
/* Buffers, the same of the others in GROUP, this rank among them, by the cheapest method: they become what it leads to. */
void sgrad__add_exchange(struct sgrad__builder *b, enum sgrad_collective_kind kind, const struct sgrad_group *group, int root,
                         int *chunk, int chunks, int priority, const char *name);
/* BUFFER and the same of the others in GROUP, this rank among them, by the cheapest method, as one chunk: what it leads to. */
int sgrad__add_collective(struct sgrad__builder *b, enum sgrad_collective_kind kind, const struct sgrad_group *group, int root,
                          int buffer, int priority, const char *name);

/* ---- pipeline.c: stages of the network on other ranks ---- */

bool sgrad__is_here(const struct sgrad__builder *b, int n);     /* is node N computed by this rank's stage? */
/* Messages of the group of micro-batches that begins at START: what forward takes from other stages; what they take of node N;
 * backward's the same way, when it begins and when it is done. */
void sgrad__add_arrivals(struct sgrad__builder *b, int start);
void sgrad__add_departures(struct sgrad__builder *b, int n, int start);
void sgrad__add_gradient_arrivals(struct sgrad__builder *b, int start);
void sgrad__add_gradient_departures(struct sgrad__builder *b, int start);
/* Collectives from here on are numbered from NUMBER; returns where it was. Those that stages have in common are numbered alike:
 * is NUMBER one of these? */
int sgrad__number_from(struct sgrad__builder *b, int number);
bool sgrad__is_common(int number);
int sgrad__statistics_number(const struct sgrad__builder *b);
int sgrad__norm_number(void);
int sgrad__parameter_number(int parameter);

/* ---- moves.c ---- */

/* TASK of node N, a move, for micro-batch M. A gradient that is there already is added to. */
void sgrad__add_move(struct sgrad__builder *b, int n, const struct sgrad_task *task, int m);

/* ---- packing.c ---- */

/* CALL is one of TASK's, for M: how does its factor come packed? */
void sgrad__plan_packing(const struct sgrad__builder *b, const struct sgrad_task *task, int m, struct sgrad_call *call);
/* If it does, CALL's OPERAND is that, *PACKED, which is made where it is asked for first (-1). */
void sgrad__add_packed(struct sgrad__builder *b, const struct sgrad_call *call, int *operand, int *packed);
/* Of the whole program: what is packed of what a step finds comes first. */
void sgrad__pack_first(struct sgrad__builder *b);

/* ---- gathers.c ---- */

/* Where a parameter is as layers use it: gathered, where ranks keep parts of it, in this step once. */
int sgrad__add_gathered(struct sgrad__builder *b, int parameter);
int sgrad__add_rounded(struct sgrad__builder *b, int parameter);       /* the same as bf16, for GPUs */
/* GRADIENT is that of what layers use; returns the sum of that of what this rank keeps, over those who keep the other parts. */
int sgrad__add_scattered(struct sgrad__builder *b, int parameter, int gradient);

/* ---- gradients.c ---- */

void sgrad__open_gradients(struct sgrad__builder *b);
/* Whose PARAMETER's gradient is to share. */
struct sgrad__sharing *sgrad__sharing_of(struct sgrad__builder *b, int parameter);
/* The gradients of a node's parameters are complete: adds their leaves, and updates, unless the norm of all is needed first.
 * SUMMED has each parameter's sum, or -1. */
void sgrad__add_node_updates(struct sgrad__builder *b, int n, int *summed);
void sgrad__close_gradients(struct sgrad__builder *b);          /* there are no more */
/* Statistics of all nodes, whether a rank was asked to end the run, and how busy its workers were from one step's loss to the
 * next's, are summed over the ranks together. */
void sgrad__add_statistics(struct sgrad__builder *b);

/* ---- copies.c ---- */

/* A run of elements on their way from one buffer to another; FROM -1: they are -0. */
struct sgrad__piece {
    int from;
    struct sgrad_copy_piece is;
};
/* TO is put together from the COUNT pieces. */
void sgrad__add_copies(struct sgrad__builder *b, const struct sgrad__piece *piece, int count, int to, const char *name);
/* Of one buffer, as many elements as TO has: from the beginning, or from FIRST on. */
void sgrad__add_copy(struct sgrad__builder *b, int from, int to);
void sgrad__add_slice(struct sgrad__builder *b, int from, int64_t first, int to);

/* ---- buckets.c ---- */

/* A bucket gathers what travels together within a group, so that few messages are sent. Every rank puts the same things in, in
 * the same order: a BUFFER of -1 is one that this rank has no share in. Buffers with what came of it go where DONE points to.
 * PARAMETER is the one whose gradient it is, and which is updated by what came of it, unless the norm of all is needed first; or
 * -1. */
struct sgrad__bucket *sgrad__bucket_open(enum sgrad_dtype dtype, struct sgrad_group group);
void sgrad__bucket_put(struct sgrad__bucket *bucket, int buffer, struct sgrad_view view, int *done, int parameter,
                       const char *name);
int64_t sgrad__bucket_bytes(const struct sgrad__bucket *bucket);
int64_t sgrad__bucket_chunk(const struct sgrad__bucket *bucket, int chunks, int chunk);     /* elements of one */
void sgrad__bucket_free(struct sgrad__bucket *bucket);

/* Of the size that the options ask for, or that is chosen for all gradients. */
int64_t sgrad__bucket_bytes_of(const struct sgrad_graph *graph, const struct sgrad__program_options *options);

/* Sums it over its group by METHOD (NULL: the cheapest), and updates its parameters. */
void sgrad__bucket_sum(struct sgrad__builder *b, struct sgrad__bucket *bucket, const struct sgrad_collective *method,
                       int priority, const char *name);
/* Sums this rank's shares of it over its group, updates these, and hands the weights to all of it: at once, or, where updates
 * wait, in sgrad__close_shares. What came of a gradient is its share's sum. */
void sgrad__bucket_share(struct sgrad__builder *b, struct sgrad__bucket *bucket, int priority, const char *name);
/* Of an allreduced bucket: weights that one rank has updated for all come to all, when shares would. */
void sgrad__bucket_join(struct sgrad__builder *b, struct sgrad__bucket *bucket, const char *name);
bool sgrad__bucket_is_held(const struct sgrad__builder *b, const struct sgrad__bucket *bucket);     /* is the last one? */
void sgrad__close_shares(struct sgrad__builder *b);
/* In how many messages, of one size, it had better go. */
int sgrad__bucket_cuts(const struct sgrad__builder *b, const struct sgrad__bucket *bucket);
/* The whole bucket as CHUNKS buffers; and such buffers, with sums, taken apart again, by which its parameters are updated. */
void sgrad__bucket_gather(struct sgrad__builder *b, const struct sgrad__bucket *bucket, int *chunk, int chunks, const char *name);
void sgrad__bucket_spread(struct sgrad__builder *b, struct sgrad__bucket *bucket, const int *chunk, int chunks);
/* From here on it stands for its parameters' values: to be gathered, or taken from such buffers. */
void sgrad__bucket_weights(struct sgrad__builder *b, struct sgrad__bucket *bucket);
void sgrad__bucket_take(struct sgrad__builder *b, const struct sgrad__bucket *bucket, const int *chunk, int chunks);
/* What it stands for at ROOT, by the cheapest method, to its whole group, which takes it. */
void sgrad__bucket_broadcast(struct sgrad__builder *b, struct sgrad__bucket *bucket, int root, int priority,
                             const char *name);
int *sgrad__bucket_parameters(const struct sgrad__bucket *bucket, int *count);     /* free it */

/* ---- push.c: a worker's half ---- */

/* The bucket is kept by SERVER; pushing it, from RANKS ranks together, and taking the weights that it leads to. */
void sgrad__add_shard(struct sgrad__builder *b, const struct sgrad__bucket *bucket, int server, int64_t tag);
void sgrad__add_push(struct sgrad__builder *b, struct sgrad__bucket *bucket, int ranks, int number, const char *name);

#endif
