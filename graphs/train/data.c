/* data.c: the data of a run: opens both splits, measures mean and standard deviation on all ranks, sets up the augmentation. */
#include "codelets/ops/image.h"
#include "graphs/api/inference.h"
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Returns "pixels, U8 (32,32,3)". The caller must free it. */
static char *field_text(const struct sgrad_field *f) {
    char shape[SGRAD_SHAPE_TEXT];
    if (!f->name) return sgrad_format("none");
    return sgrad_format("%s, %s %s", f->name, sgrad_dtype_name(f->dtype), sgrad_shape_text(&f->shape, shape));
}

static int check_shapes(const struct sgrad__run *r) {
    const struct sgrad_dataset *a = r->train, *b = r->test;
    for (int f = 0; a->field[f].name || b->field[f].name; f++) {
        char *one = field_text(&a->field[f]), *other = field_text(&b->field[f]);
        int error = 0;
        const char *resizes = f ? NULL : a->reader->resizes;
        if (strcmp(one, other))
            error = sgrad_log_error(SGRAD_ESHAPE, "%s: field %d of the training part is %s, of the test part %s%s%s%s",
                                    r->options.data, f, one, other, resizes ? ": " : "", resizes ? resizes : "",
                                    resizes ? " brings all to one size" : "");
        free(one);
        free(other);
        SGRAD_TRY(error);
    }
    if (b->classes > a->classes)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: the test part has %d classes, the training part %d", r->options.data,
                               b->classes, a->classes);
    return 0;
}

/* Skips samples that cannot be read. Every rank reads all samples, because the ranks are not known to each other yet; so all
 * of them skip the same ones. That they do is checked later (sgrad__run_compare_options). */
static int skip_damaged(struct sgrad__run *r, struct sgrad_dataset *dataset) {
    if (!r->options.skip_damaged) return 0;
    const int64_t before = dataset->count;
    const bool tell = sgrad_launched_rank() == 0;
    SGRAD_TRY(sgrad_dataset_skip_damaged(dataset, tell, &r->damaged));
    if (tell && dataset->damaged)
        sgrad_log_warning("%s: %lld of %lld %s samples are damaged and left out", r->options.data, (long long)dataset->damaged,
                          (long long)before, dataset->split == SGRAD_TRAIN ? "training" : "test");
    return 0;
}

static int open_training_set(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if ((r->train = o->custom_dataset[SGRAD_TRAIN])) return 0;
    struct sgrad_dataset_options how = {
        .custom = o->custom_reader, .seed = o->seed, .size = o->image_size, .exclude = o->exclude,
        .damaged = o->skip_damaged
    };
    if (o->partition_data) how.memory = 1;       /* the placement stores decoded images: do not cache them as well */
    const int error = sgrad_dataset_open(o->data, SGRAD_TRAIN, &how, &r->train);
    if (error && o->resume && sgrad_launched_rank() == 0)
        sgrad_log_warning("the run goes on with --data %s; where that is somewhere else by now, give --data", o->data);
    SGRAD_TRY(error);
    return skip_damaged(r, r->train);
}

static int open_test_set(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if ((r->test = o->custom_dataset[SGRAD_TEST])) return 0;
    const struct sgrad_dataset_options how = { .custom = o->custom_reader, .seed = o->seed, .size = o->image_size,
                                               .damaged = o->skip_damaged };
    SGRAD_TRY(sgrad_dataset_open(o->data, SGRAD_TEST, &how, &r->test));
    return skip_damaged(r, r->test);
}

int sgrad__run_open_samples(struct sgrad__run *r) {
    if ((r->test = r->options.custom_dataset[SGRAD_TEST])) return 0;
    return sgrad_run_open_samples(&r->options, false, &r->test);
}

/* Warns if all labels are equal. Nothing can be learned from them; usually the wrong column or directory is used. */
static void warn_of_one_class(const struct sgrad__run *r) {
    const struct sgrad_dataset *d = r->train;
    const struct sgrad_field *target = sgrad_dataset_target(d);
    const int32_t *label = d->classes && !target->shape.rank ? target->data : NULL;
    bool one = d->classes == 1;
    for (int64_t i = 1; label && i < d->count && !one && label[i] == label[0]; i++) one = i == d->count - 1;
    if (one && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: all training samples are of one class: there is nothing to learn", r->options.data);
}

int sgrad__run_open_data(struct sgrad__run *r) {
    SGRAD_TRY(open_training_set(r));
    warn_of_one_class(r);
    SGRAD_TRY(open_test_set(r));
    return check_shapes(r);
}

/* ---- mean and standard deviation -------------------------------------------------------------------------------- */

/* Sets NUMBER of each channel to the value of option --NAME, which has one number per channel, or one for all channels. If the
 * option is not set, NUMBER is unchanged. */
static int take_numbers(const char *name, const struct sgrad_numbers *value, int channels, double low, double *number) {
    bool valid = value->count == channels || value->count <= 1;
    for (int i = 0; i < value->count; i++) valid &= value->number[i] >= low && value->number[i] <= 1e6;
    if (!valid) {
        char *text = sgrad_numbers_text(value);
        sgrad_log_error(SGRAD_EINVAL, "--%s '%s': takes %d %s from %g on, with commas between, or one for all channels", name,
                        text, channels, sgrad_plural(channels, "number", "numbers"), low);
        free(text);
        return SGRAD_EINVAL;
    }
    for (int c = 0; value->count && c < channels; c++) number[c] = value->number[value->count > 1 ? c : 0];
    return 0;
}

/* Sets mean and standard deviation. A network from a file may normalize its input itself, with its own values; options
 * override these. */
static int take_input(struct sgrad__run *r) {
    const int channels = sgrad_dataset_channels(r->test);
    const struct sgrad__imported *imported = r->graph ? r->graph->imported : NULL;
    if (!channels) return 0;
    for (int c = 0; imported && c < imported->channels; c++)
        r->mean[c] = imported->mean[c], r->deviation[c] = imported->deviation[c];
    SGRAD_TRY(take_numbers("mean", &r->options.mean, channels, -1e6, r->mean));
    return take_numbers("deviation", &r->options.std, channels, 1e-6, r->deviation);
}

void sgrad__run_set_input(struct sgrad__run *r) {
    struct sgrad_image *image = sgrad__graph_image(r->graph);
    for (int c = 0; c < sgrad_dataset_channels(r->test); c++) {
        image->mean[c] = (float)r->mean[c];
        image->deviation[c] = (float)r->deviation[c];
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
static int64_t share_first(const struct sgrad__run *r, int64_t count, int rank) { return count * rank / r->context->ranks; }

#define READING "for all ranks to read their share of the data"

/* Every rank reads its shard; the ranks may take different times. */
static int measure_training_set(struct sgrad__run *r) {
    const int rank = r->context->rank;
    const int64_t measured = sgrad_dataset_measured(r->train);
    const int64_t from = share_first(r, measured, rank), to = share_first(r, measured, rank + 1);
    struct sgrad_dataset_sums sums;
    SGRAD_TRY(sgrad__run_await(r, sgrad_dataset_sums(r->train, from, to - from, &sums), READING));
    sum_over_ranks(&sums);
    sgrad_dataset_moments(r->train, &sums, r->mean, r->deviation);
    return 0;
}

/* Reads all test images, so that a damaged one is found before the first step instead of after the first epoch. */
static int check_test_set(struct sgrad__run *r) {
    const int rank = r->context->rank;
    const int64_t from = share_first(r, r->test->count, rank), to = share_first(r, r->test->count, rank + 1);
    return sgrad__run_await(r, sgrad_dataset_check(r->test, from, to - from), READING);
}

/* Reads mean and standard deviation of images from config.json in FOLDER on rank 0. *FOUND: false if there are none, as the
 * file may belong to another program. For other samples there is nothing to read, and *FOUND is true. */
static int find_known(struct sgrad__run *r, const char *folder, bool *found) {
    const int channels = sgrad_dataset_channels(r->test);
    int error = 0;
    *found = !channels;
    if (r->context->rank == 0 && channels) error = sgrad__config_input(folder, channels, r->mean, r->deviation, found);
    SGRAD_TRY(sgrad__run_agree(r, error));
    sgrad_ranks_broadcast(found, sizeof *found, 0);
    sgrad_ranks_broadcast(r->mean, sizeof r->mean, 0);
    sgrad_ranks_broadcast(r->deviation, sizeof r->deviation, 0);
    return 0;
}

/* A resumed run takes the values that were measured at its start. That the data are the same is checked when the run directory
 * is opened. */
int sgrad__run_measure_data(struct sgrad__run *r) {
    bool known = r->options.print;      /* no training: do not read the data */
    if (r->options.resume && !known) SGRAD_TRY(find_known(r, r->options.out, &known));
    if (!known) {
        SGRAD_TRY(measure_training_set(r));
        SGRAD_TRY(check_test_set(r));
    }
    SGRAD_TRY(take_input(r));
    if (r->graph) sgrad__run_set_input(r);
    return 0;
}

/* Normalizes images as in the run that trained the weights, if its config.json is in the directory of the weights; else the
 * training set is opened and measured for this. */
int sgrad__run_open_data_of_weights(struct sgrad__run *r) {
    char *folder = sgrad_format("%s", r->options.init ? r->options.init : r->graph->file), *slash = strrchr(folder, '/');
    bool known;
    if (slash) *slash = 0;
    int error = find_known(r, slash ? folder : ".", &known);
    free(folder);
    known |= r->graph->imported && r->graph->imported->channels;
    if (!error && !known) error = sgrad__run_await(r, open_training_set(r), READING);
    if (!error && !known) error = sgrad__run_agree(r, check_shapes(r));
    if (!error && !known) error = measure_training_set(r);
    if (!error) error = take_input(r);
    if (!error) sgrad__run_set_input(r);
    return error;
}

/* ---- placement and augmentation --------------------------------------------------------------------------------- */

void sgrad__run_open_placement(struct sgrad__run *r) {
    r->placement = sgrad__placement_create(&(struct sgrad__placement_options){
        .dataset = r->train, .order = &r->order, .batch = r->options.batch, .steps = r->steps, .rank = r->context->rank,
        .ranks = r->context->ranks, .shuffle = !r->options.no_shuffle });
}

/* Checks that the augmentation WANTED suits the samples. */
static int check_augmentation(const struct sgrad__run *r, const char *wanted) {
    const struct sgrad_dataset *d = r->train;
    const struct sgrad_field *target = sgrad_dataset_target(d);
    for (const struct sgrad_augmenting *a = d->drawn.item; a < d->drawn.item + d->drawn.count; a++) {
        const char *name = a->is->name;
        if (d->reader->draw ? !a->is->volumes : !a->is->move && !a->is->change && !a->is->mix)
            return sgrad_log_error(SGRAD_EINVAL, "--augment %s: %s is of %s, not of %s", wanted, name,
                                   d->reader->draw ? "images" : "volumes", r->options.data);
        if (!a->is->mix) continue;
        if (!d->classes || target->shape.rank || (r->model->loss && !r->model->loss_option))
            return sgrad_log_error(SGRAD_EINVAL, "--augment %s: %s mixes classes, one for each image: %s has none", wanted, name,
                                   r->options.data);
        if (r->options.partition_data)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "--data-placement partition: %s mixes with any image of %s, and a rank has its share "
                                   "of them",
                                   name, r->options.data);
    }
    if (d->reader->draw && r->options.partition_data)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--data-placement partition: patches of %s are drawn again in each epoch, and not kept",
                               r->options.data);
    return 0;
}

/* Sets the augmentation: --augment, or else the default of the data set. options.augment becomes the text of the augmentation
 * in use. */
int sgrad__run_add_augmentation(struct sgrad__run *r) {
    struct sgrad_dataset *d = r->train;
    const struct sgrad_field *image = sgrad_dataset_image(d);
    const char *wanted = image ? r->options.augment : NULL;
    if (image && !wanted) wanted = d->augment;
    if (!wanted) wanted = "none";
    if (r->options.augment) d->plain = NULL;
    const int height = image ? (int)sgrad_field_plane(image)[0] : 0, width = image ? (int)sgrad_field_plane(image)[1] : 0;
    SGRAD_TRY(sgrad_augmentations_parse(wanted, height, width, &d->drawn));
    SGRAD_TRY(check_augmentation(r, wanted));
    sgrad_dataset_mix(d, sgrad_augmentations_mix(&d->drawn));
    sgrad_dataset_mix(r->test, d->mixed);
    r->options.augment = r->augment = sgrad_augmentations_text(&d->drawn);
    r->uncropped = strstr(wanted, "crop") && !sgrad_augmentations_find(&d->drawn, "crop");
    return 0;
}
