/* evaluate.c: the loss's metrics of saved weights. */
#include "graphs/runs/run.h"

#include <stdlib.h>

static int evaluate(struct sgrad__run *r) {
    SGRAD_TRY(sgrad__run_open_evaluation(r));
    sgrad__run_tell_idle(r);
    SGRAD_TRY(sgrad__evaluation_begin(r));
    return sgrad__evaluation_end(r, true);
}

int sgrad_evaluate(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    r->options = *options;
    int error = evaluate(r);
    if (!error) *result = sgrad__run_result(r);
    if (error && !r->together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    return error;
}
