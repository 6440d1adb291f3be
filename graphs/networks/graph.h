/* graph.h: the graph, open, and what its parameters hold: for graphs/ alone.
 *
 *     value      what a layer makes, for one sample                     node     a layer: an operation on values
 *     parameter  a tensor that outlives the step, and its optimizer's states                                        */
#ifndef SGRAD_GRAPHS_GRAPH_H
#define SGRAD_GRAPHS_GRAPH_H

#include "config.h"
#include "graphs/networks/networks.h"

struct sgrad__value {
    char *name;                 /* of the layer that makes it */
    struct sgrad_view view;     /* dim[0] is 1 */
    int root;                   /* the value whose memory this one shows; itself unless its node is a view */
    bool needs_gradient;
};

/* A tensor that outlives the step: a parameter, or a state of an operation. */
struct sgrad__parameter {
    char *name;                         /* "layer1.0.conv1.weight" */
    struct sgrad_parameter is;
    bool state;                         /* not trained */
    struct sgrad_tensor *tensor;        /* NULL until sgrad__parameters_allocate */
    struct sgrad_tensor *moment[2];     /* the optimizer's states, trained parameters only */
    struct sgrad_hyper hyper;           /* with this parameter's weight decay */
};

struct sgrad__node {
    char *name;
    const struct sgrad_op *op;
    void *attrs;
    struct sgrad_signature is;
    int input[SGRAD_MAX_INPUTS];
    int output;                         /* -1: none */
    int p[SGRAD_MAX_PARAMETERS], s[SGRAD_MAX_PARAMETERS];   /* indices of parameters; -1: none */
};

struct sgrad_graph {
    enum sgrad_dtype dtype;
    int error;
    int value_count, node_count, parameter_count;
    struct sgrad__value *value;
    struct sgrad__node *node;
    struct sgrad__parameter *parameter;
    int images, labels;     /* input values */
    int loss;               /* node, or -1 */
};

void sgrad__graph_print(const struct sgrad_graph *graph, FILE *to);

struct sgrad_optimizer;
/* ---- parameters.c ---- */

/* Gives every parameter memory and its first value (Philox: seed, the parameter's name, element); the optimizer may be NULL. */
int sgrad__parameters_allocate(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, uint64_t seed);
void sgrad__parameters_free(struct sgrad_graph *graph);
/* Loads parameters and states from an open file, PyTorch's names and layouts. A missing or extra tensor or another shape is
 * an error that names the first that disagrees and both shapes. Nothing is changed on error. Entries that begin with
 * "optimizer." are the optimizer's; WITH_OPTIMIZER asks for them. */
int sgrad__parameters_load(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, const struct sgrad_safetensors *file,
                           bool with_optimizer);
/* Writes them (waits for the tasks that change them). */
int sgrad__parameters_save(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, const char *path, bool with_optimizer,
                           const char *const *metadata, int metadata_count);
/* Rank 0's values, and its optimizer's, to every rank. */
int sgrad__parameters_broadcast(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer);
int64_t sgrad__parameters_count(const struct sgrad_graph *graph);     /* trained numbers */

#endif
