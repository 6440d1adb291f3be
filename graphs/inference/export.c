/* export.c: exports trained weights and their network to an ONNX file. */
#include "graphs/networks/onnx/onnx.h"
#include "graphs/api/inference.h"
#include "graphs/train/setup.h"

#include <stdlib.h>

int sgrad_export(const struct sgrad_train_options *options, const char *path) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    r->options.model.precision = SGRAD_PRECISION_F32;
    int error = sgrad__run_open_evaluation(r);
    if (!error && r->context->rank == 0) error = sgrad__onnx_write(r->graph, path);
    if (error && !r->control.together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    return error;
}
