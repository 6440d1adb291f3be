/* evaluation.c: the loss's metrics on the test part of a data set, while other steps run.
 *
 *     steps         … 389  390 │ 391   392   393   394   395 …
 *     weights                  │ copied
 *     evaluation               │   0 1   2 3   4 5   6 7  total          batches, of which some are in flight
 *
 * Tasks copy the weights, or their averages, as the steps before leave them; the evaluation's tasks read the copies, and yield to
 * those of steps.
 * Batches are dealt out to the ranks, every so many one; those that have the same samples have the same batches. What each comes
 * to goes to all ranks by a last program, which has tags of its own, and is added in the order of batches, whichever rank had
 * them.
 *
 * Nothing waits: whoever turns steps turns the evaluation now and then.
 *
 * Of several views of each image (--tta) a batch has all of its samples', one after another: what is said of them is averaged,
 * and the loss taken of that (views.c). */
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A program, turned. */
struct part {
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    int64_t first, batch, batches;      /* sample; the first of its batches among all, and how many */
};
/* Every sample once: some micro-batches at a time, but in some batches at least, which ranks share; then what is left. */
enum { AT_ONCE = 8, LEAST = 8, PARTS = 2 };
struct sgrad__evaluation {
    struct part part[PARTS], total;
    struct sgrad_tensor **weight;       /* by parameter: the copies */
    struct sgrad_tensor *shared;        /* what value holds, for all ranks */
    int64_t batches;                    /* of all ranks */
    int sums;                           /* of a batch: one for each metric, and of how many rows or elements */
    double *value;                      /* (batches + 1, sums): those of this rank's; then whether it has left the others out */
    int64_t done, next, end;            /* this rank's oldest batch in flight; its next one; none begins from there on */
    struct sgrad__seen seen;            /* the test set's samples, and their views; NULL: it is seen as it is */
    bool totals;                        /* this rank's batches are done, and the total is in flight */
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
    e->weight = sgrad_alloc((size_t)r->graph->parameter_count, sizeof(struct sgrad_tensor *));
    for (int i = 0; i < r->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &r->graph->parameter[i];
        if (p->tensor) SGRAD_TRY(sgrad_tensor_create(p->name, p->is.dtype, p->kept_shape, SGRAD_PERSISTENT, &e->weight[i]));
    }
    return 0;
}

static int open_batches(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const int64_t views = e->seen.views ? e->seen.views->count : 1, count = r->test->count * views;
    const int64_t some = count / (LEAST * r->evaluated);
    const int64_t more = (some < 1 ? 1 : some < AT_ONCE ? some : AT_ONCE) * r->evaluated;
    const int64_t most = more < views ? views : more - more % views, size[PARTS] = { most, count % most };
    for (int64_t i = 0, from = 0; i < PARTS; i++) {
        const int64_t batches = size[i] ? (count - from) / size[i] : 0;
        e->part[i] = (struct part){ .first = from, .batch = e->batches, .batches = batches };
        if (!batches) continue;
        struct sgrad__program_options o = sgrad__run_program_options(r, false, size[i], r->evaluated);
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
    const struct sgrad__program_options how = { .rank = c->rank, .first = r->first, .peers = c->all, .network = c->network,
                                                .tags = r->tags + SGRAD__TAGS_EVALUATION };
    e->sums = r->result.metrics + 1;
    e->value = sgrad_alloc((size_t)(e->batches + 1) * (size_t)e->sums, sizeof *e->value);
    SGRAD_TRY(sgrad_tensor_create("evaluation", SGRAD_F64, sgrad_shape(2, (int)e->batches + 1, e->sums), SGRAD_PERSISTENT,
                                  &e->shared));
    return open_part(&e->total, sgrad__total_build(&how, e->shared), r->listener);
}

/* All ranks open it after the same step; a search's do not. */
static int compare_programs(struct sgrad__run *r, const struct sgrad__evaluation *e) {
    const struct sgrad__program *program[PARTS + 1] = { e->total.program };
    int count = 1;
    for (int i = 0; i < PARTS; i++)
        if (e->part[i].program) program[count++] = e->part[i].program;
    return r->beside ? 0 : sgrad__programs_compare(r->context, program, count);
}

static int open_evaluation(struct sgrad__run *r) {
    if (r->evaluation) return 0;
    struct sgrad__evaluation *e = r->evaluation = sgrad_alloc(1, sizeof *e);
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

/* ---- turning ---------------------------------------------------------------------------------------------------- */

int sgrad__evaluation_begin(struct sgrad__run *r) {
    if (r->evaluation && !r->evaluation->seen.views != !r->views.count) sgrad__evaluation_close(r);
    SGRAD_TRY(open_evaluation(r));
    struct sgrad__evaluation *e = r->evaluation;
    for (int i = 0; i < r->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &r->graph->parameter[i];
        if (p->tensor) SGRAD_TRY(sgrad_tensor_copy(p->average ? p->average : p->tensor, e->weight[i]));
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
    int64_t *sample = sgrad_alloc((size_t)size, sizeof *sample);
    for (int64_t i = 0; i < size; i++) sample[i] = from + i;
    int error = sgrad__runner_submit(p->runner, &step, sample);
    free(sample);
    e->next += r->turns;
    return error;
}

/* What it says of the batch's samples, which begin with FIRST. */
static void take_answers(struct sgrad_answers *a, const struct sgrad__program *p, const struct sgrad__slot *slot, int64_t first) {
    for (int i = 0; i < 2 * p->micros; i++) {
        const struct sgrad__micro *micro = &p->micro[i / 2];
        const struct sgrad_view *view = &p->buffer[p->output[p->answer[i]].buffer].view;
        const void *from = slot->output[p->answer[i]];
        const int64_t count = i % 2 ? a->labels : a->numbers, at = (first + micro->first) * count;
        const int64_t all = sgrad_shape_count(&view->shape) / view->shape.dim[0];      /* of a sample: what counts comes first */
        for (int64_t k = 0; k < micro->samples * count; k++) {
            const int64_t there = k / count * all + k % count;
            if (i % 2) a->label[at + k] = ((const int32_t *)from)[there];
            else if (view->dtype == SGRAD_BF16) a->said[at + k] = sgrad_bf16_to_f32(((const uint16_t *)from)[there]);
            else a->said[at + k] = ((const float *)from)[there];
        }
    }
}

/* The batch's samples, of each of which SLOT has all views, begin with FIRST: what is said on average, and what that comes to. */
static void take_views(struct sgrad__run *r, const struct sgrad__program *p, const struct sgrad__slot *slot, int64_t first,
                       double *sums) {
    struct sgrad_answers all = sgrad__answers_create(r, p->share), mean;
    take_answers(&all, p, slot, 0);
    mean = sgrad__views_average(&r->views, &all);
    sgrad__loss_sums(r, &mean, sums);
    if (r->answers) {
        memcpy(r->answers->said + first * mean.numbers, mean.said, (size_t)(mean.samples * mean.numbers) * sizeof *mean.said);
        memcpy(r->answers->label + first, mean.label, (size_t)mean.samples * sizeof *mean.label);
    }
    sgrad_answers_free(&all);
    sgrad_answers_free(&mean);
}

/* Waits for the oldest batch in flight. */
static int take_batch(struct sgrad__run *r, struct sgrad__evaluation *e) {
    const struct part *p = part_of(e, e->done);
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_wait(p->runner, &slot));
    const double *sums = sgrad__slot_doubles(slot, p->program->statistics);
    const int64_t first = p->first + (e->done - p->batch) * p->program->share;
    if (e->seen.views) take_views(r, p->program, slot, first / e->seen.views->count, e->value + e->done * e->sums);
    else memcpy(e->value + e->done * e->sums, sums, (size_t)e->sums * sizeof *e->value);     /* copies': parts, or alike */
    if (!e->seen.views && r->answers && r->speaks) take_answers(r->answers, p->program, slot, first);
    e->done += r->turns;
    return 0;
}

static int submit_total(struct sgrad__evaluation *e) {
    static const int64_t no_sample;
    SGRAD_TRY(sgrad_tensor_write(e->shared, e->value));
    e->totals = true;
    return sgrad__runner_submit(e->total.runner, &(struct sgrad_step){ .number = 1 }, &no_sample);
}

static double told(const struct sgrad_metric *metric, double mean) { return metric->of ? metric->of(mean) : mean; }

/* Waits for the total. Where a rank has left batches out, all know. */
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
        const double value = told(&r->metric[i], sum[i] / sum[r->result.metrics]);
        r->result.test[i] = r->epoch.test[i] = r->epoch.evaluated ? value : NAN;
    }
    r->evaluates = false;
    return 0;
}

int sgrad__evaluation_turn(struct sgrad__run *r) {
    struct sgrad__evaluation *e = r->evaluation;
    const int64_t ahead = (int64_t)sgrad__run_window(r) * r->turns;
    while (e->done < e->next && sgrad__runner_is_ready(part_of(e, e->done)->runner)) SGRAD_TRY(take_batch(r, e));
    while (e->next < e->end && e->next - e->done < ahead) SGRAD_TRY(submit_batch(r, e));
    if (e->done >= e->end && !e->totals) SGRAD_TRY(submit_total(e));
    return e->totals && sgrad__runner_is_ready(e->total.runner) ? take_total(r, e) : 0;
}

int sgrad__evaluation_end(struct sgrad__run *r, bool may_leave) {
    struct sgrad__evaluation *e = r->evaluation;
    while (r->evaluates) {
        if (may_leave && r->copies == 1 && e->next < e->end && sgrad__run_is_asked(r)) {     /* copies would wait for it */
            e->end = e->next;
            e->value[e->batches * e->sums] = 1;
        }
        SGRAD_TRY(sgrad__evaluation_turn(r));
        if (e->totals && r->evaluates) SGRAD_TRY(take_total(r, e));
        else if (r->evaluates) SGRAD_TRY(take_batch(r, e));
    }
    return 0;
}
