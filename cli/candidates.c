/* candidates.c: reads the file of a search: options for all candidates, by the long names of train's options, and the candidates:
 * a list, all combinations of a grid, or random samples.
 *
 *     {"model": "lenet", "epochs": 3, "candidates": [{"lr": 0.01}, {"lr": 0.1, "model": "mlp"}]}
 *     {"model": "lenet", "epochs": 3, "grid": {"lr": [0.01, 0.1], "batch": [32, 64]}}                        four of them
 *     {"model": "lenet", "epochs": 9, "random": {"count": 20, "lr": {"log": [1e-3, 1]}, "batch": [32, 64]},
 *      "stop": {"rule": "halving", "first": 1, "factor": 3}}
 *
 * Every option is parsed as on the command line, by its row of train's table. */
#include "cli/candidates.h"
#include "graphs/api/search.h"

#include "runtime/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 16 << 20, MOST = 10000 };      /* bytes of the file; number of candidates */

/* The position of a value, for messages: "FILE: candidates[1]". */
struct place {
    const char *file, *in;
    struct sgrad__candidates *all;
};

static bool is_one_of(const char *word, const char *const *words) {
    while (*words && strcmp(*words, word)) words++;
    return *words;
}

/* Options that the search sets itself, or that it does not support. */
static const char *const refused[] = {
    "data", "out", "resume", "steps", "deterministic", "data-placement", "sampler", "shard",
    "strategy", "servers", "group", "backup",
    "staleness", "allreduce", "bucket", "network", "stall-timeout", "cpus", "gpus", "scheduler", "memory", "gpu-memory", "spill",
    "checkpoint-every",
    "stop-before", "keep", "snapshot-every", "evaluate-last", "evaluate-every", "best", "patience", "min-delta", "show-batch",
    "trace", "tensorboard", "histograms", "prometheus", "print", "json", "quiet", NULL
};
/* Options that must be the same for all candidates. */
static const char *const common_only[] = { "epochs",   "exclude", "image-size",  "eval-resize", "exif",        "decode",
                                          "split",    "mean",    "deviation",   "class-names", "data-memory", NULL };
/* The position of the keys at the top level of the file, for messages. */
static const char everywhere[] = "options for all candidates";
static const char *const own_words[] = { "candidates", "grid", "random", "stop", "partitions", "order", NULL };

/* ---- an option ---------------------------------------------------------------------------------------------------- */

static int no_such_option(const struct place *place, const char *name, bool top) {
    const char *names[256] = { 0 };
    int count = 0;
    for (const struct sgrad__option *o = sgrad__train_command.options; o->help && count < 200; o++)
        if (o->name && !is_one_of(o->name, refused)) names[count++] = o->name;
    for (int i = 0; top && own_words[i]; i++) names[count++] = own_words[i];
    const char *near = sgrad_suggest(name, names);
    return sgrad__wrong("%s: %s: unknown option '%s'%s%s%s", place->file, place->in, name, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "; see stargrad train --help");
}

/* Returns a copy of TEXT that is valid as long as the candidates; frees TEXT. */
static const char *keep_text(struct sgrad__candidates *all, char *text) {
    json_t *kept = json_string(text);
    free(text);
    json_array_append_new(all->text, kept);
    return json_string_value(kept);
}

/* Returns VALUE as it is written on the command line; NULL: it is a list, an object, a boolean or null. */
static const char *typed(struct sgrad__candidates *all, const json_t *value) {
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_integer(value)) return keep_text(all, sgrad_format("%lld", (long long)json_integer_value(value)));
    return json_is_real(value) ? keep_text(all, sgrad_format("%.15g", json_real_value(value))) : NULL;
}

/* Returns the text of the values that O takes. */
static char *values_of(const struct sgrad__option *option) {
    if (!option->value) return sgrad_format("true or false");
    return option->type->takes ? option->type->takes(option) : sgrad_format("a value of --%s: %s", option->name, option->value);
}

static int wrong_value(const struct place *place, const struct sgrad__option *option, const json_t *value) {
    char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)), *takes = values_of(option);
    int status = sgrad__wrong("%s: %s: %s: %s is not %s", place->file, place->in, option->name, is, takes);
    free(takes);
    free(is);
    return status;
}

static int set_option(const struct place *place, const char *name, const json_t *value, struct sgrad__request *request) {
    const struct sgrad__option *o = sgrad__option_find(&sgrad__train_command, name);
    if (!o) return no_such_option(place, name, strcmp(place->in, everywhere) == 0);
    if (is_one_of(name, refused))
        return sgrad__wrong("%s: %s: %s cannot be set for candidates; remove it from the file", place->file, place->in, name);
    if (!o->value) {
        if (!json_is_boolean(value)) return wrong_value(place, o, value);
        if (json_is_true(value)) o->type->read(o, NULL, request);
        else if (sgrad__option_is_flag(o)) *(bool *)((char *)request + o->field) = false;
        return SGRAD__DONE;
    }
    const char *text = typed(place->all, value);
    return text && o->type->read(o, text, request) ? SGRAD__DONE : wrong_value(place, o, value);
}

static int set_options(const struct place *place, const json_t *options, struct sgrad__request *request) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)options, key, value) {
        const int status = set_option(place, key, value, request);
        if (status) return status;
    }
    return SGRAD__DONE;
}

/* ---- candidates --------------------------------------------------------------------------------------------------- */

static bool is_name(const char *name) {
    return *name && *name != '.' && strlen(name) < 100 &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-")];
}

static int check_name(const struct place *place, const json_t *name) {
    const struct sgrad_search_options *o = &place->all->options;
    const char *is = json_string_value(name);
    if (!is || !is_name(is))
        return sgrad__wrong("%s: %s: name: must consist of 1 to 99 letters, digits and . _ = -, and not begin with .",
                            place->file, place->in);
    for (int i = 0; i < o->candidates; i++)
        if (place->all->candidate[i].name && strcmp(place->all->candidate[i].name, is) == 0)
            return sgrad__wrong("%s: %s: name: '%s' is also the name of another candidate; names must be unique", place->file,
                                place->in, is);
    return SGRAD__DONE;
}

/* Adds a candidate with OPTIONS, an object of the file or a generated one. */
static int add_candidate(const struct place *place, const json_t *options) {
    struct sgrad__candidates *all = place->all;
    struct sgrad__request request = { .train = all->options.common };
    json_t *given = json_deep_copy(options), *name = json_incref(json_object_get(given, "name"));
    int status = name ? check_name(place, name) : SGRAD__DONE;
    json_object_del(given, "name");
    for (int i = 0; !status && common_only[i]; i++)
        if (json_object_get(given, common_only[i]))
            status = sgrad__wrong("%s: %s: %s must be the same for all candidates; move it to the top level of the file",
                                  place->file, place->in, common_only[i]);
    json_array_append_new(all->text, given);        /* owns the strings of the options */
    if (!status) status = set_options(place, given, &request);
    if (!status && !request.train.model.name)
        status = sgrad__wrong("%s: %s: the model is missing; add \"model\": \"NAME\"", place->file, place->in);
    if (!status && all->options.candidates == MOST) status = sgrad__wrong("%s: has more than %d candidates", place->file, MOST);
    if (!status) {
        all->candidate = sgrad_array_grow(all->candidate, all->options.candidates, sizeof *all->candidate);
        all->candidate[all->options.candidates++] = (struct sgrad_candidate){
            .name = name ? keep_text(all, sgrad_format("%s", json_string_value(name))) : NULL,
            .options_json = keep_text(all, json_dumps(given, JSON_COMPACT | JSON_REAL_PRECISION(15))), .options = request.train
        };
    }
    json_decref(name);
    return status;
}

static int add_given(struct place p, const json_t *list) {
    int status = json_array_size(list) ? SGRAD__DONE
                                       : sgrad__wrong("%s: candidates: must be a non-empty list of objects", p.file);
    for (size_t i = 0; !status && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char *in = sgrad_format("candidates[%zu]", i);
        p.in = in;
        status = json_is_object(one) ? add_candidate(&p, one) : sgrad__wrong("%s: %s: is not an object", p.file, in);
        free(in);
    }
    return status;
}

/* Adds every combination. The values of the last key change fastest. */
static int add_grid(const struct place *place, json_t *grid) {
    const char *key;
    json_t *values, *list = json_array();
    size_t i, j;
    int status = json_object_size(grid) ? SGRAD__DONE
                                        : sgrad__wrong("%s: grid: must be a non-empty object of lists", place->file);
    json_array_append_new(list, json_object());
    json_object_foreach(grid, key, values) {
        json_t *longer = json_array(), *one, *value;
        if (!status && !json_array_size(values))
            status = sgrad__wrong("%s: grid: %s: must be a non-empty list of values", place->file, key);
        if (!status && json_array_size(list) * json_array_size(values) > MOST)
            status = sgrad__wrong("%s: grid: has more than %d combinations; shorten its lists", place->file, MOST);
        if (!status)
            json_array_foreach(list, i, one) json_array_foreach(values, j, value) {
                json_t *more = json_copy(one);
                json_object_set(more, key, value);
                json_array_append_new(longer, more);
            }
        json_decref(list);
        list = longer;
    }
    for (i = 0; !status && i < json_array_size(list); i++) status = add_candidate(place, json_array_get(list, i));
    json_decref(list);
    return status;
}

/* ---- random candidates ---------------------------------------------------------------------------------------------- */

/* Rounds X to four significant digits, for readability. */
static json_t *rounded(double x) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", x);
    return json_real(strtod(text, NULL));
}

/* Maps U in [0,1) to a value of SPEC: a list, or {"log"|"uniform"|"whole": [A, B]}; NULL: it is neither. */
static json_t *value_at(const json_t *spec, double u) {
    static const char *const ways[] = { "uniform", "log", "whole" };
    if (json_array_size(spec)) return json_incref(json_array_get(spec, (size_t)(u * (double)json_array_size(spec))));
    for (int way = 0; way < 3 && json_object_size(spec) == 1; way++) {
        const json_t *range = json_object_get(spec, ways[way]), *from = json_array_get(range, 0), *to = json_array_get(range, 1);
        const double a = json_number_value(from), b = json_number_value(to);
        if (json_array_size(range) != 2 || !json_is_number(from) || !json_is_number(to) || !(a <= b) || (way == 1 && !(a > 0)))
            continue;
        if (way == 2 && !(json_is_integer(from) && json_is_integer(to))) return NULL;
        if (way == 2) return json_integer((json_int_t)(a + u * (b - a + 1)));
        return rounded(way == 1 ? a * pow(b / a, u) : a + u * (b - a));
    }
    return NULL;
}

static int draw_candidate(const struct place *place, json_t *random, int number) {
    const char *key;
    json_t *spec, *drawn = json_object();
    int status = SGRAD__DONE;
    json_object_foreach(random, key, spec) {
        if (strcmp(key, "count") == 0) continue;
        const struct sgrad_random r = sgrad_philox(place->all->options.common.training.seed, SGRAD_STREAM_SEARCH,
                                                   (uint32_t)number, sgrad_hash(key, strlen(key)), 0);
        json_t *value = value_at(spec, (double)r.word[0] * 0x1p-32);
        if (!value && !status)
            status = sgrad__wrong("%s: random: %s: must be a list, or {\"log\": [A, B]}, {\"uniform\": [A, B]} or {\"whole\": "
                                  "[A, B]} with A at most B; A must be above 0 for log",
                                  place->file, key);
        json_object_set_new(drawn, key, value ? value : json_null());
    }
    if (!status) status = add_candidate(place, drawn);
    json_decref(drawn);
    return status;
}

static int add_random(const struct place *place, json_t *random) {
    const json_t *count = json_object_get(random, "count");
    const json_int_t wanted = json_integer_value(count);
    if (!json_is_integer(count) || wanted < 1 || wanted > MOST)
        return sgrad__wrong("%s: random: count: must be a whole number from 1 to %d", place->file, MOST);
    int status = SGRAD__DONE;
    for (int i = 0; !status && i < wanted; i++) status = draw_candidate(place, random, i);
    return status;
}

/* ---- the file ----------------------------------------------------------------------------------------------------- */

static int take_whole(const struct place *place, const json_t *object, const char *key, int low, int *value) {
    const json_t *is = json_object_get(object, key);
    const json_int_t x = json_integer_value(is);
    if (!is) return SGRAD__DONE;
    if (!json_is_integer(is) || x < low || x > 1000000)
        return sgrad__wrong("%s: %s: %s: must be a whole number from %d to 1000000", place->file, place->in, key, low);
    *value = (int)x;
    return SGRAD__DONE;
}

static int take_word(const struct place *place, const json_t *object, const char *key, const char *const *words,
                     const char **value) {
    const json_t *is = json_object_get(object, key);
    const char *word = json_string_value(is);
    if (!is) return SGRAD__DONE;
    if (!word || !is_one_of(word, words)) {
        char *all = sgrad_format("%s", words[0]), *before;
        for (int i = 1; words[i]; i++) {
            before = all;
            all = sgrad_format("%s%s%s", before, words[i + 1] ? ", " : " or ", words[i]);
            free(before);
        }
        int status = sgrad__wrong("%s: %s: %s: must be %s", place->file, place->in, key, all);
        free(all);
        return status;
    }
    *value = word;
    return SGRAD__DONE;
}

static int read_stop(struct place p, json_t *stop, struct sgrad_stop *to) {
    static const char *const rules[] = { "none", "halving", "median", NULL };
    static const char *const words[] = { "rule", "first", "factor", NULL };
    const char *key;
    json_t *value;
    p.in = "stop";
    if (stop && !json_is_object(stop)) return sgrad__wrong("%s: stop: must be an object like {\"rule\": \"halving\"}", p.file);
    json_object_foreach(stop, key, value) if (!is_one_of(key, words)) return sgrad__wrong(
        "%s: stop: unknown key '%s'; the keys are rule, first and factor", p.file, key);
    int status = take_word(&p, stop, "rule", rules, &to->rule);
    if (!status) status = take_whole(&p, stop, "first", 1, &to->first);
    return status ? status : take_whole(&p, stop, "factor", 2, &to->factor);
}

/* Keys that are not in own_words are options for all candidates. */
static int read_common(struct place p, json_t *file) {
    struct sgrad__candidates *all = p.all;
    struct sgrad_search_options *o = &all->options;
    struct sgrad__request request = { .train = o->common };
    json_t *common = json_copy(file);
    for (int i = 0; own_words[i]; i++) json_object_del(common, own_words[i]);
    p.in = everywhere;
    int status = set_options(&p, common, &request);
    if (!status && (request.train.training.epochs < 1 || request.train.training.epochs != floor(request.train.training.epochs)))
        status = sgrad__wrong("%s: epochs: must be a whole number of 1 or more", p.file);
    o->common = request.train;
    o->options_json = keep_text(all, json_dumps(common, JSON_COMPACT | JSON_REAL_PRECISION(15)));
    json_decref(common);
    return status;
}

static int read_search(struct place p, json_t *file) {
    static const char *const orders[] = { "staggered", "ring", "open-shop", NULL };
    json_t *given = json_object_get(file, "candidates"), *grid = json_object_get(file, "grid"),
           *random = json_object_get(file, "random");
    struct sgrad_search_options *o = &p.all->options;
    if (!json_is_object(file)) return sgrad__wrong("%s: is not a JSON object", p.file);
    if (!given + !grid + !random != 2)
        return sgrad__wrong("%s: must have exactly one of \"candidates\", \"grid\" and \"random\"", p.file);
    int status = read_common(p, file);
    p.in = everywhere;
    if (!status) status = take_whole(&p, file, "partitions", 1, &o->partitions);
    if (!status) status = take_word(&p, file, "order", orders, &o->schedule);
    if (!status) status = read_stop(p, json_object_get(file, "stop"), &o->stop);
    p.in = grid ? "grid" : "random";
    if (status) return status;
    if (given) return add_given(p, given);
    return grid ? add_grid(&p, grid) : add_random(&p, random);
}

static int load(const char *path, json_t **file) {
    const int error = sgrad_json_read(path, LARGEST, file);
    return error == SGRAD_EFORMAT ? SGRAD__USAGE : sgrad__status(error);     /* user input, like the command line */
}

static struct place open_candidates(const char *path, const struct sgrad_train_options *train, struct sgrad__candidates *all) {
    *all = (struct sgrad__candidates){ .text = json_array(), .options.common = *train };
    return (struct place){ .file = path, .all = all };
}

int sgrad__candidates_read(const char *path, const struct sgrad_train_options *train, struct sgrad__candidates *all) {
    const struct place p = open_candidates(path, train, all);
    int status = load(path, &all->file);
    if (!status) status = read_search(p, all->file);
    all->options.candidate = all->candidate;
    return status;
}

/* Adds the candidate NAME of DIR/search.json. */
static int find(struct place p, const char *name, const struct sgrad_train_options *train) {
    struct sgrad__candidates *all = p.all;
    json_t *list = json_object_get(all->file, "candidates"), *one;
    const char *data = json_string_value(json_object_get(all->file, "data"));
    size_t i;
    int status = read_common(p, json_object_get(all->file, "options"));
    if (!status) status = take_whole(&p, all->file, "partitions", 1, &all->options.partitions);
    if (!status && !train->data.name && data) all->options.common.data.name = data;
    json_array_foreach(list, i, one) {
        const char *is = json_string_value(json_object_get(one, "name"));
        if (status || !is || strcmp(is, name)) continue;
        json_t *options = json_copy(json_object_get(one, "options"));
        json_object_set(options, "name", json_object_get(one, "name"));
        status = add_candidate(&p, options);
        json_decref(options);
    }
    if (!status && !all->options.candidates) status = sgrad__wrong("--replay: %s has no candidate '%s'", p.file, name);
    return status;
}

int sgrad__candidates_find(const char *folder, const char *name, const struct sgrad_train_options *train,
                           struct sgrad__candidates *all) {
    char *path = sgrad_format("%s/search.json", folder);
    struct place p = open_candidates(path, train, all);
    p.in = name;
    int status = load(path, &all->file);
    if (!status) status = find(p, name, train);
    all->options.candidate = all->candidate;
    free(path);
    return status;
}

void sgrad__candidates_free(struct sgrad__candidates *all) {
    json_decref(all->file);
    json_decref(all->text);
    free(all->candidate);
}
