/* classes.c: unbalanced classes: weights of the classes in the loss (--class-weights), and epochs with equally many samples of
 * each class (--sampler balanced). Both need the label of every training sample.
 *
 *     class      samples    weight, balanced     samples of an epoch, balanced
 *     cat             90          100/(2·90)                               50
 *     dog             10          100/(2·10)                               50
 *
 * "balanced" weights are those of scikit-learn: samples / (classes · samples of the class), over the classes with samples. Other
 * classes get weight 1. Weights of voxels are set where their loss is added (network.c). */
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_labels(const struct sgrad_dataset *dataset) {
    return dataset->classes && !sgrad_dataset_target(dataset)->shape.rank;
}

/* Reads the labels of samples that are not in memory. */
static int read_labels(const struct sgrad_dataset *dataset, int32_t *label) {
    void *data[SGRAD_MAX_FIELDS] = { NULL };
    const int own = sgrad_dataset_own_fields(dataset);
    int error = 0;
    for (int f = 0; f < SGRAD_MAX_FIELDS && dataset->field[f].name; f++)
        if (f != own - 1) data[f] = sgrad_xcalloc(1, sgrad_field_bytes(&dataset->field[f]));
    for (int64_t i = 0; i < dataset->count && !error; i++) {
        data[own - 1] = label + i;
        error = sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = i }, 1, data);
        if (!error && (label[i] < 0 || label[i] >= dataset->classes))
            error = sgrad_log_error(SGRAD_EFORMAT, "training sample %lld has label %d, but there are %d classes", (long long)i,
                                    (int)label[i], dataset->classes);
    }
    data[own - 1] = NULL;
    for (int f = 0; f < SGRAD_MAX_FIELDS; f++) free(data[f]);
    return error;
}

static int take_labels(struct sgrad__run *run) {
    const struct sgrad_dataset *d = run->data.train;
    const int32_t *label = sgrad_dataset_target(d)->data;
    run->data.label = sgrad_xcalloc((size_t)d->count, sizeof *run->data.label);
    if (!label) return read_labels(d, run->data.label);
    memcpy(run->data.label, label, (size_t)d->count * sizeof *label);
    return 0;
}

/* ---- weights ---- */

static int set_balanced(struct sgrad__run *run) {
    const int classes = run->data.train->classes;
    int64_t *count = sgrad_xcalloc((size_t)classes, sizeof *count);
    int used = 0;
    for (int64_t i = 0; i < run->data.train->count; i++) used += count[run->data.label[i]]++ == 0;
    for (int c = 0; c < classes; c++)
        run->data.class_weight[c] = count[c] ? (float)((double)run->data.train->count / ((double)used * (double)count[c])) : 1;
    free(count);
    return 0;
}

int sgrad__class_weights_parse(const char *text, int classes, const char *data, float *weight) {
    const char *at = text;
    char *end;
    int count = 0;
    for (bool more = true, valid = true; more && valid; at = end + more) {
        const double x = strtod(at, &end);
        valid = end != at && (!*end || *end == ',') && isfinite((float)x) && (float)x > 0 && count < classes;
        more = *end == ',';
        if (valid) weight[count++] = (float)x;
        else count = classes + 1;
    }
    if (count == classes) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "--class-weights '%s' must have %d numbers above 0, separated by commas, one for each class of %s",
                           text, classes, data);
}

static int set_weights(struct sgrad__run *run) {
    const char *text = run->options.training.class_weights;
    const int classes = run->data.train->classes;
    run->data.class_weight = sgrad_xcalloc((size_t)classes, sizeof *run->data.class_weight);
    if (strcmp(text, "balanced") == 0) return set_balanced(run);
    return sgrad__class_weights_parse(text, classes, run->options.data.name, run->data.class_weight);
}

/* ---- the sampler ---- */

static int check_sampler(const struct sgrad__run *run) {
    const struct sgrad_data_options *data = &run->options.data;
    if (!data->sampler || !strcmp(data->sampler, "shuffle")) return 0;
    if (!sgrad__run_is_balanced(run))
        return sgrad_log_error(SGRAD_EINVAL, "--sampler '%s' is not known; give shuffle or balanced", data->sampler);
    if (!has_labels(run->data.train))
        return sgrad_log_error(SGRAD_EINVAL, "--sampler balanced requires one class per sample, but %s has none", data->name);
    if (data->no_shuffle)
        return sgrad_log_error(SGRAD_EINVAL, "--sampler balanced draws samples in random order; it cannot be combined with "
                                             "--no-shuffle");
    if (data->partition)
        return sgrad_log_error(SGRAD_EINVAL, "--sampler balanced draws samples several times in an epoch; it cannot be combined "
                                             "with --data-placement partition");
    if (run->options.training.class_weights && sgrad_launched_rank() == 0)
        sgrad_log_warning("--sampler balanced and --class-weights both correct the sizes of the classes; their effects multiply");
    return 0;
}

/* Warns of classes that have no sample in DATASET, a training or test SET. */
static void warn_of_empty(const struct sgrad__run *run, const struct sgrad_dataset *dataset, const char *set) {
    const int32_t *label = has_labels(dataset) ? sgrad_dataset_target(dataset)->data : NULL;
    if (!label) return;
    int empty;
    char *list = sgrad_classes_absent(dataset->class_name, dataset->classes, label, dataset->count, false, &empty);
    if (empty)
        sgrad_log_warning("%s: %d of %d classes %s no %s sample: %s", run->options.data.name, empty, dataset->classes,
                          sgrad_plural(empty, "has", "have"), set, list);
    free(list);
}

/* The readers warn of classes without training samples, before --exclude; that of folders also of those without
 * images in val/. */
static void warn_of_empty_classes(const struct sgrad__run *run) {
    if (sgrad_launched_rank() || run->beside) return;
    if (run->data.train->excluded) warn_of_empty(run, run->data.train, "training");
    if (run->data.test->held_out || strcmp(run->data.test->reader->name, "folder")) warn_of_empty(run, run->data.test, "test");
}

int sgrad__run_open_classes(struct sgrad__run *run) {
    warn_of_empty_classes(run);
    SGRAD_TRY(check_sampler(run));
    const bool weighted = run->options.training.class_weights && has_labels(run->data.train);
    if (!weighted && !sgrad__run_is_balanced(run)) return 0;
    SGRAD_TRY(take_labels(run));
    return weighted ? set_weights(run) : 0;
}
