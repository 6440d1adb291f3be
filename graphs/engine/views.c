/* views.c: averages the predictions for several views of a sample, and computes the loss of the mean (--tta).
 *
 *     all      (samples·views,classes)    image 0 view 0 | image 0 view 1 | … | image 1 view 0 | …
 *     mean     (samples,classes)          weighted mean of the logits */
#include "codelets/ops/softmax_cross_entropy.h"
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/engine/run.h"

#include <stdlib.h>

/* Returns true if the loss can be computed outside of a program: by one CPU kernel that reads only logits and labels, and
 * writes only sums. Class weights, a state, are used only in training. */
static bool takes_logits(const struct sgrad_op *loss) {
    const struct sgrad_task *task = &loss->forward[0];
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++)
        if (task->use[j].role != SGRAD_X && task->use[j].role != SGRAD_STAT &&
            (task->use[j].role != SGRAD_S || loss != &sgrad_softmax_cross_entropy_op))
            return false;
    return task->kernel.cpu && !loss->forward[1].kernel.name && !loss->inference[0].kernel.name;
}

int sgrad__run_check_views(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    struct sgrad_views views;
    if (!o->evaluation.tta) return 0;
    SGRAD_TRY(sgrad_views_parse(o->evaluation.tta, &views));
    if (!sgrad_dataset_image(run->data.test) || !run->data.test->classes || sgrad_dataset_target(run->data.test)->shape.rank)
        return sgrad_log_error(SGRAD_EINVAL, "--tta requires images with one class each, but %s has none", o->data.name);
    if (!takes_logits(run->graph->node[run->graph->loss].op))
        return sgrad_log_error(SGRAD_EINVAL, "--tta requires a loss computed from logits and labels, but the network has loss %s",
                               run->graph->node[run->graph->loss].op->name);
    if (run->data.train && (o->evaluation.best || o->evaluation.patience))
        return sgrad_log_error(
            SGRAD_EINVAL, "--%s cannot be combined with --tta: the final evaluation would not be comparable with earlier ones",
            o->evaluation.best ? "best" : "patience");
    if (run->parallel.mesh.axes > 1)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--tta requires that each rank has whole samples; it cannot be combined with --mesh %s",
                               o->parallel.mesh);
    return 0;
}

int sgrad__run_see_views(struct sgrad__run *run) {
    return run->options.evaluation.tta ? sgrad_views_parse(run->options.evaluation.tta, &run->evaluation.views) : 0;
}

/* Returns the shape of the WIDTH logits of a sample. If it has several LABELS, the last axis is that of the classes. A volume of
 * one slice is an image. */
static struct sgrad_shape shape_of(const struct sgrad_field *target, int64_t width, int64_t labels) {
    struct sgrad_shape shape = { .rank = 1, .dim = { width } };
    const int slice = target->shape.rank == 3 && target->shape.dim[0] == 1;
    if (labels < 2 || !target->shape.rank || width % labels) return shape;
    shape.rank = target->shape.rank - slice;
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = target->shape.dim[i + slice];
    shape.dim[shape.rank++] = width / labels;
    return shape;
}

struct sgrad_predictions sgrad__answers_create(const struct sgrad__run *run, int64_t samples) {
    const struct sgrad_shape logits = sgrad_graph_shape(run->graph, sgrad__graph_logits(run->graph));
    const struct sgrad_field *target = sgrad_dataset_target(run->data.test);
    struct sgrad_predictions a = { .samples = samples, .width = sgrad_shape_count(&logits) };
    a.label_rows = target->dtype == SGRAD_I32 ? sgrad_shape_count(&target->shape) : 0;
    a.shape = shape_of(target, a.width, a.label_rows);
    a.logits = sgrad_xcalloc((size_t)(a.samples * a.width) + 1, sizeof *a.logits);
    a.label = sgrad_xcalloc((size_t)(a.samples * a.label_rows) + 1, sizeof *a.label);
    return a;
}

void sgrad_predictions_free(struct sgrad_predictions *answers) {
    free(answers->logits);
    free(answers->label);
    for (int64_t i = 0; answers->name && i < answers->samples; i++) free(answers->name[i]);
    free(answers->name);
    *answers = (struct sgrad_predictions){ 0 };
}

struct sgrad_predictions sgrad__views_average(const struct sgrad_views *views, const struct sgrad_predictions *all) {
    struct sgrad_predictions mean = { .samples = all->samples / views->count,
                                      .width = all->width,
                                      .label_rows = all->label_rows };
    mean.logits = sgrad_xcalloc((size_t)(mean.samples * mean.width) + 1, sizeof *mean.logits);
    mean.label = sgrad_xcalloc((size_t)(mean.samples * mean.label_rows) + 1, sizeof *mean.label);
    for (int64_t i = 0; i < mean.samples; i++) {
        const float *logits = all->logits + i * views->count * mean.width;
        for (int64_t c = 0; c < mean.width; c++) {
            double sum = 0;
            for (int v = 0; v < views->count; v++) sum += views->view[v].weight * (double)logits[v * mean.width + c];
            mean.logits[i * mean.width + c] = (float)sum;
        }
        mean.label[i] = all->label[i * views->count];
    }
    return mean;
}

void sgrad__loss_sums(const struct sgrad__run *run, const struct sgrad_predictions *predictions, double *sums) {
    const struct sgrad__node *loss = &run->graph->node[run->graph->loss];
    const struct sgrad_task *task = &loss->op->forward[0];
    const struct sgrad_step evaluation = { .training = false };
    const struct sgrad_batch batch = { predictions->samples, predictions->samples, predictions->samples };
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    void *data[SGRAD_MAX_OPERANDS] = { NULL };
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++) {
        const struct sgrad_use *use = &task->use[j];
        view[j].shape.rank = -1;
        if (use->role == SGRAD_STAT) {
            view[j] = (struct sgrad_view){ SGRAD_F64, loss->is.stat[use->index] };
            data[j] = sums;
        } else if (use->role == SGRAD_X && use->index < 2) {
            view[j] = loss->is.x[use->index];
            view[j].shape.dim[0] = predictions->samples;
            data[j] = use->index ? (void *)predictions->label : (void *)predictions->logits;
            if (!use->index) view[j].dtype = SGRAD_F32;
        }
    }
    const struct sgrad_args args = { .view = view, .data = data, .attrs = loss->attrs, .step = &evaluation, .batch = &batch };
    task->kernel.cpu(&args);
}
