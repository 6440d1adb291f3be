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
    int maker;                  /* node; -1: an input */
    bool needs_gradient;
};

/* A tensor that outlives the step: a parameter, or a state of an operation. */
struct sgrad__parameter {
    char *name;                         /* "layer1.0.conv1.weight" */
    struct sgrad_parameter is;
    bool state;                         /* not trained */
    struct sgrad_tensor *tensor;        /* NULL until sgrad__parameters_allocate */
    struct sgrad_tensor **kept;         /* what the optimizer keeps of it, in the order of the graph's states; ends with NULL */
    struct sgrad_hyper hyper;           /* with this parameter's weight decay */
};

struct sgrad__node {
    char *name;
    const struct sgrad_op *op;
    void *attrs;
    struct sgrad_signature is;
    int input[SGRAD_MAX_INPUTS];
    int output;                         /* -1: none */
    int p[SGRAD_MAX_PARAMETERS], s[SGRAD_MAX_PARAMETERS];   /* indices of parameters, which nodes may share; -1: none */
    bool again;                         /* keeps nothing for backward: what it makes is computed again */
    bool ends_block;
};

/* A parameter that is another one. */
struct sgrad__tie {
    char *name, *as;
    bool made;
};

struct sgrad_graph {
    enum sgrad_dtype dtype;
    int error;
    int value_count, node_count, parameter_count, tie_count;
    struct sgrad__value *value;
    struct sgrad__node *node;
    struct sgrad__parameter *parameter;
    struct sgrad__tie *tie;
    int input[SGRAD_MAX_INPUTS], inputs;    /* values: a field of a data set each, in its order */
    int loss;               /* node, or -1 */
    const struct sgrad_state *states;   /* that the optimizer keeps of each trained parameter; end without a name; NULL: none */
};

void sgrad__graph_print(const struct sgrad_graph *graph, FILE *to);

/* What the network's loss tells: COUNT metrics, of whose sums STAT 0 has one each, and one number more. */
const struct sgrad_metric *sgrad__graph_metrics(const struct sgrad_graph *graph, int *count);
/* How pixels become activations: the attributes of the operation that does it, which may still change; NULL: there is none. */
struct sgrad_image *sgrad__graph_image(const struct sgrad_graph *graph);
/* Does it prepare input, as that of pixels does, before the step before has ended? */
bool sgrad__graph_prepares(const struct sgrad__node *node);

/* What a sample's forward pass computes, and how many layers are more work than what they move. */
struct sgrad__work {
    double flops;
    int layers;
};
struct sgrad__work sgrad__graph_work(const struct sgrad_graph *graph);

/* ---- blocks.c ---- */

/* Marks all layers inside the network's blocks to be computed again; returns how many. */
int sgrad__graph_recompute_blocks(struct sgrad_graph *graph);

/* ---- parameters.c ---- */

/* Gives every parameter memory and its first value (Philox: seed, the parameter's name, element), and zeros to the STATES (which
 * end without a name; or NULL) that an optimizer keeps of each trained one. */
int sgrad__parameters_allocate(struct sgrad_graph *graph, const struct sgrad_state *states, uint64_t seed);
void sgrad__parameters_free(struct sgrad_graph *graph);
int64_t sgrad__parameters_count(const struct sgrad_graph *graph);     /* trained numbers */

/* Everything that outlives the step, and what it is called in files: "conv1.weight", "optimizer.momentum.conv1.weight". */
#define SGRAD__STATES "optimizer."
struct sgrad__item {
    char *name;
    struct sgrad_view view;
    enum sgrad_file_layout layout;      /* in files */
    struct sgrad_tensor *tensor;
};
struct sgrad__items {
    int count;
    struct sgrad__item *item;
};
struct sgrad__items sgrad__parameters_list(const struct sgrad_graph *graph, bool with_states);
void sgrad__items_free(struct sgrad__items *list);

/* ---- weights.c ---- */

/* Loads parameters and states from an open file, PyTorch's names and layouts. A missing or extra tensor or another shape is
 * an error that names the first that disagrees and both shapes, and changes nothing. Entries that begin with
 * "optimizer." are the optimizer's; WITH_STATES asks for them. */
int sgrad__weights_load(struct sgrad_graph *graph, const struct sgrad_safetensors *file, bool with_states);
/* Writes them (waits for the tasks that change them). */
int sgrad__weights_save(struct sgrad_graph *graph, const char *path, bool with_states, const char *const *metadata,
                        int metadata_count);

#endif
