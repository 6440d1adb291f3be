/* unused_options.c: logs a warning, with the reason, for each explicitly set option that has no effect on this run, or another
 * effect than its name suggests.
 *
 * Options of optimizers and strategies are checked by their records: the option is unused if another record lists it and the
 * chosen one does not. All other options are rows of a table below. There is no warning if the run behaves as requested anyway
 * (--no-augment if nothing is augmented). */
#include "config.h"
#include "datasets/datasets.h"
#include "graphs/train/setup.h"
#include "runtime/environment.h"

#include <stdlib.h>
#include <string.h>

/* ---- options of optimizers and strategies ---- */

static bool lists(const char *const *words, const char *word) {
    for (; *words; words++)
        if (strcmp(*words, word) == 0) return true;
    return false;
}

static bool is_heeded(const struct sgrad__run *r, const char *option) {
    bool heeded = lists(r->optimizer->options, option);
    for (int i = 0; i < r->graph->parameter_count && !heeded; i++) {
        const struct sgrad_optimizer *is = r->training->update[i].optimizer;
        heeded = is && lists(is->options, option);
    }
    return heeded;
}

/* Returns why OPTION is unused: only other optimizers or strategies use it; NULL: it is used, or is no such option. The caller
 * must free it. */
static char *why_of_others(const struct sgrad__run *r, const char *option) {
    bool optimizers = false, strategies = false;
    for (int i = 0; sgrad_optimizers[i]; i++) optimizers |= lists(sgrad_optimizers[i]->options, option);
    for (int i = 0; sgrad_strategies[i]; i++) strategies |= lists(sgrad_strategies[i]->options, option);
    if (optimizers && !is_heeded(r, option))
        return sgrad_format("--optimizer %s has no use for it", r->optimizer->name);
    if (strategies && !lists(r->strategy->options, option))
        return sgrad_format("--strategy %s has no use for it", r->strategy->name);
    return NULL;
}

/* ---- other options: each function returns the reason, which the caller must free, or NULL if the option has its effect ---- */

static char *one_rank(const struct sgrad__run *r) {
    return r->context->ranks > 1 ? NULL : sgrad_format("one rank trains alone; mpirun and stargrad launch start several");
}

static char *nothing_to_share(const struct sgrad__run *r) { return r->strategy->shards_optimizer ? one_rank(r) : NULL; }

static char *no_servers(const struct sgrad__run *r) { return r->strategy->uses_servers ? one_rank(r) : NULL; }

static char *not_shared(const struct sgrad__run *r) { return r->options.partition_data ? one_rank(r) : NULL; }

static char *no_images(const struct sgrad__run *r) {
    return sgrad_dataset_image(r->test) ? NULL : sgrad_format("%s has no images", r->options.data);
}

static bool has_voxels(const struct sgrad__run *r) { return r->test->classes && sgrad_dataset_target(r->test)->shape.rank >= 2; }

static char *no_voxels(const struct sgrad__run *r) {
    if (sgrad__graph_own_loss(r->graph)) return sgrad_format("%s has a loss of its own", r->model->name);
    return has_voxels(r) ? NULL : sgrad_format("%s has no labels of voxels", r->options.data);
}

static char *no_labels(const struct sgrad__run *r) {
    if (has_voxels(r)) return sgrad_format("the loss of voxels has none");
    if (sgrad__graph_own_loss(r->graph)) return sgrad_format("%s has a loss of its own", r->model->name);
    return r->test->classes ? NULL : sgrad_format("%s has no classes", r->options.data);
}

static char *images_of_one_size(const struct sgrad__run *r) {
    const struct sgrad_field *image = sgrad_dataset_image(r->test);
    if (!image) return no_images(r);
    const int height = (int)sgrad_field_plane(image)[0], width = (int)sgrad_field_plane(image)[1];
    if (height == r->options.image_size && width == r->options.image_size) return NULL;
    return sgrad_format("the images of %s are %dx%d", r->options.data, height, width);
}

static char *steps_say(const struct sgrad__run *r) {
    return r->options.steps ? sgrad_format("--steps says how long the run is") : NULL;
}

static char *no_groups(const struct sgrad__run *r) {
    return r->program->grouped ? NULL : sgrad_format("%s has no batch norm", r->model->name);
}

static double epochs(const struct sgrad__run *r) { return (double)r->steps / (double)r->steps_per_epoch; }

static char *no_milestone_is_reached(const struct sgrad__run *r) {
    const struct sgrad_schedule *s = &r->schedule;
    if (s->kind != SGRAD_STEPS || s->milestone[0] < epochs(r)) return NULL;
    return sgrad_format("the run ends after %.3g epochs, and the rate would change after %g", epochs(r), s->milestone[0]);
}

static char *no_decay(const struct sgrad__run *r) {
    return r->options.weight_decay > 0 ? NULL : sgrad_format("there is no weight decay");
}

static char *no_momentum(const struct sgrad__run *r) {
    return r->options.momentum > 0 ? NULL : sgrad_format("there is no momentum");
}

static char *no_tensor_cores(const struct sgrad__run *r) {
    if (r->options.precision != SGRAD_PRECISION_TF32 || r->context->gpus) return NULL;
    return sgrad_format("tf32 is for GPUs, and this run has none: CPUs compute in f32");
}

static char *nothing_is_recorded(const struct sgrad__run *r) {
    return r->context->gpus ? NULL : sgrad_format("CUDA graphs are of GPUs, and this run has none");
}

static char *no_gpus(const struct sgrad__run *r) {
    return r->context->gpus ? NULL : sgrad_format("this run has no GPUs");
}

static char *staleness_says(const struct sgrad__run *r) {
    if (!r->strategy->asynchronous || !r->options.staleness) return NULL;
    return sgrad_format("--staleness says how many steps are in flight");
}

static char *weights_are_there(const struct sgrad__run *r) {
    return r->last_checkpoint ? sgrad_format("the run goes on from a checkpoint of its own") : NULL;
}

static char *traced_steps_are_over(const struct sgrad__run *r) {
    if (r->last_checkpoint < r->options.trace.first) return NULL;
    return sgrad_format("step %ld lies behind the run, which goes on after step %ld", r->options.trace.first, r->last_checkpoint);
}

static char *no_histogram_is_due(const struct sgrad__run *r) {
    if (r->options.histograms <= r->steps) return NULL;
    return sgrad_format("the run ends with step %ld, before the first", r->steps);
}

static char *nothing_to_recompute(const struct sgrad__run *r) {
    return r->recomputed ? NULL : sgrad_format("in memory %s is smallest as it is", r->model->name);
}

static char *evaluated_once(const struct sgrad__run *r) {
    return r->options.evaluate_last ? sgrad_format("--evaluate-last evaluates once, at the end") : NULL;
}

static char *no_checkpoints(const struct sgrad__run *r) {
    if (r->options.checkpoint_every || r->options.checkpoint_seconds > 0) return NULL;
    return sgrad_format("--checkpoint-every 0 writes no checkpoints");
}

struct row {
    const char *option;
    char *(*why)(const struct sgrad__run *run);
};
static const struct row rows[] = {
    { "allreduce", one_rank },
    { "augment", no_images },
    { "backup", one_rank },
    { "best", evaluated_once },
    { "bn-group", no_groups },
    { "bucket", one_rank },
    { "class-weights", no_voxels },
    { "cpus-share", no_gpus },
    { "data-placement", not_shared },
    { "deviation", no_images },
    { "dice", no_voxels },
    { "epochs", steps_say },
    { "group", one_rank },
    { "histograms", no_histogram_is_due },
    { "image-size", images_of_one_size },
    { "init", weights_are_there },
    { "keep", no_checkpoints },
    { "label-smoothing", no_labels },
    { "mean", no_images },
    { "nesterov", no_momentum },
    { "network", one_rank },
    { "no-cuda-graphs", nothing_is_recorded },
    { "no-decay-1d", no_decay },
    { "patience", evaluated_once },
    { "precision", no_tensor_cores },
    { "recompute", nothing_to_recompute },
    { "schedule", no_milestone_is_reached },
    { "servers", one_rank },
    { "shard", nothing_to_share },
    { "staleness", one_rank },
    { "strategy", no_servers },
    { "trace", traced_steps_are_over },
    { "window", staleness_says },
    { NULL, NULL },
};

/* ---- unexpected effects: each function returns the rest of the message, which the caller must free, or NULL ---- */

static char *nothing_to_cut(const struct sgrad__run *r) {
    if (!r->uncropped) return NULL;
    const int64_t *dim = sgrad_field_plane(sgrad_dataset_image(r->train));
    return sgrad_format("crops nothing: that part of the shorter side of %dx%d is less than a pixel", (int)dim[0], (int)dim[1]);
}

static char *fewer_cpus(const struct sgrad__run *r) {
    char *crowding = sgrad_crowding_text(r->options.cpus);
    char *text = crowding ? sgrad_format("%d: %s", r->options.cpus, crowding) : NULL;
    free(crowding);
    return text;
}

static char *warms_up_to_the_end(const struct sgrad__run *r) {
    if (r->schedule.warmup < epochs(r)) return NULL;
    return sgrad_format("%g: the run ends after %.3g epochs, before the learning rate is reached", r->schedule.warmup, epochs(r));
}

static const struct row others[] = {
    { "augment", nothing_to_cut },
    { "cpus", fewer_cpus },
    { "warmup", warms_up_to_the_end },
    { NULL, NULL },
};

static char *find(const struct row *row, const struct sgrad__run *r, const char *option) {
    while (row->option && strcmp(option, row->option)) row++;
    return row->option ? row->why(r) : NULL;
}

void sgrad__run_warn_unused(const struct sgrad__run *r) {
    for (const char *const *option = r->options.explicit_options; option && *option && r->context->rank == 0; option++) {
        char *why = why_of_others(r, *option), *other = find(others, r, *option);
        if (!why) why = find(rows, r, *option);
        if (why) sgrad_log_warning("--%s has no effect: %s", *option, why);
        if (other) sgrad_log_warning("--%s %s", *option, other);
        free(why);
        free(other);
    }
}
