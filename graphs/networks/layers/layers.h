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

/* The axis of the mesh over whose ranks these two split a linear layer (Shoeybi et al., Megatron-LM, 2019), one after the other,
 * the rows of what comes and goes being split likewise (Korthikanti et al., Reducing activation recomputation in large
 * transformer models, 2022):
 *
 *     x (N,T/P,C) ── gather ── (N,T,C) ── column ── (N,T,K/P) ── … ── row ── sum, scatter ── (N,T/P,C) ── bias ──
 *
 * so that each rank has 1/P of the weights, of the work, and of what lies between such pairs. Forward and backward, a rank sends
 * 4·(P-1)/P·|x| for a pair, x being whole. Along an axis of one rank both are a linear layer.
 *
 * Column: SECTIONS of outputs side by side, each of which is split: 3 of queries, keys and values. */
#define SGRAD__TENSOR "tensor"
int sgrad__column_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs, int sections);
int sgrad__row_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs);
/* COUNT of WHAT are to be split over the axis's ranks: 0, or the model is refused, with the numbers of ranks that would do. */
int sgrad__check_split(struct sgrad_graph *graph, const char *what, int count);

/* A transformer's block NAME, with the norms before the layers, split likewise:
 *
 *     x ──┬── norm1 ── qkv ── attention ── proj ── + ──┬── norm2 ── up ── GELU ── down ── + ──
 *         └────────────────────────────────────────────┘└───────────────────────────────────┘
 *
 * x (N,T,width), or on a mesh T/P rows of each sample, and so what is returned. DEVIATION is that of the first weights, of what
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
