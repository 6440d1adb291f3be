/* history.c: reads the options and the data description of existing runs, to resume them or to use their weights. */
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/rundir/rundir.h"
#include "graphs/api/plugin.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The caller must free *PATH and *CONFIG, also after an error. */
static int read_run(const char *folder, char **path, json_t **config) {
    SGRAD_TRY(sgrad__config_read(folder, path, config));
    return *config ? 0 : sgrad_log_error(SGRAD_EIO, "%s: does not exist: %s is not the folder of a run", *path, folder);
}

static bool is_open(const char *file) {
    for (const char *const *plugin = sgrad_plugins; *plugin; plugin++)
        if (!strcmp(*plugin, file)) return true;
    return false;
}

/* Logs a warning for each plug-in of the run that is not loaded. Plug-ins are executable code and config.json may come from an
 * untrusted source, so that they are never loaded automatically. */
static void warn_of_plugins(const char *path, const json_t *config) {
    const json_t *files = json_object_get(config, "plugins"), *file;
    size_t i;
    json_array_foreach(files, i, file) {
        const char *name = json_string_value(file);
        if (name && !is_open(name))
            sgrad_log_warning("%s: the run used the plug-in %s, which is not loaded; load it with --plugin", path, name);
    }
}

static int take_options(const char *path, const json_t *config, struct sgrad_train_options *options) {
    struct sgrad_train_options o = sgrad_train_defaults();
    json_t *by_now = sgrad__config_options(config);
    const int error = sgrad__options_take(path, by_now, &o);
    json_decref(by_now);
    SGRAD_TRY(error);
    o.output.folder = NULL;
    o.output.trace = (struct sgrad_step_range){ 0 };
    o.checkpoint.resume = false;
    *options = o;
    return 0;
}

/* ---- resuming a run ----------------------------------------------------------------------------------------------- */

/* Adapts options to RANKS ranks. The distribution over ranks does not belong to the run: values that do not suit the new
 * number are reset to their defaults or chosen again. Micro-batches are chosen again if there was a mesh. */
static void fit_ranks(struct sgrad_train_options *options, int before, int ranks, bool auto_mesh) {
    const struct sgrad_train_options defaults = sgrad_train_defaults();
    const bool split = options->parallel.mesh;
    if (before == ranks) return;
    options->parallel.mesh = auto_mesh ? "auto" : NULL;
    if (ranks == 1) options->data.partition = false;
    if (split || options->training.batch % ranks ||
        (options->training.micro_batch && options->training.batch / ranks % options->training.micro_batch))
        options->training.micro_batch = 0;
    if (options->parallel.servers > ranks) options->parallel.servers = defaults.parallel.servers;
    if (options->parallel.group_ranks && ranks % options->parallel.group_ranks)
        options->parallel.group_ranks = defaults.parallel.group_ranks;
    if (options->parallel.backup_workers >= ranks) options->parallel.backup_workers = defaults.parallel.backup_workers;
}

/* Returns the number of ranks of the last continuation, or of the start if there was none. */
static int ranks_of(const json_t *config) {
    const json_t *continued = json_object_get(config, "continued"), *ranks = json_object_get(config, "ranks");
    const json_t *last = json_array_get(continued, json_array_size(continued) - 1), *later = json_object_get(last, "ranks");
    return (int)json_integer_value(later ? later : ranks);
}

/* Returns true if --mesh auto chose the present mesh of the run. */
static bool is_auto_mesh(const json_t *config) {
    const json_t *entry;
    bool is = json_is_true(json_object_get(config, "auto_mesh"));
    size_t i;
    json_array_foreach((json_t *)json_object_get(config, "continued"), i, entry) {
        if (json_object_get(json_object_get(entry, "options"), "mesh")) is = false;
        is |= json_is_true(json_object_get(entry, "auto_mesh"));
    }
    return is;
}

int sgrad_run_continue(const char *folder, enum sgrad_continuation how, struct sgrad_train_options *options, bool *goes_on) {
    char *path = NULL;
    json_t *config = NULL;
    struct sgrad_train_options o = *options;
    *goes_on = how == SGRAD_CONTINUE || (how == SGRAD_CONTINUE_OR_BEGIN && sgrad_run_exists(folder));
    if (!*goes_on) return 0;
    int error = sgrad__run_folder_check(folder, true);
    if (!error) error = sgrad__config_read(folder, &path, &config);
    if (!error && config) error = take_options(path, config, &o);
    if (!error && config && sgrad_launched_rank() == 0) warn_of_plugins(path, config);
    if (!error && config) fit_ranks(&o, ranks_of(config), sgrad_launched_ranks(), is_auto_mesh(config));
    if (!error) *options = o;
    json_decref(config);
    free(path);
    return error;
}

static bool is_asked(const char *const *asked, const char *option) {
    for (; asked && *asked; asked++)
        if (!strcmp(*asked, option)) return true;
    return false;
}

void sgrad_run_options_yield(struct sgrad_train_options *options, const struct sgrad_train_options *given,
                             const char *const *asked) {
    if (is_asked(asked, "epochs") && !is_asked(asked, "steps")) options->training.steps = 0;
    if (is_asked(asked, "optimizer") && !is_asked(asked, "lr") &&
        (!options->optimizer.name || strcmp(given->optimizer.name, options->optimizer.name)))
        options->optimizer.lr = -1;
    if (is_asked(asked, "lora") && !given->model.lora) options->model.lora_on = options->model.adapter = NULL;
}

int sgrad_run_options(const char *folder, struct sgrad_train_options *options) {
    char *path = NULL;
    json_t *config = NULL;
    int error = read_run(folder, &path, &config);
    if (!error) error = take_options(path, config, options);
    if (!error) warn_of_plugins(path, config);
    json_decref(config);
    free(path);
    return error;
}

static bool take_image(const json_t *input, struct sgrad_run_input *to) {
    const json_t *image = json_object_get(input, "image");
    if (!input) return true;
    if (json_array_size(image) != 3) return false;
    to->image.rank = 3;
    for (size_t i = 0; i < 3; i++) {
        to->image.dim[i] = json_integer_value(json_array_get(image, i));
        if (to->image.dim[i] < 1 || to->image.dim[i] > (i < 2 ? 65535 : SGRAD_MAX_CHANNELS)) return false;
    }
    to->full_scale = (float)json_number_value(json_object_get(input, "full_scale"));
    return to->full_scale > 0;
}

/* Takes the names for users, if the run has them. Classes without names get their numbers as names. */
static bool take_classes(const json_t *config, struct sgrad_run_input *to) {
    const json_t *titles = json_object_get(config, "class_titles");
    const json_t *names = titles ? titles : json_object_get(config, "class_names");
    const json_int_t classes = json_integer_value(json_object_get(config, "classes"));
    if (classes < 0 || classes > 1 << 20) return false;
    to->classes = (int)classes;
    to->class_name = sgrad_xcalloc((size_t)classes + 1, sizeof *to->class_name);
    for (int c = 0; c < to->classes; c++) {
        const char *name = json_string_value(json_array_get(names, (size_t)c));
        to->class_name[c] = name ? sgrad_format("%s", name) : sgrad_format("%d", c);
    }
    return true;
}

int sgrad_run_input(const char *folder, struct sgrad_run_input *input) {
    char *path = NULL;
    json_t *config = NULL;
    struct sgrad_run_input is = { 0 };
    int error = read_run(folder, &path, &config);
    if (!error && !json_object_get(config, "classes"))
        error = sgrad_log_error(SGRAD_EFORMAT,
                                "%s: 'classes' is missing, because an older version of Stargrad wrote the file; use that version",
                                path);
    if (!error && (!take_image(json_object_get(config, "input"), &is) || !take_classes(config, &is)))
        error =
            sgrad_log_error(SGRAD_EFORMAT, "%s: 'input' must be null or an image (H,W,C), and 'classes' must be a number", path);
    if (!error) *input = is;
    json_decref(config);
    free(path);
    return error;
}

void sgrad_run_input_free(struct sgrad_run_input *input) {
    for (int c = 0; input->class_name && c < input->classes; c++) free(input->class_name[c]);
    free(input->class_name);
    *input = (struct sgrad_run_input){ 0 };
}

/* Reads FOLDER/config.json. *ORIGIN: features and classes; NULL: there is no config.json of a run. LEARNED: the image in
 * config.json; unchanged if config.json has none, rank 0 if it is malformed. */
static int read_origin(const char *folder, struct sgrad_origin **origin, struct sgrad_run_input *learned) {
    char *path;
    json_t *config;
    int error = sgrad__config_read(folder, &path, &config);
    const bool is_run = config && json_object_get(config, "identity");
    struct sgrad_origin *o = is_run ? sgrad__origin_of(config) : NULL;
    if (is_run && !o) error = sgrad_log_error(SGRAD_EFORMAT, "%s: 'features' or 'classes' is invalid", path);
    if (!error) *origin = o;
    if (config && !take_image(json_object_get(config, "input"), learned)) learned->image.rank = 0;
    json_decref(config);
    free(path);
    return error;
}

/* Returns the directory of the weights in OPTIONS: of the file in --init, or of the ONNX file of the model. NULL: there is
 * neither. The caller must free it. */
static char *folder_of_weights(const struct sgrad_train_options *options) {
    static const char of_file[] = "onnx:";
    const bool has_file = options->model.name && !strncmp(options->model.name, of_file, strlen(of_file));
    if (!options->model.init && !has_file) return NULL;
    const char *weights = options->model.init ? options->model.init : options->model.name + strlen(of_file),
               *slash = strrchr(weights, '/');
    return slash ? sgrad_format("%.*s", (int)(slash - weights), weights) : sgrad_format(".");
}

int sgrad_run_of_weights(const struct sgrad_train_options *options, char **folder) {
    char *weights = folder_of_weights(options), *path = NULL;
    json_t *config = NULL;
    int error = weights ? sgrad__config_read(weights, &path, &config) : 0;
    *folder = config && json_object_get(config, "identity") ? weights : NULL;
    if (!*folder) free(weights);
    json_decref(config);
    free(path);
    return error;
}

void sgrad_run_take_seed(struct sgrad_train_options *options) {
    char *folder = folder_of_weights(options), *path = NULL;
    json_t *config = NULL;
    if (folder && !sgrad__config_read(folder, &path, &config)) {
        const char *seed = json_string_value(json_object_get(json_object_get(config, "identity"), "seed"));
        if (seed) options->training.seed = strtoull(seed, NULL, 10);
        json_t *trained = sgrad__config_options(config);
        if (!(options->data.split > 0)) options->data.split = json_number_value(json_object_get(trained, "split"));
        json_decref(trained);
    }
    json_decref(config);
    free(path);
    free(folder);
}

/* Warns if the size of the images differs from that of the training images. A network with global pooling accepts images of
 * any size, but is rarely as accurate on other sizes. */
static void warn_of_size(const struct sgrad_run_input *learned, const char *data, const struct sgrad_dataset *dataset) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    if (!image || image->shape.rank != 3 || learned->image.rank != 3) return;
    const int64_t *is = image->shape.dim, *was = learned->image.dim;
    if ((is[0] != was[0] || is[1] != was[1]) && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: the images have %lldx%lld pixels, but the network was trained on images of %lldx%lld", data,
                          (long long)is[1], (long long)is[0], (long long)was[1], (long long)was[0]);
}

struct sgrad_dataset_options sgrad__dataset_options(const struct sgrad_train_options *options) {
    const struct sgrad_data_options *data = &options->data;
    return (struct sgrad_dataset_options){ .arrays = data->arrays,
                                           .custom = data->reader,
                                           .seed = options->training.seed,
                                           .size = data->image_size,
                                           .test_resize = data->eval_resize,
                                           .upright = data->exif,
                                           .reduced = data->reduced,
                                           .split = data->split,
                                           .third = data->on && !strcmp(data->on, "test"),
                                           .id = data->id,
                                           .class_titles = data->class_names,
                                           .memory = (size_t)data->memory,
                                           .answers = data->loss_on_answers,
                                           .attend = data->attend,
                                           .tokenizer = data->tokenizer,
                                           .field = data->field,
                                           .damaged = data->skip_damaged };
}

/* Returns true if the run with CONFIG and its options OWN was trained on the training split of options.data.name, as OWN divide
 * and scale it. */
static bool is_trained_on(const json_t *config, const struct sgrad_train_options *own,
                          const struct sgrad_train_options *options) {
    char problem[512];
    size_t length;
    json_t *now = NULL;
    struct sgrad_dataset *dataset = NULL;
    struct sgrad_dataset_options how = sgrad__dataset_options(own);
    how.exclude = own->data.exclude;
    how.arrays = options->data.arrays;
    how.custom = options->data.reader;
    how.class_titles = NULL;                            /* the file may be gone */
    if (!how.size && own->data.name) how.size = sgrad_folder_size(own->data.name, NULL);
    sgrad_folder_size(options->data.name, &length);
    char *name = sgrad_format("%.*s", (int)length, options->data.name);
    sgrad_log_capture(problem, sizeof problem);         /* other data may have no training split */
    int error = sgrad_dataset_open(name, SGRAD_TRAIN, &how, &dataset);
    if (!error && own->data.skip_damaged) error = sgrad_dataset_skip_damaged(dataset, false, NULL);
    sgrad_log_capture(NULL, 0);
    if (!error) now = sgrad__fingerprint_json(sgrad_dataset_fingerprint(dataset));
    const bool is = json_equal(now, json_object_get(json_object_get(config, "identity"), "data"));
    sgrad_dataset_close(dataset);
    json_decref(now);
    free(name);
    return is;
}

/* Returns true if a run with the options OWN may have held out a part of these data. Without --split, only tables are divided. */
static bool may_divide(const struct sgrad_train_options *own, const char *data) {
    return own->data.split > 0 || !strncmp(data, "csv:", strlen("csv:")) || !strncmp(data, "jsonl:", strlen("jsonl:"));
}

/* Sets how the data in OPTIONS are read for weights in FOLDER. If they are those of a run, images of a folder are scaled as its
 * own. Of its own data, the test set is the part that it held out; all samples of other data without a test set are used. Data
 * with the name of the run's data set are its own, which is checked only if EVERY. If there is no run in FOLDER,
 * options.data.split divides the data. */
static void adapt_to_run(const char *folder, const struct sgrad_train_options *options, bool every,
                         struct sgrad_dataset_options *how) {
    char *path = NULL;
    json_t *config = NULL;
    struct sgrad_train_options own;
    const char *name = options->data.name;
    how->whole = every && !(options->data.split > 0);
    if (folder && !sgrad__config_read(folder, &path, &config) && json_object_get(config, "identity") &&
        !take_options(path, config, &own)) {
        const bool same = own.data.name && !strcmp(own.data.name, name) && !options->data.arrays;
        const bool is_own = (same && !every) || (may_divide(&own, name) && is_trained_on(config, &own, options));
        if (!how->size && own.data.name) how->size = sgrad_folder_size(own.data.name, NULL);
        if (is_own && options->data.split > 0 && options->data.split != own.data.split && sgrad_launched_rank() == 0)
            sgrad_log_warning("--split %g is ignored: %s are the data of the run, and its own test samples are used",
                              options->data.split, name);
        how->whole = !is_own;
        if (is_own) how->split = own.data.split, how->seed = own.training.seed;
    }
    json_decref(config);
    free(path);
}

int sgrad_run_open_samples(const struct sgrad_train_options *options, bool every, struct sgrad_dataset **dataset) {
    struct sgrad_origin *origin = NULL;
    if (!options->data.name)
        return sgrad_log_error(SGRAD_EINVAL, "no data set is named; give --data (in C: options.data.name)");
    if (options->data.on && strcmp(options->data.on, "val") && strcmp(options->data.on, "test"))
        return sgrad_log_error(SGRAD_EINVAL, "--on '%s' must be val or test", options->data.on);
    char *folder = folder_of_weights(options);
    struct sgrad_run_input learned = { 0 };
    int error = folder ? read_origin(folder, &origin, &learned) : 0;
    struct sgrad_dataset_options how = sgrad__dataset_options(options);
    how.origin = origin;
    how.every = every;
    if (!error) adapt_to_run(folder, options, every, &how);
    free(folder);
    struct sgrad_dataset *opened = NULL;
    if (!error) error = sgrad_dataset_open(options->data.name, SGRAD_TEST, &how, &opened);
    sgrad_origin_free(origin);
    if (!error && options->data.skip_damaged) error = sgrad_dataset_skip_damaged(opened, sgrad_launched_rank() == 0, NULL);
    if (!error) warn_of_size(&learned, options->data.name, opened);
    if (error) sgrad_dataset_close(opened);
    else *dataset = opened;
    return error;
}

/* Describes the samples of a run by its config.json. NULL: they are neither images nor features, or an old version wrote it. */
static struct sgrad_dataset *describe(const struct sgrad_run_input *input, const struct sgrad_origin *origin) {
    const bool images = input->image.rank == 3, targets = origin && (origin->classes || origin->targets);
    if (images && input->classes && (input->image.dim[2] == 1 || input->image.dim[2] == 3)) {
        struct sgrad_dataset *files = NULL;
        return sgrad_dataset_of_files(NULL, 0, &input->image, input->full_scale, input->classes, NULL, &files) ? NULL : files;
    }
    if (!targets || !(images || origin->features)) return NULL;
    return sgrad_dataset_describe(&input->image, input->full_scale, origin);
}

int sgrad_run_samples(const char *folder, const struct sgrad_train_options *options, struct sgrad_dataset **dataset) {
    struct sgrad_run_input input = { 0 }, image = { 0 };
    struct sgrad_origin *origin = NULL;
    struct sgrad_train_options whole = *options;
    whole.data.attend = NULL;       /* a sample is one document */
    if (!folder && !options->data.name)
        return sgrad_log_error(SGRAD_EINVAL, "no data set is named; give --data (in C: options.data.name)");
    if (folder) SGRAD_TRY(sgrad_run_input(folder, &input));
    int error = folder ? read_origin(folder, &origin, &image) : 0;
    struct sgrad_dataset *described = error ? NULL : describe(&input, origin);
    if (described) *dataset = described;
    else if (!error) error = sgrad_run_open_samples(&whole, false, dataset);
    sgrad_origin_free(origin);
    sgrad_run_input_free(&input);
    return error;
}

char *sgrad_run_weights(const char *folder) { return sgrad_format("%s/model.safetensors", folder); }
