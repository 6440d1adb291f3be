/* Any bytes as an ONNX file, and the network in it on small images, or on tokens. */
#include "codelets/ops/image.h"
#include "graphs/networks/onnx/onnx.h"

static void build(struct sgrad__onnx *file, bool tokens) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    int x = tokens ? sgrad_graph_input(g, "tokens", SGRAD_I32, sgrad_shape(1, 4))
                   : sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 8, 8, 1));
    if (!tokens) x = sgrad_layer(g, image, "augment", (x), .full_scale = 255);
    const int y = sgrad__onnx_build(file, g, x, 10);
    if (y >= 0) sgrad__graph_work(g);
    if ((y < 0) != (sgrad_graph_error(g) != 0)) __builtin_trap();
    sgrad_graph_destroy(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__onnx *file;
    if (sgrad__onnx_parse("fuzz", data, size, &file)) return 0;
    build(file, false);
    build(file, true);
    sgrad__onnx_close(file);
    return 0;
}
