/* onnx.h: networks to and from ONNX files (onnx.ai). Private to graphs/. No other module depends on the format of these files.
 *
 * The writer obtains the ONNX form of an operation from its record (codelets.h). The reader has a function for each ONNX operator
 * (operators.c). Images are (N,C,H,W) in files and (N,H,W,C) here, and volumes correspondingly; rows and parameters have the same
 * layout in both. The input of a file is one field of the samples of a data set, its first output the result of the network.
 * Losses, and other layers that only training needs, are not in files. */
#ifndef SGRAD_GRAPHS_NETWORKS_ONNX_ONNX_H
#define SGRAD_GRAPHS_NETWORKS_ONNX_ONNX_H

#include "graphs/networks/graph.h"

/* Returns the dimension of channels, or of features, of a value in a file. */
static inline int sgrad__onnx_channels(int rank) { return rank > 3 ? 1 : rank - 1; }

/* Returns the index here of dimension I of a value in a file, where channels precede the plane. */
static inline int sgrad__onnx_dimension(int rank, int i) {
    if (rank < 4 || i == 0) return i;
    return i == 1 ? rank - 1 : i - 1;
}

/* ---- write.c ---- */

/* Writes the network up to the first input of its loss, with the current weights, to the file PATH. For images with classes, its
 * input is "pixels" and its output "logits". SGRAD_ELIBRARY: this build has no protobuf-c. SGRAD_EINVAL: a layer has no form in
 * ONNX. SGRAD_ESHAPE: the file would exceed 2 GiB. SGRAD_EIO: PATH cannot be written. */
int sgrad__onnx_write(const struct sgrad_graph *graph, const char *path);

/* ---- file.c, read.c ---- */

struct sgrad__onnx;         /* a file in memory: protobuf's Onnx__Model */

/* open reads the file PATH, and other files that contain its tensors; parse reads from memory, with NAME for messages. The caller
 * must close *FILE. SGRAD_ELIBRARY: as above. SGRAD_EIO: a file cannot be read. SGRAD_EFORMAT: it is malformed, or exceeds a
 * limit. */
int sgrad__onnx_open(const char *path, struct sgrad__onnx **file);
int sgrad__onnx_parse(const char *name, const void *data, size_t size, struct sgrad__onnx **file);
void sgrad__onnx_close(struct sgrad__onnx *file);

/* Adds the layers of FILE to GRAPH, from X, activations, to the value that is returned. Imported weights and the normalisation
 * are stored in the graph (.imported). If the last layer is linear or a convolution, it gets CLASSES outputs instead of those in
 * the file. Returns -1 if FILE is invalid or not supported; the error is logged with the node, and stored in GRAPH. */
int sgrad__onnx_build(struct sgrad__onnx *file, struct sgrad_graph *graph, int x, int classes);

#endif
