/* reader.h: common declarations of the files that read ONNX. Private to this folder.
 *
 * The nodes of a file are in an order in which they can be computed. Each is read by the function of its operator (operators.c).
 * A *thing* is the meaning of a name: a tensor of the file, or a value of the graph that is built. */
#ifndef SGRAD_GRAPHS_NETWORKS_ONNX_READER_H
#define SGRAD_GRAPHS_NETWORKS_ONNX_READER_H

#include "graphs/networks/onnx/onnx.h"
#include "graphs/networks/onnx/onnx.pb-c.h"

/* Types of tensors and of attributes, by their numbers in files. */
enum { ONNX_FLOAT = 1, ONNX_UINT8 = 2, ONNX_INT8 = 3, ONNX_UINT16 = 4, ONNX_INT16 = 5, ONNX_INT32 = 6, ONNX_INT64 = 7,
       ONNX_BOOL = 9, ONNX_FLOAT16 = 10, ONNX_DOUBLE = 11, ONNX_UINT32 = 12, ONNX_UINT64 = 13, ONNX_BFLOAT16 = 16 };
enum { ONNX_OF_FLOAT = 1, ONNX_OF_INT = 2, ONNX_OF_TEXT = 3, ONNX_OF_TENSOR = 4, ONNX_OF_FLOATS = 6, ONNX_OF_INTS = 7 };

struct sgrad__onnx {
    char *path;
    Onnx__Model *model;
};

/* ---- tensors.c ---- */

/* Reads the data of TENSOR, if they are in another file, to its raw_data. FOLDER: the folder of that file, ends with '/'; NULL:
 * reads nothing (sgrad__onnx_check_tensor then rejects TENSOR). SGRAD_EIO, SGRAD_EFORMAT. */
int sgrad__onnx_fetch(const char *path, const char *folder, Onnx__Tensor *tensor);
/* Checks that TENSOR has a known type, and as many numbers as its dimensions require, in one of the fields that its type may use.
 * SGRAD_EFORMAT. */
int sgrad__onnx_check_tensor(const char *path, const char *name, const Onnx__Tensor *tensor);
/* Returns the number of elements. */
int64_t sgrad__onnx_count(const Onnx__Tensor *tensor);
/* Copy the numbers of TENSOR to NUMBER, and set *COUNT. ints returns false unless it is a scalar or vector of at most MOST
 * integers, floats unless it has at most MOST floating-point numbers. */
bool sgrad__onnx_ints(const Onnx__Tensor *tensor, int64_t *number, int most, int *count);
bool sgrad__onnx_floats(const Onnx__Tensor *tensor, float *number, int most, int *count);
/* Copies TENSOR as the weight NAME to *ENTRY; the caller must free its name and data. Returns false if the numbers are
 * integers. */
bool sgrad__onnx_entry(const Onnx__Tensor *tensor, const char *name, struct sgrad_entry *entry);
/* Returns true if TYPE is a floating-point type. */
bool sgrad__onnx_is_real(int32_t type);
/* Returns true if TENSOR consists of the integers 0, 1, … COUNT - 1, in this order. */
bool sgrad__onnx_counts(const Onnx__Tensor *tensor, int64_t count);
/* Copies all numbers of TENSOR, of any type, to NUMBER. */
void sgrad__onnx_doubles(const Onnx__Tensor *tensor, double *number);

/* ---- views.c ---- */

/* SIZE steps along AXIS of a value of the graph, from one to the next STRIDE elements further. */
struct sgrad__factor {
    int dimension; /* of the view */
    int axis;
    int64_t size, stride;
};

enum { SGRAD__DIMENSIONS = 8, SGRAD__FACTORS = 16 };

/* A value of the graph as a file sees it: its axes in another order, split or joined, or a part of them (views.c). */
struct sgrad__view {
    int value;                                   /* of the graph; -1: none */
    int rank;                                    /* number of dimensions */
    int count;                                   /* of factors */
    struct sgrad__factor factor[SGRAD__FACTORS]; /* by dimension, within a dimension the outermost first */
    int64_t first[SGRAD_MAX_RANK];               /* index of the first element, of each axis of the value */
    float scale;                                 /* the view is multiplied by this number */
};

/* A prime for the number of samples, which a file may leave open. No other dimension has it as a factor, so a shape computed from
 * it shows where the samples are. */
#define SGRAD__SAMPLES INT64_C(2147483629)

struct sgrad__reader;
/* Returns VALUE with the dimensions that a file has for it: (N,C,H,W) for images. VALUE may be -1. */
struct sgrad__view sgrad__view_of(const struct sgrad__reader *reader, int value);
/* Returns the size of DIMENSION. */
int64_t sgrad__view_size(const struct sgrad__view *view, int dimension);
/* equal returns true if A and B see their values in the same way; alike, if these also have the same shape. */
bool sgrad__view_equal(const struct sgrad__view *a, const struct sgrad__view *b);
bool sgrad__view_alike(const struct sgrad__reader *reader, const struct sgrad__view *a, const struct sgrad__view *b);
/* is_plain returns true if VIEW is what view_of returns; is_pixel, if it is (N,C,1,1) and the value (N,C); is_whole, if it has
 * all elements of the value, in any order. */
bool sgrad__view_is_plain(const struct sgrad__reader *reader, const struct sgrad__view *view);
bool sgrad__view_is_pixel(const struct sgrad__reader *reader, const struct sgrad__view *view);
bool sgrad__view_is_whole(const struct sgrad__reader *reader, const struct sgrad__view *view);
/* Returns the dimension that consists of all channels, or features, and of nothing else; -1: there is none. */
int sgrad__view_channels(const struct sgrad__reader *reader, const struct sgrad__view *view);
/* Change VIEW as the operators do. select leaves out all but SIZE indices from FROM on. Return false, and leave VIEW undefined,
 * if the result is not a view. */
bool sgrad__view_reshape(struct sgrad__view *view, const int64_t *to, int count);
bool sgrad__view_transpose(struct sgrad__view *view, const int64_t *order, int count);
bool sgrad__view_select(struct sgrad__view *view, int dimension, int64_t from, int64_t size);
bool sgrad__view_squeeze(struct sgrad__view *view, int dimension);
bool sgrad__view_unsqueeze(struct sgrad__view *view, int dimension);
/* Writes the shape, "(N,64,56,56)". */
void sgrad__view_text(const struct sgrad__view *view, const struct sgrad__reader *reader, char *text, size_t size);

/* ---- things.c ---- */

enum { SGRAD__NUMBERS = 16 };   /* maximum length of a list of integers */

/* A thing may be an intermediate result that the graph does not have. For example, GELU is five nodes in a file and one layer in
 * the graph. The step is the progress within the layer, and the view is its input.
 * The steps, by layer; things.c has the names of the layers: */
enum sgrad__step {
    STEP_NONE,
    /* gelu.c */ GELU_HALF, GELU_ROOT, GELU_ERF, GELU_SUM, GELU_TWICE, GELU_CHANCE,
    /* elementwise.c */ SILU_PRODUCT,
    /* norms.c */ NORM_MEAN, NORM_CENTERED, NORM_SQUARES, NORM_VARIANCE, NORM_DEVIATION, NORM_NORMAL, NORM_SCALED,
    /* groups.c */ GROUP_NORMAL, GROUP_SCALED,
    /* heads.c */ ROTARY_NEGATED, ROTARY_SWAPPED, ROTARY_COSINE, ROTARY_SINE,
    /* attention.c */ ATTENTION_SCORES, ATTENTION_WEIGHTS,
};

struct sgrad__thing {
    const char *name;
    const Onnx__Tensor *tensor;     /* NULL: not a constant */
    const Onnx__Tensor *indices;    /* integers that are linear in the number of the sample, for the first two samples */
    int samples;                    /* dimension of the samples in the indices (constants.c) */
    bool turned;                    /* the transpose of the tensor */
    bool sliced;                    /* a filter (K,C,h,w) that stands for (K,C,1,h,w): it is applied to each slice of a volume */
    struct sgrad__view view;        /* .value -1: none */
    enum sgrad__step step;
    int strides[2];                 /* above 0: every strides[0]-th row, strides[1]-th column of the view; only for Pad */
    int stage;                      /* above 0: progress of the conversion of bytes to activations (bytes.c) */
    int groups;                     /* of group norm */
    float eps;                      /* of group norm and layer norm */
    const struct sgrad__thing *factor; /* the weight of group norm or layer norm, or a table of rotary positions */
    const Onnx__Node *scaling;      /* the node that multiplies by the weight of layer norm */
    struct sgrad__view key;         /* of attention, whose queries are the view */
    bool causal;                    /* attention is causal: later rows are left out */
    bool known;                     /* true: it is in the file, or its node has been read */
    bool needed;                    /* true: the network's output depends on it */
    int uses;                       /* number of uses by nodes and as the output */
    const Onnx__Node *user;         /* the last node that uses it; NULL: none */
};
/* Returns true if THING is a value of the graph, seen in any way, and not an intermediate result. THING may be NULL. */
static inline bool sgrad__onnx_is_view(const struct sgrad__thing *thing) {
    return thing && thing->view.value >= 0 && !thing->step && !thing->stage && !thing->strides[0] && !thing->strides[1];
}
/* Returns true if THING is also seen in the usual way: images as (N,C,H,W). */
static inline bool sgrad__onnx_is_value(const struct sgrad__reader *reader, const struct sgrad__thing *thing) {
    return sgrad__onnx_is_view(thing) && sgrad__view_is_plain(reader, &thing->view);
}

/* A parameter of the graph and the tensor of its initial value. */
struct sgrad__bound {
    char *parameter;                /* "conv1.weight" */
    const Onnx__Tensor *tensor;
    int first, rank;                /* the parameter has RANK dimensions, from this one of the tensor on; all others are 1 */
    const char *thing;              /* name of the tensor in nodes */
};

struct sgrad__reader {
    const char *path;
    const Onnx__Graph *is;
    struct sgrad_graph *graph;
    struct sgrad__imported *imported;
    int64_t opset;                  /* version of ONNX's operators in the file */
    int64_t samples;                /* number of samples of the file's input; SGRAD__SAMPLES: any */
    int stages;                     /* progress of the conversion of bytes to activations */
    float scale;                    /* the file's divisor of pixels, divided by the full scale of the images */
    int x, classes;                 /* value of the input; number of outputs of the last layer */
    char size[64];                  /* size of the file's samples, if the data have another one: "images of 224 x 224" */
    int things;
    struct sgrad__thing *thing;     /* sorted by name */
    const struct sgrad__thing *last;        /* the output of the network */
    int bounds;
    struct sgrad__bound *bound;     /* parameters and their initial values */
    int mades;
    Onnx__Tensor **made;            /* tensors that were computed; freed after reading */
    int64_t folded;                 /* number of their elements and of those of their inputs */
};

struct sgrad__operator {
    const char *name, *attributes;          /* attributes: known ones, separated and enclosed by spaces */
    int least, most;                        /* minimum and maximum number of inputs */
    int outputs;                            /* number of known outputs; further ones must not be used */
    int (*read)(struct sgrad__reader *r, const Onnx__Node *n);
};
/* Logs "FILE: node 'conv1' (Conv): …", with the shapes of the inputs, unless the graph has an error already. Stores SGRAD_EFORMAT
 * in the graph, and returns its error. */
int sgrad__onnx_refuse(struct sgrad__reader *reader, const Onnx__Node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int sgrad__onnx_by_name(const void *a, const void *b);      /* order of things, for qsort and bsearch */
/* Return the thing NAME, or that of input I of N, which may have fewer inputs; NULL: none. */
struct sgrad__thing *sgrad__onnx_thing(const struct sgrad__reader *reader, const char *name);
struct sgrad__thing *sgrad__onnx_input(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i);
/* Returns input I as a value of the graph, seen in the usual way; -1: it is not one, and the error is logged. PIXEL: (N,C,1,1) is
 * accepted, which is (N,C) in the graph. */
int sgrad__onnx_value(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, bool pixel);
/* Returns the thing of input I, all elements of a value in any order; NULL: it is not one, and the error is logged. */
struct sgrad__thing *sgrad__onnx_whole(struct sgrad__reader *reader, const Onnx__Node *n, size_t i);
/* Returns input I as a tensor of the file with RANK dimensions; NULL: it is not one, and the error is logged. */
struct sgrad__thing *sgrad__onnx_tensor(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, size_t rank);
/* Copies input I, at most SGRAD__NUMBERS known integers, to NUMBER, and sets *COUNT; false: it is not such a list. axes also
 * reads the attribute "axes", which older opsets have, and counts them from 0 for RANK dimensions. */
bool sgrad__onnx_numbers(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int64_t *number, int *count);
bool sgrad__onnx_axes(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int rank, int64_t *axis, int *count);
/* Returns true if input I is a constant with one number, and sets *NUMBER. */
bool sgrad__onnx_number(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, float *number);
/* The dimension of VIEW along which TENSOR has a number per element; it has one number along the others. -1: there is none. */
int sgrad__onnx_along(const struct sgrad__thing *tensor, const struct sgrad__view *view);
/* Returns true if TENSOR has one number per channel, or per feature, of VIEW. */
bool sgrad__onnx_is_per_channel(const struct sgrad__reader *reader, const struct sgrad__thing *tensor,
                                const struct sgrad__view *view);

const Onnx__Attribute *sgrad__onnx_attribute(const Onnx__Node *n, const char *name);     /* NULL: none */
/* Return the attribute NAME; OTHERWISE if N does not have it in this type. */
int64_t sgrad__onnx_int(const Onnx__Node *n, const char *name, int64_t otherwise);
float sgrad__onnx_float(const Onnx__Node *n, const char *name, float otherwise);
/* Set *VALUE to the attribute NAME, or to OTHERWISE if N does not have it; false: it has another type, and the error is
 * logged. */
bool sgrad__onnx_take_int(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, int64_t otherwise,
                          int64_t *value);
bool sgrad__onnx_take_float(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, float otherwise, float *value);
/* Returns X for an attribute of a Stargrad operation in which 0 selects the default: 0 becomes the smallest positive float. */
float sgrad__onnx_given(float x);
/* Returns true if A is the string TEXT. A may be NULL. */
bool sgrad__onnx_is_text(const Onnx__Attribute *a, const char *text);
/* Returns the index from 0 of AXIS, for RANK dimensions (negative ones count from the end); -1: out of range. */
int sgrad__onnx_axis(int64_t axis, int rank);
/* Returns the axis of the Softmax N for an input of RANK dimensions; -1: it spans several axes (before opset 13, an axis includes
 * all axes after it). */
int sgrad__onnx_softmax_axis(const struct sgrad__reader *reader, const Onnx__Node *n, int rank);

/* Returns a new tensor for BYTES bytes of numbers, which the reader frees. */
Onnx__Tensor *sgrad__onnx_new_tensor(struct sgrad__reader *reader, int32_t type, const int64_t *dim, size_t rank, size_t bytes);

/* Returns the number of outputs of the layer of N: the number of classes if it is the network's last layer, else HAS. A network
 * of tokens may have more outputs than the data set has tokens. */
int sgrad__onnx_outputs(const struct sgrad__reader *reader, const Onnx__Node *n, int64_t has);
/* Returns a new name for the layer of N; the caller must free it. It is derived from the name of input WEIGHT, "conv1.weight", or
 * from that of the node if the input has another kind of name or WEIGHT is -1. Parameters get this name as their prefix. */
char *sgrad__onnx_name(const struct sgrad__reader *reader, const Onnx__Node *n, int weight);
/* Adds the layer. Returns its value; -1: an error. */
int sgrad__onnx_layer(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, const struct sgrad_op *op,
                      const int *inputs, int count, const void *attrs);
/* Sets the initial value of PARAMETER of the layer NAME to THING; must be called before the layer is added. If another parameter
 * has the same tensor, of two or more dimensions, both are tied. */
void sgrad__onnx_bind(struct sgrad__reader *reader, const char *name, const char *parameter, const struct sgrad__thing *thing);
/* The same, for a parameter with RANK dimensions, those of the tensor from FIRST on; all others are 1. */
void sgrad__onnx_bind_part(struct sgrad__reader *reader, const char *name, const char *parameter,
                           const struct sgrad__thing *thing, int first, int rank);

/* make sets output 0 of N to VALUE; if that is -1, returns SGRAD_EFORMAT. make_like also sees VALUE as FROM sees its value, whose
 * axes it has; the number of features may differ. pass makes output 0 the thing of input I. set makes an output a value, seen as
 * VIEW. step makes output 0 an intermediate result of a layer with the input VIEW, and returns its thing; NULL: an error. */
int sgrad__onnx_make(struct sgrad__reader *reader, const Onnx__Node *n, int value);
int sgrad__onnx_make_like(struct sgrad__reader *reader, const Onnx__Node *n, int value, const struct sgrad__view *from);
int sgrad__onnx_pass(struct sgrad__reader *reader, const Onnx__Node *n, size_t i);
int sgrad__onnx_set(struct sgrad__reader *reader, const Onnx__Node *n, size_t output, const struct sgrad__view *view);
struct sgrad__thing *sgrad__onnx_step(struct sgrad__reader *reader, const Onnx__Node *n, enum sgrad__step step,
                                      const struct sgrad__view *view);
/* Returns the only node that uses output 0 of N, if its operator is OPERATOR; else NULL. A node whose output 0 is known already
 * is not read again. */
const Onnx__Node *sgrad__onnx_next(const struct sgrad__reader *reader, const Onnx__Node *n, const char *operator);
/* plain adds a layer without parameters, with COUNT inputs, and returns its value; -1: an error. rank returns the number of
 * dimensions of a value. */
int sgrad__onnx_plain(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad_op *op, const int *inputs, int count,
                      const void *attrs);
int sgrad__onnx_rank(const struct sgrad__reader *reader, int value);
enum { SGRAD__ONNX_LARGE = 4096 };     /* limit of windows, strides, dilations and padding */

/* ---- constants.c ---- */

/* Computes N if all of its inputs are known, unless a layer reads it. Returns true if it has done so. */
bool sgrad__onnx_fold(struct sgrad__reader *reader, const Onnx__Node *n);

/* ---- shapes.c ---- */

/* Replaces the 0 and the -1 in TO, COUNT dimensions to which a tensor with RANK dimensions DIM is reshaped, by the sizes for
 * which they stand. LITERAL: 0 is a size. Returns false if the numbers of elements differ. */
bool sgrad__onnx_resolve(const int64_t *dim, int rank, int64_t *to, int count, bool literal);
/* What a Slice selects from a dimension: COUNT elements, from FIRST on, STEP apart; a negative STEP goes backwards. */
struct sgrad__range {
    int64_t first, count, step;
};
/* Sets RANGE, one for each of RANK dimensions DIM, to what the Slice N selects. Returns false if it is not known. */
bool sgrad__onnx_ranges(const struct sgrad__reader *reader, const Onnx__Node *n, const int64_t *dim, int rank,
                        struct sgrad__range *range);

/* ---- attention.c ---- */

/* HEADS of SIZE features each in the rows VALUE, from feature FIRST on. */
struct sgrad__heads {
    int value, heads;
    int64_t size, first;
};
/* Returns true if VIEW is (N,heads,T,D), or (N,heads,D,T) if TURNED, of rows (N,T,·), and sets *HEADS. The dimensions of samples
 * and heads may be one. */
bool sgrad__onnx_heads(const struct sgrad__reader *reader, const struct sgrad__view *view, bool turned,
                       struct sgrad__heads *heads);
/* Changes VIEW from (N,T,C) to (N,HEADS,T,D); false: that is not possible. */
bool sgrad__onnx_split_heads(struct sgrad__view *view, int64_t heads);

/* ---- layers that are several nodes in a file ------------------------------------------------------------------------ */

/* Return true if N belongs to such a layer, and read it. *STATUS: 0, or the error of reading it. */
bool sgrad__onnx_takes_gelu(struct sgrad__reader *reader, const Onnx__Node *n, int *status);
bool sgrad__onnx_takes_group(struct sgrad__reader *reader, const Onnx__Node *n, int *status);
bool sgrad__onnx_takes_norm(struct sgrad__reader *reader, const Onnx__Node *n, int *status);
bool sgrad__onnx_takes_areas(struct sgrad__reader *reader, const Onnx__Node *n, int *status);
bool sgrad__onnx_takes_rotary(struct sgrad__reader *reader, const Onnx__Node *n, int *status);
bool sgrad__onnx_takes_attention(struct sgrad__reader *reader, const Onnx__Node *n, int *status);

/* ---- all files; the table of all operators: operators.c ---- */

#define ONNX_OPERATOR(name, reader, least, most, outputs, attributes) \
    int sgrad__onnx_read_##reader(struct sgrad__reader *r, const Onnx__Node *n);
#include "graphs/networks/onnx/operators.def"
#undef ONNX_OPERATOR
int sgrad__onnx_read_embedding(struct sgrad__reader *reader, const Onnx__Node *n);   /* called by read_gather */
extern const struct sgrad__operator sgrad__operators[];     /* ends at a NULL name */

#endif
