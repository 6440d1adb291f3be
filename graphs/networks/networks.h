/* networks.h: what is computed: a network as a graph of operations on values, and its parameters. It knows no batch, and runs no
 * step. Each parameter states which ranks keep which part of it, and after how many steps it is frozen.
 *
 * A *graph* is values and layers: a layer applies an operation (codelets.h) to values and makes a value. Shapes are inferred, and
 * errors found, as layers are added. An operation's attributes are in codelets/ops/NAME.h. A small network:
 *
 *     static int build(struct sgrad_graph *g, int x, int classes) {
 *         x = sgrad_layer(g, conv2d,    "conv1", (x), .channels = 32, .kernel = 3, .padding = 1);
 *         x = sgrad_layer(g, batchnorm, "bn1",   (x), .relu = true);
 *         x = sgrad_layer(g, global_average_pool, "pool", (x));
 *         return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
 *     }
 *     static const struct sgrad_model model = { .name = "mine", .summary = "one convolution", .build = build };
 *
 * Its inputs are the fields of a data set's samples (datasets.h). Pixels become activations by an operation, too, and the last
 * layer is the loss, an operation whose record says what is measured.
 *
 *     struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
 *     int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 32, 32, 3));
 *     int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
 *     int x = sgrad_layer(g, image, "augment", (pixels), .full_scale = 255);
 *     int error = sgrad_graph_loss(g, model.build(g, x, 10), label, 0);
 *
 * Ranks. A graph is what one rank computes; all build the same. Where the run has a mesh (collectives.h), the ranks of one place
 * on its axes of samples, "data" and those of squares and cubes, have the same samples, and may share the work on them: by
 * parameters that are split (sgrad_graph_split), or kept in parts (sgrad_graph_keep_parts), and by operations that move values
 * along an axis (all_reduce, all_gather, reduce_scatter, broadcast, reduce, shift). Two layers, of which every rank has a part
 * (Shoeybi et al., Megatron-LM, 2019); along an axis of one rank, the whole:
 *
 *     sgrad_graph_split(g, "up.weight", "tensor", 0);
 *     x = sgrad_layer(g, linear, "up", (x), .features = 64 / sgrad_graph_ranks(g, "tensor"));
 *     x = sgrad_layer(g, relu, "relu", (x));
 *     sgrad_graph_split(g, "down.weight", "tensor", 1);
 *     x = sgrad_layer(g, linear, "down", (x), .features = 32);         // a sum over a part of the columns
 *     x = sgrad_layer(g, all_reduce, "sum", (x), .axis = "tensor");
 *
 * What a step differentiates is the sum of all ranks' losses, divided by the samples of all ranks, where one that two ranks have
 * counts twice: a loss that ranks compute alike counts once. Then a network that is right forwards is right backwards. A move's
 * backward is its transpose; the gradient of a parameter that is whole is summed over all ranks, that of one that is split over
 * those that have the same part; nobody divides by anything else. A parameter that is whole has to stand for the same on all
 * ranks: a bias after a split product goes behind the sum, where it is added once.
 *
 * Along axis "pipe" ranks have different layers, some one after another each. The network says nothing of that: where it is cut
 * is chosen by cost, and what is a value of one stage and taken in another is sent.
 *
 * Limits: values move in F32. They are cut for 8 ranks at most along an axis. Dropout of a part has to name the axes along which
 * it is one (.rows, .features). Batch norm, LARS and LAMB take whole channels and parameters, and refuse parts.
 *
 * What is made of it, a training step, is for graphs/programs/programs.h. */
#ifndef SGRAD_NETWORKS_H
#define SGRAD_NETWORKS_H

#include "codelets/codelets.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_graph;

/* An empty network whose activations are of type DTYPE (F32 or BF16). */
struct sgrad_graph *sgrad_graph_create(enum sgrad_dtype dtype);
void sgrad_graph_destroy(struct sgrad_graph *graph);

/* An input: of each sample the field NAME, of type DTYPE and shape SAMPLE (rank 0: one number), (N,SAMPLE…). Returns a value. */
int sgrad_graph_input(struct sgrad_graph *graph, const char *name, enum sgrad_dtype dtype, struct sgrad_shape sample);

/* The input of that name; without one, every later call does nothing. */
int sgrad_graph_field(struct sgrad_graph *graph, const char *name);

/* Applies OP to COUNT values, any of them more than once; returns the output value. The shape rule runs here: on an error it is
 * logged, with the layer's name and the shapes, and every later call does nothing; sgrad_graph_error tells. ATTRS (op->attrs_size
 * bytes) is copied. No two layers have one NAME; of those that are one to whoever reads files, "fc" and "fc/sum", parameters are
 * named without what follows the slash: "fc.weight", "fc.bias". */
int sgrad_graph_apply(struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, const int *inputs, int count,
                      const void *attrs);
int sgrad_graph_error(const struct sgrad_graph *graph);

/* sgrad_layer(g, conv2d, "conv1", (x), .channels = 16, .kernel = 3): apply, with the attributes by name, in C++ in
 * the order of codelets.def. */
#define SGRAD__LIST(...) { __VA_ARGS__ }
#ifndef __cplusplus
#define sgrad_layer(graph, op, name, inputs, ...)                                             \
    sgrad_graph_apply(graph, &sgrad_##op##_op, name, (const int[])SGRAD__LIST inputs,         \
                      (int)(sizeof(int[])SGRAD__LIST inputs / sizeof(int)), &(const struct sgrad_##op){ __VA_ARGS__ })
#endif

/* The parameter NAME, of a layer that is still to come, is to be AS, that of one that is there ("decoder.weight" as
 * "embedding.weight"): one tensor, saved under its first name, whose gradients add. Their shapes must be equal. */
void sgrad_graph_tie(struct sgrad_graph *graph, const char *name, const char *as);

/* The parameter NAME, of a layer that is there, stays as it begins, or as a file has it, in any training. */
void sgrad_graph_freeze(struct sgrad_graph *graph, const char *name);

/* How many ranks stand along AXIS of the run's mesh (runs.h, options.mesh): 1, where it has no such axis. */
int sgrad_graph_ranks(const struct sgrad_graph *graph, const char *axis);
/* The parameter NAME, of a layer that is still to come, is a rank's part of one that is split along DIMENSION, as it lies in
 * memory, over the ranks of AXIS, in their order. It begins as that part of the whole, whatever the number of ranks, and is saved
 * whole. Its gradient stays with the ranks that have the same part. Along an axis of one rank it is the whole. */
void sgrad_graph_split(struct sgrad_graph *graph, const char *name, const char *axis, int dimension);
/* The same of one that is several side by side along DIMENSION, as many as SECTIONS: a rank has its part of each. */
void sgrad_graph_split_sections(struct sgrad_graph *graph, const char *name, const char *axis, int dimension, int sections);
/* The parameter NAME, of a layer that is still to come, is kept in parts by the ranks of AXIS, each an equal one along DIMENSION
 * as it lies in memory, so that nobody keeps, nor updates, what another does. Layers have it whole: it is gathered once a step,
 * before the first of them, and its gradient is summed and scattered. One that is split as well is split first. */
void sgrad_graph_keep_parts(struct sgrad_graph *graph, const char *name, const char *axis, int dimension);

/* The layer that makes VALUE keeps nothing for backward, which computes again what it made when it comes to need it, out of
 * inputs that may be computed again themselves: less memory, more work, the same bits, running statistics and dropped elements
 * among them. (T. Chen, B. Xu, C. Zhang, C. Guestrin: Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174.) */
void sgrad_graph_recompute(struct sgrad_graph *graph, int value);

/* VALUE, which is returned, ends a block: the layers from the last block's end, or from the first layer, to the one that makes
 * VALUE. With --recompute all of a block but this last layer are marked as above; a network that names no blocks is cut into such
 * where that leaves least in memory. */
int sgrad_graph_block(struct sgrad_graph *graph, int value);

/* The shape of a value for one sample (dim[0] is 1). */
struct sgrad_shape sgrad_graph_shape(const struct sgrad_graph *graph, int value);

/* Ends the network, whose last layer is its loss: an operation with metrics. SGRAD_EINVAL: it is none. */
int sgrad_graph_end(struct sgrad_graph *graph);

/* Ends it with the usual loss, which TARGET's type decides: of Y (N,…,classes) against labels I32 (N,…) softmax cross entropy, of
 * Y against numbers F32 of its shape the mean squared error. */
int sgrad_graph_loss(struct sgrad_graph *graph, int y, int target, float label_smoothing);

/* While a model is built, whose loss takes several classifiers' logits side by side: VALUE has those of the one that counts. They
 * come first, and are what the network says outside training. */
void sgrad_graph_logits(struct sgrad_graph *graph, int value);

/* Something that is kept of each trained parameter from step to step and in checkpoints: F32, zeros at first. */
struct sgrad_state {
    const char *name;                                                       /* "momentum" */
    struct sgrad_shape (*shape)(const struct sgrad_shape *parameter);       /* NULL: the parameter's own */
};

/* What a model may be told besides: "gpt:layers=12". */
#define SGRAD_MAX_MODEL_OPTIONS 8
struct sgrad_model_option {
    const char *name;
    double value, low, high;        /* where nothing is told, and from which to which it may be */
    bool fraction;                  /* else whole numbers */
};

struct sgrad_model {
    const char *name, *summary, *source;
    const struct sgrad_model_option *options;   /* end without a name; NULL: none */
    int least_side;     /* pixels, of the smallest image that it takes; 0: any */
    int side_multiple;  /* both sides of an image have to be multiples of it; 0: any are */
    bool volumes;       /* takes volumes (N,D,H,W,C), no images */
    bool of_file;       /* is asked for as NAME:FILE, and read from that; else what follows the colon are options */
    /* From X, the first field as activations, to what is compared with the last: the logits (N,classes) of labels; of a field of
     * numbers (N,numbers), as many as a sample has. */
    int (*build)(struct sgrad_graph *graph, int x, int classes);
    /* Adds the loss as the last layer: of Y, which build returned, against TARGET, the last field. NULL: the usual one. */
    int (*loss)(struct sgrad_graph *graph, int y, int target);
    const char *loss_option;        /* where this option is 0, the loss is the usual one; NULL: it never is */
    const char *prefix;             /* of its parameters' names, which files may do without; NULL: none */
    const char *const *ignored;     /* ends of names of tensors in files that mean nothing to it; end with NULL; NULL: none */
};
/* The model of TEXT, "NAME", "NAME:key=value,…" or "NAME:FILE"; NULL: there is none, which was told. */
const struct sgrad_model *sgrad_model_find(const char *text);
/* Do both ask for one network? An option that is left out is as if its usual value were there. */
bool sgrad_model_same(const char *text, const char *other);

/* While a model is built: the value of its option NAME. */
double sgrad_graph_option(const struct sgrad_graph *graph, const char *name);
/* Rows of a sample come one a step, and what attention needs of those before is kept, for the next (stargrad sample). */
bool sgrad_graph_cached(const struct sgrad_graph *graph);
/* The model cannot be built, for the reason that is told; every later call does nothing. Returns -1. */
int sgrad_graph_refuse(struct sgrad_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));

extern const struct sgrad_model *const *sgrad_models;               /* all of models.def, and of plug-ins; ends with NULL */

/* A layer composed of operations, for use by models. */
struct sgrad_composite {
    const char *name, *summary;
};
extern const struct sgrad_composite *const sgrad_composites[];      /* all of layers.def; ends with NULL */

#ifdef __cplusplus
/* sgrad_layer for C++, which has no compound literals. */
extern "C++" template <typename attributes, int count>
int sgrad__layer(struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, const int (&inputs)[count],
                 const attributes &with) {
    return sgrad_graph_apply(graph, op, name, inputs, count, &with);
}
#pragma GCC system_header   /* attributes that are left out are meant to be: no -Wmissing-field-initializers */
#define sgrad_layer(graph, op, name, inputs, ...) \
    sgrad__layer(graph, &sgrad_##op##_op, name, SGRAD__LIST inputs, sgrad_##op{ __VA_ARGS__ })
}
#endif
#endif
