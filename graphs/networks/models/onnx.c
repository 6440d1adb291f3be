/* onnx.c: a network from a file, onnx:FILE, which graphs/networks/onnx/ reads. The file also contains the initial values of the
 * parameters. */
#include "graphs/networks/onnx/onnx.h"

static int build(struct sgrad_graph *graph, int x, int classes) {
    struct sgrad__onnx *file;
    if (!graph->file || !*graph->file) return sgrad_graph_fail(graph, "requires a file; write onnx:FILE");
    if (graph->error || (graph->error = sgrad__onnx_open(graph->file, &file))) return -1;
    const int y = sgrad__onnx_build(file, graph, x, classes);
    sgrad__onnx_close(file);
    return y;
}

const struct sgrad_model sgrad_onnx_model = {
    .name = "onnx",
    .summary = "network and weights of an ONNX file: onnx:FILE",
    .source = "Open Neural Network Exchange, github.com/onnx/onnx",
    .from_file = true,
    .build = build,
};
