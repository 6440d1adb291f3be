/* graph.h: the internals of a graph: values, nodes, parameters and their memory. Private to graphs/.
 *
 *     value      an output of a layer, or an input, for one sample     node     a layer: an operation on values
 *     parameter  a tensor that outlives the step: a weight, or a state of an operation
 *
 * Nothing here depends on how the network is trained: graphs/compiler/training.h has the hyperparameters, the optimizer states
 * and the ranks that update a parameter. */
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

/* Consecutive elements of the shard of a parameter that a rank stores. */
struct sgrad__share {
    int ranks;                          /* number of ranks that store different elements; 1: this rank stores all */
    int64_t first, count;
};

/* A tensor that outlives the step: a parameter, or a state of an operation. */
struct sgrad__parameter {
    char *name;                         /* "layer1.0.conv1.weight" */
    struct sgrad_parameter is;          /* as layers use it; of a split parameter, this rank's shard */
    struct sgrad_shape kept_shape;      /* as this rank stores it: smaller than is.shape if layers use it gathered */
    int cuts;                           /* number of splits; 0: it is whole */
    struct sgrad__cut cut[SGRAD__CUTS]; /* each applies to the result of the previous ones; gathered ones are last */
    /* The elements of the shard above that this rank stores, if the ranks with this shard divide it (--shard parameters); ranks
     * 0: this rank stores all of them. */
    struct sgrad__share share;
    void *whole;                        /* if some ranks do not store it: its value as read or gathered by this rank; else NULL */
    uint64_t stages;                    /* bit i: stage i uses it; 0: the network has no stages */
    bool state;                         /* a state of an operation: not trained */
    bool frozen;                        /* its gradient is not computed, and it is not updated */
    bool fixed;                         /* frozen by the network (sgrad_graph_freeze), in all trainings */
    bool adapter;                       /* a matrix of a low-rank adapter (adapters.c) */
    /* NULL before sgrad__parameters_allocate, and if only other stages use it. Of a share, its elements; one element without
     * meaning, if it has none. */
    struct sgrad_tensor *tensor;
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

/* A request to name the parameter NAME, of a layer that is added later, AS (sgrad_graph_rename). made: the layer was added. */
struct sgrad__renaming {
    char *name, *as;
    bool made;
};

/* A request to split a parameter over the ranks of an axis. made: a layer with the parameter was added. */
struct sgrad__split {
    char *name, *axis;
    int dimension, sections;
    bool gathered, made;
};

/* Data that were imported with a network from a file. */
struct sgrad__imported {
    struct sgrad_safetensors weights;           /* initial values of its parameters, in memory */
    bool softmax;                               /* the file ends with a softmax, which is omitted: the loss computes it */
    int channels;                               /* channels that are normalised by the values below; 0: none */
    float mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS]; /* mean and standard deviation per channel */
};

/* Low-rank adapters of linear layers (adapters.c). */
enum { SGRAD__LORA_RANK = 65536 };              /* the largest rank */
struct sgrad__lora {
    int rank;                                   /* rows of A and columns of B; 0: there are no adapters */
    double alpha;                               /* the product B·A is multiplied by alpha / rank */
    char *on;                                   /* patterns of the adapted weights */
};

struct sgrad_graph {
    enum sgrad_dtype dtype;
    int error;                                  /* the first error; 0: none */
    struct sgrad_spill *copies;                 /* file for copies of weights and states, if memory is limited; NULL: none */
    const struct sgrad_model *model;            /* NULL: the graph is built without a model */
    char *file;                                 /* file that the model is read from; NULL: none */
    struct sgrad__imported *imported;           /* NULL: no imported data */
    double option[SGRAD_MAX_MODEL_OPTIONS];     /* values of the model's options, in the model's order */
    int cached, sequences;                      /* see sgrad_graph_cached (networks.h) */
    int documents;                              /* see sgrad_graph_documents; 0: a sample is one document */
    struct sgrad__lora lora;
    /* If set, it may add further nodes after NODE, the last one. Returns the value that replaces its output; -1: an error. */
    int (*adapt)(struct sgrad_graph *graph, int node);
    struct sgrad_mesh mesh;
    int rank;               /* this rank's number on the mesh: it selects its shards of parameters and of layers */
    int stages, stage;      /* number of pipeline stages, 1: no pipeline; stage of this rank */
    int value_count, node_count, parameter_count, tie_count, renaming_count, split_count;
    struct sgrad__value *value;
    struct sgrad__node *node;
    struct sgrad__parameter *parameter;
    struct sgrad__tie *tie;
    struct sgrad__renaming *renaming;
    struct sgrad__split *split;
    int input[SGRAD_MAX_INPUTS], inputs;    /* values: one per field of the data set, in its order */
    int loss;               /* node; -1: none yet */
    int logits;             /* value set by sgrad_graph_logits; -1: the first input of the loss */
};

/* The axis along which ranks have different samples and the same weights. If a mesh does not name it, it consists of the ranks
 * that the other axes leave. */
#define SGRAD__DATA "data"
#define SGRAD__EXPERT "expert"      /* axis along which ranks have different samples and different experts of mixtures */
/* Parses the mesh TEXT of --mesh (sgrad_mesh_parse). */
int sgrad__mesh_parse(const char *text, struct sgrad_mesh *mesh);
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

/* The work of the forward pass of a sample: operations; bytes of memory traffic; number of tasks with more operations than
 * bytes. */
struct sgrad__work {
    double flops, bytes;
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
/* Freezes each parameter i with FROZEN[i] (NULL: none), those that the network freezes, and, if the network has adapters, all
 * that do not belong to an adapter; all others are trained. Gradients that only frozen parameters need are not computed. */
void sgrad__graph_freeze(struct sgrad_graph *graph, const bool *frozen);

/* ---- adapters.c, merge.c: low-rank adapters ---- */

/* Adds an adapter to each linear layer that is added later and whose weight matches a pattern in LORA, which is copied. The
 * parameters of the adapter of "q_proj.weight" are "q_proj.lora_A.weight" and "q_proj.lora_B.weight". A weight that is tied to a
 * parameter of an earlier layer gets none. SGRAD_EINVAL, stored in the graph: such a weight is split over ranks. */
void sgrad__graph_adapt(struct sgrad_graph *graph, const struct sgrad__lora *lora);
/* Checks that the completed graph has adapters; EACH: that each pattern has. SGRAD_EINVAL: a pattern, or all of them, match no
 * weight of a linear layer. The error message lists some weights that they could match. */
int sgrad__check_adapters(const struct sgrad_graph *graph, bool each);
/* Returns the number of adapters. *LAYERS becomes the number of linear layers of the network. */
int sgrad__adapters_count(const struct sgrad_graph *graph, int *layers);
/* Returns the factor of the adapters; 0: there are none. */
static inline double sgrad__lora_scale(const struct sgrad_graph *graph) {
    return graph->lora.rank ? graph->lora.alpha / graph->lora.rank : 0;
}
/* Returns true if NAME ends like that of a parameter of an adapter. */
bool sgrad__is_adapter(const char *name);

/* Metadata key of files that contain weights with separate adapters: alpha / rank. */
#define SGRAD__LORA_SCALE "lora_scale"
struct sgrad__weights;
/* Adds the product of each adapter in COPY, which must not be written yet, to the weight that it adapts, and removes the adapter
 * from COPY. */
void sgrad__weights_merge(struct sgrad__weights *copy);
/* Adds the product of the adapter of the weight NAME in FILE, if there is one, to VALUE, this weight, which has SHAPE in the
 * layout of memory. SGRAD_EFORMAT: the adapter is malformed, or does not fit the weight. SGRAD_EIO. */
int sgrad__adapter_merge(const struct sgrad_safetensors *file, const char *name, const struct sgrad_shape *shape, float *value);

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
bool sgrad__parameter_on(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank);
/* A stage: its first and last node, and the seconds per sample that the cost model of sgrad__graph_cut estimates. */
struct sgrad__stage {
    int first, last;
    double seconds;
};
struct sgrad__stage sgrad__stage(const struct sgrad_graph *graph, int stage);

/* ---- blocks.c ---- */

/* Returns, by node, whether it is inside one of the network's blocks, so that it may be recomputed. A network without blocks is
 * divided into blocks that minimise memory. The caller must free the array. */
bool *sgrad__graph_inside_blocks(struct sgrad_graph *graph);
/* Marks all these layers as recomputed. Returns the number of marked layers that have results. */
int sgrad__graph_recompute_blocks(struct sgrad_graph *graph);

/* ---- parameters.c ---- */

/* Allocates the parameters that this rank stores, and sets their initial values (Philox: seed, the parameter's name, element).
 * SGRAD_ENOMEM. After an error, everything is freed. */
int sgrad__parameters_allocate(struct sgrad_graph *graph, uint64_t seed);
void sgrad__parameters_free(struct sgrad_graph *graph);
/* Returns the view of the parameter's tensor on this rank. */
struct sgrad_view sgrad__parameter_view(const struct sgrad__parameter *parameter);
/* Sets this rank's tensor of PARAMETER, or its elements of it, from WHOLE, the whole value. SGRAD_EDEVICE. */
int sgrad__parameter_take(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, const float *whole);
/* Return the number of elements of parameters, without states: stored by this rank; those that are not frozen, of the shards that
 * this rank or the ranks with the same shard store; of the whole network. */
int64_t sgrad__parameters_count(const struct sgrad_graph *graph);
int64_t sgrad__parameters_trained(const struct sgrad_graph *graph);
int64_t sgrad__parameters_whole(const struct sgrad_graph *graph);

/* A tensor that outlives the step, with its name in files: "conv1.weight", "optimizer.momentum.conv1.weight". Names of optimizer
 * states begin with SGRAD__STATES. */
#define SGRAD__STATES "optimizer."
struct sgrad__item {
    char *name;
    struct sgrad_view view;             /* of the whole tensor */
    enum sgrad_file_layout layout;      /* layout in files */
    struct sgrad_tensor *tensor;        /* of a split parameter, this rank's shard; NULL: only other ranks store it */
    const struct sgrad__parameter *split;       /* the parameter whose shard, or a share of it, each rank stores; NULL: none */
    struct sgrad__share share;          /* the elements of the shard in TENSOR; ranks 0: all */
    int rank;                           /* first rank that stores it; -1: all ranks store it, or a shard of it */
    void **whole;                       /* where the whole value is stored, if some ranks do not store it; else NULL */
};
struct sgrad__items {
    int count;
    bool states;                        /* the list includes the optimizer states */
    double lora_scale;                  /* alpha / rank of the adapters in the list; 0: there are none */
    struct sgrad_spill *file;           /* has copies of the items; NULL: copies are in memory */
    struct sgrad__item *item;
};
/* Returns the first rank that stores the parameter; -1: all ranks store it, or a shard of it. */
int sgrad__parameter_provider(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter);
/* Returns the item of PARAMETER, an index. The caller must free its name. */
struct sgrad__item sgrad__parameter_item(const struct sgrad_graph *graph, int parameter);
/* Returns the parameters of GRAPH, without optimizer states. The caller must free the list with sgrad__items_free. */
struct sgrad__items sgrad__parameters_list(const struct sgrad_graph *graph);
/* Returns the same without those of adapters. */
struct sgrad__items sgrad__network_list(const struct sgrad_graph *graph);
void sgrad__items_free(struct sgrad__items *list);
/* Removes from the list all items that belong to an adapter or, if ADAPTERS is set, all others. */
void sgrad__items_select(struct sgrad__items *list, bool adapters);

/* ---- shards.c: parameters that are split over ranks ---- */

/* Returns the shape of the whole parameter. */
struct sgrad_shape sgrad__whole_shape(const struct sgrad__parameter *parameter);
/* Returns the set of axes (collectives.h) along which ranks store different shards of the parameter. */
unsigned sgrad__part_axes(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter);
/* Returns the ranks that store the same shard as RANK, in the caller's array MEMBER, which must have an element for each rank of
 * the mesh. */
struct sgrad_group sgrad__holders(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank,
                                  int *member);
/* Copy the elements of PART, the shard that RANK stores, from WHOLE (take) or to it (put). Both are F32, in the layout of
 * memory. */
void sgrad__part_take(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank, const float *whole,
                      float *part);
void sgrad__part_put(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank, const float *part,
                     float *whole);
/* Copies this rank's elements of an item from its whole value, which must exist, to its tensor. SGRAD_EDEVICE. */
int sgrad__item_take(const struct sgrad_graph *graph, const struct sgrad__item *item);
/* Frees the whole values of all parameters. */
void sgrad__wholes_free(struct sgrad_graph *graph);

/* ---- weights.c ---- */

/* These functions take ownership of ITEMS, which they free. */

/* Loads ITEMS, of GRAPH, from an open file with PyTorch's names and layouts. Tensors whose names begin with "optimizer." are
 * ignored unless ITEMS include optimizer states. SKIP: patterns of tensors that are not loaded; NULL: none. A missing or extra
 * tensor, or another type or shape, is an error, which names the first such tensor and both shapes, and nothing is changed:
 * SGRAD_EFORMAT, SGRAD_ESHAPE. The adapters of a checkpoint are merged into the weights unless ITEMS include optimizer states.
 * SGRAD_EIO: the file cannot be read; some tensors may be changed. */
int sgrad__weights_load(struct sgrad_graph *graph, struct sgrad__items items, const struct sgrad_safetensors *file,
                        const char *skip);

/* Computes the checksum of the data in FILE. If the file states another one, the data were modified or damaged; this is a
 * warning, not an error. SGRAD_EIO. */
int sgrad__weights_checksum(const struct sgrad_safetensors *file, char checksum[SGRAD_CHECKSUM]);
#define SGRAD__WEIGHTS_FORMAT "pt"       /* value of the metadata's key "format": names and layouts are PyTorch's */
/* A copy of items in host memory, or in a temporary file (items.file), for a file. sgrad__weights_copy waits for the tasks that
 * change the items; whole values of split items must exist. VALUE: a tensor for each item, which is copied instead of the item;
 * NULL, or an element NULL: the item is copied. The caller must free the copy with sgrad__weights_free. sgrad__weights_write may
 * be called only once, on any thread. */
struct sgrad__weights {
    struct sgrad__items items;
    void **value;               /* per item, in the layout of memory; once written, in that of files */
    char **name;                /* of the tensors in files, ends with NULL; NULL before sgrad__weights_entries */
    void *mapped;               /* contains all values; NULL: each has its own memory */
    size_t bytes;               /* of all values */
};
/* Reserves space in the file of ITEMS, COUNT lists, for copies of all lists that exist at the same time. SGRAD_EIO: too little
 * space. Without a file, nothing is reserved. */
int sgrad__weights_reserve(const struct sgrad__items *items, int count);
int sgrad__weights_copy(struct sgrad__items items, struct sgrad_tensor *const *value, struct sgrad__weights *copy);
int sgrad__weights_write(struct sgrad__weights *copy, const char *path, const char *const *metadata, int metadata_count);
/* Returns the copy as *COUNT entries in the layout of files, in the order of the items. Must not be called twice or together with
 * sgrad__weights_write. The caller must free the array; names and data belong to COPY. */
struct sgrad_entry *sgrad__weights_entries(struct sgrad__weights *copy, int *count);
void sgrad__weights_free(struct sgrad__weights *copy);
/* Converts COUNT numbers of type DTYPE (F32, F64, F16 or BF16), at any address, to floats. */
void sgrad__to_floats(enum sgrad_dtype dtype, const void *from, int64_t count, float *to);
/* Frees the imported data. */
void sgrad__imported_free(struct sgrad_graph *graph);
/* Copies, writes and frees. Errors: those of sgrad_tensor_read and sgrad_safetensors_write. */
int sgrad__weights_save(struct sgrad__items items, const char *path, const char *const *metadata, int metadata_count);

#endif
