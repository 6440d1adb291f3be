/* writer.h: what the files share that write ONNX. Private to this folder. */
#ifndef SGRAD_GRAPHS_ONNX_WRITER_H
#define SGRAD_GRAPHS_ONNX_WRITER_H

#include "graphs/networks/onnx/reader.h"

/* ---- text.c ---- */

/* The node that *LINE is, to be freed, which then is the line behind it. NULL: it is none, from *LINE on. */
Onnx__Node *sgrad__onnx_take_node(const char **line);

#endif
