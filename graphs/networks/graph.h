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

/* One way in which a parameter is split: over the ranks of AXIS along DIMENSION, of SECTIONS each by itself. */
struct sgrad__cut {
    const struct sgrad_axis *axis;
    int dimension, sections;
    bool gathered;                      /* the parts lie together again where layers use it */
};
#define SGRAD__CUTS 4

/* A tensor that outlives the step: a parameter, or a state of an operation. */
struct sgrad__parameter {
    char *name;                         /* "layer1.0.conv1.weight" */
    struct sgrad_parameter is;          /* as layers use it: of one that is split this rank's part */
    struct sgrad_shape kept_shape;      /* of what this rank keeps of it: less, where its parts are gathered for layers */
    int cuts;                           /* 0: it is whole */
    struct sgrad__cut cut[SGRAD__CUTS]; /* each of what those before it leave; gathered ones come last */
    void **whole;                       /* of one that not all ranks have whole: the wholes of itself and of what is kept of it,
                                           each NULL where this rank has neither read nor gathered it */
    uint64_t stages;                    /* bit i: stage i uses it; 0: the network is not cut */
    bool state;                         /* not trained */
    bool frozen;                        /* a parameter that stays as it is */
    bool fixed;                         /* the network says so, whoever trains it */
    long until;                         /* it does after so many steps; 0: it does not */
    struct sgrad_tensor *tensor;        /* NULL until sgrad__parameters_allocate, and where other stages use it */
    const struct sgrad_kernel *update;  /* of an optimizer of its own; NULL: the run's */
    const struct sgrad_state *states;   /* that the optimizer keeps of it; end without a name; NULL: none */
    struct sgrad_tensor **kept;         /* these, in their order; ends with NULL */
    struct sgrad_tensor *average;       /* its moving average, one of what the graph keeps; NULL: none is kept */
    struct sgrad_tensor *slow;          /* its slow weights (lookahead.c), likewise */
    struct sgrad_hyper hyper;           /* with this parameter's weight decay */
    int dealt, owner;                   /* of so many ranks OWNER updates it for all, and has the states; 0: all do */
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
    int stage;                          /* of the ranks that compute it (stages.c) */
};

/* A parameter that is another one. */
struct sgrad__tie {
    char *name, *as;
    bool made;
};

/* A parameter that is split over the ranks of an axis. */
struct sgrad__split {
    char *name, *axis;
    int dimension, sections;
    bool gathered, made;
};

/* What an optimizer keeps of a layer, F32, on all ranks or on some. */
struct sgrad__kept {
    char *name;                         /* as in files */
    struct sgrad_shape shape;
    enum sgrad_file_layout layout;      /* in files */
    struct sgrad_tensor *tensor;        /* NULL: this rank does not have it */
    int rank;                           /* the first that has it; -1: all have */
    void *whole;                        /* of what not all have: where rank 0 has read it, or gathered it, else NULL */
};

/* What a network that was read from a file brings along. */
struct sgrad__brought {
    struct sgrad_safetensors weights;           /* what its parameters begin as, in memory */
    bool softmax;                               /* at its end, left out here: the loss of classes has it */
    int channels;                               /* that it normalises as follows; 0: others do */
    float mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
};

struct sgrad_graph {
    enum sgrad_dtype dtype;
    int error;
    const struct sgrad_model *model;            /* NULL: it is of nobody's making */
    char *file;                                 /* that the model is to be read from, or NULL */
    struct sgrad__brought *brought;             /* NULL: nothing */
    double option[SGRAD_MAX_MODEL_OPTIONS];     /* the model's, in its order */
    bool cached;                                /* networks.h, sgrad_graph_cached */
    struct sgrad_mesh mesh;
    int rank;               /* on the mesh */
    int stages, stage;      /* into which it is cut, 1: it is whole; this rank's */
    int sharers;            /* the run's ranks, where those that have the same parameters keep shares of the states; else 0 */
    bool apart;             /* what is listed, and so written and read, is this rank's part of all */
    int value_count, node_count, parameter_count, tie_count, split_count;
    struct sgrad__value *value;
    struct sgrad__node *node;
    struct sgrad__parameter *parameter;
    struct sgrad__tie *tie;
    struct sgrad__split *split;
    int input[SGRAD_MAX_INPUTS], inputs;    /* values: a field of a data set each, in its order */
    int loss;               /* node, or -1 */
    int logits;             /* value: sgrad_graph_logits; -1: what the loss takes */
    int kept_count;                     /* what the optimizer keeps besides, of layers */
    struct sgrad__kept *kept;
};

/* The axis along which ranks have different samples and the same weights: the ranks that are left, where it is not named. */
#define SGRAD__DATA "data"
/* The ranks' coordinates, before anything is added; this one's number may come later. */
void sgrad__graph_set_mesh(struct sgrad_graph *graph, const struct sgrad_mesh *mesh);
/* Do values move along AXIS, or is a parameter split over it? */
bool sgrad__graph_uses(const struct sgrad_graph *graph, const struct sgrad_axis *axis);

void sgrad__graph_print(const struct sgrad_graph *graph, FILE *to);

/* What the network's loss tells: COUNT metrics, of whose sums STAT 0 has one each, and one number more. */
const struct sgrad_metric *sgrad__graph_metrics(const struct sgrad_graph *graph, int *count);
/* The value that the network says outside training: what the loss takes, or the first part of it. */
int sgrad__graph_logits(const struct sgrad_graph *graph);
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
struct sgrad__work sgrad__node_work(const struct sgrad__node *node);

/* ---- patterns.c ---- */

/* LIST is patterns, with commas between, as the shell has them, of parameters' or layers' names or of their beginning up to a
 * dot. NULL: none. Is NAME one of them? And where in LIST does its first pattern stand, which "=" may end? NULL: it is
 * none. */
bool sgrad__is_listed(const char *list, const char *name);
const char *sgrad__find_listed(const char *list, const char *name);
/* An error, of --OPTION, where a pattern is no parameter's. */
int sgrad__check_listed(const struct sgrad_graph *graph, const char *option, const char *list);
/* The parameters in LIST, those that the network itself freezes, and those whose last step is DONE or before, stay as they are;
 * nothing is computed for their sake alone. */
void sgrad__graph_freeze(struct sgrad_graph *graph, const char *list, long done);

/* ---- options.c ---- */

/* Of which model it will be, before it is built, with the options in TEXT, "NAME:key=value,…", or its file, or NULL.
 * SGRAD_EINVAL: it has no such option, or not of such a value. */
int sgrad__graph_set_model(struct sgrad_graph *graph, const struct sgrad_model *model, const char *text);
bool sgrad__graph_own_loss(const struct sgrad_graph *graph);            /* the model has a loss of its own, as its options are */
char *sgrad__graph_model_text(const struct sgrad_graph *graph);     /* the model and all of its options; free it */

/* ---- stages.c: layers on other ranks ---- */

/* The axis along which ranks have different layers, and the same samples. */
#define SGRAD__PIPE "pipe"
enum { SGRAD__STAGES_MOST = 64 };
/* Every node gets a stage, and every parameter its stages. SGRAD_EINVAL: there are too few layers. */
int sgrad__graph_cut(struct sgrad_graph *graph, int stages);
int sgrad__stage_of(const struct sgrad_graph *graph, int rank);
/* Does a layer of STAGE take VALUE, a root? */
bool sgrad__graph_takes(const struct sgrad_graph *graph, int value, int stage);
/* Has RANK the parameter, or a part of it? */
bool sgrad__parameter_on(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank);
/* Its nodes, and how long a sample takes through them by the model that cuts. */
struct sgrad__stage {
    int first, last;
    double seconds;
};
struct sgrad__stage sgrad__stage(const struct sgrad_graph *graph, int stage);

/* ---- blocks.c ---- */

/* Marks all layers inside the network's blocks to be computed again; returns how many. */
int sgrad__graph_recompute_blocks(struct sgrad_graph *graph);

/* ---- parameters.c ---- */

/* Gives every parameter that this rank has memory and its first value (Philox: seed, the parameter's name, element), and zeros to
 * the STATES (which end without a name; or NULL) that an optimizer keeps of each trained one that has none of its own. */
int sgrad__parameters_allocate(struct sgrad_graph *graph, const struct sgrad_state *states, uint64_t seed);
void sgrad__parameters_free(struct sgrad_graph *graph);
int sgrad__states_of(const struct sgrad__parameter *p);     /* how many, on whatever rank */
/* What the optimizer keeps besides, STATE of LAYER, "optimizer.factor_a.conv1" in files: on all ranks (RANK -1), or on some, of
 * which RANK is the first. Where it is kept HERE it gets memory, zeros at first. */
int sgrad__graph_keep(struct sgrad_graph *graph, const char *state, const char *layer, struct sgrad_shape shape, int rank,
                      bool here);
/* NULL: there is none, or not here. */
struct sgrad_tensor *sgrad__graph_kept(const struct sgrad_graph *graph, const char *state, const char *layer);
/* Keeps a moving average of every parameter that changes, and of every running statistic, none of which may be split,
 * "optimizer.ema.conv1.weight" in files; counters have none. */
int sgrad__graph_average(struct sgrad_graph *graph);
/* Keeps slow weights of the same, "optimizer.lookahead.conv1.weight"; once all parameters have their first values, the other has
 * them begin so. */
int sgrad__graph_keep_slow(struct sgrad_graph *graph);
int sgrad__graph_begin_slow(struct sgrad_graph *graph);
/* Trained numbers that this rank keeps, and those of all ranks' parts. */
int64_t sgrad__parameters_count(const struct sgrad_graph *graph);
int64_t sgrad__parameters_whole(const struct sgrad_graph *graph);

/* Everything that outlives the step, and what it is called in files: "conv1.weight", "optimizer.momentum.conv1.weight". */
#define SGRAD__STATES "optimizer."
struct sgrad__item {
    char *name;
    struct sgrad_view view;             /* of the whole */
    enum sgrad_file_layout layout;      /* in files */
    struct sgrad_tensor *tensor;        /* where the parameter is split, this rank's part; NULL: only other ranks have it */
    struct sgrad_tensor *average;       /* of a parameter, which a file without states has in its place; NULL: none is kept */
    const struct sgrad__parameter *split;       /* NULL: it is whole */
    bool shared;                        /* ranks keep shares of their parts */
    int rank;                           /* the first that has it; -1: all have, or each a part */
    void **whole;                       /* of what not all have whole: the place for that; else NULL */
};
/* What a file has of it. */
static inline struct sgrad_tensor *sgrad__item_tensor(const struct sgrad__item *item, bool with_states) {
    return item->average && !with_states ? item->average : item->tensor;
}
struct sgrad__items {
    int count;
    struct sgrad__item *item;
};
struct sgrad__items sgrad__parameters_list(const struct sgrad_graph *graph, bool with_states);
void sgrad__items_free(struct sgrad__items *list);

/* ---- parts.c: parameters that are split over ranks ---- */

struct sgrad_shape sgrad__whole_shape(const struct sgrad__parameter *p);
/* The set of axes (collectives.h) along which ranks have other parts of it. */
unsigned sgrad__part_axes(const struct sgrad_graph *graph, const struct sgrad__parameter *p);
/* The ranks that have the same of it as RANK, in MEMBER, which has room for all of the mesh. */
struct sgrad_group sgrad__holders(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, int *member);
/* Of what RANK keeps of a parameter, the elements whose states it keeps: a share, where others have the same, all or none of one
 * that is dealt out, else all. */
struct sgrad__share {
    int ranks;                          /* that have a share each; 1: this one keeps all */
    int64_t first, count;
};
struct sgrad__share sgrad__share_of(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank);
/* Of WHOLE states, as they lie in memory, RANK's share, and the way back. */
void sgrad__share_take(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *whole,
                       float *share);
void sgrad__share_put(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *share,
                      float *whole);
/* Between WHOLE and the PART that RANK keeps, both F32, as they lie in memory. */
void sgrad__part_take(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *whole,
                      float *part);
void sgrad__part_put(const struct sgrad_graph *graph, const struct sgrad__parameter *p, int rank, const float *part,
                     float *whole);
/* Of an item whose whole is there: what this rank has of it becomes its tensor. */
int sgrad__item_take(const struct sgrad_graph *graph, const struct sgrad__item *item);
void sgrad__wholes_free(struct sgrad_graph *graph);

/* ---- weights.c ---- */

/* Loads parameters and states from an open file, PyTorch's names and layouts. A missing or extra tensor or another shape is
 * an error that names the first that disagrees and both shapes, and changes nothing. Entries that begin with
 * "optimizer." are the optimizer's; WITH_STATES asks for them. */
int sgrad__weights_load(struct sgrad_graph *graph, const struct sgrad_safetensors *file, bool with_states, const char *skip);

/* The checksum of FILE's data as they are now. A warning states where it is not the one that they were written with: weights may
 * be changed by hand, and what is changed, or damaged, is taken. */
int sgrad__weights_checksum(const struct sgrad_safetensors *file, char checksum[SGRAD_CHECKSUM]);
/* A copy of them, for a file; of what is split the wholes, which are there. Without the states it is of their averages, where
 * these are kept: what training is for. COPY waits for the tasks that change them; who
 * WRITEs it, once, may be another thread. */
struct sgrad__weights {
    struct sgrad__items items;
    void **value;               /* of each: as it lies in memory; when it is written, in files */
};
int sgrad__weights_copy(const struct sgrad_graph *graph, bool with_states, struct sgrad__weights *copy);
int sgrad__weights_write(struct sgrad__weights *copy, const char *path, const char *const *metadata, int metadata_count);
/* Or, of each, as it is in files, in that order; to be freed, while names and data stay the copy's. */
struct sgrad_entry *sgrad__weights_entries(struct sgrad__weights *copy);
void sgrad__weights_free(struct sgrad__weights *copy);
/* COUNT numbers of type DTYPE, F32, F64, F16 or BF16, at any address, as floats. */
void sgrad__to_floats(enum sgrad_dtype dtype, const void *from, int64_t count, float *to);
void sgrad__brought_free(struct sgrad_graph *graph);
/* All three. */
/* The same of VALUE, by parameter, in their place; none of them is split. */
int sgrad__weights_save_values(struct sgrad_graph *graph, struct sgrad_tensor *const *value, const char *path,
                               const char *const *metadata, int metadata_count);
int sgrad__weights_save(struct sgrad_graph *graph, const char *path, bool with_states, const char *const *metadata,
                        int metadata_count);

#endif
