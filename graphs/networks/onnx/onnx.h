/* onnx.h: networks to and from ONNX files (onnx.ai), for graphs/ alone. Nobody else knows how such a file is made.
 *
 * Writing asks each operation's record for its form (codelets.h); reading has a place for each operator of ONNX (operators.c).
 * Images are (N,C,H,W) there and (N,H,W,C) here, volumes likewise; rows and parameters are alike in files of either kind. What a
 * network makes of a field of a data set's samples is the file's first output; losses, and what else is there for training alone,
 * stay here. */
#ifndef SGRAD_GRAPHS_ONNX_H
#define SGRAD_GRAPHS_ONNX_H

#include "graphs/networks/graph.h"

/* ---- write.c ---- */

/* Writes the network up to what its loss takes, with the weights as they are, to the file PATH: "pixels" to "logits" of an
 * image's classes. SGRAD_EINVAL: a layer has no form in ONNX; SGRAD_ESHAPE: it is larger than such a file can be. */
int sgrad__onnx_write(const struct sgrad_graph *graph, const char *path);

/* ---- file.c, read.c ---- */

struct sgrad__onnx;         /* a file that is read, protobuf's Onnx__Model */

/* SGRAD_EIO, SGRAD_EFORMAT. PARSE: the same from memory; NAME is for messages. */
int sgrad__onnx_open(const char *path, struct sgrad__onnx **file);
int sgrad__onnx_parse(const char *name, const void *data, size_t size, struct sgrad__onnx **file);
void sgrad__onnx_close(struct sgrad__onnx *file);

/* Adds the file's layers: from X, activations, to the value that is returned; what it brings along becomes the graph's. A linear
 * layer or a convolution at the end gets CLASSES outputs, however many it has in the file. -1: something is not known, or wrong,
 * which was told, by its node. */
int sgrad__onnx_build(struct sgrad__onnx *file, struct sgrad_graph *graph, int x, int classes);

#endif
