/* reader.h: what the files share that read ONNX. Private to this folder.
 *
 * Nodes come in an order in which they can be computed, and each is read by the place of its operator (operators.c). A *thing* is
 * what a name stands for: a tensor of the file, or a value of the graph that is built. */
#ifndef SGRAD_GRAPHS_ONNX_READER_H
#define SGRAD_GRAPHS_ONNX_READER_H

#include "graphs/networks/onnx/onnx.h"
#include "graphs/networks/onnx/onnx.pb-c.h"

/* Types of tensors and attributes, as files number them. */
enum { ONNX_FLOAT = 1, ONNX_UINT8 = 2, ONNX_INT8 = 3, ONNX_UINT16 = 4, ONNX_INT16 = 5, ONNX_INT32 = 6, ONNX_INT64 = 7,
       ONNX_BOOL = 9, ONNX_FLOAT16 = 10, ONNX_DOUBLE = 11, ONNX_UINT32 = 12, ONNX_UINT64 = 13, ONNX_BFLOAT16 = 16 };
enum { ONNX_OF_FLOAT = 1, ONNX_OF_INT = 2, ONNX_OF_TEXT = 3, ONNX_OF_TENSOR = 4, ONNX_OF_FLOATS = 6, ONNX_OF_INTS = 7 };

struct sgrad__onnx {
    char *path;
    Onnx__Model *model;
};

/* ---- tensors.c ---- */

/* Its numbers lie in another file of the folder FOLDER, which ends with '/': they become its raw data. SGRAD_EIO, SGRAD_EFORMAT;
 * FOLDER NULL: it is refused. */
int sgrad__onnx_fetch(const char *path, const char *folder, Onnx__Tensor *tensor);
/* Is it of a known type, and are there as many numbers, in one place that its type may have, as its dimensions say? */
int sgrad__onnx_check_tensor(const char *path, const char *name, const Onnx__Tensor *tensor);
int64_t sgrad__onnx_count(const Onnx__Tensor *tensor);
/* Its numbers; false: it is no row of MOST whole numbers at most, or no such many floats. */
bool sgrad__onnx_ints(const Onnx__Tensor *tensor, int64_t *number, int most, int *count);
bool sgrad__onnx_floats(const Onnx__Tensor *tensor, float *number, int most, int *count);
/* A copy, for weights; false: its numbers are whole. */
bool sgrad__onnx_entry(const Onnx__Tensor *tensor, const char *name, struct sgrad_entry *entry);
bool sgrad__onnx_is_real(int32_t type);
/* The same numbers as floats, a tensor of its own; to be freed. */
Onnx__Tensor *sgrad__onnx_as_floats(const Onnx__Tensor *tensor);

/* ---- things.c ---- */

enum { SGRAD__NUMBERS = 16 };   /* whole numbers that belong together, at most */

struct sgrad__thing {
    const char *name;
    const Onnx__Tensor *tensor;     /* NULL: it is none of the file's */
    bool turned;                    /* its transpose is meant */
    int value;                      /* of the graph; -1: none */
    bool pixel;                     /* (N,C,1,1), which the graph has as (N,C) */
    int strides[2];                 /* above 0: every so-manieth row, or column, of VALUE is meant, which a Pad alone takes */
    int stage;                      /* above 0: bytes, of which so much has been made */
    bool columns;                   /* images as (N,C,H·W), of which a Transpose makes rows */
    bool sliced;                    /* a filter (K,C,h,w), for each slice of volumes: its (K,C,1,h,w) is meant */
    int attends, of, heads;         /* above 0: a place within attention, of this value of the graph and so many heads */
    int normal;                     /* above 0: a place on the way to GELU, of the value OF */
    bool causal;                    /* that leaves later rows out */
    int grouping, groups;           /* above 0: a place within group normalisation, of the value OF and so many groups */
    float eps;
    const struct sgrad__thing *factor;
    int spread;                     /* a vector (C) of the file: with so many dimensions of 1 behind it, it is meant */
    bool is_numbers;                /* whole numbers, COUNT of them, which are known */
    int count;
    int64_t number[SGRAD__NUMBERS]; /* SGRAD__BATCH: as many as samples in a batch */
    bool known;                     /* it is the file's, or a node has made it */
    bool needed;                    /* for the network's output */
    int uses;                       /* by nodes, and as that output */
    const Onnx__Node *user;         /* the node that comes last of them; NULL: none */
};
#define SGRAD__BATCH INT64_MIN
/* Does a Reshape to so many leave the samples as many as they are? */
static inline bool sgrad__onnx_is_batch(int64_t number) { return number == 0 || number == -1 || number == SGRAD__BATCH; }
/* Is it a value as the graph has it, and not something that is meant by one? NULL: no. */
static inline bool sgrad__onnx_is_value(const struct sgrad__thing *t) {
    return t && t->value >= 0 && !t->pixel && !t->stage && !t->columns && !t->strides[0] && !t->strides[1];
}

struct sgrad__bound {
    char *parameter;                /* "conv1.weight" */
    const Onnx__Tensor *tensor;
    int rank;                       /* of the parameter: the tensor may have dimensions of 1 before it */
    const char *thing;              /* what nodes call it */
};

struct sgrad__reader {
    const char *path;
    const Onnx__Graph *is;
    struct sgrad_graph *graph;
    struct sgrad__brought *brought;
    int64_t opset;                  /* of ONNX's own operators */
    int64_t samples;                /* that the file's input has; 0: any */
    int stages;                     /* of bytes that become activations, as far as they have been read */
    float scale;                    /* by what the file divides bytes, over the largest there may be */
    int x, classes;                 /* the network's activations, and numbers at its end */
    int things;
    struct sgrad__thing *thing;     /* sorted by name */
    const struct sgrad__thing *last;        /* the network's output */
    int bounds, mades;
    struct sgrad__bound *bound;     /* parameters, and what they begin as */
    Onnx__Tensor **made;            /* out of attributes */
};

struct sgrad__operator {
    const char *name, *attributes;          /* those that are known, with a space around each */
    int least, most;                        /* inputs */
    int outputs;                            /* that are known; of more, nobody may take any */
    int (*read)(struct sgrad__reader *r, const Onnx__Node *n);
};
/* "FILE: node 'conv1' (Conv): …". Returns SGRAD_EFORMAT. */
int sgrad__onnx_refuse(struct sgrad__reader *r, const Onnx__Node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int sgrad__onnx_by_name(const void *a, const void *b);      /* the order of things */
/* What NAME, or input I (there may be fewer), stands for; NULL: nothing. */
struct sgrad__thing *sgrad__onnx_thing(const struct sgrad__reader *r, const char *name);
struct sgrad__thing *sgrad__onnx_input(const struct sgrad__reader *r, const Onnx__Node *n, size_t i);
/* Input I as a value of the graph; -1: it is none, which is told. PIXEL: it may be (N,C,1,1), (N,C) in the graph. */
int sgrad__onnx_value(struct sgrad__reader *r, const Onnx__Node *n, size_t i, bool pixel);
/* Input I as a tensor of RANK of the file; NULL: it is none, which is told. */
struct sgrad__thing *sgrad__onnx_tensor(struct sgrad__reader *r, const Onnx__Node *n, size_t i, size_t rank);
/* Input I as at most SGRAD__NUMBERS whole numbers; false: it is none such. */
bool sgrad__onnx_numbers(const struct sgrad__reader *r, const Onnx__Node *n, size_t i, int64_t *number, int *count);

const Onnx__Attribute *sgrad__onnx_attribute(const Onnx__Node *n, const char *name);     /* or NULL */
int64_t sgrad__onnx_int(const Onnx__Node *n, const char *name, int64_t otherwise);
float sgrad__onnx_float(const Onnx__Node *n, const char *name, float otherwise);
/* The same for an attribute of Stargrad's operations, where 0 means the usual value: the smallest number in its place. */
float sgrad__onnx_given(float x);
bool sgrad__onnx_is_text(const Onnx__Attribute *a, const char *text);
/* The axis of a value of RANK dimensions in the file, from 0 on; -1: it is none. */
int sgrad__onnx_axis(int64_t axis, int rank);
/* The axis along which a Softmax of a thing of RANK dimensions, after which nothing matters but that axis, works; -1: several. */
int sgrad__onnx_softmax_axis(const struct sgrad__reader *r, const Onnx__Node *n, int rank);

/* The network's last layer has as many outputs as there are classes; any other HAS. */
int sgrad__onnx_outputs(const struct sgrad__reader *r, const Onnx__Node *n, int64_t has);
/* A name for the layer that is made of N, by which its parameters are called, by that of its input WEIGHT, "conv1.weight", or,
 * where that ends otherwise, or is none (-1), by the node's. To be freed. */
char *sgrad__onnx_name(const struct sgrad__reader *r, const Onnx__Node *n, int weight);
/* Adds that layer. Returns its value, or -1. */
int sgrad__onnx_layer(struct sgrad__reader *r, const Onnx__Node *n, const char *name, const struct sgrad_op *op,
                      const int *inputs, int count, const void *attrs);
/* Before: PARAMETER of the layer NAME begins as THING; where another parameter does, both are one. */
void sgrad__onnx_bind(struct sgrad__reader *r, const char *name, const char *parameter, const struct sgrad__thing *thing);
/* The same, without its first ONES dimensions, which are 1. */
void sgrad__onnx_bind_less(struct sgrad__reader *r, const char *name, const char *parameter, const struct sgrad__thing *thing,
                           int ones);

/* Output 0 of N is VALUE; returns SGRAD_EFORMAT where that is -1. It is what input I is. */
int sgrad__onnx_make(struct sgrad__reader *r, const Onnx__Node *n, int value);
int sgrad__onnx_pass(struct sgrad__reader *r, const Onnx__Node *n, size_t i);
/* The one node that takes output 0 of N, if it is of OPERATOR; else NULL. A node whose output 0 is made is not read again. */
const Onnx__Node *sgrad__onnx_next(const struct sgrad__reader *r, const Onnx__Node *n, const char *operator);
/* A layer without parameters, of COUNT inputs; its value, or -1. The dimensions that a value has. */
int sgrad__onnx_plain(struct sgrad__reader *r, const Onnx__Node *n, const struct sgrad_op *op, const int *inputs, int count,
                      const void *attrs);
int sgrad__onnx_rank(const struct sgrad__reader *r, int value);
enum { SGRAD__ONNX_LARGE = 4096 };     /* no window is larger, nor anything of it */

/* ---- attention.c ---- */

/* Is an input of N a place within attention? Then N is read so. Does its Reshape begin one? */
bool sgrad__onnx_attends(const struct sgrad__reader *r, const Onnx__Node *n);
int sgrad__onnx_attend(struct sgrad__reader *r, const Onnx__Node *n);
/* The shape of a thing that is query, key or worth; false: it is none. */
bool sgrad__onnx_attention_shape(const struct sgrad__reader *r, const struct sgrad__thing *thing, int64_t number[4]);
bool sgrad__onnx_attention_begins(struct sgrad__reader *r, const Onnx__Node *n);

/* ---- groups.c ---- */

/* Is an input of N a place within group normalisation? Then N is read so. Does its Reshape begin one? */
bool sgrad__onnx_groups(const struct sgrad__reader *r, const Onnx__Node *n);
int sgrad__onnx_group(struct sgrad__reader *r, const Onnx__Node *n);
bool sgrad__onnx_grouping_begins(struct sgrad__reader *r, const Onnx__Node *n);

/* ---- gelu.c ---- */

/* Is N a step on the way to GELU, as files without its operator have it? *STATUS: what reading it returns. */
bool sgrad__onnx_is_normal(struct sgrad__reader *r, const Onnx__Node *n, int *status);

/* ---- windows.c, features.c, shapes.c, attention.c, gelu.c; all of them: operators.c ---- */

#define ONNX_OPERATOR(name, reader, least, most, outputs, attributes) \
    int sgrad__onnx_read_##reader(struct sgrad__reader *r, const Onnx__Node *n);
#include "graphs/networks/onnx/operators.def"
#undef ONNX_OPERATOR
int sgrad__onnx_read_embedding(struct sgrad__reader *r, const Onnx__Node *n);   /* of read_gather */
extern const struct sgrad__operator sgrad__operators[];     /* end without a name */

#endif
