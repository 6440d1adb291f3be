/* metrics.c: reports the progress of a run to metrics.jsonl (one JSON object per line), the terminal, TensorBoard and
 * Prometheus. */
#include "graphs/rundir/rundir.h"
#include "runtime/files/streams.h"
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
    FILE *file;
    double loss, seconds;       /* sums over the steps of this epoch so far, or since the last evaluation within it */
    double share[SGRAD_MAX_METRICS];    /* the same, by metric, of metrics that are fractions */
    long epoch_steps;
    int epoch;                  /* of these sums */
    long last_epoch;            /* step of the last epoch line */
    bool owed;
    long in_flight;
    double last;                /* when the last step ended, or the first one of those in flight was submitted */
    double run_seconds;         /* of the steps of this process */
    long run_steps;
    int names;
    char **name;                /* names of the values: of a step, then "test/loss", …, then "busy/cpu0", … */
    struct sgrad__tensorboard *tensorboard;
    struct sgrad__prometheus *prometheus;
    bool bar;                   /* terminal supports a progress bar */
    double drawn;               /* when the bar was last drawn */
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

static void begin_epoch(struct sgrad__metrics *m, int epoch) {
    m->loss = m->seconds = 0;
    memset(m->share, 0, sizeof m->share);
    m->epoch_steps = 0;
    m->epoch = epoch;
}

/* Returns true if metric I is also reported for training. Metrics that are not fractions are functions of the loss; metrics of
 * segmentations (unprefixed) are expensive and computed only in evaluations. */
static bool is_trained(const struct sgrad__metrics *m, int i) {
    return m->is.metric[i].is_fraction && !m->is.metric[i].transform && !m->is.metric[i].unprefixed;
}

/* Adds the completed step STEP to the sums. LOSS is a float, because a resumed run reads it back with float precision. */
static void count_step(struct sgrad__metrics *m, long step, int epoch, float loss, double seconds) {
    const bool evaluated = m->is.evaluate_every && (step - 1) % m->is.evaluate_every == 0;
    if (epoch != m->epoch || evaluated) begin_epoch(m, epoch);
    m->loss += loss;
    m->seconds += seconds;
    m->epoch_steps++;
}

/* Returns true if the line belongs to the run up to the resumed position. Steps are counted, so that the sums include the
 * steps of the last epoch. */
static bool keep_line(struct sgrad__metrics *m, const char *line, size_t length) {
    json_t *event = json_loadb(line, length, 0, NULL), *step = json_object_get(event, "step");
    bool keep = json_is_integer(step) && json_integer_value(step) <= m->is.resumed->step;
    const char *name = json_string_value(json_object_get(event, "event"));
    if (keep && name && strcmp(name, "epoch") == 0) m->last_epoch = (long)json_integer_value(step);
    if (keep && name && strcmp(name, "step") == 0) {
        json_t *loss = json_object_get(event, "loss");
        double rate = json_number_value(json_object_get(event, "samples_per_second"));
        count_step(m, (long)json_integer_value(step), (int)json_integer_value(json_object_get(event, "epoch")),
                   json_is_number(loss) ? (float)json_number_value(loss) : NAN, rate > 0 ? (double)m->is.batch / rate : 0);
        for (int i = 1; i < m->is.metrics; i++) {
            const json_t *mean = json_object_get(event, m->is.metric[i].name);
            m->share[i] += json_is_number(mean) ? (float)json_number_value(mean) : NAN;
        }
    }
    json_decref(event);
    return keep;
}

/* Removes lines after the resumed step, and a line that a killed run did not complete. */
static int drop_lines(struct sgrad__metrics *m) {
    FILE *old = fopen(m->path, "re");
    if (!old) return errno == ENOENT ? 0 : sgrad_log_error(SGRAD_EIO, "%s: %s", m->path, strerror(errno));
    struct sgrad_file new;
    int error = sgrad_file_begin(m->path, &new);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; !error && (length = getline(&line, &room, old)) > 0;)
        if (line[length - 1] == '\n' && keep_line(m, line, (size_t)length)) fwrite(line, 1, (size_t)length, new.stream);
    if (!error && ferror(old)) {
        error = sgrad_log_error(SGRAD_EIO, "%s: %s", m->path, strerror(errno));
        sgrad_file_abort(&new);
    }
    if (!error) error = sgrad_file_commit(&new);
    free(line);
    fclose(old);
    return error;
}

/* Names are created once: 128 ranks with 64 workers have 8,192, and each is needed in every step. */
static void make_names(struct sgrad__metrics *m) {
    const int workers = m->is.workers ? m->is.workers->count : 0;
    m->name = sgrad_xcalloc((size_t)(TESTS + m->is.metrics + workers), sizeof *m->name);
    for (int i = 0; i < TESTS; i++) m->name[m->names++] = sgrad_format("%s", value_name[i]);
    for (int i = 0; i < m->is.metrics; i++) m->name[m->names++] = sgrad_format("test/%s", m->is.metric[i].name);
    for (int i = 0; i < workers; i++) m->name[m->names++] = sgrad_format("busy/%s", m->is.workers->name[i]);
}

/* FIRST: the first step of a resumed run; 0: a new run. */
static int open_listeners(struct sgrad__metrics *m, long first) {
    make_names(m);
    if (m->is.tensorboard) SGRAD_TRY(sgrad__tensorboard_open(m->is.folder, first, &m->tensorboard));
    if (!m->is.prometheus) return 0;
    return sgrad__prometheus_open(m->is.prometheus, (const char *const *)m->name, m->names, &m->prometheus);
}

int sgrad__metrics_open(const struct sgrad__metrics_options *options, struct sgrad__metrics **metrics) {
    struct sgrad__metrics *m = sgrad_xcalloc(1, sizeof *m);
    m->is = *options;
    m->path = sgrad_format("%s/metrics.jsonl", options->folder);
    m->bar = options->terminal && sgrad_terminal(fileno(options->terminal));
    const struct sgrad__position *at = options->resumed;
    int error = at ? drop_lines(m) : 0;
    const bool last = at && at->step >= options->steps;
    const bool ends = last || (at && at->step > 0 && (at->step_in_epoch == 0 || (options->evaluate_every &&
                                                                                 at->step % options->evaluate_every == 0)));
    m->owed = (options->evaluate_last ? last : ends) && m->last_epoch < at->step;
    m->is.resumed = NULL;
    if (!error && !(m->file = fopen(m->path, "ae"))) error = sgrad_log_error(SGRAD_EIO, "%s: %s", m->path, strerror(errno));
    if (!error) error = open_listeners(m, at ? at->step + 1 : 0);
    if (error) sgrad__metrics_close(m);
    else *metrics = m;
    return error;
}

void sgrad__metrics_close(struct sgrad__metrics *m) {
    if (!m) return;
    if (m->bar && m->drawn > 0) fprintf(m->is.terminal, "\r\033[K"), fflush(m->is.terminal);
    if (m->file) fclose(m->file);
    sgrad__tensorboard_close(m->tensorboard);
    sgrad__prometheus_close(m->prometheus);
    for (int i = 0; i < m->names; i++) free(m->name[i]);
    free(m->name);
    free(m->path);
    free(m);
}

static int flush(struct sgrad__metrics *m) {
    SGRAD_TRY(sgrad__tensorboard_flush(m->tensorboard));
    const int lost = sgrad_stream_error(m->file);
    return lost ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", m->path, strerror(lost)) : 0;
}

#define SHORT(x) sgrad_number_text(x, (char[SGRAD_NUMBER_TEXT]){ 0 })

const char *sgrad_metric_text(const struct sgrad_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]) {
    if (!metric->is_fraction) return sgrad_number_text(value, text);
    snprintf(text, SGRAD_NUMBER_TEXT, "%.2f %%", 100 * value);
    return text;
}

/* ---- the terminal --------------------------------------------------------------------------------------------- */

/* Draws one line, truncated to the width of the terminal; the bar fills the columns that the numbers leave.
 *
 *     [===========             ] step 120/390  loss 0.5321  1:23 left  812 images/s
 *     step 120/390  loss 0.5321  1:23 lef                                                */
static void draw_bar(struct sgrad__metrics *m, long step, double loss, double rate) {
    enum { LEAST = 10, WIDEST = 40 };
    FILE *to = m->is.terminal;
    char text[256];
    const long left = (long)(m->run_seconds / (double)m->run_steps * (double)(m->is.steps - step) + 0.5);
    const int columns = sgrad_terminal_columns(fileno(to)) - 1;
    int used = snprintf(text, sizeof text, "step %ld/%ld  loss %s  ", step, m->is.steps, SHORT(loss));
    if (left >= 3600) used += snprintf(text + used, sizeof text - (size_t)used, "%ld:%02ld:", left / 3600, left / 60 % 60);
    else used += snprintf(text + used, sizeof text - (size_t)used, "%ld:", left / 60);
    used += snprintf(text + used, sizeof text - (size_t)used, "%02ld left  %.0f %s/s", left % 60, rate, m->is.samples);
    int width = columns - used - 3;
    width = width > WIDEST ? WIDEST : width;
    const double share = m->is.steps > 0 ? (double)step / (double)m->is.steps : 0;
    const int full = (int)(width * (share > 1 ? 1 : share));
    fputc('\r', to);
    if (width >= LEAST) fprintf(to, "[%.*s%*s] ", full, "========================================", width - full, "");
    fprintf(to, "%.*s\033[K", columns, text);
    fflush(to);
}

void sgrad__metrics_say(const struct sgrad__metrics *m, const char *line) {
    if (m && m->is.terminal) fprintf(m->is.terminal, "%s%s\n", m->bar ? "\r\033[K" : "", line), fflush(m->is.terminal);
}

/* Prints the number of epochs if it is an integer, else the number of steps. */
static void print_epoch(const struct sgrad__metrics *m, const struct sgrad__epoch *e) {
    FILE *to = m->is.terminal;
    const bool whole = e->epoch == floor(e->epoch) && m->is.epochs == floor(m->is.epochs);
    if (m->bar) fprintf(to, "\r\033[K");
    if (whole) fprintf(to, "epoch %.0f/%.0f", e->epoch, m->is.epochs);
    else fprintf(to, "step %ld/%ld", e->step, m->is.steps);
    fprintf(to, "  loss %s", SHORT(e->train_loss));
    for (int i = 0; i < m->is.metrics && e->evaluated; i++)
        fprintf(to, "  %s%s %s", i ? "" : "test ", m->is.metric[i].text,
                sgrad_metric_text(&m->is.metric[i], e->test[i], (char[SGRAD_NUMBER_TEXT]){ 0 }));
    if (e->views && e->evaluated) fprintf(to, " (%s)", e->views);
    fprintf(to, "  %.1f s  %.0f %s/s\n", e->seconds, e->samples_per_second, m->is.samples);
    fflush(to);
}

/* ---- TensorBoard and Prometheus ------------------------------------------------------------------------------ */

/* Reports COUNT values of STEP, from the value with number FIRST on. */
static void tell(struct sgrad__metrics *m, long step, int first, const double *value, int count) {
    for (int i = 0; i < count; i++) sgrad__tensorboard_tell(m->tensorboard, m->name[first + i], step, value[i]);
    sgrad__prometheus_tell(m->prometheus, first, value, count);
}

/* Reports the fraction of the step's time that each worker spent in tasks. */
static void tell_workers(struct sgrad__metrics *m, long step, const double *busy) {
    const struct sgrad__workers *workers = m->is.workers;
    double own[SGRAD_MAX_WORKERS];
    if (!workers) return;
    if (!busy) sgrad__workers_busy(workers, own), busy = own;
    tell(m, step, TESTS + m->is.metrics, busy, workers->count);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

bool sgrad__metrics_owes_epoch(const struct sgrad__metrics *m) { return m && m->owed; }

void sgrad__metrics_submitted(struct sgrad__metrics *m) {
    if (m && m->in_flight++ == 0) m->last = sgrad_time_monotonic();
}

void sgrad__metrics_histogram(struct sgrad__metrics *m, const char *name, long step,
                              const struct sgrad_histogram *histogram) {
    if (m) sgrad__tensorboard_histogram(m->tensorboard, name, step, histogram);
}

int sgrad__metrics_step(struct sgrad__metrics *m, const struct sgrad__step_event *e) {
    if (!m) return 0;
    const double time = e->time, seconds = time - m->last, rate = (double)m->is.batch / seconds;
    m->in_flight--;
    m->last = time;
    m->run_seconds += seconds;
    m->run_steps++;
    const float loss = (float)e->loss;
    count_step(m, e->step, e->epoch, loss, seconds);
    fprintf(m->file, "{\"event\":\"step\",\"step\":%ld,\"epoch\":%d,\"loss\":%s,\"lr\":%s,\"samples_per_second\":%s", e->step,
            e->epoch, NUMBER(loss), TYPED((float)e->rate), NUMBER(rate));
    for (int i = 1; i < m->is.metrics; i++) {
        const float mean = e->mean ? (float)e->mean[i] : NAN;
        m->share[i] += mean;
        if (is_trained(m, i)) fprintf(m->file, ",\"%s\":%s", m->is.metric[i].name, NUMBER(mean));
    }
    fputs("}\n", m->file);
    if (m->tensorboard || m->prometheus) {
        const double value[] = { [LOSS] = loss, [RATE] = e->rate, [SPEED] = rate, [EPOCH] = e->epoch };
        tell(m, e->step, LOSS, value, TESTS);
        tell_workers(m, e->step, e->busy);
    }
    if (m->bar && time - m->drawn > 0.1) {
        m->drawn = time;
        draw_bar(m, e->step, loss, (double)m->is.batch * (double)m->run_steps / m->run_seconds);
    }
    return flush(m);
}

void sgrad__metrics_steps(const struct sgrad__metrics *m, struct sgrad__epoch *e) {
    if (!m) return;
    e->train_loss = m->loss / (double)m->epoch_steps;
    for (int i = 0; i < m->is.metrics; i++) e->train[i] = is_trained(m, i) ? m->share[i] / (double)m->epoch_steps : NAN;
    e->seconds = m->seconds;
    e->samples_per_second = (double)(m->is.batch * m->epoch_steps) / m->seconds;
}

int sgrad__metrics_epoch(struct sgrad__metrics *m, const struct sgrad__epoch *e) {
    if (!m) return 0;
    m->owed = false;
    fprintf(m->file, "{\"event\":\"epoch\",\"epoch\":%s,\"step\":%ld,\"train_loss\":%s,", NUMBER(e->epoch), e->step,
            NUMBER(e->train_loss));
    for (int i = 1; i < m->is.metrics; i++)
        if (is_trained(m, i)) fprintf(m->file, "\"train_%s\":%s,", m->is.metric[i].name, NUMBER(e->train[i]));
    for (int i = 0; i < m->is.metrics; i++) fprintf(m->file, "\"test_%s\":%s,", m->is.metric[i].name, NUMBER(e->test[i]));
    for (int i = 0; i < m->is.metrics; i++)
        if (m->is.metric[i].unprefixed) fprintf(m->file, "\"%s\":%s,", m->is.metric[i].name, NUMBER(e->test[i]));
    if (e->views) fprintf(m->file, "\"tta\":\"%s\",", e->views);
    if (e->memory > 0) fprintf(m->file, "\"memory_mbyte\":%s,", NUMBER(e->memory));
    fprintf(m->file, "\"seconds\":%s}\n", NUMBER(e->seconds));
    if (e->evaluated) tell(m, e->step, TESTS, e->test, m->is.metrics);
    if (m->is.terminal) print_epoch(m, e);
    return flush(m);
}
