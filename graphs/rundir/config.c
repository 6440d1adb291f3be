/* config.c: writes and reads config.json, the configuration of a run: options, versions, devices, data, environment. It contains
 * all that is needed to repeat the run. */
#include "graphs/rundir/rundir.h"
#include "graphs/api/plugin.h"

#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <starpu.h>
#include <string.h>
#include <unistd.h>
#ifdef SGRAD_HAVE_CUDA
#include <cudnn.h>
#endif

#define FILE_LIMIT (16 << 20)
#define DIGITS 15       /* decimal digits that survive a conversion to double and back */

static char *config_path(const char *folder) { return sgrad_format("%s/config.json", folder); }

/* ---- writing -------------------------------------------------------------------------------------------------- */

static json_t *text(const char *t) { return t ? json_string(t) : json_null(); }

/* Returns X rounded to 9 significant digits, which identify a float. */
static json_t *real(double x) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", x);
    return json_real(strtod(digits, NULL));
}

static json_t *reals(const double *x, int count) {
    json_t *array = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(array, real(x[i]));
    return array;
}

/* Returns the metrics that the run's files contain for the test set; programs that read these files need their names. */
static json_t *metrics_array(const struct sgrad__config *config) {
    json_t *array = json_array();
    for (const struct sgrad_metric *m = config->metric; m < config->metric + config->metrics; m++)
        json_array_append_new(array, json_pack("{s:s, s:s, s:b}", "name", m->name, "title", m->title, "share", m->is_fraction));
    return array;
}

/* Environment variables that are recorded. Those that mpirun sets for its processes (addresses, directories) are not set by the
 * user and change from run to run; they are omitted. Settings of mpirun itself reach the processes with Open MPI 4
 * (OMPI_MCA_rmaps), but not with 5 (PRTE_MCA_rmaps). */
static const char *const environment[] = {
    "STARPU_",      "OMPI_MCA_btl", "OMPI_MCA_coll",  "OMPI_MCA_hwloc", "OMPI_MCA_mpi",     "OMPI_MCA_mtl", "OMPI_MCA_opal",
    "OMPI_MCA_osc", "OMPI_MCA_pml", "OMPI_MCA_rmaps", "OMPI_MCA_smsc",  "MPIR_CVAR_",       "MPICH_",       "I_MPI_",
    "UCX_",         "FI_",          "OMP_NUM_THREADS=", "ONEDNN_"
};
/* Variables whose names contain one of these strings have paths or host names as values, and are not recorded for privacy. */
static const char *const places[] = { "_DIR", "_FILE", "_HOME", "_LIB", "_PATH", "_PREFIX", "_SWAP", "HOSTNAME", "LOGFILE" };

static bool is_recorded(const char *variable, size_t name) {
    bool recorded = false;
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
        recorded |= strncmp(variable, environment[i], strlen(environment[i])) == 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *place = strstr(variable, places[i]);
        recorded &= !place || place > variable + name;
    }
    return recorded && !strchr(variable, '/');
}

/* Returns the recorded variables, which configure the libraries below; they are set by the user or by Stargrad itself
 * (runtime/). */
static json_t *environment_object(void) {
    json_t *object = json_object();
    for (char **variable = environ; *variable; variable++) {
        const size_t name = strcspn(*variable, "=");
        if (!(*variable)[name] || !is_recorded(*variable, name)) continue;
        char *key = sgrad_format("%.*s", (int)name, *variable);
        json_object_set_new(object, key, json_string(*variable + name + 1));
        free(key);
    }
    return object;
}

static json_t *plugins_array(void) {
    json_t *array = json_array();
    for (const char *const *file = sgrad_plugins; *file; file++) json_array_append_new(array, json_string(*file));
    return array;
}

static json_t *versions_object(void) {
    int major, minor, release;
    starpu_get_version(&major, &minor, &release);
    const dnnl_version_t *dnnl = dnnl_version();
    json_t *object = json_object();
    json_object_set_new(object, "stargrad", json_string(PACKAGE_VERSION));
    json_object_set_new(object, "starpu", json_sprintf("%d.%d.%d", major, minor, release));
    json_object_set_new(object, "onednn", json_sprintf("%d.%d.%d", dnnl->major, dnnl->minor, dnnl->patch));
#ifdef SGRAD_HAVE_CUDA
    json_object_set_new(object, "cuda", json_sprintf("%d.%d", CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100));
    json_object_set_new(object, "cudnn", json_sprintf("%d.%d.%d", CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL));
#endif
    return object;
}

static int write_config(const char *folder, json_t *object) {
    char *path = config_path(folder), *content = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
    struct sgrad_file file;
    int error = content ? sgrad_file_begin(path, &file) : sgrad_log_error(SGRAD_EINVAL, "%s: an option is not valid UTF-8", path);
    if (!error) {
        fprintf(file.stream, "%s\n", content);
        error = sgrad_file_commit(&file);
    }
    free(content);
    free(path);
    return error;
}

/* Returns the ranks of each host: {"node1": [0, 1], "node2": [2, 3]}. */
static json_t *hosts_object(int ranks) {
    json_t *object = json_object();
    for (int r = 0; r < ranks; r++) {
        const char *host = sgrad_rank_host(r);
        if (!json_object_get(object, host)) json_object_set_new(object, host, json_array());
        json_array_append_new(json_object_get(object, host), json_integer(r));
    }
    return object;
}

/* Returns the job of Slurm in which this process runs: {"id": "17", "array": "15_2", "restarts": 1}; NULL: none. */
static json_t *job_object(void) {
    const char *id = getenv("SLURM_JOB_ID"), *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    if (!id) return NULL;
    json_t *object = json_pack("{s:s}", "id", id);
    if (array && task) json_object_set_new(object, "array", json_sprintf("%s_%s", array, task));
    json_object_set_new(object, "restarts", json_integer(restarts ? atoi(restarts) : 0));
    return object;
}

/* Adds the values that may change each time the run is resumed. */
static void set_circumstances(json_t *object, const struct sgrad__config *config) {
    json_t *job = job_object();
    json_object_set_new(object, "ranks", json_integer(config->ranks));
    json_object_set_new(object, "hosts", hosts_object(config->ranks));
    if (job) json_object_set_new(object, "job", job);
    json_object_set_new(object, "micro_batch", json_integer(config->micro_batch));
    if (config->recomputed) json_object_set_new(object, "recomputed_layers", json_integer(config->recomputed));
    if (config->group) json_object_set_new(object, "bn_group", json_integer(config->group));
    if (config->auto_mesh) json_object_set_new(object, "auto_mesh", json_true());
    json_object_set_new(object, "devices", text(config->devices));
    json_object_set_new(object, "environment", environment_object());
    json_object_set_new(object, "versions", versions_object());
}

/* Adds the input of a sample and the names of the classes, which are needed to apply the network to other samples. */
static void set_input(json_t *object, const struct sgrad_dataset *dataset) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    json_t *names = json_array();
    for (int c = 0; c < dataset->classes && dataset->class_name; c++) {
        json_t *name = json_string(dataset->class_name[c]); /* NULL: not UTF-8 */
        json_array_append_new(names, name ? name : json_sprintf("%d", c));
    }
    if (image && image->shape.rank == 3)
        json_object_set_new(object, "input", json_pack("{s:[I,I,I], s:f}", "image", (json_int_t)image->shape.dim[0],
                                                       (json_int_t)image->shape.dim[1], (json_int_t)image->shape.dim[2],
                                                       "full_scale", dataset->full_scale));
    if (!dataset->classes)
        json_object_set_new(object, "targets", json_integer(sgrad_shape_count(&sgrad_dataset_target(dataset)->shape)));
    json_t *features = sgrad__origin_json(dataset);
    if (features) json_object_set_new(object, "features", features);
    json_object_set_new(object, "classes", json_integer(dataset->classes));
    json_object_set_new(object, "class_names", names);
    json_t *titles = dataset->class_title ? json_array() : NULL;
    for (int c = 0; c < dataset->classes && titles; c++) json_array_append_new(titles, json_string(dataset->class_title[c]));
    if (titles) json_object_set_new(object, "class_titles", titles);
}

int sgrad__config_write(const char *folder, const struct sgrad__config *config) {
    json_t *object = json_object();
    json_object_set_new(object, "identity", sgrad__identity_json(config));
    json_object_set_new(object, "parameters", json_integer(config->parameters));
    json_object_set_new(object, "mean", reals(config->mean, config->channels));
    json_object_set_new(object, "deviation", reals(config->deviation, config->channels));
    json_object_set_new(object, "metrics", metrics_array(config));
    json_object_set_new(object, "samples", json_string(config->samples));
    json_object_set_new(object, "training_samples", json_integer(config->dataset->count));
    json_object_set_new(object, "test_samples", json_integer(config->tests));
    set_input(object, config->dataset);
    json_object_set_new(object, "options", sgrad__options_json(config->options));
    json_object_set_new(object, "plugins", plugins_array());
    set_circumstances(object, config);
    int error = write_config(folder, object);
    json_decref(object);
    return error;
}

/* Options that may differ between nodes: paths, and the hardware of a node. */
static const char *const own[] = { "cpus", "gpus",  "gpus_only",   "scheduler",  "data",       "exclude",
                                   "init", "out",   "trace",       "tensorboard", "histograms", "prometheus",
                                   "class_names", "memory", "gpu_memory", "spill", "data_memory" };

char *sgrad__config_shared(const struct sgrad__config *config) {
    json_t *object = versions_object(), *options = sgrad__options_json(config->options);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) json_object_del(options, own[i]);
    json_object_set_new(object, "identity", sgrad__identity_json(config));
    json_object_set_new(object, "options", options);
    char *content = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
    json_decref(object);
    return content ? content : sgrad_format("{}");
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

int sgrad__config_read(const char *folder, char **path, json_t **object) {
    *path = config_path(folder);
    *object = NULL;
    if (access(*path, F_OK) && errno == ENOENT) return 0;
    return sgrad_json_read(*path, FILE_LIMIT, object);
}

/* Returns "csv:a.csv (100 samples, 3 classes)"; unknown numbers are omitted. The caller must free it. */
static char *data_text(const char *name, long long samples, long long classes) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    fputs(name ? name : "other data", to);
    if (samples > 0) fprintf(to, " (%lld %s", samples, sgrad_plural(samples, "sample", "samples"));
    if (samples > 0 && classes > 0) fprintf(to, ", %lld %s", classes, sgrad_plural(classes, "class", "classes"));
    if (samples > 0) fputc(')', to);
    fclose(to);
    return text;
}

/* Checks that the training set is the same; it may have another path. */
static int same_data(const char *where, const json_t *config, const struct sgrad__config *c) {
    const json_t *identity = json_object_get(config, "identity");
    json_t *now = sgrad__fingerprint_json(c->fingerprint), *options = sgrad__config_options(config);
    const char *was = json_string_value(json_object_get(identity, "data"));
    const char *name = json_string_value(json_object_get(options, "data"));
    const char *left_out = json_string_value(json_object_get(options, "exclude")), *leaves_out = c->options->data.exclude;
    char *before = data_text(name, json_integer_value(json_object_get(config, "training_samples")),
                             json_integer_value(json_object_get(config, "classes")));
    char *after = data_text(c->options->data.name, c->dataset->count, c->dataset->classes);
    int error = 0;
    if (!was)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: 'identity' has no 'data', so the run cannot be continued", where);
    else if (strcmp(was, json_string_value(now)))
        error = sgrad_log_error(SGRAD_EINVAL,
                                "%s: the run was trained on %s%s%s, so it cannot be continued with %s%s%s%s; give --data with "
                                "the same samples, or begin another run (--like DIR copies the options)",
                                where, before, left_out ? " without the samples of " : "", left_out ? left_out : "", after,
                                leaves_out ? " without the samples of " : "", leaves_out ? leaves_out : "",
                                strcmp(before, after) || left_out || leaves_out ? "" : ", whose content has changed");
    free(before);
    free(after);
    json_decref(now);
    json_decref(options);
    return error;
}

/* Checks that --adapter is that of the start: the weights in the checkpoint have replaced it. */
static int same_adapter(const char *where, const json_t *config, const struct sgrad__config *c) {
    json_t *options = sgrad__config_options(config);
    const char *was = json_string_value(json_object_get(options, "adapter")), *is = c->options->model.adapter;
    int error = 0;
    if (was && is ? strcmp(was, is) : was != is)
        error = sgrad_log_error(SGRAD_EINVAL,
                                "%s: the run has adapter %s, so it cannot be continued with %s; leave that option out, or begin "
                                "another run (--like DIR copies the options)",
                                where, was ? was : "none", is ? is : "none");
    json_decref(options);
    return error;
}

int sgrad__config_check(const char *folder, const struct sgrad__config *config) {
    char *path;
    json_t *object, *now = sgrad__identity_json(config);
    int error = sgrad__config_read(folder, &path, &object);
    json_object_del(now, "data");
    if (object) error = same_adapter(path, object, config);
    if (object && !error) error = sgrad__identity_same(path, json_object_get(object, "identity"), now);
    if (object && !error) error = same_data(path, object, config);
    json_decref(object);
    json_decref(now);
    free(path);
    return error;
}

int sgrad__config_group(const char *folder, long *group, int64_t *samples, bool *found) {
    char *path, *end;
    json_t *object;
    int error = sgrad__config_read(folder, &path, &object);
    const char *is = json_string_value(json_object_get(json_object_get(object, "identity"), "bn-group"));
    const long number = is ? strtol(is, &end, 10) : 0;
    *found = is && (sgrad_group_named(is, group) || (number > 0 && !*end));
    if (*found && number > 0) *group = number;
    const json_t *continued = json_object_get(object, "continued"), *last = json_object_get(object, "bn_group"), *entry;
    size_t i;
    json_array_foreach((json_t *)continued, i, entry)
        if (json_object_get(entry, "bn_group")) last = json_object_get(entry, "bn_group");
    *samples = json_integer_value(last);
    json_decref(object);
    free(path);
    return error;
}

/* Reads an array of exactly COUNT numbers between LOWEST and FLT_MAX. Returns false if it is malformed. */
static bool get_reals(const json_t *array, int count, double lowest, double *x) {
    if (!json_is_array(array) || json_array_size(array) != (size_t)count) return false;
    for (int i = 0; i < count; i++) {
        x[i] = json_number_value(json_array_get(array, (size_t)i));
        if (!json_is_number(json_array_get(array, (size_t)i)) || !(x[i] >= lowest && x[i] <= FLT_MAX)) return false;
    }
    return true;
}

int sgrad__config_input(const char *folder, int channels, double *mean, double *deviation, bool *found) {
    char *path;
    json_t *object;
    double m[SGRAD_MAX_CHANNELS], d[SGRAD_MAX_CHANNELS];
    int error = sgrad__config_read(folder, &path, &object);
    /* without identity it was written by another program */
    if (object && !json_object_get(object, "identity")) json_decref(object), object = NULL;
    if (object && !(get_reals(json_object_get(object, "mean"), channels, -FLT_MAX, m) &&
                    get_reals(json_object_get(object, "deviation"), channels, FLT_MIN, d)))
        error = sgrad_log_error(SGRAD_EFORMAT,
                                "%s: mean and deviation must be lists with a finite number for each channel (%d), and deviations "
                                "must be above 0",
                                path, channels);
    if (!error) {
        *found = object;
        for (int i = 0; object && i < channels; i++) mean[i] = m[i], deviation[i] = d[i];
    }
    json_decref(object);
    free(path);
    return error;
}

/* ---- resuming ------------------------------------------------------------------------------------------------- */

/* Returns one value in JSON as it is written to config.json; NULL if VALUE is NULL. The caller must free it. */
static char *value_text(const json_t *value) { return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS)); }

/* Returns true for options that belong to one process and not to the run: run directory, resume, trace. */
static bool is_of_now(const char *key) { return !strcmp(key, "out") || !strcmp(key, "resume") || !strcmp(key, "trace"); }

/* Returns the options BEFORE as this version writes them. An option that an older version did not write had its default. */
static json_t *rewritten_options(const char *where, const json_t *before) {
    struct sgrad_train_options options = sgrad_train_defaults();
    sgrad__options_take(where, before, &options);
    return sgrad__options_json(&options);
}

/* Returns the options in NOW that differ from BEFORE, the content of the file WHERE. */
static json_t *changed_options(const char *where, const json_t *before, json_t *now) {
    json_t *changed = json_object(), *rewritten = rewritten_options(where, before), *value;
    const char *key;
    json_object_foreach(now, key, value) {
        char *was = value_text(json_object_get(rewritten, key)), *is = value_text(value);
        if ((!was || strcmp(was, is)) && !is_of_now(key)) json_object_set(changed, key, value);
        free(was);
        free(is);
    }
    json_decref(rewritten);
    return changed;
}

/* Returns "with lr 0.001 (was 0.1), epochs 4.0 (was 2.0), on 4 ranks (was 2)". RANKS and NOW: the numbers of ranks before and
 * after; 0: unknown. The caller must free it. */
static char *change_text(const json_t *before, json_t *changed, long long ranks, long long now) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    const char *key;
    json_t *value;
    int count = 0;
    json_object_foreach(changed, key, value) {
        char *was = value_text(json_object_get(before, key)), *is = value_text(value);
        fprintf(to, "%s%s %s (was %s)", count++ ? ", " : "with ", key, is, was ? was : "not set");
        free(was);
        free(is);
    }
    if (!count) fputs("with the same options", to);
    if (ranks && now && ranks != now) fprintf(to, ", on %lld %s (was %lld)", now, sgrad_plural(now, "rank", "ranks"), ranks);
    fclose(to);
    return text;
}

/* Returns "with optimizer "sgd", lr 0.01, …", the main options of the start of a run. */
static json_t *begun_text(const json_t *options) {
    static const char *const keys[] = { "optimizer", "lr", "schedule", "batch", "epochs", "seed" };
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        char *value = value_text(json_object_get(options, keys[k]));
        fprintf(to, "%s%s %s", k ? ", " : "with ", keys[k], value ? value : "not set");
        free(value);
    }
    fclose(to);
    json_t *string = json_string(text);
    free(text);
    return string;
}

/* Returns the present options: those of the start with the changes of each continuation; NULL: some are missing. If DESCRIBE is
 * true, also sets the texts "begun" (options of the start) and, in each continuation, "changes" in CONFIG. */
static json_t *walk_options(json_t *config, bool describe) {
    json_t *options = json_deep_copy(json_object_get(config, "options")), *entry;
    bool whole = json_is_object(options);
    long long ranks = json_integer_value(json_object_get(config, "ranks"));
    size_t i;
    if (describe) json_object_set_new(config, "begun", begun_text(options));
    json_array_foreach(json_object_get(config, "continued"), i, entry) {
        json_t *changed = json_object_get(entry, "options");
        const long long now = json_integer_value(json_object_get(entry, "ranks"));
        char *changes = describe ? change_text(options, changed, ranks, now) : NULL;
        if (describe) json_object_set_new(entry, "changes", json_string(changes));
        whole &= json_is_object(changed);
        json_object_update(options, changed);
        if (now) ranks = now;
        free(changes);
    }
    if (whole) return options;
    json_decref(options);
    return NULL;
}

json_t *sgrad__config_options(const json_t *config) { return walk_options((json_t *)config, false); }

/* Returns one line for the start and one for each continuation; the last one describes the present process. The caller must
 * free it. */
static char *history_text(const json_t *config) {
    const json_t *continued = json_object_get(config, "continued");
    char *text = NULL;
    size_t size, i;
    FILE *to = open_memstream(&text, &size);
    json_t *entry;
    fprintf(to, "begun      %s\n", json_string_value(json_object_get(config, "begun")));
    json_array_foreach(continued, i, entry) {
        const char *changes = json_string_value(json_object_get(entry, "changes"));     /* NULL: the entry is not an object */
        fprintf(to, "%s  after step %lld, %s\n", i + 1 < json_array_size(continued) ? "continued" : "continues",
                (long long)json_integer_value(json_object_get(entry, "step")), changes ? changes : "with unknown changes");
    }
    fclose(to);
    return text;
}

int sgrad__config_continue(const char *folder, const struct sgrad__config *c, long step, char **history) {
    char *path;
    json_t *config;
    int error = sgrad__config_read(folder, &path, &config);
    free(path);
    if (error) return error;
    if (!config) return sgrad__config_write(folder, c);
    json_t *before = sgrad__config_options(config), *now = sgrad__options_json(c->options);
    json_t *entry = json_pack("{s:I, s:o}", "step", (json_int_t)step, "options", changed_options(folder, before, now)),
           *all = json_object_get(config, "continued");
    set_circumstances(entry, c);
    if (!json_is_array(all)) json_object_set_new(config, "continued", all = json_array());
    json_array_append_new(all, entry);
    json_decref(walk_options(config, true));
    error = write_config(folder, config);
    if (!error) *history = history_text(config);
    json_decref(before);
    json_decref(now);
    json_decref(config);
    return error;
}
