/* history.c: reads config.json and metrics.jsonl, with one object per line, from the folder of a run. */
#include "report/history.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 1 << 24, LONGEST_NAME = 32 };    /* a line has four numbers of each class */
static const size_t largest_file = (size_t)4 << 30;

struct place {
    const char *path;
    long line;
};

static int malformed(const struct place *at, const char *reason) {
    return sgrad_log_error(SGRAD_EFORMAT, "%s: line %ld: %s", at->path, at->line, reason);
}

/* Reads the number KEY of ROW. Losses that are not finite are written as null, which is read as NaN. */
static int number(const struct place *at, const json_t *row, const char *key, double *value) {
    const json_t *is = json_object_get(row, key);
    char reason[96];
    snprintf(reason, sizeof reason, "\"%s\" is missing, or is not a number", key);
    if (!json_is_number(is) && !json_is_null(is)) return malformed(at, reason);
    *value = json_is_null(is) ? NAN : json_number_value(is);
    return 0;
}

/* Reads the integer KEY of ROW, at least 0: a number of steps. */
static int whole(const struct place *at, const json_t *row, const char *key, double *value) {
    const json_t *is = json_object_get(row, key);
    char reason[96];
    snprintf(reason, sizeof reason, "\"%s\" is missing, or is not a whole number of 0 or more", key);
    if (!json_is_integer(is) || json_integer_value(is) < 0) return malformed(at, reason);
    *value = (double)json_integer_value(is);
    return 0;
}

/* Adds the moves of a step with RATE samples per second. */
static int add_moves(const struct place *at, const json_t *row, double rate, struct sgrad__history *history) {
    struct sgrad__history_moves *sum = &history->moves;
    const struct {
        const char *key;
        double *sum;
    } each[] = { { "written_mbyte", &sum->written }, { "read_mbyte", &sum->read }, { "moving_seconds", &sum->moving },
                 { "waiting_seconds", &sum->waiting } };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        double value;
        SGRAD_TRY(number(at, row, each[i].key, &value));
        if (isfinite(value)) *each[i].sum += value;
    }
    if (rate > 0) sum->seconds += json_number_value(json_object_get(history->options, "batch")) / rate;
    sum->steps++;
    return 0;
}

static int add_step(const struct place *at, const json_t *row, struct sgrad__history *history) {
    struct sgrad__history_step s;
    SGRAD_TRY(whole(at, row, "step", &s.step));
    SGRAD_TRY(number(at, row, "loss", &s.loss));
    SGRAD_TRY(number(at, row, "samples_per_second", &s.rate));
    history->step = sgrad_array_grow(history->step, history->steps, sizeof s);
    history->step[history->steps++] = s;
    return json_object_get(row, "written_mbyte") ? add_moves(at, row, s.rate, history) : 0;
}

static int add_epoch(const struct place *at, const json_t *row, struct sgrad__history *history) {
    struct sgrad__history_epoch e = { 0 };
    SGRAD_TRY(number(at, row, "epoch", &e.epoch));
    e.step = history->steps ? history->step[history->steps - 1].step : 0;
    if (json_object_get(row, "step")) SGRAD_TRY(whole(at, row, "step", &e.step));
    SGRAD_TRY(number(at, row, "train_loss", &e.train_loss));
    char trained[LONGEST_NAME + sizeof "train_"];
    snprintf(trained, sizeof trained, "train_%s", history->metric[history->trained].name);
    e.train = NAN;
    if (history->trained && json_object_get(row, trained)) SGRAD_TRY(number(at, row, trained, &e.train));
    for (int i = 0; i < history->metrics; i++) {
        char key[LONGEST_NAME + sizeof "test_"];
        snprintf(key, sizeof key, "test_%s", history->metric[i].name);
        SGRAD_TRY(number(at, row, key, &e.test[i]));
    }
    SGRAD_TRY(number(at, row, "seconds", &e.seconds));
    const json_t *step = json_object_get(history->classes, "step");
    if (json_is_integer(step) && (double)json_integer_value(step) == e.step) e.classes = history->classes;
    else json_decref(history->classes);
    history->classes = NULL;
    history->epoch = sgrad_array_grow(history->epoch, history->epochs, sizeof e);
    history->epoch[history->epochs++] = e;
    return 0;
}

/* Keeps the scores of classes for the line of the epoch, which follows. */
static int add_classes(const struct place *at, json_t *row, struct sgrad__history *history) {
    static const char *const keys[] = { "samples", "precision", "recall", "f1" };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *list = json_object_get(row, keys[k]), *first = json_object_get(row, "samples"), *value;
        size_t i;
        bool good = json_is_array(list) && json_array_size(list) == json_array_size(first);
        json_array_foreach(list, i, value) good &= json_is_number(value);
        if (!good) return malformed(at, "the scores of the classes are not lists of numbers of the same length");
    }
    json_decref(history->classes);
    history->classes = json_incref(row);
    return 0;
}

static int add_failure(const struct place *at, json_t *row, struct sgrad__history *history) {
    static const char *const numbers[] = { "step", "time", "seconds", "repeated" };
    static const char *const whole_numbers[] = { "rank", "signal", "status" };
    double value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) SGRAD_TRY(number(at, row, numbers[i], &value));
    for (size_t i = 0; i < sizeof whole_numbers / sizeof *whole_numbers; i++) {
        const json_t *is = json_object_get(row, whole_numbers[i]);
        if (is && !json_is_null(is) && !json_is_integer(is)) return malformed(at, "the description of the failure is malformed");
    }
    if (!history->failures) history->failures = json_array();
    json_object_del(row, "event");
    json_array_append(history->failures, row);
    return 0;
}

static int add_slow_rank(const struct place *at, json_t *row, struct sgrad__history *history) {
    static const char *const numbers[] = { "step", "rank", "times" };
    double value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) SGRAD_TRY(number(at, row, numbers[i], &value));
    if (!json_is_string(json_object_get(row, "host"))) return malformed(at, "the description of the slow rank is malformed");
    if (!history->slow_ranks) history->slow_ranks = json_array();
    json_object_del(row, "event");
    json_array_append(history->slow_ranks, row);
    return 0;
}

static int add_line(const struct place *at, const char *line, size_t length, struct sgrad__history *history) {
    json_error_t error;
    json_t *row = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
    if (!row) return malformed(at, error.text);
    const char *event = json_string_value(json_object_get(row, "event"));
    int result = 0;
    if (!event) result = malformed(at, "is not an object with an \"event\"");
    else if (!strcmp(event, "step")) result = add_step(at, row, history);
    else if (!strcmp(event, "epoch")) result = add_epoch(at, row, history);
    else if (!strcmp(event, "classes")) result = add_classes(at, row, history);
    else if (!strcmp(event, "failure")) result = add_failure(at, row, history);
    else if (!strcmp(event, "slow_rank")) result = add_slow_rank(at, row, history);
    json_decref(row);
    return result;
}

/* Ignores a last line without a newline: the run is in progress, or was killed. */
static int read_lines(const char *path, struct sgrad__history *history) {
    struct sgrad_map map;
    struct place at = { path, 0 };
    int error = sgrad_map_open(path, largest_file, &map);
    if (error) return error;
    const char *line = (const char *)map.data, *end = line + map.size, *next;
    for (; !error && (next = memchr(line, '\n', (size_t)(end - line))); line = next + 1) {
        at.line++;
        error = next - line > LONGEST_LINE ? malformed(&at, "is longer than any line of metrics")
                                           : add_line(&at, line, (size_t)(next - line), history);
    }
    if (!error && !history->steps)
        error =
            sgrad_log_error(SGRAD_EFORMAT, "%s: contains no step: the run has not begun, or this is not a metrics file", path);
    sgrad_map_close(&map);
    return error;
}

static int read_config(const char *path, json_t **config) {
    SGRAD_TRY(sgrad_json_read(path, largest_file, config));
    if (!json_is_object(*config)) return sgrad_log_error(SGRAD_EFORMAT, "%s: is not a JSON object", path);
    return 0;
}

static json_t *options_by_now(const json_t *config) {
    json_t *options = json_deep_copy(json_object_get(config, "options")), *entry;
    size_t i;
    if (!json_is_object(options)) json_decref(options), options = json_object();
    json_array_foreach(json_object_get(config, "continued"), i, entry)
        json_object_update(options, json_object_get(entry, "options"));
    return options;
}

static bool is_name(const char *text) { return text && *text && strlen(text) <= LONGEST_NAME; }

/* Reads the list "metrics". Runs without this list are older, and are classifications. */
static int read_metrics(const char *path, struct sgrad__history *history) {
    static const struct sgrad__history_metric classification[] = { { "loss", "loss", false }, { "top1", "accuracy", true } };
    const json_t *list = json_object_get(history->config, "metrics"), *is;
    const char *samples = json_string_value(json_object_get(history->config, "samples"));
    size_t i;
    history->samples = is_name(samples) ? samples : "images";
    if (!list) memcpy(history->metric, classification, sizeof classification);
    if (!list) history->metrics = 2;
    bool good = !list || (json_is_array(list) && json_array_size(list) > 0 && json_array_size(list) <= SGRAD__MOST_METRICS);
    json_array_foreach(list, i, is) {
        const struct sgrad__history_metric m = { json_string_value(json_object_get(is, "name")),
                                                 json_string_value(json_object_get(is, "title")),
                                                 json_is_true(json_object_get(is, "share")) };
        good &= is_name(m.name) && is_name(m.title);
        if (good) history->metric[history->metrics++] = m;
    }
    history->main = history->trained = history->metrics > 1;
    const char *wanted = json_string_value(json_object_get(history->options, "best_metric"));
    for (int i = 0; i < history->metrics && wanted; i++)
        if (strcmp(history->metric[i].name, wanted) == 0) history->main = i;
    if (good && strcmp(history->metric[0].name, "loss") == 0) return 0;
    return sgrad_log_error(SGRAD_EFORMAT,
                           "%s: metrics must be a list of 1 to %d objects with a name and a title each, the loss first", path,
                           SGRAD__MOST_METRICS);
}

int sgrad__history_read(const char *folder, struct sgrad__history *history) {
    struct sgrad__history h = { 0 };
    char *config = sgrad_format("%s/config.json", folder), *lines = sgrad_format("%s/metrics.jsonl", folder);
    int error = read_config(config, &h.config);
    if (!error) h.options = options_by_now(h.config);
    if (!error) error = read_metrics(config, &h);
    if (!error) error = read_lines(lines, &h);
    free(config);
    free(lines);
    if (error)
        sgrad__history_free(&h);
    else
        *history = h;
    return error;
}

void sgrad__history_free(struct sgrad__history *history) {
    json_decref(history->config);
    json_decref(history->options);
    json_decref(history->classes);
    json_decref(history->failures);
    json_decref(history->slow_ranks);
    for (int i = 0; i < history->epochs; i++) json_decref(history->epoch[i].classes);
    free(history->step);
    free(history->epoch);
}

const struct sgrad__history_epoch *sgrad__history_best(const struct sgrad__history *history) {
    const struct sgrad__history_epoch *best = NULL;
    const int main = history->main;
    for (const struct sgrad__history_epoch *e = history->epoch; e < history->epoch + history->epochs; e++)
        if (isfinite(e->test[main]) &&
            (!best || (history->metric[main].share ? e->test[main] > best->test[main] : e->test[main] < best->test[main])))
            best = e;
    return best;
}

double sgrad__history_shown(const struct sgrad__history_metric *metric, double value) {
    return metric->share ? 100 * value : value;
}

const char *sgrad__history_text(const struct sgrad__history_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]) {
    if (!metric->share) return sgrad_number_text(value, text);
    snprintf(text, SGRAD_NUMBER_TEXT, "%.2f %%", 100 * value);
    return text;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sgrad__history_median_rate(const struct sgrad__history *history) {
    double *rate = sgrad_xcalloc((size_t)history->steps, sizeof *rate);
    for (int i = 0; i < history->steps; i++) rate[i] = history->step[i].rate;
    qsort(rate, (size_t)history->steps, sizeof *rate, ascending);
    double median = (rate[(history->steps - 1) / 2] + rate[history->steps / 2]) / 2;
    free(rate);
    return median;
}
