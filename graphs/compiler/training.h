/* training.h: how each parameter of a network is updated, and the tensors that updates need: optimizer states, moving averages,
 * slow weights. Private to graphs/.
 *
 *     graph      parameter 0   parameter 1   …      the network (graphs/networks/graph.h)
 *     training   update 0      update 1      …      hyperparameters, states, the rank that does the update
 *
 * The set-up of a run fills the table (graphs/train); the compiler and checkpoints read it. */
#ifndef SGRAD_GRAPHS_COMPILER_TRAINING_H
#define SGRAD_GRAPHS_COMPILER_TRAINING_H

#include "graphs/compiler/compiler.h"
#include "graphs/networks/graph.h"

struct sgrad__training;
/* Hooks of an optimizer that reads layers (K-FAC). Without them, each parameter is updated independently. */
struct sgrad__layer_hooks {
    const struct sgrad_optimizer *optimizer;
    /* Allocates the states of layers. Returns 0 or an error code. */
    int (*allocate)(struct sgrad__training *training, const struct sgrad_program_options *options);
    /* Adds tasks after the backward pass of node N and micro-batch MICRO. */
    void (*on_backward)(struct sgrad_builder *builder, int n, int micro);
    /* Adds all updates, once all gradients exist. gradient[i]: the buffer of the gradient of parameter i; -1: no buffer. */
    void (*update_all)(struct sgrad_builder *builder, const int *gradient);
};
/* list.c: returns the hooks of OPTIMIZER; NULL: it has none. */
const struct sgrad__layer_hooks *sgrad__layer_hooks_of(const struct sgrad_optimizer *optimizer);

/* The update of a parameter. */
struct sgrad__update {
    const struct sgrad_optimizer *optimizer;    /* NULL: a state of an operation, or frozen because the network has adapters */
    struct sgrad_hyper hyper;                   /* includes the parameter's learning-rate scale and weight decay */
    long until;                         /* number of steps after which the parameter is frozen; 0: never */
    int ranks, owner;                   /* ranks above 0: of RANKS ranks, only rank OWNER does the update and stores the states */
    struct sgrad_tensor **state;        /* of the optimizer, in its order; ends with NULL; NULL: not allocated */
    void **whole;                       /* by state: the whole value, as sgrad__parameter.whole */
    struct sgrad_tensor *average;       /* average of the weights, owned by the table (.kept); NULL: none */
    struct sgrad_tensor *slow;          /* slow weights (lookahead), owned by the table (.kept); NULL: none */
};

/* A further state, F32, of a layer or of the run, stored by all ranks or by some of them. */
struct sgrad__kept {
    char *name;                         /* name in files */
    struct sgrad_shape shape;
    enum sgrad_file_layout layout;      /* layout in files */
    struct sgrad_tensor *tensor;        /* NULL: this rank does not store it */
    int rank;                           /* first rank that stores it; -1: all ranks do */
    const struct sgrad__parameter *split;       /* the parameter of which each rank has a share, as of this state; NULL: none */
    void *whole;                        /* if some ranks do not store it: its value that rank 0 has read or gathered; else NULL */
};

struct sgrad__training {
    struct sgrad_graph *graph;
    const struct sgrad_optimizer *optimizer;    /* of the parameters for which no other one is set */
    const struct sgrad__layer_hooks *hooks;     /* of this optimizer, set by the caller; NULL: none */
    int sharers;            /* number of ranks if optimizer states are sharded over those with the same parameters; else 0 */
    bool sharded;            /* lists of items, and thereby files, contain only the shards of this rank */
    struct sgrad__update *update;       /* by parameter */
    int kept_count;
    struct sgrad__kept *kept;
};

/* Returns the table of GRAPH, which must be complete and outlive it: OPTIMIZER updates all parameters or, if the network has
 * adapters, theirs. The caller must free the table with sgrad__training_destroy. */
struct sgrad__training *sgrad__training_create(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer);
void sgrad__training_destroy(struct sgrad__training *training);     /* NULL is allowed */
/* Freezes the parameters in LIST (patterns; NULL: none), those that the network freezes, and those whose limit (until) is at most
 * DONE steps; all others are trained. */
void sgrad__training_freeze(struct sgrad__training *training, const char *list, long done);

/* Makes each rank store only a share of each parameter, that of the optimizer states (sgrad__share_of), except of parameters that
 * several pipeline stages use. Must be called before parameters and states are allocated. */
void sgrad__training_share_parameters(struct sgrad__training *training);
/* Allocates the states that optimizers have of parameters, as zeros. SGRAD_ENOMEM. SGRAD_ESHAPE: a parameter is split, and a
 * state's shape does not follow the parameter's. After an error, sgrad__training_destroy frees what was allocated. */
int sgrad__training_allocate(struct sgrad__training *training);
int sgrad__state_count(const struct sgrad__update *update);         /* number of states, also of other ranks */
/* Returns the number of elements of all states of PARAMETER, an index, also of other ranks, if its shape is SHAPE. */
double sgrad__state_elements(const struct sgrad__training *training, int parameter, const struct sgrad_shape *shape);
/* Adds a state in addition to those of parameters: STATE of LAYER, "optimizer.factor_a.conv1" in files. RANK: first rank that
 * stores it; -1: all ranks store it. If HERE is set, this rank stores it: it is allocated, as zeros. SGRAD_ENOMEM. */
int sgrad__training_keep(struct sgrad__training *training, const char *state, const char *layer, struct sgrad_shape shape,
                         int rank, bool here);
/* Returns such a state; NULL: it does not exist, or not on this rank. */
struct sgrad_tensor *sgrad__training_kept(const struct sgrad__training *training, const char *state, const char *layer);
/* Returns the optimizer that averages PARAMETER, an index; for a running statistic, that of most parameters. NULL: none does. */
const struct sgrad_optimizer *sgrad__averaging(const struct sgrad__training *training, int parameter);
/* Returns the first parameter that sgrad__training_average and sgrad__training_keep_slow refuse, because it is split over ranks;
 * NULL: no parameter is split. */
const struct sgrad__parameter *sgrad__training_find_split(const struct sgrad__training *training);
/* Adds an average of each parameter that is not frozen and of each running statistic: with EMA of all of them,
 * "optimizer.ema.conv1.weight" in files, else of those that an optimizer averages, "optimizer.average.conv1.weight". Counters
 * have none. SGRAD_EINVAL: such a parameter is split over ranks. SGRAD_ENOMEM. */
int sgrad__training_average(struct sgrad__training *training, bool ema);
/* sgrad__training_keep_slow adds slow weights of the same tensors, "optimizer.lookahead.conv1.weight" in files, with the same
 * errors. sgrad__training_begin_slow sets them to the parameters; it must be called once all parameters have their initial
 * values. SGRAD_EDEVICE. */
int sgrad__training_keep_slow(struct sgrad__training *training);
int sgrad__training_begin_slow(struct sgrad__training *training);

/* Returns the parameters of the graph, for files. WITH_STATES: also the optimizer states; else averages are listed instead
 * of parameters, if there are any. The caller must free the list with sgrad__items_free. */
struct sgrad__items sgrad__training_list(const struct sgrad__training *training, bool with_states);
/* Returns the elements, of the shard of PARAMETER that RANK stores, whose states RANK stores: a segment, if the states are
 * sharded over the ranks with the same shard; all or none, if one rank updates the parameter for all; else all. */
struct sgrad__share sgrad__share_of(const struct sgrad__training *training, const struct sgrad__parameter *parameter, int rank);
/* Copies SHARE, these elements of a state, to WHOLE, the whole state. Both are F32, in the layout of memory. */
void sgrad__share_put(const struct sgrad__training *training, const struct sgrad__parameter *parameter, int rank,
                      const float *share, float *whole);
/* Frees the whole values of all parameters and states. */
void sgrad__training_free_wholes(struct sgrad__training *training);

#endif
