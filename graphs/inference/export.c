/* export.c: exports trained weights to a file: with their network in ONNX, or only the weights in safetensors. */
#include "graphs/networks/onnx/onnx.h"
#include "graphs/api/inference.h"
#include "graphs/train/setup.h"

#include <stdlib.h>
#include <string.h>

static int write_file(const struct sgrad_graph *graph, const char *path) {
    const char *end = strrchr(path, '.');
    if (!end || strcmp(end, ".safetensors")) return sgrad__onnx_write(graph, path);
    return sgrad__weights_save(sgrad__parameters_list(graph), path, NULL, 0);
}

int sgrad_export(const struct sgrad_train_options *options, const char *path) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    r->options.model.precision = SGRAD_PRECISION_F32;
    int error = sgrad__run_open_evaluation(r);
    if (!error && r->context->rank == 0) error = write_file(r->graph, path);
    if (error && !r->control.together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    return error;
}
