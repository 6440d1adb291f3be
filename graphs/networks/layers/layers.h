/* layers.h: layers composed of operations, for the networks in graphs/networks/models/. Private to graphs/networks/. Each
 * function takes the graph, names and values, and returns a value; -1: an error, stored in the graph, as by sgrad_graph_apply. */
#ifndef SGRAD_GRAPHS_NETWORKS_LAYERS_LAYERS_H
#define SGRAD_GRAPHS_NETWORKS_LAYERS_LAYERS_H

#include "codelets/ops/conv2d.h"
#include "codelets/ops/attention.h"
#include "codelets/ops/experts.h"
#include "codelets/ops/linear.h"
#include "graphs/networks/networks.h"

#include <stdarg.h>

/* Convolution CONV, batch norm BN, ReLU. x: (N,H,W,C). */
int sgrad__conv_bn_relu(struct sgrad_graph *graph, const char *conv, const char *bn, int x, struct sgrad_conv2d attrs);

/* The parts of torchvision's mobile networks. A style is common to the blocks of a network. */
struct sgrad__style {
    float eps, momentum;                        /* of batch norm; 0: the default */
    const struct sgrad_op *activation;
    const void *attrs;                          /* attributes of activation; NULL: zeros */
    const struct sgrad_op *inner, *gate;        /* activations of squeeze and excitation; they have no attributes */
    bool uniform_bias;                          /* initial biases of squeeze and excitation are PyTorch's default, not zeros */
    const char *parts;                          /* a block's layers are NAME.PARTS.0, NAME.PARTS.1, … */
    bool flat;                                  /* the last convolution and its norm are two of these parts, not one */
};
/* Convolution NAME.0, padded so that only its stride changes the size of the image; batch norm NAME.1; activation NAME.2. */
int sgrad__conv_norm_activation(struct sgrad_graph *graph, const char *name, int x, struct sgrad_conv2d attrs,
                                const struct sgrad__style *style);
/* The same without activation; CONV and NORM are the names. SHORTCUT is added to the result; -1: nothing. RELU: then a ReLU. */
int sgrad__conv_norm(struct sgrad_graph *graph, const char *conv, const char *norm, int x, int shortcut,
                     struct sgrad_conv2d attrs, const struct sgrad__style *style, bool relu);
/* Multiplies each channel of X (N,H,W,C) by a factor that layers NAME.fc1, with SQUEEZED outputs, and NAME.fc2 compute from the
 * means of the channels. */
int sgrad__squeeze_excitation(struct sgrad_graph *graph, const char *name, int x, int squeezed, const struct sgrad__style *style);
/* The block NAME. x: (N,H,W,C); result: (N,⌈H/stride⌉,⌈W/stride⌉,channels). */
struct sgrad__inverted_residual {
    int expanded, channels, kernel, stride;     /* expanded: channels of the depthwise convolution */
    int squeezed;                               /* of squeeze and excitation; 0: none */
    float drop;                                 /* probability of drop path */
};
int sgrad__inverted_residual(struct sgrad_graph *graph, const char *name, int x, const struct sgrad__inverted_residual *is,
                             const struct sgrad__style *style);
/* Returns the multiple of 8 next to CHANNELS: at least 8, and not less than 90 % of CHANNELS. */
int sgrad__multiple_of_8(double channels);

/* ResNet's residual blocks NAME. basic_block: two 3×3 convolutions; bottleneck: 1×1, 3×3 and 1×1 convolutions, the first two with
 * a quarter of the channels. x: (N,H,W,C); shortcut and result: (N,⌈H/stride⌉,⌈W/stride⌉,channels). */
int sgrad__basic_block(struct sgrad_graph *graph, const char *name, int x, int shortcut, int channels, int stride);
int sgrad__bottleneck(struct sgrad_graph *graph, const char *name, int x, int shortcut, int channels, int stride);

/* ResNet's shortcut B, NAME: x if its shape does not change, else a 1×1 convolution of it and batch norm. x: (N,H,W,C); result: x
 * or (N,⌈H/stride⌉,⌈W/stride⌉,channels). */
int sgrad__projection(struct sgrad_graph *graph, const char *name, int x, int channels, int stride);

/* Crops X, (…,H,W,C), at the ends of H and W to the size of LIKE, as layer NAME. Returns X if it has that size. */
int sgrad__crop_like(struct sgrad_graph *graph, const char *name, int x, int like);

/* Two linear layers, one after the other, that are split over ranks. J, K and I are the axes of the mesh defined below; ranks
 * along I have different samples. tensor=1d:P is P ranks along J only (Shoeybi et al., Megatron-LM, 2019; rows are split between
 * the two layers: Korthikanti et al., Reducing activation recomputation in large transformer models, 2022). tensor=2d:q is q
 * ranks along I and J (SUMMA, van de Geijn and Watts, 1997; of the three matrices of a product, the one that is the largest here
 * is not moved). tensor=3d:q is q ranks along each axis (R. C. Agarwal et al., A three-dimensional approach to parallel matrix
 * multiplication, 1995). N samples have T rows of C features; the first layer maps C to F features, the second F to C. The shapes
 * on a rank; of a weight, it stores 1/I of the shape shown:
 *
 *   x (N/I,T/J,C/K) ── gather J ── (N/I,T,C/K) ── weight (F/J,C/K) ── sum, scatter K ── (N/I,T,F/(J·K)) ── bias ──      column
 *   x (N/I,T,F/(J·K)) ── gather K ── (N/I,T,F/J) ── weight (C/K,F/J) ── sum, scatter J ── (N/I,T/J,C/K) ── bias ──      row
 *
 * A rank stores 1/(I·J·K) of each of the three matrices. Each time that a matrix is gathered or scattered along an axis of n
 * ranks, forward or backward, a rank sends n - 1 times the size of its shard. Weights are gathered once per step. Along axes of
 * one rank, both are ordinary linear layers.
 *
 * The outputs of a column layer are SECTIONS equal sections, each of which is split: 3 for queries, keys and values. */
#define SGRAD__TENSOR "tensor"                  /* J */
#define SGRAD__FEATURES "tensor.features"       /* K */
#define SGRAD__SAMPLES "tensor.samples"         /* I */
int sgrad__column_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs, int sections);
int sgrad__row_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs);
/* The two parts of a column layer, for several layers with the same input: gather_rows returns the rows of all ranks along J, as
 * layer NAME/gather, and column_of_rows continues from them. */
int sgrad__gather_rows(struct sgrad_graph *graph, const char *name, int x);
int sgrad__column_of_rows(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs, int sections);
/* Layer norm, and RMS norm, of a value between two such layers, of which a rank has T/J rows and C/K features. */
int sgrad__split_norm(struct sgrad_graph *graph, const char *name, int x, float eps);
int sgrad__split_rms_norm(struct sgrad_graph *graph, const char *name, int x, float eps);
/* split_rows returns this rank's T/J rows and C/K features of a value (N,T,C); join_rows gathers (N,T,C) from them. NAME: the
 * layer along J; that along K is NAME/features. */
int sgrad__split_rows(struct sgrad_graph *graph, const char *name, int x);
int sgrad__join_rows(struct sgrad_graph *graph, const char *name, int x);
/* Returns 0 if COUNT of WHAT can be split evenly over the ranks of axes J and K, or, if WHOLE is set, of all three axes.
 * Otherwise fails the model with the nearest numbers that can, and returns -1. */
int sgrad__check_split(struct sgrad_graph *graph, const char *what, int count, bool whole);

/* Ranks along axis context have different tokens of the same samples, as struct sgrad_zigzag describes. check_context returns 0
 * if samples of TOKENS tokens can be split over this axis and axis J; otherwise it fails the model with the nearest numbers that
 * can, and returns -1. context_rows returns the tokens of this rank, as layer NAME, of a value (N,T) of all tokens. */
#define SGRAD__CONTEXT "context"
int sgrad__check_context(struct sgrad_graph *graph, int tokens);
int sgrad__context_rows(struct sgrad_graph *graph, const char *name, int x);

/* Ranks along axis expert have different samples, and each has E/P of the E experts of a mixture. Returns the mixture NAME of X
 * (N,T,C), with the weights of the experts (N,T,E); attributes as of experts. On one rank it is that operation. Otherwise the
 * rows are sent to the ranks of their experts, and the results return (D. Lepikhin et al., GShard, 2020):
 *
 *     x (N,T,C) ── dispatch ── (N,P·T,C) ── experts (E/P) ── (N,P·T,C) ── combine ── (N,T,C)
 *
 * A number of experts that cannot be divided fails the model with the nearest numbers that can. */
int sgrad__split_experts(struct sgrad_graph *graph, const char *name, int x, int weights, struct sgrad_experts attrs);

/* Self-attention NAME, with the inputs and attributes of operation attention. If it is causal and samples have several documents
 * (sgrad_graph_documents), it is document_attention. If it is causal and the mesh has an axis context, it is ring_attention. */
int sgrad__attention(struct sgrad_graph *graph, const char *name, const int *x, int count, struct sgrad_attention attrs);

/* A transformer block NAME, with the norms before the layers, split in the same manner:
 *
 *     x ──┬── norm1 ── qkv ── attention ── proj ── + ──┬── norm2 ── up ── GELU ── down ── + ──
 *         └────────────────────────────────────────────┘└───────────────────────────────────┘
 *
 * x and the result: (N,T,width), or on a mesh this rank's shard of it. DEVIATION is the standard deviation of the initial
 * weights; LAST_DEVIATION that of proj and down, the last layers of the branches. */
struct sgrad__transformer {
    const char *norm1, *qkv, *proj, *norm2, *up, *down;     /* names of the layers, after that of the block */
    int width, heads, hidden;                               /* hidden: features of layer up */
    int cache, sequences;                                   /* attributes of attention */
    bool causal, approximate, transposed;                   /* transposed: weights are (C,K) in files */
    float eps, deviation, last_deviation, dropout;          /* eps of the norms; 0: 1e-5 */
};
int sgrad__transformer_block(struct sgrad_graph *graph, const char *name, int x, const struct sgrad__transformer *is);

/* SGRAD__NAME("conv%d", i): a formatted layer name, which is valid until the enclosing block ends. */
#define SGRAD__NAME(...) sgrad__name((char[SGRAD__NAME_SIZE]){ 0 }, __VA_ARGS__)
enum { SGRAD__NAME_SIZE = 96 };
__attribute__((format(printf, 2, 3))) static inline const char *sgrad__name(char name[SGRAD__NAME_SIZE], const char *format,
                                                                            ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(name, SGRAD__NAME_SIZE, format, list);
    va_end(list);
    return name;
}

#endif
