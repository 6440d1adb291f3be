/* writer.h: common declarations of the files that write ONNX. Private to this folder. */
#ifndef SGRAD_GRAPHS_NETWORKS_ONNX_WRITER_H
#define SGRAD_GRAPHS_NETWORKS_ONNX_WRITER_H

#include "graphs/networks/onnx/reader.h"

/* ---- text.c ---- */

/* Parses the node on *LINE, in ONNX's text syntax, and sets *LINE to the next line. Returns the node, which the caller must free
 * (onnx__node__free_unpacked); NULL: a syntax error at *LINE. */
Onnx__Node *sgrad__onnx_take_node(const char **line);

#endif
