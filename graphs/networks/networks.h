/* networks.h: a network as a graph of operations on values, and its parameters. A graph has no batch size and runs no steps. For
 * each parameter it records the ranks that store it or a shard of it, and the number of steps after which it is frozen.
 *
 * A *graph* consists of values and layers. A layer applies an operation (codelets.h) to values and produces a value. Shapes are
 * inferred, and errors are found, when a layer is added. codelets/ops/NAME.h declares the attributes of an operation. A small
 * network:
 *
 *     static int build(struct sgrad_graph *g, int x, int classes) {
 *         x = sgrad_layer(g, conv2d,    "conv1", (x), .channels = 32, .kernel = 3, .padding = 1);
 *         x = sgrad_layer(g, batchnorm, "bn1",   (x), .relu = true);
 *         x = sgrad_layer(g, global_average_pool, "pool", (x));
 *         return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
 *     }
 *     static const struct sgrad_model model = { .name = "mine", .summary = "one convolution", .build = build };
 *
 * The inputs of a graph are the fields of the samples of a data set (datasets.h). An operation converts pixels to activations.
 * The last layer is the loss, an operation whose record lists the metrics that are measured.
 *
 *     struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
 *     int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 32, 32, 3));
 *     int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
 *     int x = sgrad_layer(g, image, "augment", (pixels), .full_scale = 255);
 *     int error = sgrad_graph_loss(g, model.build(g, x, 10), label, 0);
 *
 * Errors. The first error is logged and stored in the graph (sgrad_graph_error). After it, sgrad_graph_apply has no effect and
 * returns -1, so that a model need not check each call.
 *
 * Ranks. A graph describes the computation of one rank; every rank builds the same graph. If the run has a mesh (collectives.h),
 * the ranks with equal coordinates on its sample axes process the same samples, and may divide the work on these samples. The
 * sample axes are "data" and the ".samples" axes of 2-D and 3-D tensor parallelism. Work is divided by parameters that are split
 * (sgrad_graph_partition) or sharded (sgrad_graph_shard), and by operations that move values along an axis (all_reduce,
 * all_gather, reduce_scatter, broadcast, reduce, shift). Two layers that are split over the ranks of an axis (Shoeybi et al.,
 * Megatron-LM, 2019); along an axis of one rank they are whole:
 *
 *     sgrad_graph_partition(g, "up.weight", "tensor", 0);
 *     x = sgrad_layer(g, linear, "up", (x), .features = 64 / sgrad_graph_ranks(g, "tensor"));
 *     x = sgrad_layer(g, relu, "relu", (x));
 *     sgrad_graph_partition(g, "down.weight", "tensor", 1);
 *     x = sgrad_layer(g, linear, "down", (x), .features = 32);         // a partial sum, over this rank's columns
 *     x = sgrad_layer(g, all_reduce, "sum", (x), .axis = "tensor");
 *
 * A step differentiates the sum of the losses of all ranks, divided by the sum of their sample counts. A sample that two ranks
 * process is counted twice in both sums, so that a loss that several ranks compute identically has the weight of one. Then the
 * gradients of a network are correct if its forward pass is. The backward pass of a move is its transpose. The gradient of a
 * parameter that is not split is summed over all ranks; the gradient of a split parameter is summed over the ranks with the same
 * shard. No other division is applied. A parameter that is not split must have the same role on all ranks: the bias of a split
 * product must be added after the all_reduce, where it is added once.
 *
 * Ranks along axis "context" have different rows (tokens) of the same samples, struct sgrad_zigzag. Operations context_rows and
 * ring_attention, and the attributes .axis of positions, are for such networks: their other layers use each row alone.
 *
 * Ranks along axis "expert" have different samples, and different experts of mixtures. Operations dispatch and combine send rows
 * to the ranks of their experts, and results back.
 *
 * Along axis "pipe", each rank computes consecutive layers (a pipeline stage). The graph does not specify the stages: the
 * boundaries are chosen by cost. A value that one stage produces and another one uses is sent between their ranks.
 *
 * Limits: operations that split or gather values support at most 8 ranks along an axis.
 * A dropout layer on a shard must name the axes along which its input is split (.rows, .features). Batch norm needs whole
 * channels, and some optimizers (LARS, LAMB, Muon, K-FAC) need whole parameters: they reject split ones.
 *
 * graphs/compiler/compiler.h makes a training step from a graph. */
#ifndef SGRAD_GRAPHS_NETWORKS_NETWORKS_H
#define SGRAD_GRAPHS_NETWORKS_NETWORKS_H

#include "codelets/codelets.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_graph;

/* Creates an empty graph whose activations have type DTYPE (F32 or BF16). The caller frees it with sgrad_graph_destroy. */
struct sgrad_graph *sgrad_graph_create(enum sgrad_dtype dtype);
void sgrad_graph_destroy(struct sgrad_graph *graph);        /* NULL is a no-op */

/* Adds an input: the field NAME of each sample, of type DTYPE and shape SAMPLE (rank 0: one number). Returns its value, of shape
 * (N,SAMPLE…). A graph has at most SGRAD_MAX_INPUTS inputs. */
int sgrad_graph_input(struct sgrad_graph *graph, const char *name, enum sgrad_dtype dtype, struct sgrad_shape sample);

/* Returns the value of the input NAME. SGRAD_ENAME, stored in the graph: no such input; returns -1. */
int sgrad_graph_field(struct sgrad_graph *graph, const char *name);

/* Adds the layer NAME: applies OP to COUNT values, which may repeat. Returns the output value; -1: an error, or OP has no output
 * (a loss). ATTRS (op->attrs_size bytes) is copied; NULL: zeros. The shape rule of OP runs here; its error is logged with the
 * name of the layer and the shapes. Layers must have different names. Layers that are one layer in files have a common prefix
 * before a slash, "fc" and "fc/sum": their parameters are named without the slash and the text after it, "fc.weight", "fc.bias".
 * Errors, stored in the graph: SGRAD_EINVAL: the number, type or value of an input is invalid, or NAME exists; SGRAD_ESHAPE:
 * shapes do not fit. */
int sgrad_graph_apply(struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, const int *inputs, int count,
                      const void *attrs);
/* Returns the first error of the graph; 0: none. */
int sgrad_graph_error(const struct sgrad_graph *graph);

/* sgrad_layer(g, conv2d, "conv1", (x), .channels = 16, .kernel = 3) is sgrad_graph_apply with attributes by name. In C++ the
 * attributes must be in the order of codelets.def. */
#define SGRAD_PRIV_LIST(...) { __VA_ARGS__ }
#ifndef __cplusplus
#define sgrad_layer(graph, op, name, inputs, ...)                                             \
    sgrad_graph_apply(graph, &sgrad_##op##_op, name, (const int[])SGRAD_PRIV_LIST inputs,         \
                      (int)(sizeof(int[])SGRAD_PRIV_LIST inputs / sizeof(int)), &(const struct sgrad_##op){ __VA_ARGS__ })
#endif

/* Ties the parameter NAME, of a layer that is added later, to the parameter AS of an existing layer ("decoder.weight" to
 * "embedding.weight"). Both are one tensor, which is saved under the name AS and has the sum of both gradients.
 * Errors, stored in the graph: SGRAD_ENAME: there is no parameter AS, or, when the graph is completed, no parameter NAME;
 * SGRAD_ESHAPE: their shapes differ. */
void sgrad_graph_tie(struct sgrad_graph *graph, const char *name, const char *as);

/* Freezes the parameter NAME of an existing layer: no training changes its initial value or the value that is loaded from a file.
 * SGRAD_ENAME, stored in the graph: there is no such parameter. */
void sgrad_graph_freeze(struct sgrad_graph *graph, const char *name);

/* Sets the initial values of the parameter NAME of an existing layer, for networks whose values differ from the default of the
 * operation. OF is the fan of INIT, or its deviation. Errors: as sgrad_graph_freeze. */
void sgrad_graph_initialize(struct sgrad_graph *graph, const char *name, enum sgrad_init init, double of);

/* Names the parameter NAME, of a layer that is added later, AS, for networks that name it otherwise in PyTorch:
 * "attn.in_proj.weight" becomes "attn.in_proj_weight". Until the layer is added, its name is NAME. Errors, stored in the
 * graph when it is completed: SGRAD_ENAME: no layer has the parameter NAME; SGRAD_EINVAL: a layer has the name AS. */
void sgrad_graph_rename(struct sgrad_graph *graph, const char *name, const char *as);

/* Returns the number of ranks along AXIS of the mesh of the run (train.h, options.parallel.mesh); 1 if the mesh has no such axis.
 */
int sgrad_graph_ranks(const struct sgrad_graph *graph, const char *axis);
/* Splits the parameter NAME, of a layer that is added later, along DIMENSION of its layout in memory over the ranks of AXIS, in
 * their order. The layer has the shape of a shard, and each rank stores only its shard. The initial values are those of the whole
 * parameter, for any number of ranks. Files contain the whole parameter. Its gradient is summed only over the ranks with the same
 * shard. Along an axis of one rank, the shard is the whole. Errors, stored in the graph: SGRAD_ESHAPE: DIMENSION is out of range;
 * SGRAD_ENAME, when the graph is completed: no layer has such a parameter. */
void sgrad_graph_partition(struct sgrad_graph *graph, const char *name, const char *axis, int dimension);
/* Like sgrad_graph_partition, for a parameter that is a concatenation of SECTIONS equal sections along DIMENSION: each rank has a
 * shard of each section. SGRAD_ESHAPE, stored in the graph: SECTIONS does not divide the dimension. */
void sgrad_graph_split_sections(struct sgrad_graph *graph, const char *name, const char *axis, int dimension, int sections);
/* Shards the parameter NAME, of a layer that is added later, over the ranks of AXIS: each rank stores and updates an equal shard
 * along DIMENSION of its layout in memory, so that no two of these ranks store or update the same shard. Layers use the whole
 * parameter: it is gathered once per step, before the first layer that uses it, and its gradient is reduced and scattered. A
 * parameter that is also split is split first. Errors: as sgrad_graph_partition; SGRAD_ESHAPE also if the dimension is not a
 * multiple of the number of ranks. */
void sgrad_graph_shard(struct sgrad_graph *graph, const char *name, const char *axis, int dimension);

/* Activation checkpointing: the layer that produces VALUE saves nothing for backward. Its results are recomputed when backward
 * needs them, from inputs that may be recomputed as well. This needs less memory and more work. The results are the same to the
 * bit, including running statistics and dropped elements. Layers that prepare inputs or move values between ranks ignore it.
 * (T. Chen, B. Xu, C. Zhang, C. Guestrin: Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174.) */
void sgrad_graph_recompute(struct sgrad_graph *graph, int value);

/* Ends a block at VALUE, and returns VALUE. A block is the layers after the end of the previous block, or from the first layer,
 * up to the layer that produces VALUE. With --recompute, all layers of a block except the last one are recomputed as by
 * sgrad_graph_recompute. A network without blocks is divided into blocks that minimise memory. */
int sgrad_graph_block(struct sgrad_graph *graph, int value);

/* Returns the shape of VALUE for one sample (dim[0] is 1); rank 0 if VALUE is invalid. */
struct sgrad_shape sgrad_graph_shape(const struct sgrad_graph *graph, int value);

/* Completes the graph, whose last layer must be the loss: an operation with metrics. Returns the first error of the graph.
 * SGRAD_EINVAL: the last layer is not a loss. SGRAD_ENAME: a parameter is tied, split or sharded, but no layer has it. */
int sgrad_graph_finalize(struct sgrad_graph *graph);

/* Adds the default loss of Y and TARGET, and completes the graph as sgrad_graph_finalize does. The type of TARGET selects the
 * loss. Labels I32 (N,…): softmax cross entropy with Y (N,…,classes). Numbers F32: mean squared error with Y of the same shape.
 * LABEL_SMOOTHING, 0 to 1, applies to labels. */
int sgrad_graph_loss(struct sgrad_graph *graph, int y, int target, float label_smoothing);

/* Selects the logits of the main classifier, in the build function of a model whose loss takes the concatenated logits of several
 * classifiers. VALUE must be the first of the concatenated values. It is the output of the network outside training. */
void sgrad_graph_logits(struct sgrad_graph *graph, int value);

/* An optimizer state of each trained parameter, which steps update and checkpoints contain: F32, initially zeros. */
struct sgrad_state {
    const char *name;                                                       /* "momentum" */
    struct sgrad_shape (*shape)(const struct sgrad_shape *parameter);       /* its shape; NULL: that of the parameter */
};

/* An option of a model: "gpt:layers=12". */
#define SGRAD_MAX_MODEL_OPTIONS 28
struct sgrad_model_option {
    const char *name;
    double value, low, high;        /* default, minimum, maximum */
    bool fraction;                  /* true: any number; false: integers only */
};

/* A model: a named network with options. */
struct sgrad_model {
    const char *name, *summary, *source;        /* source: paper or document, or NULL */
    const struct sgrad_model_option *options;   /* ends at a NULL name; NULL: none */
    /* Sets the values of OPTIONS from files in FOLDER: "NAME:config=FOLDER"; options after it replace these values. Logs errors,
     * SGRAD_E…. NULL: none. */
    int (*configure)(const char *folder, const struct sgrad_model_option *options, double *value);
    int min_image_side;     /* minimum side of images, in pixels, with default options; 0: any */
    const char *side_option;    /* name of the option whose value is the minimum side; NULL: no option changes it */
    int side_multiple;  /* both sides of images must be multiples of it; 0: any */
    bool volumes;       /* takes volumes (N,D,H,W,C), not images */
    bool from_file;       /* named as NAME:FILE, and read from FILE; otherwise the text after the colon is options */
    /* Adds the layers that compute, from X, the first field as activations, the value that is compared with the last field, and
     * returns it. For labels, these are logits (N,classes), or (N,…,classes) for labels of pixels. For numbers, it has the shape
     * (N,numbers), where CLASSES is the count of numbers per sample. Returns -1 on an error, which is stored in GRAPH. */
    int (*build)(struct sgrad_graph *graph, int x, int classes);
    /* Adds the loss of Y, which build returned, and TARGET, the last field, as the last layer. Errors are stored in GRAPH. NULL:
     * the default loss. */
    int (*loss)(struct sgrad_graph *graph, int y, int target);
    const char *loss_option;        /* name of an option: the default loss is used if it is 0; NULL: never */
    const char *prefix;             /* of the names of its parameters; names in files may omit it; NULL: none */
    const char *const *ignored;     /* suffixes of names of tensors in files that are ignored; ends with NULL; NULL: none */
};
/* Returns the model of TEXT, "NAME", "NAME:key=value,…" or "NAME:FILE". NULL: there is no model NAME; the error is logged. */
const struct sgrad_model *sgrad_model_find(const char *text);
/* Returns true if both texts specify the same network. An omitted option is equal to its default. Models of files are equal if
 * their texts are. */
bool sgrad_model_equal(const char *text, const char *other);
/* Sets *VOCABULARY to the number of tokens of the language model TEXT, its option "vocabulary"; 0: it is not a language model.
 * SGRAD_ENAME, SGRAD_EINVAL: TEXT is invalid. */
int sgrad_model_vocabulary(const char *text, int *vocabulary);

/* Returns the value of option NAME of the model that is being built; 0: there is no such option. */
double sgrad_graph_option(const struct sgrad_graph *graph, const char *name);
/* A network that generates text (stargrad sample) computes one row (token) of each sequence per step, and attention caches the
 * keys and values of previous rows. sgrad_graph_cached returns the number of rows that a sequence will have, 0: the network is
 * not such a network; sgrad_graph_sequences the number of sequences. */
int sgrad_graph_cached(const struct sgrad_graph *graph);
int sgrad_graph_sequences(const struct sgrad_graph *graph);
/* Returns the value (N,T) of type I32 with, for each token, the index in the sample of the first token of its document; -1: a
 * sample is one document. Attention must not cross the borders of documents (operation document_attention). */
int sgrad_graph_documents(const struct sgrad_graph *graph);
/* Fails to build the model: logs the formatted reason, stores SGRAD_EINVAL in the graph, and returns -1. */
int sgrad_graph_fail(struct sgrad_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));

extern const struct sgrad_model *const *sgrad_models;               /* all of models.def and of plug-ins; ends with NULL */

/* A layer composed of operations, for use by models. */
struct sgrad_composite {
    const char *name, *summary;
};
extern const struct sgrad_composite *const sgrad_composites[];      /* all of layers.def; ends with NULL */

#ifdef __cplusplus
/* sgrad_layer for C++, which has no compound literals. */
extern "C++" template <typename attributes, int count>
int sgrad_priv_layer(struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, const int (&inputs)[count],
                 const attributes &with) {
    return sgrad_graph_apply(graph, op, name, inputs, count, &with);
}
#pragma GCC system_header   /* omitted attributes are intended: no -Wmissing-field-initializers */
#define sgrad_layer(graph, op, name, inputs, ...) \
    sgrad_priv_layer(graph, &sgrad_##op##_op, name, SGRAD_PRIV_LIST inputs, sgrad_##op{ __VA_ARGS__ })
}
#endif
#endif
