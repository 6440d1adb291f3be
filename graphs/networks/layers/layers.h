/* layers.h: layers composed of operations, for the networks in graphs/networks/models/. Private to graphs/networks/. Each takes
 * the network, names and values, and returns a value, as sgrad_graph_apply does. */
#ifndef SGRAD_GRAPHS_LAYERS_H
#define SGRAD_GRAPHS_LAYERS_H

#include "codelets/ops/conv2d.h"
#include "codelets/ops/linear.h"
#include "graphs/networks/networks.h"

#include <stdarg.h>

/* Convolution CONV, batch norm BN, ReLU. x (N,H,W,C) */
int sgrad__conv_bn_relu(struct sgrad_graph *graph, const char *conv, const char *bn, int x, struct sgrad_conv2d attrs);

/* ResNet's blocks NAME, of two 3×3 convolutions, or of a 3×3 one with a quarter of the channels between 1×1 ones.
 * x (N,H,W,C), shortcut and what is returned (N,⌈H/stride⌉,⌈W/stride⌉,channels) */
int sgrad__basic_block(struct sgrad_graph *graph, const char *name, int x, int shortcut, int channels, int stride);
int sgrad__bottleneck(struct sgrad_graph *graph, const char *name, int x, int shortcut, int channels, int stride);

/* ResNet's shortcut B NAME. x (N,H,W,C), returns x or (N,⌈H/stride⌉,⌈W/stride⌉,channels) */
int sgrad__projection(struct sgrad_graph *graph, const char *name, int x, int channels, int stride);

/* X (…,H,W,C), cut at the end of H and W to the size of LIKE, as layer NAME; itself where it has that size. */
int sgrad__crop_like(struct sgrad_graph *graph, const char *name, int x, int like);

/* The axes of the mesh over whose ranks these two split a linear layer, one after the other: J and K, and I, which has other
 * samples. tensor=1d:P is P ranks along J alone (Shoeybi et al., Megatron-LM, 2019, with rows split in between: Korthikanti et
 * al., Reducing activation recomputation in large transformer models, 2022), 2d:q are q along I and J (SUMMA, van de Geijn and
 * Watts, 1997: of the three matrices of a product the one that is larger here stays where it is), and 3d:q are q along each
 * (R. C. Agarwal et al., A three-dimensional approach to parallel matrix multiplication, 1995). Of N samples of T rows of C
 * features, widened to F and back, a rank has, of a weight what it uses, of which it keeps 1/I,
 *
 *   x (N/I,T/J,C/K) ── gather J ── (N/I,T,C/K) ── weight (F/J,C/K) ── sum, scatter K ── (N/I,T,F/(J·K)) ── bias ──      column
 *   x (N/I,T,F/(J·K)) ── gather K ── (N/I,T,F/J) ── weight (C/K,F/J) ── sum, scatter J ── (N/I,T/J,C/K) ── bias ──      row
 *
 * so that of all three matrices a rank has 1/(I·J·K), and sends for each, forward and backward, as often as it is gathered or
 * scattered along an axis of n ranks, n - 1 times what it has. Weights are gathered once a step. Along axes of one rank both are
 * a linear layer.
 *
 * Column: SECTIONS of outputs side by side, each of which is split: 3 of queries, keys and values. */
#define SGRAD__TENSOR "tensor"                  /* J */
#define SGRAD__FEATURES "tensor.features"       /* K */
#define SGRAD__SAMPLES "tensor.samples"         /* I */
int sgrad__column_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs, int sections);
int sgrad__row_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs);
/* Layer norm of what lies between them, of which a rank has T/J rows and C/K features. */
int sgrad__split_norm(struct sgrad_graph *graph, const char *name, int x);
/* Of a sample's T rows of C features the part between them, and all of them of such parts. NAME is that of the first layer. */
int sgrad__split_rows(struct sgrad_graph *graph, const char *name, int x);
int sgrad__join_rows(struct sgrad_graph *graph, const char *name, int x);
/* COUNT of WHAT are to be split over the ranks of these two, or, where WHOLE, of all three axes: 0, or the model is refused, with
 * the nearest that would do. */
int sgrad__check_split(struct sgrad_graph *graph, const char *what, int count, bool whole);

/* A transformer's block NAME, with the norms before the layers, split likewise:
 *
 *     x ──┬── norm1 ── qkv ── attention ── proj ── + ──┬── norm2 ── up ── GELU ── down ── + ──
 *         └────────────────────────────────────────────┘└───────────────────────────────────┘
 *
 * x (N,T,width), or on a mesh a rank's part of it, and so what is returned. DEVIATION is that of the first weights, of what
 * ends a branch LAST_DEVIATION. */
struct sgrad__transformer {
    const char *norm1, *qkv, *proj, *norm2, *up, *down;     /* names of layers, after the block's */
    int width, heads, cache;                                /* cache: as attention's */
    bool causal, approximate, turned;                       /* turned: weights lie (C,K) in files */
    float deviation, last_deviation, dropout;
};
int sgrad__transformer_block(struct sgrad_graph *graph, const char *name, int x, const struct sgrad__transformer *is);

/* SGRAD__NAME("conv%d", i): a layer's name, printed; it lives until the block that it is written in ends. */
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
