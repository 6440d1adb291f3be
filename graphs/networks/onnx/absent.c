/* absent.c: the functions of onnx.h in a build without protobuf-c: they fail. */
#include "graphs/networks/onnx/onnx.h"
#include "runtime/libraries.h"

int sgrad__onnx_write(const struct sgrad_graph *graph, const char *path) {
    (void)graph;
    return sgrad_library_missing("protobuf-c", "write %s", path);
}

int sgrad__onnx_open(const char *path, struct sgrad__onnx **file) {
    (void)file;
    return sgrad_library_missing("protobuf-c", "read %s", path);
}

int sgrad__onnx_parse(const char *name, const void *data, size_t size, struct sgrad__onnx **file) {
    (void)data, (void)size;
    return sgrad__onnx_open(name, file);
}

void sgrad__onnx_close(struct sgrad__onnx *file) { (void)file; }

int sgrad__onnx_build(struct sgrad__onnx *file, struct sgrad_graph *graph, int x, int classes) {
    (void)file, (void)graph, (void)x, (void)classes;
    return -1;
}
