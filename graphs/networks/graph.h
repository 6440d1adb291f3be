/* graph.h: the internals of a graph: values, nodes, parameters and their memory. Private to graphs/.
 *
 *     value      an output of a layer, or an input, for one sample     node     a layer: an operation on values
 *     parameter  a tensor that outlives the step, and its optimizer states */
#ifndef SGRAD_GRAPHS_NETWORKS_GRAPH_H
#define SGRAD_GRAPHS_NETWORKS_GRAPH_H

#include "config.h"
#include "graphs/networks/networks.h"

struct sgrad__value {
    char *name;                 /* of the layer that produces it, or of the input */
    struct sgrad_view view;     /* of one sample: dim[0] is 1 */
    int root;                   /* value whose memory it uses: itself, unless its node is a view of its input */
    int maker;                  /* node that produces it; -1: an input */
    bool needs_gradient;
};

/* One split of a parameter, over the ranks of AXIS, along DIMENSION. The dimension consists of SECTIONS equal sections, each of
 * which is split. */
struct sgrad__cut {
    const struct sgrad_axis *axis;
    int dimension, sections;
    bool gathered;                      /* layers use the gathered parameter (sgrad_graph_shard) */
};
#define SGRAD__CUTS 4

/* A tensor that outlives the step: a parameter, or a state of an operation. */
struct sgrad__parameter {
    char *name;                         /* "layer1.0.conv1.weight" */
    struct sgrad_parameter is;          /* as layers use it; of a split parameter, this rank's shard */
    struct sgrad_shape kept_shape;      /* as this rank stores it: smaller than is.shape if layers use it gathered */
    int cuts;                           /* number of splits; 0: it is whole */
    struct sgrad__cut cut[SGRAD__CUTS]; /* each applies to the result of the previous ones; gathered ones are last */
    /* If some ranks do not store the whole: the whole value of the parameter, then of each of its states; NULL unless this rank
     * has read or gathered it. */
    void **whole;
    uint64_t stages;                    /* bit i: stage i uses it; 0: the network has no stages */
    bool state;                         /* a state of an operation: not trained */
    bool frozen;                        /* a parameter that is not updated */
    bool fixed;                         /* frozen by the network (sgrad_graph_freeze), in all trainings */
    long until;                         /* number of steps after which it is frozen; 0: never */
    struct sgrad_tensor *tensor;        /* NULL before sgrad__parameters_allocate, and if only other stages use it */
    const struct sgrad_kernel *update;  /* of its optimizer, if it differs from the run's; else NULL */
    const struct sgrad_state *states;   /* the optimizer's states of it; ends at a NULL name; NULL: none */
    struct sgrad_tensor **kept;         /* the tensors of these states, in their order; ends with NULL */
    struct sgrad_tensor *average;       /* its moving average, owned by the graph (.kept); NULL: none */
    struct sgrad_tensor *slow;          /* its slow weights (lookahead.c), owned by the graph (.kept); NULL: none */
    struct sgrad_hyper hyper;           /* includes this parameter's weight decay */
    int dealt, owner;                   /* above 0: of DEALT ranks, only rank OWNER updates it and stores its states */
};

struct sgrad__node {
    char *name;
    const struct sgrad_op *op;
    void *attrs;
    struct sgrad_signature is;
    int input[SGRAD_MAX_INPUTS];
    int output;                         /* value; -1: none */
    int p[SGRAD_MAX_PARAMETERS], s[SGRAD_MAX_PARAMETERS];   /* indices of parameters; several nodes may use one; -1: none */
    bool again;                         /* saves nothing for backward: its results are recomputed */
    bool ends_block;                    /* the last node of a block (sgrad_graph_block) */
    int stage;                          /* pipeline stage that computes it (stages.c) */
};

/* A request to tie the parameter NAME to the parameter AS (sgrad_graph_tie). made: a layer with the parameter NAME was added. */
struct sgrad__tie {
    char *name, *as;
    bool made;
};

/* A request to split a parameter over the ranks of an axis. made: a layer with the parameter was added. */
struct sgrad__split {
    char *name, *axis;
    int dimension, sections;
    bool gathered, made;
};

/* A state of the optimizer for a layer, F32, stored by all ranks or by some of them. */
struct sgrad__kept {
    char *name;                         /* name in files */
    struct sgrad_shape shape;
    enum sgrad_file_layout layout;      /* layout in files */
    struct sgrad_tensor *tensor;        /* NULL: this rank does not store it */
    int rank;                           /* first rank that stores it; -1: all ranks do */
    void *whole;                        /* if some ranks do not store it: its value that rank 0 has read or gathered; else NULL */
};

/* Data that were imported with a network from a file. */
struct sgrad__imported {
    struct sgrad_safetensors weights;           /* initial values of its parameters, in memory */
    bool softmax;                               /* the file ends with a softmax, which is omitted: the loss computes it */
    int channels;                               /* channels that are normalised by the values below; 0: none */
    float mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS]; /* mean and standard deviation per channel */
};

struct sgrad_graph {
    enum sgrad_dtype dtype;
    int error;                                  /* the first error; 0: none */
    const struct sgrad_model *model;            /* NULL: the graph is built without a model */
    char *file;                                 /* file that the model is read from; NULL: none */
    struct sgrad__imported *imported;           /* NULL: no imported data */
    double option[SGRAD_MAX_MODEL_OPTIONS];     /* values of the model's options, in the model's order */
    bool cached;                                /* see sgrad_graph_cached (networks.h) */
    struct sgrad_mesh mesh;
    int rank;               /* this rank's number on the mesh */
    int stages, stage;      /* number of pipeline stages, 1: no pipeline; stage of this rank */
    int sharers;            /* number of ranks if optimizer states are sharded over those with the same parameters; else 0 */
    bool sharded;           /* lists of items, and thereby files, contain only the shards of this rank */
    int value_count, node_count, parameter_count, tie_count, split_count;
    struct sgrad__value *value;
    struct sgrad__node *node;
    struct sgrad__parameter *parameter;
    struct sgrad__tie *tie;
    struct sgrad__split *split;
    int input[SGRAD_MAX_INPUTS], inputs;    /* values: one per field of the data set, in its order */
    int loss;               /* node; -1: none yet */
    int logits;             /* value set by sgrad_graph_logits; -1: the first input of the loss */
    int kept_count;                     /* optimizer states of layers */
    struct sgrad__kept *kept;
};

/* The axis along which ranks have different samples and the same weights. If a mesh does not name it, it consists of the ranks
 * that the other axes leave. */
#define SGRAD__DATA "data"
/* Sets the mesh of the run. Must be called before inputs and layers are added, and again when the number of ranks and the rank
 * are known: then layers that depend on the rank are updated. */
void sgrad__graph_set_mesh(struct sgrad_graph *graph, const struct sgrad_mesh *mesh);
/* Returns true if a layer moves values along AXIS or a parameter is split over it. */
bool sgrad__graph_uses(const struct sgrad_graph *graph, const struct sgrad_axis *axis);

/* Writes the graph to TO as text. */
void sgrad__graph_print(const struct sgrad_graph *graph, FILE *to);

/* Returns the metrics of the loss and sets *COUNT to their number. Statistic 0 of the loss contains a sum for each metric, then
 * the number that these sums are divided by. */
const struct sgrad_metric *sgrad__graph_metrics(const struct sgrad_graph *graph, int *count);
/* Returns the value that the network outputs outside training: that of sgrad_graph_logits, or the first input of the loss. */
int sgrad__graph_logits(const struct sgrad_graph *graph);
/* Returns the attributes of the operation that converts pixels to activations, which the caller may modify; NULL: there is no
 * such operation. */
struct sgrad_image *sgrad__graph_image(const struct sgrad_graph *graph);
/* Returns true if the node prepares inputs, for example converts pixels. Such nodes may run before the previous step has
 * ended. */
bool sgrad__graph_prepares(const struct sgrad__node *node);

/* The work of the forward pass of a sample: operations; number of tasks with more operations than bytes of memory traffic. */
struct sgrad__work {
    double flops;
    int layers;
};
struct sgrad__work sgrad__graph_work(const struct sgrad_graph *graph);
struct sgrad__work sgrad__node_work(const struct sgrad__node *node);

/* ---- patterns.c ---- */

/* LIST is a comma-separated list of shell patterns (fnmatch) for names of parameters or layers; NULL: empty. A pattern matches a
 * name if it matches the whole name, or its beginning up to a dot. A pattern may be followed by "=" and a value. sgrad__is_listed
 * returns true if a pattern matches NAME. sgrad__find_listed returns a pointer to the first such pattern in LIST; NULL: none. */
bool sgrad__is_listed(const char *list, const char *name);
const char *sgrad__find_listed(const char *list, const char *name);
/* Returns SGRAD_EINVAL, and logs it as an error of --OPTION, if a pattern in LIST matches no parameter; else 0. */
int sgrad__check_listed(const struct sgrad_graph *graph, const char *option, const char *list);
/* Freezes the parameters in LIST, those that the network freezes, and those whose limit (until) is at most DONE steps; all others
 * are trained. Gradients that only frozen parameters need are not computed. */
void sgrad__graph_freeze(struct sgrad_graph *graph, const char *list, long done);

/* ---- options.c ---- */

/* Sets the model, before the network is built, with the options or the file in TEXT: "NAME:key=value,…" or "NAME:FILE"; NULL:
 * default options. SGRAD_EINVAL: the model has no such option, or the value is out of range. */
int sgrad__graph_set_model(struct sgrad_graph *graph, const struct sgrad_model *model, const char *text);
/* Returns true if the model, with its current options, adds the loss itself (sgrad_model.loss). */
bool sgrad__graph_own_loss(const struct sgrad_graph *graph);
/* Returns the name of the model with its file or the values of all its options. The caller must free it. */
char *sgrad__graph_model_text(const struct sgrad_graph *graph);

/* ---- stages.c: pipeline stages ---- */

/* The axis along which ranks have different layers and the same samples. */
#define SGRAD__PIPE "pipe"
enum { SGRAD__STAGES_MOST = 64 };
/* Divides the network into stages: sets the stage of each node, and the stages that use each parameter. SGRAD_EINVAL: there are
 * more stages than layers with parameters, or than SGRAD__STAGES_MOST. */
int sgrad__graph_cut(struct sgrad_graph *graph, int stages);
/* Returns the stage of RANK; 0 without a pipeline. */
int sgrad__stage_of(const struct sgrad_graph *graph, int rank);
/* Returns true if a layer of STAGE uses VALUE, which must be a root. */
bool sgrad__graph_takes(const struct sgrad_graph *graph, int value, int stage);
/* Returns true if RANK stores the parameter or a shard of it. */
bool sgrad__parameter_on(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank);
/* A stage: its first and last node, and the seconds per sample that the cost model of sgrad__graph_cut estimates. */
struct sgrad__stage {
    int first, last;
    double seconds;
};
struct sgrad__stage sgrad__stage(const struct sgrad_graph *graph, int stage);

/* ---- blocks.c ---- */

/* Marks all layers inside the network's blocks as recomputed. A network without blocks is divided into blocks that minimise
 * memory. Returns the number of marked layers that have results. */
int sgrad__graph_recompute_blocks(struct sgrad_graph *graph);

/* ---- parameters.c ---- */

/* Allocates the parameters that this rank stores, and sets their initial values (Philox: seed, the parameter's name, element).
 * Also allocates, as zeros, the optimizer states of trained parameters: STATES (ends at a NULL name; NULL: none), or, if .update
 * is set, those in .states. SGRAD_ENOMEM. SGRAD_ESHAPE: a parameter is split, and a state's shape does not follow the
 * parameter's. After an error, everything is freed. */
int sgrad__parameters_allocate(struct sgrad_graph *graph, const struct sgrad_state *states, uint64_t seed);
void sgrad__parameters_free(struct sgrad_graph *graph);
int sgrad__states_of(const struct sgrad__parameter *p);     /* number of states, also of other ranks */
/* Adds an optimizer state in addition to those of parameters: STATE of LAYER, "optimizer.factor_a.conv1" in files. RANK: first
 * rank that stores it; -1: all ranks store it. If HERE is set, this rank stores it: it is allocated, as zeros. SGRAD_ENOMEM. */
int sgrad__graph_keep(struct sgrad_graph *graph, const char *state, const char *layer, struct sgrad_shape shape, int rank,
                      bool here);
/* Returns such a state; NULL: it does not exist, or not on this rank. */
struct sgrad_tensor *sgrad__graph_kept(const struct sgrad_graph *graph, const char *state, const char *layer);
/* Returns the first parameter that sgrad__graph_average and sgrad__graph_keep_slow refuse, since it is split over ranks; NULL:
 * there is none. */
const struct sgrad__parameter *sgrad__graph_find_split(const struct sgrad_graph *graph);
/* Adds a moving average of each parameter that is not frozen and of each running statistic, "optimizer.ema.conv1.weight" in
 * files. Counters have none. SGRAD_EINVAL: a parameter is split over ranks. SGRAD_ENOMEM. */
int sgrad__graph_average(struct sgrad_graph *graph);
/* sgrad__graph_keep_slow adds slow weights of the same tensors, "optimizer.lookahead.conv1.weight" in files, with the same
 * errors. sgrad__graph_begin_slow sets them to the parameters; it must be called once all parameters have their initial values.
 * SGRAD_EDEVICE. */
int sgrad__graph_keep_slow(struct sgrad_graph *graph);
int sgrad__graph_begin_slow(struct sgrad_graph *graph);
/* Return the number of elements of trained parameters: stored by this rank; of the whole network. */
int64_t sgrad__parameters_count(const struct sgrad_graph *graph);
int64_t sgrad__parameters_whole(const struct sgrad_graph *graph);

/* A tensor that outlives the step, with its name in files: "conv1.weight", "optimizer.momentum.conv1.weight". Names of optimizer
 * states begin with SGRAD__STATES. */
#define SGRAD__STATES "optimizer."
struct sgrad__item {
    char *name;
    struct sgrad_view view;             /* of the whole tensor */
    enum sgrad_file_layout layout;      /* layout in files */
    struct sgrad_tensor *tensor;        /* of a split parameter, this rank's shard; NULL: only other ranks store it */
    struct sgrad_tensor *average;       /* of a parameter, replaces it in files without states; NULL: none */
    const struct sgrad__parameter *split;       /* the parameter, if it is split or its states are sharded; else NULL */
    bool shared;                        /* ranks store optimizer states of different segments of their shard */
    int rank;                           /* first rank that stores it; -1: all ranks store it, or a shard of it */
    void **whole;                       /* where the whole value is stored, if some ranks do not store it; else NULL */
};
/* Returns the tensor whose value is written to files. */
static inline struct sgrad_tensor *sgrad__item_tensor(const struct sgrad__item *item, bool with_states) {
    return item->average && !with_states ? item->average : item->tensor;
}
struct sgrad__items {
    int count;
    struct sgrad__item *item;
};
/* Returns the parameters and states of GRAPH; WITH_STATES: also the optimizer states. The caller must free them with
 * sgrad__items_free. */
struct sgrad__items sgrad__parameters_list(const struct sgrad_graph *graph, bool with_states);
void sgrad__items_free(struct sgrad__items *list);

/* ---- shards.c: parameters that are split over ranks ---- */

/* Returns the shape of the whole parameter. */
struct sgrad_shape sgrad__whole_shape(const struct sgrad__parameter *p);
/* Returns the set of axes (collectives.h) along which ranks store different shards of the parameter. */
unsigned sgrad__part_axes(const struct sgrad_graph *graph, const struct sgrad__parameter *p);
/* Returns the ranks that store the same shard as RANK, in the caller's array MEMBER, which must have an element for each rank of
 * the mesh. */
struct sgrad_group sgrad__holders(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, int *member);
/* The elements, of the shard of a parameter that RANK stores, whose optimizer states RANK stores: a segment, if the states are
 * sharded over the ranks with the same shard; all or none, if one rank updates the parameter for all; else all. */
struct sgrad__share {
    int ranks;                          /* number of ranks that store different elements; 1: this rank stores all */
    int64_t first, count;
};
struct sgrad__share sgrad__share_of(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank);
/* Copy RANK's elements between WHOLE, the whole state, and SHARE: take from WHOLE, put to WHOLE. Both are F32, in the layout of
 * memory. */
void sgrad__share_take(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *whole,
                       float *share);
void sgrad__share_put(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *share,
                      float *whole);
/* The same between WHOLE and PART, the shard that RANK stores. */
void sgrad__part_take(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *whole,
                      float *part);
void sgrad__part_put(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *part,
                     float *whole);
/* Copies this rank's elements of an item from its whole value, which must exist, to its tensor. SGRAD_EDEVICE. */
int sgrad__item_take(const struct sgrad_graph *graph, const struct sgrad__item *item);
/* Frees the whole values of all parameters and states. */
void sgrad__wholes_free(struct sgrad_graph *graph);

/* ---- weights.c ---- */

/* Loads parameters and operation states from an open file with PyTorch's names and layouts; WITH_STATES: also optimizer states,
 * whose names begin with "optimizer."; these are otherwise ignored. SKIP: patterns of tensors that are not loaded; NULL: none. A
 * missing or extra tensor, or another type or shape, is an error, which names the first such tensor and both shapes, and nothing
 * is changed: SGRAD_EFORMAT, SGRAD_ESHAPE. SGRAD_EIO: the file cannot be read; some tensors may be changed. */
int sgrad__weights_load(struct sgrad_graph *graph, const struct sgrad_safetensors *file, bool with_states, const char *skip);

/* Computes the checksum of the data in FILE. If the file states another one, the data were modified or damaged; this is a
 * warning, not an error. SGRAD_EIO. */
int sgrad__weights_checksum(const struct sgrad_safetensors *file, char checksum[SGRAD_CHECKSUM]);
/* A copy of the items in host memory, for a file. sgrad__weights_copy waits for the tasks that change the items; whole values of
 * split items must exist. Without states, moving averages are copied instead of weights, if there are any. The caller must free
 * the copy with sgrad__weights_free. sgrad__weights_write may be called only once, on any thread. */
struct sgrad__weights {
    struct sgrad__items items;
    void **value;               /* per item, in the layout of memory; once written, in that of files */
};
int sgrad__weights_copy(const struct sgrad_graph *graph, bool with_states, struct sgrad__weights *copy);
int sgrad__weights_write(struct sgrad__weights *copy, const char *path, const char *const *metadata, int metadata_count);
/* Returns the copy as entries in the layout of files, in the order of the items. Must not be called twice or together with
 * sgrad__weights_write. The caller must free the array; names and data belong to COPY. */
struct sgrad_entry *sgrad__weights_entries(struct sgrad__weights *copy);
void sgrad__weights_free(struct sgrad__weights *copy);
/* Converts COUNT numbers of type DTYPE (F32, F64, F16 or BF16), at any address, to floats. */
void sgrad__to_floats(enum sgrad_dtype dtype, const void *from, int64_t count, float *to);
/* Frees the imported data. */
void sgrad__imported_free(struct sgrad_graph *graph);
/* Writes VALUE, a tensor for each parameter and operation state, instead of these; none of them may be split. Without optimizer
 * states. Errors: as sgrad__weights_save. */
int sgrad__weights_save_values(struct sgrad_graph *graph, struct sgrad_tensor *const *value, const char *path,
                               const char *const *metadata, int metadata_count);
/* Copies, writes and frees. Errors: those of sgrad_tensor_read and sgrad_safetensors_write. */
int sgrad__weights_save(struct sgrad_graph *graph, const char *path, bool with_states, const char *const *metadata,
                        int metadata_count);

#endif
