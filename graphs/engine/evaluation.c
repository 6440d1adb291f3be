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
 * No function waits, except end: the training loop must call sgrad__evaluation_turn from time to time.
 *
 * With several views of each image (--tta) a batch contains all views of its samples, one after another. The predictions are
 * averaged, and the loss is computed from the mean (views.c). */
#include "graphs/engine/run.h"
#include "graphs/api/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A program for batches of one size. */
struct part {
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    int64_t first, batch, batches;      /* first row (a view of a sample); index of its first batch; number of batches */
};
/* Every sample is evaluated once: first in batches of several micro-batches, but at least LEAST batches, so that all ranks get
 * some; then the remaining samples, in a smaller batch. */
enum { AT_ONCE = 8, LEAST = 8, PARTS = 2 };
struct sgrad__evaluation {
    struct part part[PARTS], total;
    struct sgrad_tensor **weight;       /* by parameter: copies of the weights */
    struct sgrad_tensor *shared;        /* content of value, sent to all ranks */
    int64_t batches;                    /* of all ranks */
    int sums;                           /* of a batch: one per metric, and the number of rows or elements summed */
    /* (batches + 1, sums): results of the batches of this rank; last row: it has omitted batches */
    double *value;
    /* this rank's oldest batch in flight; its next batch; no batches are started from this one on */
    int64_t done, next, end;
    struct sgrad__seen seen;            /* the test set and its views; views is NULL if each image is evaluated as it is */
    bool totals;                        /* the batches of this rank have ended, and the total is in flight */
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int open_part(struct part *p, struct sgrad__program *program, struct sgrad_monitor *listener) {
    p->program = program;
    SGRAD_TRY(sgrad__program_allocate(program));
    p->runner = sgrad__runner_create(program, listener);
    return 0;
}

static void close_part(struct part *p) {
    sgrad__runner_destroy(p->runner);
    sgrad__program_destroy(p->program);
}

static int open_weights(struct sgrad__run *r, struct sgrad__evaluation *e) {
    e->weight = sgrad_xcalloc((size_t)r->graph->parameter_count, sizeof(struct sgrad_tensor *));
    for (int i = 0; i < r->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &r->graph->parameter[i];
        if (p->tensor) SGRAD_TRY(sgrad_tensor_create(p->name, p->is.dtype, p->kept_shape, SGRAD_PERSISTENT, &e->weight[i]));
    }
    return 0;
}

/* Returns the number of views of each sample. */
static int64_t views_of(const struct sgrad__evaluation *e) { return e->seen.views ? e->seen.views->count : 1; }

static int open_batches(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const int64_t views = views_of(e), count = r->test->count * views;
    const int64_t more = sgrad_clamp(count / (LEAST * r->evaluated), 1, AT_ONCE) * r->evaluated;
    const int64_t most = more < views ? views : more - more % views, size[PARTS] = { most, count % most };
    for (int64_t i = 0, from = 0; i < PARTS; i++) {
        const int64_t batches = size[i] ? (count - from) / size[i] : 0;
        e->part[i] = (struct part){ .first = from, .batch = e->batches, .batches = batches };
        if (!batches) continue;
        struct sgrad_program_options o = sgrad__run_program_options(r, false, size[i], r->evaluated);
        struct sgrad__program *program;
        o.parameter = e->weight;
        o.answers = r->answers || e->seen.views;
        if (e->seen.views) o.source = sgrad__source_of_views(&e->seen);
        o.tags = r->tags + SGRAD__TAGS_EVALUATION + 1 + (int)i;
        SGRAD_TRY(sgrad__program_build(r->graph, &o, &program));
        SGRAD_TRY(open_part(&e->part[i], program, r->listener));
        e->batches += batches;
        from += batches * size[i];
    }
    return 0;
}

static int open_total(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const struct sgrad_context *c = r->context;
    const struct sgrad_program_options how = { .rank = c->rank, .first = r->first, .peers = c->all, .network = c->network,
                                                .tags = r->tags + SGRAD__TAGS_EVALUATION };
    e->sums = r->result.metrics + 1;
    e->value = sgrad_xcalloc((size_t)(e->batches + 1) * (size_t)e->sums, sizeof *e->value);
    SGRAD_TRY(sgrad_tensor_create("evaluation", SGRAD_F64, sgrad_shape(2, (int)e->batches + 1, e->sums), SGRAD_PERSISTENT,
                                  &e->shared));
    return open_part(&e->total, sgrad__total_build(&how, e->shared), r->listener);
}

/* Compares the programs of all ranks, which open the evaluation after the same step. Trials of a search are not compared:
 * their ranks do not open it at the same time. */
static int compare_programs(struct sgrad__run *r, const struct sgrad__evaluation *e) {
    const struct sgrad__program *program[PARTS + 1] = { e->total.program };
    int count = 1;
    for (int i = 0; i < PARTS; i++)
        if (e->part[i].program) program[count++] = e->part[i].program;
    return r->beside ? 0 : sgrad__programs_compare(r->context, program, count);
}

static int open_evaluation(struct sgrad__run *r) {
    if (r->evaluation) return 0;
    struct sgrad__evaluation *e = r->evaluation = sgrad_xcalloc(1, sizeof *e);
    if (r->views.count) e->seen = (struct sgrad__seen){ r->test, &r->views };
    SGRAD_TRY(open_weights(r, e));
    SGRAD_TRY(open_batches(r, e));
    SGRAD_TRY(open_total(r, e));
    return compare_programs(r, e);
}

void sgrad__evaluation_close(struct sgrad__run *r) {
    struct sgrad__evaluation *e = r->evaluation;
    if (!e) return;
    for (int i = 0; i < PARTS; i++) close_part(&e->part[i]);
    close_part(&e->total);
    for (int i = 0; i < r->graph->parameter_count; i++) sgrad_tensor_destroy(e->weight[i]);
    sgrad_tensor_destroy(e->shared);
    free(e->weight);
    free(e->value);
    free(e);
    r->evaluation = NULL;
}

struct sgrad_tensor *const *sgrad__evaluation_weights(const struct sgrad__run *r) { return r->evaluation->weight; }

/* ---- running ---------------------------------------------------------------------------------------------------- */

int sgrad__evaluation_begin(struct sgrad__run *r) {
    if (r->evaluation && !r->evaluation->seen.views != !r->views.count) sgrad__evaluation_close(r);
    SGRAD_TRY(open_evaluation(r));
    struct sgrad__evaluation *e = r->evaluation;
    for (int i = 0; i < r->graph->parameter_count; i++) {
        struct sgrad_tensor *tensor = r->graph->parameter[i].tensor, *average = r->training->update[i].average;
        if (tensor) SGRAD_TRY(sgrad_tensor_copy(average ? average : tensor, e->weight[i]));
    }
    memset(e->value, 0, sgrad_view_bytes(&e->shared->view));
    e->done = e->next = r->turn;
    e->end = e->batches;
    e->totals = false;
    r->evaluates = true;
    return 0;
}

static struct part *part_of(struct sgrad__evaluation *e, int64_t batch) {
    struct part *p = e->part;
    while (batch >= p->batch + p->batches) p++;
    return p;
}

static int submit_batch(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const struct part *p = part_of(e, e->next);
    const struct sgrad_step step = { .seed = r->options.seed, .number = 1 };
    const int64_t size = p->program->share, from = p->first + (e->next - p->batch) * size;
    const int64_t views = views_of(e);
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)size, sizeof *sample);
    for (int64_t i = 0; i < size; i++)
        sample[i] = (struct sgrad_sample){ .index = (from + i) / views, .view = (from + i) % views };
    int error = sgrad__runner_submit(p->runner, &step, sample);
    free(sample);
    e->next += r->turns;
    return error;
}

/* Stores the predictions for the samples of a batch, the first of which is FIRST. */
static void take_answers(struct sgrad_predictions *a, const struct sgrad__program *p, const struct sgrad__slot *slot,
                         int64_t first) {
    for (int i = 0; i < 2 * p->micros; i++) {
        const struct sgrad__micro *micro = &p->micro[i / 2];
        const struct sgrad_view *view = &p->buffer[p->output[p->answer[i]].buffer].view;
        const void *from = slot->output[p->answer[i]];
        const int64_t count = i % 2 ? a->label_rows : a->width, at = (first + micro->first) * count;
        /* elements per sample; those to be stored come first */
        const int64_t all = sgrad_shape_count(&view->shape) / view->shape.dim[0];
        for (int64_t k = 0; k < micro->samples * count; k++) {
            const int64_t there = k / count * all + k % count;
            if (i % 2) a->label[at + k] = ((const int32_t *)from)[there];
            else if (view->dtype == SGRAD_BF16) a->logits[at + k] = sgrad_bf16_to_f32(((const uint16_t *)from)[there]);
            else a->logits[at + k] = ((const float *)from)[there];
        }
    }
}

/* Stores the result of a batch with all views of its samples, the first of which is FIRST: averages the predictions and
 * computes the sums of the loss. */
static void take_views(struct sgrad__run *r, const struct sgrad__program *p, const struct sgrad__slot *slot, int64_t first,
                       double *sums) {
    struct sgrad_predictions all = sgrad__answers_create(r, p->share), mean;
    take_answers(&all, p, slot, 0);
    mean = sgrad__views_average(&r->views, &all);
    sgrad__loss_sums(r, &mean, sums);
    if (r->answers) {
        memcpy(r->answers->logits + first * mean.width, mean.logits, (size_t)(mean.samples * mean.width) * sizeof *mean.logits);
        memcpy(r->answers->label + first, mean.label, (size_t)mean.samples * sizeof *mean.label);
    }
    sgrad_predictions_free(&all);
    sgrad_predictions_free(&mean);
}

/* Waits for the oldest batch in flight and stores its result. */
static int take_batch(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const struct part *p = part_of(e, e->done);
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_wait(p->runner, &slot));
    const double *sums = sgrad__slot_doubles(slot, p->program->statistics);
    const int64_t first = p->first + (e->done - p->batch) * p->program->share;
    if (e->seen.views) take_views(r, p->program, slot, first / views_of(e), e->value + e->done * e->sums);
    /* ranks with the same samples have partial or equal sums: the quotients are the same */
    else memcpy(e->value + e->done * e->sums, sums, (size_t)e->sums * sizeof *e->value);
    if (!e->seen.views && r->answers && r->speaks) take_answers(r->answers, p->program, slot, first);
    e->done += r->turns;
    return 0;
}

static int submit_total(struct sgrad__evaluation *e) {
    static const struct sgrad_sample no_sample;
    SGRAD_TRY(sgrad_tensor_write(e->shared, e->value));
    e->totals = true;
    return sgrad__runner_submit(e->total.runner, &(struct sgrad_step){ .number = 1 }, &no_sample);
}

static double value_of(const struct sgrad_metric *metric, double mean) {
    return metric->transform ? metric->transform(mean) : mean;
}

/* Waits for the total. All ranks know from it whether a rank has omitted batches. */
static int take_total(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const struct sgrad__slot *slot;
    double sum[SGRAD_MAX_METRICS + 1] = { 0 };
    SGRAD_TRY(sgrad__runner_wait(e->total.runner, &slot));
    const double *value = sgrad__slot_doubles(slot, e->total.program->statistics);
    const int64_t values = e->batches * e->sums;
    for (int64_t i = 0; i < values; i++) sum[i % e->sums] += value[i];
    r->epoch.evaluated = value[values] == 0;
    r->stopping |= !r->epoch.evaluated;
    for (int i = 0; i < r->result.metrics; i++) {
        const double value = value_of(&r->metric[i], sum[i] / sum[r->result.metrics]);
        r->result.test[i] = r->epoch.test[i] = r->epoch.evaluated ? value : NAN;
    }
    r->evaluates = false;
    return 0;
}

int sgrad__evaluation_turn(struct sgrad__run *r) {
    struct sgrad__evaluation *e = r->evaluation;
    const int64_t ahead = (int64_t)sgrad__run_steps_in_flight(r) * r->turns;
    while (e->done < e->next && sgrad__runner_is_ready(part_of(e, e->done)->runner)) SGRAD_TRY(take_batch(r, e));
    while (e->next < e->end && e->next - e->done < ahead) SGRAD_TRY(submit_batch(r, e));
    if (e->done >= e->end && !e->totals) SGRAD_TRY(submit_total(e));
    return e->totals && sgrad__runner_is_ready(e->total.runner) ? take_total(r, e) : 0;
}

int sgrad__evaluation_end(struct sgrad__run *r, bool may_leave) {
    struct sgrad__evaluation *e = r->evaluation;
    while (r->evaluates) {
        /* other ranks with the same samples would wait for it */
        if (may_leave && r->copies == 1 && e->next < e->end && sgrad__run_is_asked(r)) {
            e->end = e->next;
            e->value[e->batches * e->sums] = 1;
        }
        SGRAD_TRY(sgrad__evaluation_turn(r));
        if (e->totals && r->evaluates) SGRAD_TRY(take_total(r, e));
        else if (r->evaluates) SGRAD_TRY(take_batch(r, e));
    }
    return 0;
}
