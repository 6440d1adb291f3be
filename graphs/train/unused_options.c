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

static bool is_heeded(const struct sgrad__run *run, const char *option) {
    bool heeded = lists(run->update.optimizer->options, option);
    for (int i = 0; i < run->graph->parameter_count && !heeded; i++) {
        const struct sgrad_optimizer *is = run->training->update[i].optimizer;
        heeded = is && lists(is->options, option);
    }
    return heeded;
}

/* Returns why OPTION is unused: only other optimizers or strategies use it; NULL: it is used, or is no such option. The caller
 * must free it. */
static char *why_of_others(const struct sgrad__run *run, const char *option) {
    bool optimizers = false, strategies = false;
    for (int i = 0; sgrad_optimizers[i]; i++) optimizers |= lists(sgrad_optimizers[i]->options, option);
    for (int i = 0; sgrad_strategies[i]; i++) strategies |= lists(sgrad_strategies[i]->options, option);
    if (optimizers && !is_heeded(run, option)) return sgrad_format("--optimizer %s does not use it", run->update.optimizer->name);
    if (strategies && !lists(run->parallel.strategy->options, option))
        return sgrad_format("--strategy %s does not use it", run->parallel.strategy->name);
    return NULL;
}

/* ---- other options: each function returns the reason, which the caller must free, or NULL if the option has its effect ---- */

static char *one_rank(const struct sgrad__run *run) {
    return run->context->ranks > 1 ? NULL : sgrad_format("the run has one rank; mpirun and stargrad launch start several");
}

static char *nothing_to_share(const struct sgrad__run *run) {
    return run->parallel.strategy->shards_optimizer ? one_rank(run) : NULL;
}

static char *no_servers(const struct sgrad__run *run) { return run->parallel.strategy->uses_servers ? one_rank(run) : NULL; }

static char *not_shared(const struct sgrad__run *run) { return run->options.data.partition ? one_rank(run) : NULL; }

static char *no_images(const struct sgrad__run *run) {
    return sgrad_dataset_image(run->data.test) ? NULL : sgrad_format("%s has no images", run->options.data.name);
}

static bool has_voxels(const struct sgrad__run *run) {
    return run->data.test->classes && sgrad_dataset_target(run->data.test)->shape.rank >= 2;
}

static char *no_voxels(const struct sgrad__run *run) {
    if (sgrad__graph_own_loss(run->graph)) return sgrad_format("%s has its own loss", run->model->name);
    return has_voxels(run) ? NULL : sgrad_format("%s has no voxel labels", run->options.data.name);
}

static char *no_labels(const struct sgrad__run *run) {
    if (has_voxels(run)) return sgrad_format("the loss of voxels does not use it");
    if (sgrad__graph_own_loss(run->graph)) return sgrad_format("%s has its own loss", run->model->name);
    return run->data.test->classes ? NULL : sgrad_format("%s has no classes", run->options.data.name);
}

static char *no_classes(const struct sgrad__run *run) {
    if (sgrad__graph_own_loss(run->graph)) return sgrad_format("%s has its own loss", run->model->name);
    const bool any = run->data.test->classes && (has_voxels(run) || !sgrad_dataset_target(run->data.test)->shape.rank);
    return any ? NULL : sgrad_format("the samples of %s have no classes", run->options.data.name);
}

static char *images_of_one_size(const struct sgrad__run *run) {
    const struct sgrad_field *image = sgrad_dataset_image(run->data.test);
    if (!image) return no_images(run);
    const int height = (int)sgrad_field_plane(image)[0], width = (int)sgrad_field_plane(image)[1];
    if (height == run->options.data.image_size && width == run->options.data.image_size) return NULL;
    return sgrad_format("the images of %s have a fixed size of %dx%d", run->options.data.name, height, width);
}

static char *not_a_folder(const struct sgrad__run *run) {
    return run->data.test->reader->resizes ? NULL : sgrad_format("%s is not a folder of images", run->options.data.name);
}

static char *not_scaled(const struct sgrad__run *run) {
    const char *name = run->options.data.name;
    if (!run->data.test->reader->resizes) return not_a_folder(run);
    return run->options.data.image_size || sgrad_folder_size(name, NULL) ? NULL : sgrad_format("no --image-size is set");
}

static char *no_cache(const struct sgrad__run *run) {
    if (run->data.test->reader->resizes) return NULL;
    return sgrad_format("%s has neither encoded images nor compressed archives", run->options.data.name);
}

static char *not_in_shards(const struct sgrad__run *run) {
    if (run->options.data.no_shuffle) return sgrad_format("--no-shuffle keeps the order of the files");
    if (sgrad__run_is_balanced(run)) return sgrad_format("--sampler balanced shuffles all samples");
    if (run->data.train && run->data.train->shards) return NULL;
    return sgrad_format("all samples of %s are shuffled", run->options.data.name);
}

static char *no_texts(const struct sgrad__run *run) {
    const char *name = run->options.data.name;
    if (strncmp(name, "jsonl:", strlen("jsonl:"))) return sgrad_format("%s has no JSON lines", name);
    return run->options.data.tokenizer ? NULL : sgrad_format("no --tokenizer is set");
}

static char *has_test_set(const struct sgrad__run *run) {
    if (run->data.test->held_out || !(run->options.data.split > 0)) return NULL;
    return sgrad_format(run->data.train ? "%s has a test set" : "no samples of %s are held out", run->options.data.name);
}

static char *steps_decide(const struct sgrad__run *run) {
    return run->options.training.steps ? sgrad_format("--steps sets the length of the run") : NULL;
}

static char *no_groups(const struct sgrad__run *run) {
    return run->program->grouped ? NULL : sgrad_format("%s has no batch norm", run->model->name);
}

static double epochs(const struct sgrad__run *run) { return (double)run->steps / (double)run->steps_per_epoch; }

static char *no_milestone_is_reached(const struct sgrad__run *run) {
    const struct sgrad_schedule *s = &run->update.schedule;
    if (s->kind != SGRAD_STEPS || s->milestone[0] < epochs(run)) return NULL;
    return sgrad_format("the run ends after %.3g epochs, but the learning rate would change after %g", epochs(run),
                        s->milestone[0]);
}

static char *no_decay(const struct sgrad__run *run) {
    return run->options.optimizer.weight_decay > 0 ? NULL : sgrad_format("the weight decay is 0");
}

static char *no_momentum(const struct sgrad__run *run) {
    return run->options.optimizer.momentum != 0 ? NULL : sgrad_format("the momentum is 0");
}

static char *no_tensor_cores(const struct sgrad__run *run) {
    if (run->options.model.precision != SGRAD_PRECISION_TF32 || run->context->gpus) return NULL;
    return sgrad_format("tf32 requires a GPU, but this run has none: CPUs compute in f32");
}

static char *nothing_is_recorded(const struct sgrad__run *run) {
    return run->context->gpus ? NULL : sgrad_format("CUDA graphs require a GPU, but this run has none");
}

static char *no_gpus(const struct sgrad__run *run) {
    return run->context->gpus ? NULL : sgrad_format("this run has no GPUs");
}

static char *staleness_decides(const struct sgrad__run *run) {
    if (!run->parallel.strategy->asynchronous || !run->options.parallel.staleness) return NULL;
    return sgrad_format("--staleness sets the number of steps in flight");
}

static char *weights_are_there(const struct sgrad__run *run) {
    return run->files.last_checkpoint ? sgrad_format("the run continues from its own checkpoint") : NULL;
}

static char *traced_steps_are_over(const struct sgrad__run *run) {
    if (run->files.last_checkpoint < run->options.output.trace.first) return NULL;
    return sgrad_format("step %ld is over: the run continues after step %ld", run->options.output.trace.first,
                        run->files.last_checkpoint);
}

static char *no_histogram_is_due(const struct sgrad__run *run) {
    if (run->options.output.histograms <= run->steps) return NULL;
    return sgrad_format("the run ends with step %ld, before the first histogram", run->steps);
}

static char *nothing_to_recompute(const struct sgrad__run *run) {
    return run->recomputed ? NULL : sgrad_format("it would not reduce the memory of %s", run->model->name);
}

static char *evaluated_once(const struct sgrad__run *run) {
    return run->options.evaluation.only_last ? sgrad_format("--evaluate-last evaluates once, at the end") : NULL;
}

static char *no_patience(const struct sgrad__run *run) {
    return run->options.evaluation.patience ? NULL : sgrad_format("--patience is not set");
}

static char *no_checkpoints(const struct sgrad__run *run) {
    if (run->options.checkpoint.every || run->options.checkpoint.seconds > 0) return NULL;
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
    { "class-weights", no_classes },
    { "cpus-share", no_gpus },
    { "data-memory", no_cache },
    { "data-placement", not_shared },
    { "decode", not_scaled },
    { "deviation", no_images },
    { "dice", no_voxels },
    { "epochs", steps_decide },
    { "eval-resize", not_a_folder },
    { "exif", not_a_folder },
    { "focal-gamma", no_labels },
    { "group", one_rank },
    { "histograms", no_histogram_is_due },
    { "image-size", images_of_one_size },
    { "init", weights_are_there },
    { "keep", no_checkpoints },
    { "label-smoothing", no_labels },
    { "mean", no_images },
    { "min-delta", no_patience },
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
    { "shuffle-window", not_in_shards },
    { "split", has_test_set },
    { "tokenizer", no_texts },
    { "field", no_texts },
    { "staleness", one_rank },
    { "strategy", no_servers },
    { "trace", traced_steps_are_over },
    { "window", staleness_decides },
    { NULL, NULL },
};

/* ---- unexpected effects: each function returns the rest of the message, which the caller must free, or NULL. ---- */

static char *nothing_to_cut(const struct sgrad__run *run) {
    if (!run->data.uncropped) return NULL;
    const int64_t *dim = sgrad_field_plane(sgrad_dataset_image(run->data.train));
    return sgrad_format("crops nothing: this fraction of the shorter side of %dx%d is less than one pixel", (int)dim[0],
                        (int)dim[1]);
}

static char *fewer_cpus(const struct sgrad__run *run) {
    char *crowding = sgrad_crowding_text(run->options.parallel.cpus);
    char *text = crowding ? sgrad_format("%d: %s", run->options.parallel.cpus, crowding) : NULL;
    free(crowding);
    return text;
}

static char *warms_up_to_the_end(const struct sgrad__run *run) {
    if (run->update.schedule.warmup < epochs(run)) return NULL;
    return sgrad_format("%g: the run ends after %.3g epochs, before the learning rate is reached", run->update.schedule.warmup,
                        epochs(run));
}

static const struct row others[] = {
    { "augment", nothing_to_cut },
    { "cpus", fewer_cpus },
    { "warmup", warms_up_to_the_end },
    { NULL, NULL },
};

static char *find(const struct row *row, const struct sgrad__run *run, const char *option) {
    while (row->option && strcmp(option, row->option)) row++;
    return row->option ? row->why(run) : NULL;
}

/* Warns if an epoch leaves out more than a tenth of the training samples, because the last batch would be incomplete. */
static void warn_of_unused_samples(const struct sgrad__run *run) {
    if (!run->data.train || run->context->rank) return;
    const int64_t all = run->data.train->count, used = run->steps_per_epoch * run->options.training.batch;
    if (used && 10 * used < 9 * all)
        sgrad_log_warning("--batch %ld leaves %lld of %lld training samples out of each epoch; a smaller batch uses more of them",
                          run->options.training.batch, (long long)(all - used), (long long)all);
}

void sgrad__run_warn_unused(const struct sgrad__run *run) {
    warn_of_unused_samples(run);
    for (const char *const *option = run->options.output.explicit_options; option && *option && run->context->rank == 0;
         option++) {
        char *why = why_of_others(run, *option), *other = find(others, run, *option);
        if (!why) why = find(rows, run, *option);
        if (why) sgrad_log_warning("--%s has no effect: %s", *option, why);
        if (other) sgrad_log_warning("--%s %s", *option, other);
        free(why);
        free(other);
    }
}
