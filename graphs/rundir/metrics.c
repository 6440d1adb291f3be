/* metrics.c: reports the progress of a run to metrics.jsonl (one JSON object per line), the terminal, TensorBoard and
 * Prometheus. */
#include "graphs/rundir/rundir.h"
#include "runtime/files/streams.h"
#include "runtime/environment.h"
#include "runtime/terminal.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers of the values: those of a step; then the metrics of the test set; then the utilization of the workers. */
enum { LOSS, RATE, SPEED, EPOCH, TESTS };
static const char *const value_name[TESTS] = { "train/loss", "train/learning_rate", "train/samples_per_second", "train/epoch" };

struct sgrad__metrics {
    struct sgrad__metrics_options is;
    char *path;
    FILE *jsonl;
    FILE *file;                 /* collects the line of the current event in memory: LENGTH bytes at LINE */
    char *line;
    size_t length;
    double loss, seconds;       /* sums over the steps of this epoch so far, or since the last evaluation within it */
    double share[SGRAD_MAX_METRICS];    /* by metric: the same for metrics that are fractions */
    long epoch_steps, losses;   /* losses: steps among these that have a loss */
    int epoch;                  /* of these sums */
    long last_epoch;            /* step of the last epoch line */
    json_t *failure;            /* owned; preceded this start, and is recorded after its first step; NULL: none */
    long recorded;              /* the last step in the file before this start */
    bool pending;
    long in_flight;
    double last;                /* time: when the last step ended, or the first one of those in flight was submitted */
    double run_seconds;         /* of the steps of this process */
    long run_steps;
    int names;
    char **name;                /* names of the values: of a step, then "test/loss", …, then "busy/cpu0", … */
    struct sgrad__tensorboard *tensorboard;
    struct sgrad__prometheus *prometheus;
    struct sgrad__slow_rank *slow;      /* NULL: the load of other ranks is unknown */
    int event_status;           /* the last value other than 0 of a function of the events */
    bool bar;                   /* terminal supports a progress bar */
    double drawn;               /* when the bar was last drawn */
    double interval, printed;   /* without a bar: seconds between lines within an epoch; when the last line was printed */
};

/* JSON has no NaN and no infinities: they become null. Nine digits represent a float exactly. */
#define NUMBER(x) number((char[32]){ 0 }, x)
static const char *number(char text[32], double x) {
    snprintf(text, 32, isfinite(x) ? "%.9g" : "null", x);
    return text;
}

/* Formats a float with the fewest digits, 6 to 9, that identify it, so that 0.1f becomes 0.1. */
#define TYPED(x) typed((char[32]){ 0 }, x)
static const char *typed(char text[32], float x) {
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, 32, "%.*g", digits, x);
        if (strtof(text, NULL) == x) break;
    }
    return text;
}

/* ---- metrics.jsonl -------------------------------------------------------------------------------------------- */

static void begin_epoch(struct sgrad__metrics *metrics, int epoch) {
    metrics->loss = metrics->seconds = 0;
    memset(metrics->share, 0, sizeof metrics->share);
    metrics->epoch_steps = metrics->losses = 0;
    metrics->epoch = epoch;
}

/* Returns true if metric I is also reported for training. Metrics that are not fractions are functions of the loss; metrics of
 * segmentations (unprefixed) are expensive and computed only in evaluations; so are those of classes. */
static bool is_trained(const struct sgrad__metrics *metrics, int i) {
    const struct sgrad_metric *metric = &metrics->is.metric[i];
    return metric->is_fraction && !metric->transform && !metric->unprefixed && !metric->by_class;
}

/* Adds the completed step STEP to the sums. LOSS is a float, because a resumed run reads it back with float precision. EMPTY: the
 * step has no loss. */
static void count_step(struct sgrad__metrics *metrics, long step, int epoch, float loss, bool empty, double seconds) {
    const bool evaluated = metrics->is.evaluate_every && (step - 1) % metrics->is.evaluate_every == 0;
    if (epoch != metrics->epoch || evaluated) begin_epoch(metrics, epoch);
    if (!empty) metrics->loss += loss, metrics->losses++;
    metrics->seconds += seconds;
    metrics->epoch_steps++;
}

/* Returns true if the line belongs to the run up to the resumed position, or is about a failure. Counts steps, so that the sums
 * include the steps of the last epoch. */
static bool keep_line(struct sgrad__metrics *metrics, const char *line, size_t length) {
    json_t *event = json_loadb(line, length, 0, NULL), *step = json_object_get(event, "step");
    const char *name = json_string_value(json_object_get(event, "event"));
    const bool failure = name && strcmp(name, "failure") == 0;
    bool keep = failure || (json_is_integer(step) && json_integer_value(step) <= metrics->is.resumed->step);
    if (json_is_integer(step) && json_integer_value(step) > metrics->recorded)
        metrics->recorded = (long)json_integer_value(step);
    if (keep && name && strcmp(name, "epoch") == 0) metrics->last_epoch = (long)json_integer_value(step);
    if (keep && name && strcmp(name, "step") == 0) {
        json_t *loss = json_object_get(event, "loss");
        double rate = json_number_value(json_object_get(event, "samples_per_second"));
        count_step(metrics, (long)json_integer_value(step), (int)json_integer_value(json_object_get(event, "epoch")),
                   json_is_number(loss) ? (float)json_number_value(loss) : NAN,
                   json_is_true(json_object_get(event, "empty")), rate > 0 ? (double)metrics->is.batch / rate : 0);
        for (int i = 1; i < metrics->is.metrics; i++) {
            const json_t *mean = json_object_get(event, metrics->is.metric[i].name);
            metrics->share[i] += json_is_number(mean) ? (float)json_number_value(mean) : NAN;
        }
    }
    json_decref(event);
    return keep;
}

/* Removes lines after the resumed step, and a line that a killed run did not complete. */
static int drop_lines(struct sgrad__metrics *metrics) {
    FILE *old = fopen(metrics->path, "re");
    if (!old) return errno == ENOENT ? 0 : sgrad_log_error(SGRAD_EIO, "%s: %s", metrics->path, strerror(errno));
    struct sgrad_file new;
    int error = sgrad_file_begin(metrics->path, &new);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; !error && (length = getline(&line, &room, old)) > 0;)
        if (line[length - 1] == '\n' && keep_line(metrics, line, (size_t)length)) fwrite(line, 1, (size_t)length, new.stream);
    if (!error && ferror(old)) {
        error = sgrad_log_error(SGRAD_EIO, "%s: %s", metrics->path, strerror(errno));
        sgrad_file_abort(&new);
    }
    if (!error) error = sgrad_file_commit(&new);
    free(line);
    fclose(old);
    return error;
}

/* Names are created once: 128 ranks with 64 workers have 8,192, and each is needed in every step. */
static void make_names(struct sgrad__metrics *metrics) {
    const int workers = metrics->is.workers ? metrics->is.workers->count : 0;
    metrics->name = sgrad_xcalloc((size_t)(TESTS + metrics->is.metrics + workers), sizeof *metrics->name);
    for (int i = 0; i < TESTS; i++) metrics->name[metrics->names++] = sgrad_format("%s", value_name[i]);
    for (int i = 0; i < metrics->is.metrics; i++)
        metrics->name[metrics->names++] = sgrad_format("test/%s", metrics->is.metric[i].name);
    for (int i = 0; i < workers; i++) metrics->name[metrics->names++] = sgrad_format("busy/%s", metrics->is.workers->name[i]);
}

/* ---- events of the program --------------------------------------------------------------------------------------- */

/* FUNCTION: of metrics->is.events; NULL: none. */
static void call(struct sgrad__metrics *metrics, int (*function)(void *arg, const char *event), const char *event) {
    const int status = function ? function(metrics->is.events->arg, event) : 0;
    if (status) metrics->event_status = status;
}

int sgrad__metrics_event_status(const struct sgrad__metrics *metrics) { return metrics ? metrics->event_status : 0; }

static void call_start(struct sgrad__metrics *metrics, long done) {
    json_t *event = json_pack("{s:s, s:o, s:I, s:I, s:f, s:I}", "event", "start", "folder", sgrad_json_text(metrics->is.folder),
                              "step", (json_int_t)done, "steps", (json_int_t)metrics->is.steps, "epochs", metrics->is.epochs,
                              "batch", (json_int_t)metrics->is.batch);
    char *text = json_dumps(event, JSON_REAL_PRECISION(9));
    metrics->is.events->start(metrics->is.events->arg, text);
    free(text);
    json_decref(event);
}

/* FIRST: the first step of a resumed run; 0: a new run. */
static int open_listeners(struct sgrad__metrics *metrics, long first) {
    make_names(metrics);
    if (metrics->is.tensorboard) SGRAD_TRY(sgrad__tensorboard_open(metrics->is.folder, first, &metrics->tensorboard));
    if (!metrics->is.prometheus) return 0;
    return sgrad__prometheus_open(metrics->is.prometheus, (const char *const *)metrics->name, metrics->names,
                                  &metrics->prometheus);
}

/* Returns the seconds between lines within an epoch; 0: there are none. */
static double interval(void) {
    const char *text = sgrad_variable("STARGRAD_PROGRESS_SECONDS");
    char *end = NULL;
    const double seconds = text ? strtod(text, &end) : 60;
    if (!text || (end != text && !*end && seconds >= 0)) return seconds;
    sgrad_log_warning("STARGRAD_PROGRESS_SECONDS=%s is not a number of seconds, so 60 is used; give a number, or unset it", text);
    return 60;
}

int sgrad__metrics_open(const struct sgrad__metrics_options *options, struct sgrad__metrics **metrics) {
    struct sgrad__metrics *m = sgrad_xcalloc(1, sizeof *m);
    m->is = *options;
    m->path = sgrad_format("%s/metrics.jsonl", options->folder);
    m->bar = options->terminal && sgrad_terminal(fileno(options->terminal));
    m->interval = interval();
    m->failure = sgrad__failure_read();
    m->slow = options->workers ? sgrad__slow_rank_open(options->workers) : NULL;
    const struct sgrad__position *at = options->resumed;
    int error = at ? drop_lines(m) : 0;
    const bool last = at && at->step >= options->steps;
    const bool ends = last || (at && at->step > 0 && (at->step_in_epoch == 0 || (options->evaluate_every &&
                                                                                 at->step % options->evaluate_every == 0)));
    m->pending = (options->evaluate_last ? last : ends) && m->last_epoch < at->step;
    m->is.resumed = NULL;
    if (!error && !(m->jsonl = fopen(m->path, "ae")))
        error = sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", m->path, strerror(errno));
    if (!error) error = open_listeners(m, at ? at->step + 1 : 0);
    if (!error && options->events && options->events->start) call_start(m, at ? at->step : 0);
    if (error) sgrad__metrics_close(m);
    else *metrics = m;
    return error;
}

void sgrad__metrics_close(struct sgrad__metrics *metrics) {
    if (!metrics) return;
    if (metrics->bar && metrics->drawn > 0) fprintf(metrics->is.terminal, "\r\033[K"), fflush(metrics->is.terminal);
    if (metrics->jsonl) fclose(metrics->jsonl);
    json_decref(metrics->failure);
    sgrad__tensorboard_close(metrics->tensorboard);
    sgrad__prometheus_close(metrics->prometheus);
    sgrad__slow_rank_close(metrics->slow);
    for (int i = 0; i < metrics->names; i++) free(metrics->name[i]);
    free(metrics->name);
    free(metrics->path);
    free(metrics);
}

static void begin_line(struct sgrad__metrics *metrics) {
    metrics->file = open_memstream(&metrics->line, &metrics->length);
}

static int write_line(struct sgrad__metrics *metrics) {
    fwrite(metrics->line, 1, metrics->length, metrics->jsonl);
    SGRAD_TRY(sgrad__tensorboard_flush(metrics->tensorboard));
    const int lost = sgrad_stream_error(metrics->jsonl);
    return lost ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", metrics->path, strerror(lost)) : 0;
}

/* Writes the line to metrics.jsonl, and then calls FUNCTION with it. */
static int end_line(struct sgrad__metrics *metrics, int (*function)(void *arg, const char *event)) {
    fclose(metrics->file);
    const int error = write_line(metrics);
    if (!error) call(metrics, function, metrics->line);
    free(metrics->line);
    return error;
}

#define SHORT(x) sgrad_number_text(x, (char[SGRAD_NUMBER_TEXT]){ 0 })
#define METRIC(i, x) sgrad_metric_text(&metrics->is.metric[i], x, (char[SGRAD_NUMBER_TEXT]){ 0 })

const char *sgrad_metric_text(const struct sgrad_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]) {
    if (!metric->is_fraction) return sgrad_number_text(value, text);
    snprintf(text, SGRAD_NUMBER_TEXT, "%.2f %%", 100 * value);
    return text;
}

/* ---- the terminal --------------------------------------------------------------------------------------------- */

enum { SGRAD_LEFT = 32 };
/* Writes the estimated time until the end of the run to TEXT, "1:23" or "2:01:23", and returns TEXT. */
static const char *time_left(const struct sgrad__metrics *metrics, long step, char text[SGRAD_LEFT]) {
    const long left = (long)(metrics->run_seconds / (double)metrics->run_steps * (double)(metrics->is.steps - step) + 0.5);
    if (left >= 3600) snprintf(text, SGRAD_LEFT, "%ld:%02ld:%02ld", left / 3600, left / 60 % 60, left % 60);
    else snprintf(text, SGRAD_LEFT, "%ld:%02ld", left / 60, left % 60);
    return text;
}

enum { SGRAD_PROGRESS = 256 };
/* Writes "step 120/390  loss 0.5321  1:23 left  812 images/s" to TEXT, and returns its length. */
static int write_progress(const struct sgrad__metrics *metrics, long step, double loss, double rate, char text[SGRAD_PROGRESS]) {
    char left[SGRAD_LEFT];
    return snprintf(text, SGRAD_PROGRESS, "step %ld/%ld  loss %s  %s left  %.0f %s/s", step, metrics->is.steps, SHORT(loss),
                    time_left(metrics, step, left), rate, metrics->is.samples);
}

/* Draws one line, truncated to the width of the terminal; the bar fills the columns that the numbers leave.
 *
 *     [===========             ] step 120/390  loss 0.5321  1:23 left  812 images/s
 *     step 120/390  loss 0.5321  1:23 lef                                                */
static void draw_bar(struct sgrad__metrics *metrics, long step, double loss, double rate) {
    enum { LEAST = 10, WIDEST = 40 };
    FILE *to = metrics->is.terminal;
    char text[SGRAD_PROGRESS];
    const int columns = sgrad_terminal_columns(fileno(to)) - 1;
    int width = columns - write_progress(metrics, step, loss, rate, text) - 3;
    width = width > WIDEST ? WIDEST : width;
    const double share = metrics->is.steps > 0 ? (double)step / (double)metrics->is.steps : 0;
    const int full = (int)(width * (share > 1 ? 1 : share));
    fputc('\r', to);
    if (width >= LEAST) fprintf(to, "[%.*s%*s] ", full, "========================================", width - full, "");
    fprintf(to, "%.*s\033[K", columns, text);
    fflush(to);
}

void sgrad__metrics_say(const struct sgrad__metrics *metrics, const char *line) {
    if (metrics && metrics->is.terminal)
        fprintf(metrics->is.terminal, "%s%s\n", metrics->bar ? "\r\033[K" : "", line), fflush(metrics->is.terminal);
}

/* Prints the number of epochs if it is an integer, else the number of steps. Of the metrics of classes, prints only the one by
 * which evaluations are compared. */
static void print_epoch(const struct sgrad__metrics *metrics, const struct sgrad__epoch *epoch) {
    FILE *to = metrics->is.terminal;
    const bool whole = epoch->epoch == floor(epoch->epoch) && metrics->is.epochs == floor(metrics->is.epochs);
    if (metrics->bar) fprintf(to, "\r\033[K");
    if (whole) fprintf(to, "epoch %.0f/%.0f", epoch->epoch, metrics->is.epochs);
    else fprintf(to, "step %ld/%ld", epoch->step, metrics->is.steps);
    fprintf(to, "  loss %s", SHORT(epoch->train_loss));
    if (metrics->is.metrics > 1 && isfinite(epoch->train[1]))
        fprintf(to, "  %s %s", metrics->is.metric[1].text, METRIC(1, epoch->train[1]));
    for (int i = 0; i < metrics->is.metrics && epoch->evaluated; i++)
        if (!metrics->is.metric[i].by_class || i == metrics->is.main)
            fprintf(to, "  %s%s %s", i ? "" : "test ", metrics->is.metric[i].text, METRIC(i, epoch->test[i]));
    if (epoch->views && epoch->evaluated) fprintf(to, " (%s)", epoch->views);
    fprintf(to, "  %.1f s  %.0f %s/s\n", epoch->seconds, epoch->samples_per_second, metrics->is.samples);
    fflush(to);
}

/* ---- TensorBoard and Prometheus ------------------------------------------------------------------------------ */

/* Reports COUNT values of STEP, from the value with number FIRST on. */
static void export_values(struct sgrad__metrics *metrics, long step, int first, const double *value, int count) {
    for (int i = 0; i < count; i++) sgrad__tensorboard_tell(metrics->tensorboard, metrics->name[first + i], step, value[i]);
    sgrad__prometheus_tell(metrics->prometheus, first, value, count);
}

/* Reports the fraction of the step's time that each worker spent in tasks. */
static void export_workers(struct sgrad__metrics *metrics, long step, const double *busy) {
    const struct sgrad__workers *workers = metrics->is.workers;
    double own[SGRAD_MAX_WORKERS];
    if (!workers) return;
    if (!busy) sgrad__workers_busy(workers, own), busy = own;
    export_values(metrics, step, TESTS + metrics->is.metrics, busy, workers->count);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static void print_progress(struct sgrad__metrics *metrics, long step, double loss, double time) {
    const double rate = (double)metrics->is.batch * (double)metrics->run_steps / metrics->run_seconds;
    if (metrics->bar && time - metrics->drawn > 0.1) {
        metrics->drawn = time;
        draw_bar(metrics, step, loss, rate);
    }
    if (metrics->bar || !metrics->is.terminal || !(metrics->interval > 0)) return;
    if (metrics->run_steps == 1) metrics->printed = time;
    if (time - metrics->printed < metrics->interval) return;
    metrics->printed = time;
    char text[SGRAD_PROGRESS];
    write_progress(metrics, step, loss, rate, text);
    sgrad__metrics_say(metrics, text);
}

bool sgrad__metrics_epoch_is_pending(const struct sgrad__metrics *metrics) { return metrics && metrics->pending; }

void sgrad__metrics_submitted(struct sgrad__metrics *metrics) {
    if (metrics && metrics->in_flight++ == 0) metrics->last = sgrad_time_monotonic();
}

void sgrad__metrics_histogram(struct sgrad__metrics *metrics, const char *name, long step,
                              const struct sgrad_histogram *histogram) {
    if (metrics) sgrad__tensorboard_histogram(metrics->tensorboard, name, step, histogram);
}

/* Writes the line of the failure, after the first step, whose number is STEP. */
static int write_failure(struct sgrad__metrics *metrics, long step) {
    char *line = sgrad__failure_line(metrics->failure, step - 1, metrics->recorded - (step - 1));
    json_decref(metrics->failure);
    metrics->failure = NULL;
    begin_line(metrics);
    fprintf(metrics->file, "%s\n", line);
    free(line);
    return end_line(metrics, NULL);
}

/* Writes a line and a warning if a rank is found to be slow by the busy fractions of STEP. */
static int find_slow_rank(struct sgrad__metrics *metrics, long step, const double *busy) {
    double times = 0;
    const int rank = metrics->slow && busy ? sgrad__slow_rank_add(metrics->slow, busy, &times) : -1;
    if (rank < 0) return 0;
    sgrad_log_warning("rank %d on host %s computes %.1f times as long as the other ranks, which wait for it", rank,
                      sgrad_rank_host(rank), times);
    begin_line(metrics);
    json_t *host = sgrad_json_text(sgrad_rank_host(rank));
    char *name = json_dumps(host, JSON_ENCODE_ANY);
    fprintf(metrics->file, "{\"event\":\"slow_rank\",\"step\":%ld,\"rank\":%d,\"host\":%s,\"times\":%s}\n", step, rank, name,
            NUMBER(times));
    free(name);
    json_decref(host);
    return end_line(metrics, NULL);
}

int sgrad__metrics_step(struct sgrad__metrics *metrics, const struct sgrad__step_event *event) {
    if (!metrics) return 0;
    const double time = event->time, seconds = time - metrics->last, rate = (double)metrics->is.batch / seconds;
    metrics->in_flight--;
    metrics->last = time;
    metrics->run_seconds += seconds;
    metrics->run_steps++;
    const float loss = (float)event->loss;
    begin_line(metrics);
    count_step(metrics, event->step, event->epoch, loss, event->empty, seconds);
    fprintf(metrics->file, "{\"event\":\"step\",\"step\":%ld,\"epoch\":%d,\"loss\":%s,\"lr\":%s,\"samples_per_second\":%s",
            event->step, event->epoch, NUMBER(loss), TYPED((float)event->rate), NUMBER(rate));
    for (int i = 1; i < metrics->is.metrics; i++) {
        const float mean = event->mean ? (float)event->mean[i] : NAN;
        metrics->share[i] += mean;
        if (is_trained(metrics, i)) fprintf(metrics->file, ",\"%s\":%s", metrics->is.metric[i].name, NUMBER(mean));
    }
    if (event->moves)
        fprintf(metrics->file, ",\"written_mbyte\":%s,\"read_mbyte\":%s,\"moving_seconds\":%s,\"waiting_seconds\":%s",
                NUMBER(1e-6 * event->moves->written), NUMBER(1e-6 * event->moves->read), NUMBER(event->moves->active),
                NUMBER(event->moves->awaited));
    fputs(event->empty ? ",\"empty\":true}\n" : "}\n", metrics->file);
    if (metrics->tensorboard || metrics->prometheus) {
        const double value[] = { [LOSS] = loss, [RATE] = event->rate, [SPEED] = rate, [EPOCH] = event->epoch };
        export_values(metrics, event->step, LOSS, value, TESTS);
        export_workers(metrics, event->step, event->busy);
    }
    print_progress(metrics, event->step, loss, time);
    SGRAD_TRY(end_line(metrics, metrics->is.events ? metrics->is.events->step : NULL));
    SGRAD_TRY(find_slow_rank(metrics, event->step, event->busy));
    return metrics->failure ? write_failure(metrics, event->step) : 0;
}

void sgrad__metrics_steps(const struct sgrad__metrics *metrics, struct sgrad__epoch *epoch) {
    if (!metrics) return;
    epoch->train_loss = metrics->losses ? metrics->loss / (double)metrics->losses : NAN;
    for (int i = 0; i < metrics->is.metrics; i++)
        epoch->train[i] = is_trained(metrics, i) ? metrics->share[i] / (double)metrics->epoch_steps : NAN;
    epoch->seconds = metrics->seconds;
    epoch->samples_per_second = (double)(metrics->is.batch * metrics->epoch_steps) / metrics->seconds;
}

/* Writes "NAME":[…], a score of each class. */
static void write_scores(FILE *to, const char *name, const struct sgrad__epoch *epoch, size_t score) {
    const double *count = epoch->class_count;
    fprintf(to, ",\"%s\":[", name);
    for (int c = 0; c < epoch->classes; c++) {
        const struct sgrad_class_score is =
            sgrad_class_score(count[c], count[epoch->classes + c], count[2 * epoch->classes + c]);
        fprintf(to, "%s%s", c ? "," : "", NUMBER(*(const double *)((const char *)&is + score)));
    }
    fputc(']', to);
}

/* Writes the line of the classes, before that of the epoch. */
static int write_classes(struct sgrad__metrics *metrics, const struct sgrad__epoch *epoch) {
    begin_line(metrics);
    FILE *to = metrics->file;
    fprintf(to, "{\"event\":\"classes\",\"epoch\":%s,\"step\":%ld,\"samples\":[", NUMBER(epoch->epoch), epoch->step);
    for (int c = 0; c < epoch->classes; c++) fprintf(to, "%s%.0f", c ? "," : "", epoch->class_count[c]);
    fputc(']', to);
    write_scores(to, "precision", epoch, offsetof(struct sgrad_class_score, precision));
    write_scores(to, "recall", epoch, offsetof(struct sgrad_class_score, recall));
    write_scores(to, "f1", epoch, offsetof(struct sgrad_class_score, f1));
    fputs("}\n", to);
    return end_line(metrics, NULL);
}

/* Writes the loss of each source of a mixture. */
static void write_sources(FILE *to, const struct sgrad__epoch *epoch) {
    if (!epoch->evaluated || !epoch->sources) return;
    for (int s = 0; s < epoch->sources; s++) fprintf(to, "%s%s", s ? "," : "\"source_losses\":[", NUMBER(epoch->source_loss[s]));
    fputs("],", to);
}

int sgrad__metrics_epoch(struct sgrad__metrics *metrics, const struct sgrad__epoch *epoch) {
    if (!metrics) return 0;
    metrics->pending = false;
    if (epoch->evaluated && epoch->classes) SGRAD_TRY(write_classes(metrics, epoch));
    begin_line(metrics);
    fprintf(metrics->file, "{\"event\":\"epoch\",\"epoch\":%s,\"step\":%ld,\"train_loss\":%s,", NUMBER(epoch->epoch), epoch->step,
            NUMBER(epoch->train_loss));
    for (int i = 1; i < metrics->is.metrics; i++)
        if (is_trained(metrics, i))
            fprintf(metrics->file, "\"train_%s\":%s,", metrics->is.metric[i].name, NUMBER(epoch->train[i]));
    for (int i = 0; i < metrics->is.metrics; i++)
        fprintf(metrics->file, "\"test_%s\":%s,", metrics->is.metric[i].name, NUMBER(epoch->test[i]));
    for (int i = 0; i < metrics->is.metrics; i++)
        if (metrics->is.metric[i].unprefixed)
            fprintf(metrics->file, "\"%s\":%s,", metrics->is.metric[i].name, NUMBER(epoch->test[i]));
    write_sources(metrics->file, epoch);
    if (epoch->views) fprintf(metrics->file, "\"tta\":\"%s\",", epoch->views);
    if (epoch->memory > 0) fprintf(metrics->file, "\"memory_mbyte\":%s,", NUMBER(epoch->memory));
    fprintf(metrics->file, "\"seconds\":%s}\n", NUMBER(epoch->seconds));
    if (epoch->evaluated) export_values(metrics, epoch->step, TESTS, epoch->test, metrics->is.metrics);
    if (metrics->is.terminal) print_epoch(metrics, epoch);
    metrics->printed = metrics->last;
    return end_line(metrics, metrics->is.events ? metrics->is.events->epoch : NULL);
}
