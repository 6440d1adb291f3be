/* layers.h: layers composed of operations, for the networks in graphs/networks/models/. Private to graphs/networks/. Each takes
 * the network, names and values, and returns a value, as sgrad_graph_apply does. */
#ifndef SGRAD_GRAPHS_LAYERS_H
#define SGRAD_GRAPHS_LAYERS_H

#include "codelets/ops/conv2d.h"
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
