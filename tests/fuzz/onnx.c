/* Any bytes as an ONNX file, and the network in it on small images. */
#include "codelets/ops/image.h"
#include "graphs/networks/onnx/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__onnx *file;
    if (sgrad__onnx_parse("fuzz", data, size, &file)) return 0;
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 8, 8, 1));
    const int x = sgrad_layer(g, image, "augment", (pixels), .full_scale = 255);
    const int y = sgrad__onnx_build(file, g, x, 10);
    if (y >= 0) sgrad__graph_work(g);
    if ((y < 0) != (sgrad_graph_error(g) != 0)) __builtin_trap();
    sgrad_graph_destroy(g);
    sgrad__onnx_close(file);
    return 0;
}
