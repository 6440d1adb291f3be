/* evaluation.c: computes the metrics of the loss on the test set, concurrently with training steps.
 *
 *     steps         … 389  390 │ 391   392   393   394   395 …
 *     weights                  │ copied
 *     evaluation               │   0 1   2 3   4 5   6 7  total          batches, several of which are in flight
 *
 * Tasks copy the weights, or their averages, after the preceding steps. The tasks of the evaluation read these copies, and have a
 * lower priority than those of steps. Batches are distributed to the ranks round-robin; ranks that process the same samples have
 * the same batches. The results of all batches are sent to all ranks by a last program, which has its own tags. They are added in
 * the order of batches, so that the result does not depend on their distribution.
 *
 * No function waits, except end: the training loop must call sgrad__evaluation_advance from time to time. If a rank's memory is
 * limited, no steps run during an evaluation. It then uses the weights themselves, and the memory of the steps.
 *
 * With several views of each image (--tta) a batch contains all views of its samples, one after another. The predictions are
 * averaged, and the loss is computed from the mean (views.c).
 *
 * If samples have one class each, the samples and predictions of each class are counted as well (class_counts.c). In a mixture,
 * no batch has samples of two sources, so that the loss of each source is known. */
#include "datasets/datasets.h"
#include "graphs/engine/run.h"
#include "graphs/api/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A program for batches of one size. */
struct part {
    struct sgrad__program *program;
    struct sgrad__runner *runner;
};
/* Successive batches of one size. If ranks gather weights, they compute the same number of batches: some ranks repeat the last
 * batch, and its result is not used. */
struct range {
    struct part *part;
    int64_t first, batch, batches;      /* first row (a view of a sample); index of its first batch; number of batches */
    int64_t distinct;                   /* number of batches without those that repeat the last one */
    int source;                         /* of a mixture */
};
/* Every sample is evaluated once: first in batches of several micro-batches, but at least LEAST batches, so that all ranks get
 * some; then the remaining samples, in a smaller batch. In a mixture, the remaining samples of each source are evaluated in
 * batches of one micro-batch, then one by one. */
enum { AT_ONCE = 8, LEAST = 8, PARTS = 3 };
struct sgrad__evaluation {
    struct part part[PARTS], total;
    struct range *range;                /* (ranges) */
    int ranges, sources;                /* sources: of a mixture; 0: it is none */
    double *source_loss;                /* (sources), of the last evaluation */
    /* By parameter: copies of the weights or, if steps wait, averages; NULL: no step changes the weights, which are used. */
    struct sgrad_tensor **weight;
    bool owned;                         /* these are copies */
    struct sgrad_tensor *shared;        /* content of value, sent to all ranks */
    int64_t batches;                    /* of all ranks */
    int64_t unit;                       /* the number of batches of a range is a multiple of this */
    int sums;                           /* of a batch: one per metric, and the number of rows or elements summed */
    int classes;                        /* whose samples and predictions are counted; 0: none */
    /* results of the batches of this rank (batches, sums); it has omitted batches; counts of its samples (3, classes) */
    double *value;
    /* this rank's oldest batch in flight; its next batch; no batches are started from this one on */
    int64_t done, next, end;
    struct sgrad__seen seen;            /* the test set and its views; views is NULL if each image is evaluated as it is */
    bool totals;                        /* the batches of this rank have ended, and the total is in flight */
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int open_part(struct part *part, struct sgrad__program *program, struct sgrad_monitor *listener) {
    part->program = program;
    SGRAD_TRY(sgrad__program_allocate(program));
    part->runner = sgrad__runner_create(program, listener);
    return 0;
}

static void close_part(struct part *part) {
    sgrad__runner_destroy(part->runner);
    sgrad__program_destroy(part->program);
}

static int open_weights(struct sgrad__run *run, struct sgrad__evaluation *evaluation) {
    evaluation->weight = sgrad_xcalloc((size_t)run->graph->parameter_count, sizeof(struct sgrad_tensor *));
    evaluation->owned = !run->evaluation.alone;
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &run->graph->parameter[i];
        if (!evaluation->owned) evaluation->weight[i] = run->training->update[i].average;
        else if (p->tensor && !(run->graph->lora.rank && p->frozen))
            SGRAD_TRY(sgrad_tensor_create(p->name, p->is.dtype, p->tensor->view.shape, SGRAD_PERSISTENT, &evaluation->weight[i]));
    }
    return 0;
}

/* Returns the number of views of each sample. */
static int64_t views_of(const struct sgrad__evaluation *evaluation) {
    return evaluation->seen.views ? evaluation->seen.views->count : 1;
}

/* Divides the rows FROM to END - 1 into batches of these sizes, the first ones as far as possible; size 0: none. */
static void divide(struct sgrad__evaluation *e, int64_t from, int64_t end, const int64_t size[PARTS], int source) {
    for (int i = 0; i < PARTS; i++) {
        const int64_t batches = size[i] ? (end - from) / size[i] : 0;
        if (!batches) continue;
        const int64_t all = (batches + e->unit - 1) / e->unit * e->unit;
        e->range[e->ranges++] = (struct range){ &e->part[i], from, e->batches, all, batches, source };
        e->batches += all;
        from += batches * size[i];
    }
}

static bool is_used(const struct sgrad__evaluation *e, const struct part *part) {
    for (int r = 0; r < e->ranges; r++)
        if (e->range[r].part == part) return true;
    return false;
}

/* Returns the samples of a large batch. */
static int64_t large_batch(const struct sgrad__run *run, int64_t views) {
    const int64_t count = run->data.test->count * views, micro = run->evaluation.micro;
    const int64_t more = sgrad_clamp(count / (LEAST * micro), 1, AT_ONCE) * micro;
    return more < views ? views : more - more % views;
}

double sgrad__evaluation_memory(const struct sgrad__run *run) {
    const int64_t batch = large_batch(run, 1);
    const struct sgrad_program_options o = sgrad__run_program_options(run, false, batch, run->evaluation.micro);
    struct sgrad__program *program;
    if (sgrad__program_build(run->graph, &o, &program)) return 0;
    struct sgrad__memory memory = sgrad__program_memory(program, run->context->cpus, NULL);
    if (run->batch.limit.gpu) memory.workspaces = (double)sgrad__program_gpu_workspace(program);
    sgrad__program_destroy(program);
    return sgrad__memory_all(&memory);
}

static int open_batches(struct sgrad__run *run, struct sgrad__evaluation *evaluation) {
    const struct sgrad_dataset *test = run->data.test;
    const int64_t views = views_of(evaluation), count = test->count * views, micro = run->evaluation.micro;
    const int64_t most = large_batch(run, views);
    const int64_t size[PARTS] = { most, test->sources ? micro : count % most, test->sources ? 1 : 0 };
    evaluation->unit = sgrad__run_shares_parameters(run) ? run->evaluation.turns : 1;
    evaluation->sources = test->sources;
    evaluation->range = sgrad_xcalloc((size_t)(test->sources + 1) * PARTS, sizeof *evaluation->range);
    evaluation->source_loss = sgrad_xcalloc((size_t)test->sources + 1, sizeof *evaluation->source_loss);
    if (!test->sources) divide(evaluation, 0, count, size, 0);
    for (int s = 0; s < test->sources; s++)
        divide(evaluation, test->source[s].first, test->source[s].first + test->source[s].count, size, s);
    for (int i = 0; i < PARTS; i++) {
        if (!is_used(evaluation, &evaluation->part[i])) continue;
        struct sgrad_program_options o = sgrad__run_program_options(run, false, size[i], micro);
        struct sgrad__program *program;
        o.parameter = evaluation->weight;
        o.answers = run->evaluation.predictions || evaluation->seen.views || evaluation->classes;
        if (evaluation->seen.views) o.source = sgrad__source_of_views(&evaluation->seen);
        o.tags = run->parallel.tags + SGRAD__TAGS_EVALUATION + 1 + i;
        SGRAD_TRY(sgrad__program_build(run->graph, &o, &program));
        SGRAD_TRY(open_part(&evaluation->part[i], program, run->control.listener));
    }
    return 0;
}

static int open_total(struct sgrad__run *run, struct sgrad__evaluation *evaluation) {
    const struct sgrad_context *c = run->context;
    const struct sgrad_program_options how = { .rank = c->rank,
                                               .first = run->parallel.first_rank,
                                               .peers = c->all,
                                               .network = c->network,
                                               .tags = run->parallel.tags + SGRAD__TAGS_EVALUATION };
    evaluation->sums = run->loss_metrics + 1;
    const int64_t values = evaluation->batches * evaluation->sums + 1 + 3 * (int64_t)evaluation->classes;
    evaluation->value = sgrad_xcalloc((size_t)values, sizeof *evaluation->value);
    SGRAD_TRY(sgrad_tensor_create("evaluation", SGRAD_F64, (struct sgrad_shape){ 1, { values } }, SGRAD_PERSISTENT,
                                  &evaluation->shared));
    return open_part(&evaluation->total, sgrad__total_build(&how, evaluation->shared), run->control.listener);
}

/* Compares the programs of all ranks, which open the evaluation after the same step. Trials of a search are not compared:
 * their ranks do not open it at the same time. */
static int compare_programs(struct sgrad__run *run, const struct sgrad__evaluation *evaluation) {
    const struct sgrad__program *program[PARTS + 1] = { evaluation->total.program };
    int count = 1;
    for (int i = 0; i < PARTS; i++)
        if (evaluation->part[i].program) program[count++] = evaluation->part[i].program;
    return run->beside ? 0 : sgrad__programs_compare(run->context, program, count);
}

static int open_evaluation(struct sgrad__run *run) {
    if (run->evaluation.state) return 0;
    struct sgrad__evaluation *e = run->evaluation.state = sgrad_xcalloc(1, sizeof *e);
    if (run->evaluation.views.count) e->seen = (struct sgrad__seen){ run->data.test, &run->evaluation.views };
    if (run->result.metrics > run->loss_metrics) e->classes = run->data.test->classes;
    SGRAD_TRY(open_weights(run, e));
    SGRAD_TRY(open_batches(run, e));
    SGRAD_TRY(open_total(run, e));
    return compare_programs(run, e);
}

void sgrad__evaluation_close(struct sgrad__run *run) {
    struct sgrad__evaluation *e = run->evaluation.state;
    if (!e) return;
    for (int i = 0; i < PARTS; i++) close_part(&e->part[i]);
    close_part(&e->total);
    for (int i = 0; i < run->graph->parameter_count && e->owned; i++) sgrad_tensor_destroy(e->weight[i]);
    sgrad_tensor_destroy(e->shared);
    free(e->weight);
    free(e->value);
    free(e->range);
    free(e->source_loss);
    free(e);
    run->evaluation.state = NULL;
}

struct sgrad_tensor *const *sgrad__evaluation_weights(const struct sgrad__run *run) { return run->evaluation.state->weight; }

/* ---- running ---------------------------------------------------------------------------------------------------- */

static int copy_weights(struct sgrad__run *run, const struct sgrad__evaluation *evaluation) {
    for (int i = 0; i < run->graph->parameter_count; i++) {
        struct sgrad_tensor *tensor = run->graph->parameter[i].tensor, *average = run->training->update[i].average;
        if (evaluation->weight[i]) SGRAD_TRY(sgrad_tensor_copy(average ? average : tensor, evaluation->weight[i]));
    }
    return 0;
}

/* Waits for all steps. Their memory is free until the next one. */
static int wait_for_steps(const struct sgrad__run *run) {
    SGRAD_TRY(sgrad_wait_all());
    if (run->program && run->program->arena && !run->program->on_gpu)
        sgrad_spill_drop_pages(run->program->arena->home, run->program->arena_bytes);
    return 0;
}

/* Weights in a file leave memory. */
static void leave(const struct sgrad__run *run) {
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad_tensor *tensor = run->graph->parameter[i].tensor, *average = run->training->update[i].average;
        if (tensor && tensor->mapped) sgrad_spill_drop_pages(tensor->home, sgrad_view_bytes(&tensor->view));
        if (average && average->mapped) sgrad_spill_drop_pages(average->home, sgrad_view_bytes(&average->view));
    }
}

int sgrad__evaluation_begin(struct sgrad__run *run) {
    if (run->evaluation.state && !run->evaluation.state->seen.views != !run->evaluation.views.count) sgrad__evaluation_close(run);
    SGRAD_TRY(open_evaluation(run));
    struct sgrad__evaluation *e = run->evaluation.state;
    SGRAD_TRY(e->owned ? copy_weights(run, e) : wait_for_steps(run));
    memset(e->value, 0, sgrad_view_bytes(&e->shared->view));
    e->done = e->next = run->evaluation.turn;
    e->end = e->batches;
    e->totals = false;
    run->evaluation.active = true;
    return 0;
}

static const struct range *range_of(const struct sgrad__evaluation *evaluation, int64_t batch) {
    const struct range *range = evaluation->range;
    while (batch >= range->batch + range->batches) range++;
    return range;
}

/* Returns the number of RANGE's batch that is computed as BATCH. */
static int64_t number_of(const struct range *range, int64_t batch) {
    const int64_t number = batch - range->batch;
    return number < range->distinct ? number : range->distinct - 1;
}

static int submit_batch(struct sgrad__run *run, struct sgrad__evaluation *evaluation) {
    const struct range *range = range_of(evaluation, evaluation->next);
    const struct part *p = range->part;
    const struct sgrad_step step = { .seed = run->options.training.seed, .number = 1 };
    const int64_t size = p->program->share, from = range->first + number_of(range, evaluation->next) * size;
    const int64_t views = views_of(evaluation);
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)size, sizeof *sample);
    for (int64_t i = 0; i < size; i++)
        sample[i] = (struct sgrad_sample){ .index = (from + i) / views, .view = (from + i) % views };
    int error = sgrad__runner_submit(p->runner, &step, sample);
    free(sample);
    evaluation->next += run->evaluation.turns;
    return error;
}

/* Stores the predictions for the samples of a batch, the first of which is FIRST. */
static void take_answers(struct sgrad_predictions *predictions, const struct sgrad__program *program,
                         const struct sgrad__slot *slot, int64_t first) {
    for (int i = 0; i < 2 * program->micros; i++) {
        const struct sgrad__micro *micro = &program->micro[i / 2];
        const struct sgrad_view *view = &program->buffer[program->output[program->answer[i]].buffer].view;
        const void *from = slot->output[program->answer[i]];
        const int64_t count = i % 2 ? predictions->label_rows : predictions->width, at = (first + micro->first) * count;
        /* elements per sample; those to be stored come first */
        const int64_t all = sgrad_shape_count(&view->shape) / view->shape.dim[0];
        for (int64_t k = 0; k < micro->samples * count; k++) {
            const int64_t there = k / count * all + k % count;
            if (i % 2) predictions->label[at + k] = ((const int32_t *)from)[there];
            else if (view->dtype == SGRAD_BF16) predictions->logits[at + k] = sgrad_bf16_to_f32(((const uint16_t *)from)[there]);
            else predictions->logits[at + k] = ((const float *)from)[there];
        }
    }
}

/* Returns where this rank counts the samples of classes. */
static double *counts_of(struct sgrad__evaluation *evaluation) {
    return evaluation->value + evaluation->batches * evaluation->sums + 1;
}

/* Counts the samples and predictions of a batch by class. */
static void count_classes(struct sgrad__run *run, const struct sgrad__program *program, const struct sgrad__slot *slot) {
    struct sgrad_predictions batch = sgrad__answers_create(run, program->share);
    take_answers(&batch, program, slot, 0);
    sgrad__class_counts_add(counts_of(run->evaluation.state), run->evaluation.state->classes, &batch);
    sgrad_predictions_free(&batch);
}

/* Stores the result of a batch with all views of its samples, the first of which is FIRST: averages the predictions and
 * computes the sums of the loss. */
static void take_views(struct sgrad__run *run, const struct sgrad__program *program, const struct sgrad__slot *slot,
                       int64_t first, double *sums) {
    struct sgrad_predictions all = sgrad__answers_create(run, program->share), mean;
    take_answers(&all, program, slot, 0);
    mean = sgrad__views_average(&run->evaluation.views, &all);
    sgrad__loss_sums(run, &mean, sums);
    if (run->evaluation.state->classes)
        sgrad__class_counts_add(counts_of(run->evaluation.state), run->evaluation.state->classes, &mean);
    if (run->evaluation.predictions) {
        memcpy(run->evaluation.predictions->logits + first * mean.width, mean.logits,
               (size_t)(mean.samples * mean.width) * sizeof *mean.logits);
        memcpy(run->evaluation.predictions->label + first, mean.label, (size_t)mean.samples * sizeof *mean.label);
    }
    sgrad_predictions_free(&all);
    sgrad_predictions_free(&mean);
}

/* Stores the result of batch BATCH. */
static void store(struct sgrad__run *run, struct sgrad__evaluation *e, const struct sgrad__slot *slot, int64_t batch) {
    const struct range *range = range_of(e, batch);
    const struct sgrad__program *program = range->part->program;
    const int64_t first = range->first + number_of(range, batch) * program->share;
    double *sums = e->value + batch * e->sums;
    if (e->seen.views) {
        take_views(run, program, slot, first / views_of(e), sums);
        return;
    }
    /* ranks with the same samples have partial or equal sums: the quotients are the same */
    memcpy(sums, sgrad__slot_doubles(slot, program->statistics), (size_t)e->sums * sizeof *sums);
    if (!run->parallel.stores_predictions) return;
    if (run->evaluation.predictions) take_answers(run->evaluation.predictions, program, slot, first);
    if (e->classes) count_classes(run, program, slot);
}

/* Waits for the oldest batch in flight and stores its result. */
static int take_batch(struct sgrad__run *run, struct sgrad__evaluation *evaluation) {
    const struct range *range = range_of(evaluation, evaluation->done);
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_wait(range->part->runner, &slot));
    if (evaluation->done - range->batch < range->distinct) store(run, evaluation, slot, evaluation->done);
    evaluation->done += run->evaluation.turns;
    return 0;
}

static int submit_total(struct sgrad__evaluation *evaluation) {
    static const struct sgrad_sample no_sample;
    SGRAD_TRY(sgrad_tensor_write(evaluation->shared, evaluation->value));
    evaluation->totals = true;
    return sgrad__runner_submit(evaluation->total.runner, &(struct sgrad_step){ .number = 1 }, &no_sample);
}

/* Returns the reported value of METRIC, whose mean over the test samples is MEAN. */
static double value_of(const struct sgrad__run *run, const struct sgrad_metric *metric, double mean) {
    const struct sgrad_origin *origin = run->data.test->origin;
    if (metric->in_target_units && origin && origin->target_deviation > 0) mean *= origin->target_deviation;
    return metric->transform ? metric->transform(mean) : mean;
}

/* Sets the loss of each source of a mixture. VALUE: (batches, sums), of all ranks. */
static void take_sources(struct sgrad__run *run, struct sgrad__evaluation *e, const double *value) {
    for (int s = 0; s < e->sources; s++) {
        double loss = 0, count = 0;
        for (const struct range *range = e->range; range < e->range + e->ranges; range++)
            for (int64_t b = range->batch; range->source == s && b < range->batch + range->batches; b++) {
                loss += value[b * e->sums];
                count += value[b * e->sums + run->loss_metrics];
            }
        e->source_loss[s] = value_of(run, &run->metric[0], loss / count);
    }
    run->evaluation.epoch.sources = e->sources;
    run->evaluation.epoch.source_loss = e->source_loss;
}

/* Waits for the total. All ranks know from it whether a rank has omitted batches. */
static int take_total(struct sgrad__run *run, struct sgrad__evaluation *evaluation) {
    const struct sgrad__slot *slot;
    double sum[SGRAD_MAX_METRICS + 1] = { 0 };
    SGRAD_TRY(sgrad__runner_wait(evaluation->total.runner, &slot));
    const double *value = sgrad__slot_doubles(slot, evaluation->total.program->statistics);
    const int64_t values = evaluation->batches * evaluation->sums;
    for (int64_t i = 0; i < values; i++) sum[i % evaluation->sums] += value[i];
    run->evaluation.epoch.evaluated = value[values] == 0;
    run->control.stopping |= !run->evaluation.epoch.evaluated;
    double test[SGRAD_MAX_METRICS];
    for (int i = 0; i < run->loss_metrics; i++) test[i] = value_of(run, &run->metric[i], sum[i] / sum[run->loss_metrics]);
    take_sources(run, evaluation, value);
    if (evaluation->classes) {
        memcpy(counts_of(evaluation), value + values + 1, 3 * (size_t)evaluation->classes * sizeof *value);
        sgrad__class_metrics(counts_of(evaluation), evaluation->classes, test + run->loss_metrics);
        run->evaluation.epoch.classes = evaluation->classes;
        run->evaluation.epoch.class_count = counts_of(evaluation);
    }
    for (int i = 0; i < run->result.metrics; i++)
        run->result.test[i] = run->evaluation.epoch.test[i] = run->evaluation.epoch.evaluated ? test[i] : NAN;
    run->evaluation.active = false;
    return 0;
}

int sgrad__evaluation_advance(struct sgrad__run *run) {
    struct sgrad__evaluation *e = run->evaluation.state;
    const int64_t ahead = (int64_t)sgrad__run_steps_in_flight(run) * run->evaluation.turns;
    while (e->done < e->next && sgrad__runner_is_ready(range_of(e, e->done)->part->runner)) SGRAD_TRY(take_batch(run, e));
    while (e->next < e->end && e->next - e->done < ahead) SGRAD_TRY(submit_batch(run, e));
    if (e->done >= e->end && !e->totals) SGRAD_TRY(submit_total(e));
    return e->totals && sgrad__runner_is_ready(e->total.runner) ? take_total(run, e) : 0;
}

int sgrad__evaluation_end(struct sgrad__run *run, bool may_leave) {
    struct sgrad__evaluation *e = run->evaluation.state;
    while (run->evaluation.active) {
        /* other ranks that exchange values with it, or gather weights, would wait for it */
        const bool alone = !run->parallel.joint && !sgrad__run_shares_parameters(run);
        if (may_leave && alone && e->next < e->end && sgrad__run_is_asked(run)) {
            e->end = e->next;
            e->value[e->batches * e->sums] = 1;
        }
        SGRAD_TRY(sgrad__evaluation_advance(run));
        if (e->totals && run->evaluation.active) SGRAD_TRY(take_total(run, e));
        else if (run->evaluation.active) SGRAD_TRY(take_batch(run, e));
    }
    if (e && !e->owned) leave(run);
    return 0;
}
