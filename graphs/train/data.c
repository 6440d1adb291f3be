/* data.c: the data of a run: opens both splits, measures mean and standard deviation on all ranks, sets up the augmentation. */
#include "codelets/ops/image.h"
#include "graphs/api/inference.h"
#include "datasets/datasets.h"
#include "graphs/rundir/rundir.h"
#include "graphs/train/setup.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Returns "pixels, U8 (32,32,3)". The caller must free it. */
static char *field_text(const struct sgrad_field *field) {
    char shape[SGRAD_SHAPE_TEXT];
    if (!field->name) return sgrad_format("none");
    return sgrad_format("%s, %s %s", field->name, sgrad_dtype_name(field->dtype), sgrad_shape_text(&field->shape, shape));
}

static int check_shapes(const struct sgrad__run *run) {
    const struct sgrad_dataset *a = run->data.train, *b = run->data.test;
    for (int f = 0; a->field[f].name || b->field[f].name; f++) {
        char *one = field_text(&a->field[f]), *other = field_text(&b->field[f]);
        int error = 0;
        const char *resizes = f ? NULL : a->reader->resizes;
        if (strcmp(one, other))
            error = sgrad_log_error(SGRAD_ESHAPE, "%s: field %d of the training set is %s, but in the test set it is %s%s%s%s",
                                    run->options.data.name, f, one, other, resizes ? ": " : "", resizes ? resizes : "",
                                    resizes ? " resizes all to one size" : "");
        free(one);
        free(other);
        SGRAD_TRY(error);
    }
    if (b->classes > a->classes)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: the test set has %d classes, but the training set has %d",
                               run->options.data.name, b->classes, a->classes);
    return 0;
}

/* Skips samples that cannot be read. Every rank reads all samples, because the ranks are not known to each other yet; so all
 * of them skip the same ones. That they do is checked later (sgrad__run_compare_options). */
static int skip_damaged(struct sgrad__run *run, struct sgrad_dataset *dataset) {
    if (!run->options.data.skip_damaged) return 0;
    const int64_t before = dataset->count;
    const bool warns = sgrad_launched_rank() == 0;
    SGRAD_TRY(sgrad_dataset_skip_damaged(dataset, warns, &run->data.damaged));
    if (warns && dataset->damaged)
        sgrad_log_warning("%s: %lld of %lld %s samples are damaged and left out", run->options.data.name,
                          (long long)dataset->damaged, (long long)before, dataset->split == SGRAD_TRAIN ? "training" : "test");
    return 0;
}

static int open_training_set(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if ((run->data.train = o->data.dataset[SGRAD_TRAIN])) return 0;
    struct sgrad_dataset_options how = sgrad__dataset_options(o);
    how.exclude = o->data.exclude;
    how.no_cache = o->data.partition;            /* the placement stores decoded images */
    const int error = sgrad_dataset_open(o->data.name, SGRAD_TRAIN, &how, &run->data.train);
    if (error && o->checkpoint.resume && sgrad_launched_rank() == 0)
        sgrad_log_warning("the run continues with --data %s; if the data set is elsewhere now, give --data", o->data.name);
    SGRAD_TRY(error);
    return skip_damaged(run, run->data.train);
}

static int open_test_set(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if ((run->data.test = o->data.dataset[SGRAD_TEST])) return 0;
    const struct sgrad_dataset_options how = sgrad__dataset_options(o);
    SGRAD_TRY(sgrad_dataset_open(o->data.name, SGRAD_TEST, &how, &run->data.test));
    return skip_damaged(run, run->data.test);
}

int sgrad__run_open_samples(struct sgrad__run *run) {
    if ((run->data.test = run->options.data.dataset[SGRAD_TEST])) return 0;
    return sgrad_run_open_samples(&run->options, false, &run->data.test);
}

/* Warns if all labels are equal. Nothing can be learned from them; usually the wrong column or directory is used. */
static void warn_of_one_class(const struct sgrad__run *run) {
    const struct sgrad_dataset *d = run->data.train;
    const struct sgrad_field *target = sgrad_dataset_target(d);
    const int32_t *label = d->classes && !target->shape.rank ? target->data : NULL;
    bool one = d->classes == 1;
    for (int64_t i = 1; label && i < d->count && !one && label[i] == label[0]; i++) one = i == d->count - 1;
    if (one && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: all training samples have the same class, so nothing can be learned", run->options.data.name);
}

int sgrad__run_open_data(struct sgrad__run *run) {
    SGRAD_TRY(open_training_set(run));
    warn_of_one_class(run);
    SGRAD_TRY(open_test_set(run));
    return check_shapes(run);
}

/* ---- mean and standard deviation -------------------------------------------------------------------------------- */

/* Sets NUMBER of each channel to the value of option --NAME, which has one number per channel, or one for all channels. If the
 * option is not set, NUMBER is unchanged. */
static int take_numbers(const char *name, const struct sgrad_numbers *value, int channels, double low, double *number) {
    bool valid = value->count == channels || value->count <= 1;
    for (int i = 0; i < value->count && valid; i++) valid = value->number[i] >= low && value->number[i] <= 1e6;
    if (!valid) {
        char *text = sgrad_numbers_text(value);
        sgrad_log_error(SGRAD_EINVAL, "--%s '%s' must have %d %s of %g or more, separated by commas, or one for all channels",
                        name, text, channels, sgrad_plural(channels, "number", "numbers"), low);
        free(text);
        return SGRAD_EINVAL;
    }
    for (int c = 0; value->count && c < channels; c++) number[c] = value->number[value->count > 1 ? c : 0];
    return 0;
}

/* Warns if --mean is for pixels that are not divided by the full scale. */
static void warn_of_scale(const struct sgrad__run *run) {
    const float scale = run->data.test->full_scale;
    const struct sgrad_numbers *mean = &run->options.data.mean;
    for (int i = 0; i < mean->count; i++) {
        if (mean->number[i] <= 1 || scale <= 1 || sgrad_launched_rank() != 0) continue;
        sgrad_log_warning("--mean %g: pixels from 0 to %g are divided by %g first; divide --mean and --deviation by it, too",
                          mean->number[i], scale, scale);
        return;
    }
}

/* Sets mean and standard deviation. A network from a file may normalize its input itself, with its own values; options
 * override these. */
static int take_input(struct sgrad__run *run) {
    const int channels = sgrad_dataset_channels(run->data.test);
    const struct sgrad__imported *imported = run->graph ? run->graph->imported : NULL;
    if (!channels) return 0;
    for (int c = 0; imported && c < imported->channels; c++)
        run->data.mean[c] = imported->mean[c], run->data.deviation[c] = imported->deviation[c];
    SGRAD_TRY(take_numbers("mean", &run->options.data.mean, channels, -1e6, run->data.mean));
    warn_of_scale(run);
    return take_numbers("deviation", &run->options.data.std, channels, 1e-6, run->data.deviation);
}

void sgrad__run_set_input(struct sgrad__run *run) {
    struct sgrad_image *image = sgrad__graph_image(run->graph);
    for (int c = 0; c < sgrad_dataset_channels(run->data.test); c++) {
        image->mean[c] = (float)run->data.mean[c];
        image->deviation[c] = (float)run->data.deviation[c];
    }
}

/* Sums over all ranks. The 64-bit integers are sent as halves of 32 bits, whose sums are exact in double precision. */
static void sum_over_ranks(struct sgrad_dataset_sums *sums) {
    enum { WORDS = sizeof *sums / sizeof(uint64_t) };
    uint64_t *word = (uint64_t *)sums;
    double half[WORDS][2];
    for (int i = 0; i < WORDS; i++) half[i][0] = (double)(uint32_t)word[i], half[i][1] = (double)(word[i] >> 32);
    sgrad_ranks_sum(half[0], 2 * WORDS);
    for (int i = 0; i < WORDS; i++) word[i] = (uint64_t)half[i][0] + ((uint64_t)half[i][1] << 32);
}

/* Returns the first sample of RANK's shard of COUNT samples; it ends where the shard of the next rank starts. */
static int64_t share_first(const struct sgrad__run *run, int64_t count, int rank) { return count * rank / run->context->ranks; }

#define READING "for all ranks to read their shard of the data"

/* Every rank reads its shard; the ranks may take different times. */
static int measure_training_set(struct sgrad__run *run) {
    const int rank = run->context->rank;
    const int64_t measured = sgrad_dataset_measured(run->data.train);
    const int64_t from = share_first(run, measured, rank), to = share_first(run, measured, rank + 1);
    struct sgrad_dataset_sums sums;
    SGRAD_TRY(sgrad__run_await(run, sgrad_dataset_sums(run->data.train, from, to - from, &sums), READING));
    sum_over_ranks(&sums);
    sgrad_dataset_moments(run->data.train, &sums, run->data.mean, run->data.deviation);
    return 0;
}

/* Reads all test images, so that a damaged one is found before the first step instead of after the first epoch. */
static int check_test_set(struct sgrad__run *run) {
    const int rank = run->context->rank;
    const int64_t from = share_first(run, run->data.test->count, rank), to = share_first(run, run->data.test->count, rank + 1);
    return sgrad__run_await(run, sgrad_dataset_check(run->data.test, from, to - from), READING);
}

/* Reads mean and standard deviation of images from config.json in FOLDER on rank 0. *FOUND: false if there are none, as the
 * file may belong to another program. For other samples there is nothing to read, and *FOUND is true. */
static int find_known(struct sgrad__run *run, const char *folder, bool *found) {
    const int channels = sgrad_dataset_channels(run->data.test);
    int error = 0;
    *found = !channels;
    if (run->context->rank == 0 && channels)
        error = sgrad__config_input(folder, channels, run->data.mean, run->data.deviation, found);
    SGRAD_TRY(sgrad__run_agree(run, error));
    sgrad_ranks_broadcast(found, sizeof *found, 0);
    sgrad_ranks_broadcast(run->data.mean, sizeof run->data.mean, 0);
    sgrad_ranks_broadcast(run->data.deviation, sizeof run->data.deviation, 0);
    return 0;
}

bool sgrad__run_states_input(const struct sgrad__run *run) {
    return run->data.train->reader->measures && run->options.data.mean.count && run->options.data.std.count;
}

/* A resumed run takes the values that were measured at its start. That the data are the same is checked when the run directory
 * is opened. */
int sgrad__run_measure_data(struct sgrad__run *run) {
    bool known = run->options.output.print;    /* no training: do not read the data */
    if (run->options.checkpoint.resume && !known) SGRAD_TRY(find_known(run, run->options.output.folder, &known));
    if (!known) {
        if (!sgrad__run_states_input(run)) SGRAD_TRY(measure_training_set(run));
        SGRAD_TRY(check_test_set(run));
    }
    SGRAD_TRY(take_input(run));
    if (run->graph) sgrad__run_set_input(run);
    return 0;
}

/* Returns true if the samples are the caller's and no data set is named: there is no training set. */
static bool has_only_samples(const struct sgrad__run *run) {
    const struct sgrad_dataset *const *own = (const struct sgrad_dataset *const *)run->options.data.dataset;
    return own[SGRAD_TEST] && !own[SGRAD_TRAIN] && run->options.data.name == own[SGRAD_TEST]->reader->name;
}

/* Normalizes images by options, or as in the run that trained the weights, if its config.json is in the directory of the weights;
 * else the training set is opened and measured for this. */
int sgrad__run_open_data_of_weights(struct sgrad__run *run) {
    char *folder = sgrad_format("%s", run->options.model.init ? run->options.model.init : run->graph->file),
         *slash = strrchr(folder, '/');
    bool known;
    if (slash) *slash = 0;
    int error = find_known(run, slash ? folder : ".", &known);
    free(folder);
    known |= run->graph->imported && run->graph->imported->channels;
    known |= run->options.data.mean.count && run->options.data.std.count;
    if (!error && !known && has_only_samples(run))
        error = sgrad__run_agree(
            run, sgrad_log_error(SGRAD_EINVAL,
                                 "%s: no config.json beside it states mean and deviation of the pixels; give --mean and "
                                 "--deviation, or --data", run->options.model.init ? run->options.model.init : run->graph->file));
    if (!error && !known) error = sgrad__run_await(run, open_training_set(run), READING);
    if (!error && !known) error = sgrad__run_agree(run, check_shapes(run));
    if (!error && !known) error = measure_training_set(run);
    if (!error) error = take_input(run);
    if (!error) sgrad__run_set_input(run);
    return error;
}

/* ---- placement and augmentation --------------------------------------------------------------------------------- */

void sgrad__run_open_placement(struct sgrad__run *run) {
    run->data.placement = sgrad__placement_create(&(struct sgrad__placement_options){ .dataset = run->data.train,
                                                                                      .order = &run->data.sampler,
                                                                                      .batch = run->options.training.batch,
                                                                                      .steps = run->steps,
                                                                                      .rank = run->context->rank,
                                                                                      .ranks = run->context->ranks,
                                                                                      .shuffle = !run->options.data.no_shuffle });
}

/* Checks that the augmentation WANTED suits the samples. */
static int check_augmentation(const struct sgrad__run *run, const char *wanted) {
    const struct sgrad_dataset *d = run->data.train;
    const struct sgrad_field *target = sgrad_dataset_target(d);
    for (const struct sgrad_augmenting *a = d->drawn.item; a < d->drawn.item + d->drawn.count; a++) {
        const char *name = a->is->name;
        if (d->reader->draw ? !a->is->volumes : !a->is->move && !a->is->change && !a->is->mix)
            return sgrad_log_error(SGRAD_EINVAL, "--augment %s: %s applies to %s, not to %s", wanted, name,
                                   d->reader->draw ? "images" : "volumes", run->options.data.name);
        if (!a->is->mix) continue;
        if (!d->classes || target->shape.rank || (run->model->loss && !run->model->loss_option))
            return sgrad_log_error(SGRAD_EINVAL,
                                   "--augment %s: %s mixes classes and requires one class for each image, but %s has none",
                                   wanted, name, run->options.data.name);
        if (run->options.data.partition)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "--data-placement partition cannot be combined with --augment %s, which mixes any two images "
                                   "of %s: a rank has only its shard",
                                   name, run->options.data.name);
    }
    if (d->sources && run->options.data.partition)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--data-placement partition is not supported for a mixture: a sample may have several positions");
    if (d->reader->draw && run->options.data.partition)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--data-placement partition is not supported for %s: its patches are drawn again in each epoch",
                               run->options.data.name);
    return 0;
}

/* Sets the augmentation: --augment, or else the default of the data set. options.data.augment becomes the text of the
 * augmentation in use. */
int sgrad__run_add_augmentation(struct sgrad__run *run) {
    struct sgrad_dataset *d = run->data.train;
    const struct sgrad_field *image = sgrad_dataset_image(d);
    const char *wanted = image ? run->options.data.augment : NULL;
    if (image && !wanted) wanted = d->augment;
    if (!wanted) wanted = "none";
    if (run->options.data.augment) d->plain = NULL;
    const int height = image ? (int)sgrad_field_plane(image)[0] : 0, width = image ? (int)sgrad_field_plane(image)[1] : 0;
    SGRAD_TRY(sgrad_augmentations_parse(wanted, height, width, &d->drawn));
    SGRAD_TRY(check_augmentation(run, wanted));
    sgrad_dataset_mix(d, sgrad_augmentations_mix(&d->drawn));
    sgrad_dataset_mix(run->data.test, d->mixed);
    run->options.data.augment = run->data.augment = sgrad_augmentations_text(&d->drawn);
    run->data.uncropped = strstr(wanted, "crop") && !sgrad_augmentations_find(&d->drawn, "crop");
    return 0;
}
