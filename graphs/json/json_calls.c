/* json_calls.c: training, prediction, generation of text and export with options and results as JSON texts. */
#include "graphs/json/json_calls.h"
#include "datasets/tokenizers/tokenizer.h"
#include "graphs/api/inference.h"
#include "graphs/engine/run.h"
#include "graphs/rundir/rundir.h"
#include "runtime/collectives.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

char *sgrad_json_defaults(void) {
    const struct sgrad_train_options defaults = sgrad_train_defaults();
    json_t *object = sgrad__options_json(&defaults);
    char *text = json_dumps(object, JSON_INDENT(1));
    json_decref(object);
    return text;
}

/* The options of a call, and their names in the form of the command line (options.output.explicit_options). */
struct asked {
    json_t *object;
    struct sgrad_train_options options;
    char **name;        /* ends with NULL */
};

static int no_such_option(json_t *known, const char *name) {
    const char **names = sgrad_xcalloc(json_object_size(known) + 1, sizeof *names), *key;
    json_t *value;
    int count = 0;
    json_object_foreach(known, key, value) names[count++] = key;
    const char *near = sgrad_suggest(name, names);
    sgrad_log_error(SGRAD_ENAME, "unknown option '%s'%s%s%s", name, near ? "; did you mean '" : "", near ? near : "",
                    near ? "'?" : "");
    free(names);
    return SGRAD_ENAME;
}

static int check_names(struct asked *asked) {
    const struct sgrad_train_options defaults = sgrad_train_defaults();
    json_t *known = sgrad__options_json(&defaults), *value;
    const char *key;
    int count = 0, error = 0;
    asked->name = sgrad_xcalloc(json_object_size(asked->object) + 1, sizeof *asked->name);
    json_object_foreach(asked->object, key, value) {
        if (!json_object_get(known, key)) {
            error = no_such_option(known, key);
            break;
        }
        char *c = asked->name[count++] = sgrad_format("%s", key);
        while ((c = strchr(c, '_'))) *c = '-';
    }
    json_decref(known);
    return error;
}

/* Loads the saved options of a run that is resumed. "resume": true, or "auto", which is replaced by true if there is a run to
 * resume, or if "out" is missing (an error, which is reported later), else by false. */
static int take_own(struct asked *asked, bool *goes_on) {
    const json_t *resume = json_object_get(asked->object, "resume");
    const char *out = json_string_value(json_object_get(asked->object, "out")), *text = json_string_value(resume);
    const bool by_itself = text && !strcmp(text, "auto");
    enum sgrad_continuation how = SGRAD_BEGIN;
    if (out && by_itself) how = SGRAD_CONTINUE_OR_BEGIN;
    else if (out && json_is_true(resume)) how = SGRAD_CONTINUE;
    SGRAD_TRY(sgrad_run_continue(out, how, &asked->options, goes_on));
    if (by_itself) json_object_set_new(asked->object, "resume", json_boolean(*goes_on || !out));
    return 0;
}

static int take_options(const char *run, const char *options, bool training, struct asked *asked) {
    struct sgrad_train_options given = sgrad_train_defaults();
    json_error_t problem;
    bool goes_on = false;
    *asked = (struct asked){ .object = json_loads(options, JSON_REJECT_DUPLICATES, &problem), .options = given };
    if (!asked->object) return sgrad_log_error(SGRAD_EFORMAT, "options: invalid JSON in line %d: %s", problem.line, problem.text);
    if (!json_is_object(asked->object)) return sgrad_log_error(SGRAD_EFORMAT, "options: must be a JSON object");
    SGRAD_TRY(check_names(asked));
    if (training) SGRAD_TRY(take_own(asked, &goes_on));
    if (run && !goes_on) SGRAD_TRY(sgrad_run_options(run, &asked->options));
    SGRAD_TRY(sgrad__options_take("options", asked->object, &given));
    sgrad_run_options_yield(&asked->options, &given, (const char *const *)asked->name);
    SGRAD_TRY(sgrad__options_take("options", asked->object, &asked->options));
    asked->options.output.explicit_options = (const char *const *)asked->name;
    return 0;
}

/* Selects the weights of the run, unless other weights, or another network, which may have its own, are specified. */
static void take_weights(const char *run, struct asked *asked) {
    if (run && !json_object_get(asked->object, "init") && !json_object_get(asked->object, "model"))
        asked->options.model.init = sgrad_run_weights(run);
    if (!json_object_get(asked->object, "tta")) asked->options.evaluation.tta = NULL;
    if (!json_object_get(asked->object, "class_names")) asked->options.data.class_names = NULL; /* config.json has its content */
    asked->options.output.explicit_options = NULL;        /* most options belong to another command */
}

/* Without a run, data are those of the run that trained the weights. */
static void take_seed(const char *run, struct asked *asked) {
    if (!run && !json_object_get(asked->object, "seed")) sgrad_run_take_seed(&asked->options);
}

static void close_asked(struct asked *asked) {
    for (char **name = asked->name; name && *name; name++) free(*name);
    free(asked->name);
    json_decref(asked->object);
}

/* ---- calls ---- */

static char *text_of(json_t *object) {
    char *text = json_dumps(object, JSON_REAL_PRECISION(9));
    json_decref(object);
    return text;
}

/* Replaces the option data by arrays in memory. */
static void take_arrays(const struct sgrad_arrays *arrays, struct sgrad_train_options *options) {
    options->data.arrays = arrays;
    if (arrays) options->data.name = "arrays";
}

int sgrad_json_train(const char *run, const char *options, const struct sgrad_json_training *training, char **result) {
    static const struct sgrad_json_training nothing;
    struct asked a;
    struct sgrad_train_result r = { 0 };
    if (!training) training = &nothing;
    setvbuf(stdout, NULL, _IOLBF, 0);       /* progress must appear at once, also in a notebook */
    int error = take_options(run, options, true, &a);
    take_arrays(training->arrays, &a.options);
    a.options.output.events = training->events;
    a.options.output.quiet = training->quiet;
    if (!error) error = sgrad_train(&a.options, &r);
    if (!error) *result = text_of(sgrad_result_json(&r));
    free(r.folder);
    close_asked(&a);
    return error;
}

static bool find_type(const char *name, enum sgrad_dtype *dtype) {
    static const enum sgrad_dtype known[] = { SGRAD_U8, SGRAD_U16, SGRAD_I32, SGRAD_F32 };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, sgrad_dtype_name(known[i]))) return *dtype = known[i], true;
    return false;
}

static int open_array(const struct sgrad_dataset *like, const struct sgrad_json_samples *samples,
                      struct sgrad_dataset **dataset) {
    struct sgrad_shape shape = { .rank = samples->rank };
    enum sgrad_dtype dtype;
    if (samples->rank < 0 || samples->rank > SGRAD_MAX_RANK || !find_type(samples->type, &dtype))
        return sgrad_log_error(
            SGRAD_EINVAL,
            "samples: an array of type %s and rank %d is not supported; use U8, U16, I32 or F32, of at most rank %d",
            samples->type, samples->rank, SGRAD_MAX_RANK);
    for (int i = 0; i < samples->rank; i++) shape.dim[i] = samples->dim[i];
    return sgrad_dataset_of_array(like, samples->array, dtype, samples->count, &shape, dataset);
}

/* FILES, zeros on entry, must outlive the data set. */
static int open_files(const char *run, const struct sgrad_train_options *options, const struct sgrad_json_samples *samples,
                      struct sgrad_image_files *files, struct sgrad_dataset **dataset) {
    for (int64_t i = 0; i < samples->count; i++) SGRAD_TRY(sgrad_image_files_add(files, samples->file[i]));
    return sgrad_run_open_images(run, options, (const char *const *)files->name, files->count, dataset);
}

static int open_samples(const char *run, const struct sgrad_train_options *options, const struct sgrad_json_samples *samples,
                        struct sgrad_image_files *files, struct sgrad_dataset **dataset) {
    struct sgrad_dataset *like = NULL;
    if (samples->arrays) return sgrad_run_open_samples(options, !samples->arrays->y[SGRAD_TEST].data, dataset);
    if (samples->file) return open_files(run, options, samples, files, dataset);
    SGRAD_TRY(sgrad_run_samples(run, options, &like));
    int error = open_array(like, samples, dataset);
    sgrad_dataset_close(like);
    return error;
}

int sgrad_json_predict(const char *run, const char *options, const struct sgrad_json_samples *samples, char **result,
                       struct sgrad_predictions *answers) {
    struct asked a;
    struct sgrad_train_result r = { 0 };
    struct sgrad_dataset *dataset = NULL;
    struct sgrad_image_files files = { 0 };
    int error = take_options(run, options, false, &a);
    if (!error) take_weights(run, &a), take_seed(run, &a);
    take_arrays(samples ? samples->arrays : NULL, &a.options);
    if (!error && samples) error = open_samples(run, &a.options, samples, &files, &dataset);
    else if (!error && answers && !result && json_object_get(a.object, "data"))
        error = sgrad_run_open_samples(&a.options, true, &dataset);
    a.options.data.dataset[SGRAD_TEST] = dataset;
    if (!error) error = sgrad_predict(&a.options, &r, answers);
    if (!error && answers && dataset && dataset->unlabelled) {
        free(answers->label);
        answers->label = NULL;
        answers->label_rows = 0;
    }
    if (!error && result) {
        json_t *object = json_object();
        sgrad_result_tests(object, &r);
        *result = text_of(object);
    }
    free(r.source);
    sgrad_dataset_close(dataset);
    sgrad_image_files_free(&files);
    close_asked(&a);
    return error;
}

int sgrad_json_export(const char *run, const char *options, const char *path) {
    struct asked a;
    struct sgrad_dataset *dataset = NULL;
    int error = take_options(run, options, false, &a);
    if (!error) take_weights(run, &a), take_seed(run, &a);
    if (!error) error = sgrad_run_samples(run, &a.options, &dataset);
    a.options.data.dataset[SGRAD_TEST] = dataset;
    if (!error) error = sgrad_export(&a.options, path, 0);
    sgrad_dataset_close(dataset);
    close_asked(&a);
    return error;
}

/* ---- generation of text ---- */

/* Where the arguments of sgrad_json_sample are stored, by name. */
struct argument {
    const char *name;
    json_int_t *whole;          /* exactly one of whole, real and text is not NULL */
    double *real;
    const char **text;
};

/* Stores VALUE. Returns what it must be, if it is something else; otherwise NULL. */
static const char *take_argument(const struct argument *argument, const json_t *value) {
    if (argument->whole) {
        if (!json_is_integer(value)) return "a whole number";
        *argument->whole = json_integer_value(value);
    } else if (argument->real) {
        if (!json_is_number(value)) return "a number";
        *argument->real = json_number_value(value);
    } else {
        if (!json_is_string(value)) return "a text";
        *argument->text = json_string_value(value);
    }
    return NULL;
}

static int take_arguments(json_t *object, const struct argument *arguments) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const struct argument *is = arguments;
        if (!strcmp(key, "prompts")) continue;
        while (is->name && strcmp(is->name, key)) is++;
        const char *kind = is->name ? take_argument(is, value) : NULL;
        if (!is->name) return sgrad_log_error(SGRAD_ENAME, "sample: unknown argument '%s'", key);
        if (kind) return sgrad_log_error(SGRAD_EFORMAT, "sample: %s must be %s", key, kind);
    }
    return 0;
}

/* Reads the description TEXTS of the texts. The strings of HOW and *TOKENIZER belong to *OBJECT; the caller must free
 * how->prompt. */
static int read_texts(const char *texts, json_t **object, struct sgrad_text_options *how, const char **tokenizer) {
    json_error_t problem;
    json_int_t tokens = -1, top_k = 0;
    struct sgrad_sample_options *s = &how->sampling;
    s->temperature = NAN;
    const struct argument arguments[] = {
        { "tokens", .whole = &tokens },
        { "temperature", .real = &s->temperature },
        { "top_k", .whole = &top_k },
        { "top_p", .real = &s->top_p },
        { "repetition_penalty", .real = &s->repetition_penalty },
        { "stop", .text = &how->stop },
        { "tokenizer", .text = tokenizer },
        { NULL },
    };
    *object = json_loads(texts, JSON_REJECT_DUPLICATES, &problem);
    const json_t *prompts = json_object_get(*object, "prompts");
    if (!*object) return sgrad_log_error(SGRAD_EFORMAT, "sample: invalid JSON: %s", problem.text);
    if (!json_is_array(prompts)) return sgrad_log_error(SGRAD_EFORMAT, "sample: prompts must be a list of texts");
    SGRAD_TRY(take_arguments(*object, arguments));
    if (!json_object_get(*object, "tokens") || isnan(s->temperature))
        return sgrad_log_error(SGRAD_EFORMAT, "sample: tokens and temperature are required");
    s->tokens = (long)tokens;
    s->top_k = (int)sgrad_clamp(top_k, -1, INT32_MAX);
    how->prompts = (int)json_array_size(prompts);
    const char **prompt = sgrad_xcalloc((size_t)how->prompts + 1, sizeof *prompt);
    how->prompt = prompt;
    for (int i = 0; i < how->prompts; i++) {
        prompt[i] = json_string_value(json_array_get(prompts, (size_t)i));
        if (!prompt[i]) return sgrad_log_error(SGRAD_EFORMAT, "sample: prompt %d is not a text", i + 1);
    }
    return 0;
}

/* Opens the tokenizer FILE, or that of the run if FILE is NULL. *TOKENIZER is unchanged if the run has no tokenizer. */
static int open_tokenizer(const char *file, const char *run, const struct sgrad_train_options *options,
                          struct sgrad_tokenizer **tokenizer) {
    char *path = !file && run ? sgrad_run_tokenizer(run, options->data.name) : NULL;
    const int error = file || path ? sgrad_tokenizer_open(file ? file : path, tokenizer) : 0;
    free(path);
    return error;
}

static int sample(const struct sgrad_train_options *options, const struct sgrad_text_options *how, char **result) {
    struct sgrad_text *texts;
    if (!options->model.init) return sgrad_log_error(SGRAD_EINVAL, "sample: option init, a file of weights, is missing");
    SGRAD_TRY(sgrad_sample_texts(options, how, &texts));
    json_t *array = json_array();
    for (int i = 0; i < how->prompts; i++) json_array_append_new(array, sgrad_text_json(how->prompt[i], &texts[i]));
    sgrad_texts_free(texts, how->prompts);
    *result = text_of(array);
    return 0;
}

int sgrad_json_sample(const char *run, const char *options, const char *texts, char **result) {
    struct asked a;
    struct sgrad_text_options how = { 0 };
    struct sgrad_tokenizer *tokenizer = NULL;
    json_t *object = NULL;
    const char *file = NULL;
    sgrad__signals_watch();
    int error = take_options(run, options, false, &a);
    if (!error) take_weights(run, &a);
    if (!error) error = read_texts(texts, &object, &how, &file);
    if (!error) error = open_tokenizer(file, run, &a.options, &tokenizer);
    how.tokenizer = tokenizer;
    if (!error) error = sample(&a.options, &how, result);
    sgrad__signals_unwatch();
    sgrad_tokenizer_close(tokenizer);
    free((void *)how.prompt);
    json_decref(object);
    close_asked(&a);
    return error;
}
