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
/* Returns a new tensor with the numbers as floats. The caller must free it (onnx__tensor__free_unpacked). */
Onnx__Tensor *sgrad__onnx_as_floats(const Onnx__Tensor *tensor);

/* ---- things.c ---- */

enum { SGRAD__NUMBERS = 16 };   /* maximum length of a list of integers */

/* In addition to a tensor or a value, a thing may be an intermediate result that the graph does not have. For example, attention
 * is a dozen nodes in a file and one layer in the graph; the things between record how much of the layer has been read. */
struct sgrad__thing {
    const char *name;
    const Onnx__Tensor *tensor;     /* NULL: not a tensor of the file */
    bool turned;                    /* the transpose of the tensor */
    int value;                      /* of the graph; -1: none */
    bool pixel;                     /* (N,C,1,1) in the file; the value in the graph is (N,C) */
    int strides[2];                 /* above 0: every strides[0]-th row, strides[1]-th column of VALUE; only for Pad */
    int stage;                      /* above 0: progress of the conversion of bytes to activations (shapes.c) */
    bool columns;                   /* images as (N,C,H·W), which a Transpose converts to rows */
    bool sliced;                    /* a filter (K,C,h,w) that stands for (K,C,1,h,w): it is applied to each slice of a volume */
    int attends, of, heads;         /* attends above 0: progress within attention (attention.c), of value OF with HEADS heads */
    int split;                      /* above 0: state of heads (heads.c), of value OF with HEADS heads */
    int normal;                     /* above 0: progress within GELU (gelu.c), of value OF */
    int gate;                       /* above 0: progress within SiLU (features.c), of value OF */
    bool causal;                    /* attention is causal: later rows are left out */
    int grouping, groups;           /* grouping above 0: progress within group norm (groups.c), of value OF with GROUPS groups */
    float eps;                      /* of group norm */
    const struct sgrad__thing *factor; /* the weight of group norm, or a table of rotary positions */
    int spread;                     /* above 0: a vector (C) of the file, with this number of dimensions of 1 after it */
    bool is_numbers;                /* COUNT integers that are known when the file is read */
    int count;
    int64_t number[SGRAD__NUMBERS]; /* SGRAD__BATCH: the number of samples of a batch */
    bool known;                     /* true: it is in the file, or its node has been read */
    bool needed;                    /* true: the network's output depends on it */
    int uses;                       /* number of uses by nodes and as the output */
    const Onnx__Node *user;         /* the last node that uses it; NULL: none */
};
#define SGRAD__BATCH INT64_MIN
/* Returns true if NUMBER, the first dimension of a Reshape, leaves the number of samples unchanged. */
static inline bool sgrad__onnx_is_batch(int64_t number) { return number == 0 || number == -1 || number == SGRAD__BATCH; }
/* Returns true if THING is a value as the graph has it, not an intermediate result or another form of a value. THING may be
 * NULL. */
static inline bool sgrad__onnx_is_value(const struct sgrad__thing *thing) {
    return thing && thing->value >= 0 && !thing->pixel && !thing->stage && !thing->columns && !thing->strides[0] &&
           !thing->strides[1];
}

/* A parameter of the graph and the tensor of its initial value. */
struct sgrad__bound {
    char *parameter;                /* "conv1.weight" */
    const Onnx__Tensor *tensor;
    int rank;                       /* of the parameter; before its dimensions, the tensor may have others of 1 */
    const char *thing;              /* name of the tensor in nodes */
};

struct sgrad__reader {
    const char *path;
    const Onnx__Graph *is;
    struct sgrad_graph *graph;
    struct sgrad__imported *imported;
    int64_t opset;                  /* version of ONNX's operators in the file */
    int64_t samples;                /* number of samples of the file's input; 0: any */
    int stages;                     /* progress of the conversion of bytes to activations */
    float scale;                    /* the file's divisor of pixels, divided by the full scale of the images */
    int x, classes;                 /* value of the input; number of outputs of the last layer */
    int things;
    struct sgrad__thing *thing;     /* sorted by name */
    const struct sgrad__thing *last;        /* the output of the network */
    int bounds, mades;
    struct sgrad__bound *bound;     /* parameters and their initial values */
    Onnx__Tensor **made;            /* tensors created from attributes; freed after reading */
};

struct sgrad__operator {
    const char *name, *attributes;          /* attributes: known ones, separated and enclosed by spaces */
    int least, most;                        /* minimum and maximum number of inputs */
    int outputs;                            /* number of known outputs; further ones must not be used */
    int (*read)(struct sgrad__reader *r, const Onnx__Node *n);
};
/* Logs "FILE: node 'conv1' (Conv): …", unless the graph has an error already. Stores SGRAD_EFORMAT in the graph, and returns its
 * error. */
int sgrad__onnx_refuse(struct sgrad__reader *reader, const Onnx__Node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int sgrad__onnx_by_name(const void *a, const void *b);      /* order of things, for qsort and bsearch */
/* Return the thing NAME, or that of input I of N, which may have fewer inputs; NULL: none. */
struct sgrad__thing *sgrad__onnx_thing(const struct sgrad__reader *reader, const char *name);
struct sgrad__thing *sgrad__onnx_input(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i);
/* Returns input I as a value of the graph; -1: it is not one, and the error is logged. PIXEL: (N,C,1,1) is accepted, which is
 * (N,C) in the graph. */
int sgrad__onnx_value(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, bool pixel);
/* Returns input I as a tensor of the file with RANK dimensions; NULL: it is not one, and the error is logged. */
struct sgrad__thing *sgrad__onnx_tensor(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, size_t rank);
/* Copies input I, at most SGRAD__NUMBERS known integers, to NUMBER, and sets *COUNT; false: it is not such a list. */
bool sgrad__onnx_numbers(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int64_t *number, int *count);

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
/* The same, without the first ONES dimensions of the tensor, which are 1. */
void sgrad__onnx_bind_less(struct sgrad__reader *reader, const char *name, const char *parameter,
                           const struct sgrad__thing *thing, int ones);

/* make sets output 0 of N to VALUE; if that is -1, returns SGRAD_EFORMAT. pass sets output 0 to the thing of input I. */
int sgrad__onnx_make(struct sgrad__reader *reader, const Onnx__Node *n, int value);
int sgrad__onnx_pass(struct sgrad__reader *reader, const Onnx__Node *n, size_t i);
/* Returns the only node that uses output 0 of N, if its operator is OPERATOR; else NULL. A node whose output 0 is known already
 * is not read again. */
const Onnx__Node *sgrad__onnx_next(const struct sgrad__reader *reader, const Onnx__Node *n, const char *operator);
/* plain adds a layer without parameters, with COUNT inputs, and returns its value; -1: an error. rank returns the number of
 * dimensions of a value, file_rank that of a thing in the file; 0: it has no value. */
int sgrad__onnx_plain(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad_op *op, const int *inputs, int count,
                      const void *attrs);
int sgrad__onnx_rank(const struct sgrad__reader *reader, int value);
int sgrad__onnx_file_rank(const struct sgrad__reader *reader, const struct sgrad__thing *thing);
enum { SGRAD__ONNX_LARGE = 4096 };     /* limit of windows, strides, dilations and padding */

/* ---- attention.c ---- */

/* attends returns true if an input of N is an intermediate result of attention; then attend must read N. */
bool sgrad__onnx_attends(const struct sgrad__reader *reader, const Onnx__Node *n);
int sgrad__onnx_attend(struct sgrad__reader *reader, const Onnx__Node *n);
/* Sets NUMBER to the shape of THING if it is query, key or value of attention; false: it is not. */
bool sgrad__onnx_attention_shape(const struct sgrad__reader *reader, const struct sgrad__thing *thing, int64_t number[4]);
/* Returns true if the Reshape N begins attention, and reads it. */
bool sgrad__onnx_attention_begins(struct sgrad__reader *reader, const Onnx__Node *n);

/* ---- heads.c ---- */

/* splits returns true if an input of N is an intermediate result of heads; then split must read N. */
bool sgrad__onnx_splits(const struct sgrad__reader *reader, const Onnx__Node *n);
int sgrad__onnx_split(struct sgrad__reader *reader, const Onnx__Node *n);
/* Return true if the Reshape N splits rows in heads, or if the Expand N makes the positions of a batch, and read it. */
bool sgrad__onnx_splitting_begins(struct sgrad__reader *reader, const Onnx__Node *n);
bool sgrad__onnx_counts(struct sgrad__reader *reader, const Onnx__Node *n);
/* take_rows sets X to the queries, keys and values of the Attention N, *HOW to their heads, and *FEATURES to the features of a
 * head. make_rows makes the layer the output of N. Both return 0 or the error. */
struct sgrad_attention;
int sgrad__onnx_take_rows(struct sgrad__reader *reader, const Onnx__Node *n, struct sgrad_attention *how, int x[3],
                          double *features);
int sgrad__onnx_make_rows(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad_attention *how, const int x[3]);

/* ---- groups.c ---- */

/* groups returns true if an input of N is an intermediate result of group normalisation; then group must read N. */
bool sgrad__onnx_groups(const struct sgrad__reader *reader, const Onnx__Node *n);
int sgrad__onnx_group(struct sgrad__reader *reader, const Onnx__Node *n);
/* Returns true if the Reshape N begins group normalisation, and reads it. */
bool sgrad__onnx_grouping_begins(struct sgrad__reader *reader, const Onnx__Node *n);

/* ---- gelu.c ---- */

/* Returns true if N belongs to a GELU in a file without that operator, and reads N. *STATUS: 0 or the error of reading it. */
bool sgrad__onnx_is_normal(struct sgrad__reader *reader, const Onnx__Node *n, int *status);

/* ---- windows.c, features.c, shapes.c, attention.c, heads.c, gelu.c, groups.c; the table of all: operators.c ---- */

#define ONNX_OPERATOR(name, reader, least, most, outputs, attributes) \
    int sgrad__onnx_read_##reader(struct sgrad__reader *r, const Onnx__Node *n);
#include "graphs/networks/onnx/operators.def"
#undef ONNX_OPERATOR
int sgrad__onnx_read_embedding(struct sgrad__reader *reader, const Onnx__Node *n);   /* called by read_gather */
extern const struct sgrad__operator sgrad__operators[];     /* ends at a NULL name */

#endif
