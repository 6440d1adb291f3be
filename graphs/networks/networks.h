/* networks.h: what is computed: a network as a graph of operations on values, and its parameters. Knows no batch, no rank, no
 * step.
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
 * bytes) is copied. */
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

/* Something that is kept of each trained parameter from step to step and in checkpoints: F32, zeros at first. */
struct sgrad_state {
    const char *name;                                                       /* "momentum" */
    struct sgrad_shape (*shape)(const struct sgrad_shape *parameter);       /* NULL: the parameter's own */
};

struct sgrad_model {
    const char *name, *summary, *source;
    int least_side;     /* pixels, of the smallest image that it takes; 0: any */
    /* From X, the first field as activations, to what is compared with the last: the logits (N,classes) of labels; of a field of
     * numbers (N,numbers), as many as a sample has. */
    int (*build)(struct sgrad_graph *graph, int x, int classes);
    /* Adds the loss as the last layer: of Y, which build returned, against TARGET, the last field. NULL: the usual one. */
    int (*loss)(struct sgrad_graph *graph, int y, int target);
};
extern const struct sgrad_model *const sgrad_models[];              /* all of models.def; ends with NULL */

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
