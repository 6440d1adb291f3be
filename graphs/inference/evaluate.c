/* evaluate.c: evaluates saved weights on a test set: the metrics of the loss and, if requested, the predictions. */
#include "datasets/datasets.h"
#include "graphs/train/setup.h"
#include "graphs/api/inference.h"

#include <stdlib.h>
#include <string.h>

/* Sends the predictions to all ranks. Each rank has those of its batches, and zeros elsewhere. */
static void share_answers(struct sgrad__run *run) {
    enum { AT_ONCE = 4096 };
    const int64_t logits = run->evaluation.predictions->samples * run->evaluation.predictions->width,
                  all = logits + run->evaluation.predictions->samples * run->evaluation.predictions->label_rows;
    for (int64_t from = 0; from < all && run->context->ranks > 1; from += AT_ONCE) {
        double value[AT_ONCE] = { 0 };
        const int64_t end = from + AT_ONCE < all ? from + AT_ONCE : all;
        for (int64_t i = from; i < end; i++)
            value[i - from] =
                i < logits ? run->evaluation.predictions->logits[i] : run->evaluation.predictions->label[i - logits];
        sgrad_ranks_sum(value, AT_ONCE);
        for (int64_t i = from; i < end; i++)
            if (i < logits) run->evaluation.predictions->logits[i] = (float)value[i - from];
            else run->evaluation.predictions->label[i - logits] = (int32_t)value[i - from];
    }
}

/* Converts predictions of a scaled target to its unit. */
static void unscale_answers(const struct sgrad__run *run) {
    const struct sgrad_origin *origin = run->data.test->origin;
    const struct sgrad_predictions *p = run->evaluation.predictions;
    if (p->label_rows || !origin || !(origin->target_deviation > 0)) return;
    for (int64_t i = 0; i < p->samples * p->width; i++)
        p->logits[i] = (float)(p->logits[i] * origin->target_deviation + origin->target_mean);
}

static void name_answers(const struct sgrad__run *run) {
    const struct sgrad_dataset *test = run->data.test;
    struct sgrad_predictions *p = run->evaluation.predictions;
    p->numbered = !test->id && !test->reader->sample_name;
    p->name = sgrad_xcalloc((size_t)p->samples + 1, sizeof *p->name);
    for (int64_t i = 0; i < p->samples; i++) p->name[i] = sgrad_dataset_sample_name(test, i);
}

static int evaluate(struct sgrad__run *run) {
    SGRAD_TRY(sgrad__run_open_evaluation(run));
    sgrad__run_warn_unused(run);
    SGRAD_TRY(sgrad__run_agree(run, sgrad__run_check_views(run)));
    SGRAD_TRY(sgrad__run_see_views(run));
    if (run->evaluation.predictions) *run->evaluation.predictions = sgrad__answers_create(run, run->data.test->count);
    SGRAD_TRY(sgrad__evaluation_begin(run));
    SGRAD_TRY(sgrad__evaluation_end(run, true));
    if (!run->evaluation.predictions) return 0;
    share_answers(run);
    unscale_answers(run);
    name_answers(run);
    return 0;
}

/* Sets the losses of the sources of a mixture: an array, which the names follow in the same memory. */
static void take_sources(const struct sgrad__run *run, struct sgrad_train_result *result) {
    const struct sgrad_source *source = run->data.test->source;
    const int sources = run->evaluation.epoch.sources;
    size_t bytes = 0;
    if (!sources || !run->evaluation.epoch.evaluated) return;
    for (int s = 0; s < sources; s++) bytes += strlen(source[s].name) + 1;
    result->sources = sources;
    result->source = sgrad_xcalloc(1, (size_t)sources * sizeof *result->source + bytes);
    char *name = (char *)(result->source + sources);
    for (int s = 0; s < sources; s++) {
        result->source[s] = (struct sgrad_source_loss){ name, source[s].count, run->evaluation.epoch.source_loss[s] };
        strcpy(name, source[s].name);
        name += strlen(name) + 1;
    }
}

int sgrad_predict(const struct sgrad_train_options *options, struct sgrad_train_result *result,
                  struct sgrad_predictions *answers) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    struct sgrad_predictions predictions = { 0 };
    r->options = *options;
    if (answers) r->evaluation.predictions = &predictions;
    int error = evaluate(r);
    if (!error) *result = sgrad__run_result(r), take_sources(r, result);
    if (error && !r->control.together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    if (error) sgrad_predictions_free(&predictions);
    else if (answers) *answers = predictions;
    return error;
}

int sgrad_evaluate(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    return sgrad_predict(options, result, NULL);
}
