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
 *     struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
 *     int x = sgrad_graph_input(g, 32, 32, 3);
 *     int error = sgrad_graph_loss(g, model.build(g, x, 10), 0);
 *
 * Ranks. A graph is what one rank computes; all build the same. Where the run has a mesh (collectives.h), the ranks of one place
 * on its axis "data" have the same samples, and may share the work on them: by parameters that are split (sgrad_graph_split),
 * and by operations that move values along an axis (all_reduce, all_gather, reduce_scatter, broadcast, reduce, shift). Two
 * layers, of which every rank has a part (Shoeybi et al., Megatron-LM, 2019); along an axis of one rank, the whole:
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
 * Limits: values move in F32. They are cut for 8 ranks at most along an axis. Ranks of one place on "data" drop the same
 * elements of their parts (dropout). Batch norm, LARS and LAMB take whole channels and parameters, and refuse parts.
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

/* The network's input: images (N,H,W,C), or (N,C) when height and width are 0. Returns a value. */
int sgrad_graph_input(struct sgrad_graph *graph, int height, int width, int channels);

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

/* How many ranks stand along AXIS of the run's mesh (runs.h, options.mesh): 1, where it has no such axis. */
int sgrad_graph_ranks(const struct sgrad_graph *graph, const char *axis);
/* The parameter NAME, of a layer that is still to come, is a rank's part of one that is split along DIMENSION, as it lies in
 * memory, over the ranks of AXIS, in their order. It begins as that part of the whole, whatever the number of ranks, and is saved
 * whole. Its gradient stays with the ranks that have the same part. Along an axis of one rank it is the whole. */
void sgrad_graph_split(struct sgrad_graph *graph, const char *name, const char *axis, int dimension);

/* The shape of a value for one sample (dim[0] is 1). */
struct sgrad_shape sgrad_graph_shape(const struct sgrad_graph *graph, int value);

/* Ends the network with its loss: LOGITS (N,classes) against the labels. */
int sgrad_graph_loss(struct sgrad_graph *graph, int logits, float label_smoothing);

/* Something that is kept of each trained parameter from step to step and in checkpoints: F32, zeros at first. */
struct sgrad_state {
    const char *name;                                                       /* "momentum" */
    struct sgrad_shape (*shape)(const struct sgrad_shape *parameter);       /* NULL: the parameter's own */
};

struct sgrad_model {
    const char *name, *summary, *source;
    int least_side;     /* pixels, of the smallest image that it takes; 0: any */
    int (*build)(struct sgrad_graph *graph, int x, int classes);   /* returns the logits (N,classes) */
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
