/* onnx.c: a network from a file, onnx:FILE, which graphs/networks/onnx/ reads. The file also contains the initial values of the
 * parameters. */
#include "graphs/networks/onnx/onnx.h"

static int build(struct sgrad_graph *g, int x, int classes) {
    struct sgrad__onnx *file;
    if (!g->file || !*g->file) return sgrad_graph_fail(g, "is the network of a file: onnx:FILE");
    if (g->error || (g->error = sgrad__onnx_open(g->file, &file))) return -1;
    const int y = sgrad__onnx_build(file, g, x, classes);
    sgrad__onnx_close(file);
    return y;
}

const struct sgrad_model sgrad_onnx_model = {
    .name = "onnx",
    .summary = "onnx:FILE, the network in an ONNX file, weights included",
    .source = "Open Neural Network Exchange, github.com/onnx/onnx",
    .from_file = true,
    .build = build,
};
