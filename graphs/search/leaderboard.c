/* leaderboard.c: reports the results of the trials: a run directory for each trial, leaderboard.json, and the terminal, where a
 * table is redrawn; if standard output is not a terminal, a line is printed for each epoch of each trial.
 *
 * metrics.jsonl is generated from the log of the trial. When a search is resumed, it is written again from the checkpoint. */
#include "graphs/search/search.h"
#include "runtime/terminal.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct sgrad__leaderboard {
    FILE *terminal;
    bool table;                 /* the terminal supports a table that is redrawn; number of lines drawn */
    int lines;
    double drawn;               /* when it was last drawn */
    int lock;
};

/* ---- values ------------------------------------------------------------------------------------------------------- */

/* Returns the index of the metric by which trials are compared. */
static int main_metric(const struct sgrad__trial *trial) { return trial->metrics > 1; }

static bool was_run(const struct sgrad__trial *trial, long step) {
    const float *values = sgrad__journal_step(trial, step);
    return values[SGRAD__STEP_SECONDS] > 0 && (isfinite(values[SGRAD__STEP_LOSS]) || trial->options.training.nan_ok);
}

int sgrad__leaderboard_epochs(const struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    const int written = trial->written / s->partitions;
    int epochs = 0;
    while (epochs < written && was_run(trial, (epochs + 1) * trial->sub_epoch_steps * s->partitions - 1)) epochs++;
    return epochs;
}

double sgrad__leaderboard_value(const struct sgrad__trial *trial, int epoch) {
    const double x = sgrad__journal_test(trial, epoch, main_metric(trial));
    if (!isfinite(x)) return -INFINITY;
    return trial->metric[main_metric(trial)].is_fraction ? x : -x;
}

/* Returns the status of a trial, as far as it is known. */
static enum sgrad__trial_status status_of(const struct sgrad__trial *trial) {
    if (trial->status != SGRAD__RUNNING) return trial->status;
    return trial->written > trial->journal[SGRAD__JOURNAL_LOST] ? (enum sgrad__trial_status)trial->journal[SGRAD__JOURNAL_STATUS]
                                                        : SGRAD__RUNNING;
}

static bool has_failed(const struct sgrad__trial *trial) {
    return status_of(trial) == SGRAD__BROKEN || status_of(trial) == SGRAD__DIVERGED;
}

/* Sorts failed trials last; the others by the value of their last epoch, then by the loss. */
static int compare(const void *one, const void *other) {
    const struct sgrad__trial *a = *(const struct sgrad__trial *const *)one;
    const struct sgrad__trial *b = *(const struct sgrad__trial *const *)other;
    const int epochs_a = sgrad__leaderboard_epochs(a), epochs_b = sgrad__leaderboard_epochs(b);
    if (has_failed(a) != has_failed(b)) return has_failed(a) - has_failed(b);
    if (!epochs_a != !epochs_b) return !epochs_a - !epochs_b;
    if (epochs_a) {
        const double value_a = sgrad__leaderboard_value(a, epochs_a - 1), value_b = sgrad__leaderboard_value(b, epochs_b - 1);
        if (value_a != value_b) return value_a > value_b ? -1 : 1;
        const double loss_a = sgrad__journal_test(a, epochs_a - 1, 0), loss_b = sgrad__journal_test(b, epochs_b - 1, 0);
        if (loss_a != loss_b) return loss_a < loss_b ? -1 : 1;
    }
    return a->number - b->number;
}

/* Returns all trials, the best first. The caller must free the array. */
static const struct sgrad__trial **ranked(const struct sgrad__search *search) {
    const struct sgrad__trial **list = sgrad_xcalloc((size_t)search->trials, sizeof *list);
    for (int i = 0; i < search->trials; i++) list[i] = &search->trial[i];
    qsort(list, (size_t)search->trials, sizeof *list, compare);
    return list;
}

const struct sgrad__trial *sgrad__leaderboard_best(const struct sgrad__search *search) {
    const struct sgrad__trial **list = ranked(search), *best = list[0];
    free(list);
    return best->status == SGRAD__FINISHED || best->status == SGRAD__STOPPED ? best : NULL;
}

static long epoch_steps(const struct sgrad__trial *trial) { return trial->sub_epoch_steps * trial->search->partitions; }

/* Returns the sum over the steps of an epoch of a value in the log. */
static double sum_over(const struct sgrad__trial *trial, int epoch, int what) {
    double sum = 0;
    for (long i = epoch * epoch_steps(trial); i < (epoch + 1) * epoch_steps(trial); i++)
        sum += sgrad__journal_step(trial, i)[what];
    return sum;
}
static double seconds(const struct sgrad__trial *trial, int epoch) { return sum_over(trial, epoch, SGRAD__STEP_SECONDS); }
static double train_loss(const struct sgrad__trial *trial, int epoch) {
    return sum_over(trial, epoch, SGRAD__STEP_LOSS) / (double)epoch_steps(trial);
}

/* ---- metrics.jsonl ------------------------------------------------------------------------------------------------ */

static int write_epoch(struct sgrad__trial *trial, struct sgrad__metrics *metrics, int epoch) {
    const long steps = epoch_steps(trial);
    const double time = seconds(trial, epoch);
    struct sgrad__epoch event = { .step = (epoch + 1) * steps, .epoch = epoch + 1, .evaluated = true, .seconds = time,
                                  .train_loss = train_loss(trial, epoch),
                                  .views = epoch + 1 == trial->search->epochs ? trial->options.evaluation.tta : NULL,
                                  .samples_per_second = (double)(steps * trial->options.training.batch) / time };
    for (int i = 0; i < trial->metrics; i++) event.test[i] = sgrad__journal_test(trial, epoch, i), event.train[i] = NAN;
    return sgrad__metrics_epoch(metrics, &event);
}

/* Writes the steps of a sub-epoch, up to the first one whose loss is NaN or infinite. */
static int write_sub_epoch(struct sgrad__trial *trial, struct sgrad__metrics *metrics, struct sgrad__run *rates, int sub_epoch) {
    const long first = sub_epoch * trial->sub_epoch_steps;
    for (long i = first; i < first + trial->sub_epoch_steps; i++) {
        const float *values = sgrad__journal_step(trial, i);
        if (!(values[SGRAD__STEP_SECONDS] > 0)) return 0;
        sgrad__metrics_submitted(metrics);
        const struct sgrad__step_event event = { .step = i + 1, .epoch = sub_epoch / trial->search->partitions,
                                                 .loss = values[SGRAD__STEP_LOSS], .rate = sgrad__run_lr(rates, i),
                                                 .time = sgrad_time_monotonic() + values[SGRAD__STEP_SECONDS] };
        SGRAD_TRY(sgrad__metrics_step(metrics, &event));
        if (!was_run(trial, i)) return 0;
    }
    return (sub_epoch + 1) % trial->search->partitions ? 0 : write_epoch(trial, metrics, sub_epoch / trial->search->partitions);
}

/* The file is opened for each sub-epoch, because there may be more trials than files that a process may open. */
static int write_metrics(struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    struct sgrad__run rates = { .update.schedule = trial->rates,
                                .update.peak_lr = trial->peak,
                                .steps_per_epoch = trial->sub_epoch_steps * s->partitions };
    struct sgrad__metrics *metrics;
    rates.steps = rates.steps_per_epoch * s->epochs;
    const struct sgrad__metrics_options how = { .folder = trial->folder,
                                                .batch = trial->options.training.batch,
                                                .steps = rates.steps,
                                                .epochs = s->epochs,
                                                .metric = trial->metric,
                                                .metrics = trial->metrics,
                                                .samples = sgrad__run_samples(&s->ground) };
    SGRAD_TRY(sgrad__metrics_open(&how, &metrics));
    int error = 0;
    while (!error && trial->written < s->epochs * s->partitions && trial->recorded[trial->written])
        error = write_sub_epoch(trial, metrics, &rates, trial->written++);
    sgrad__metrics_close(metrics);
    return error;
}

/* ---- leaderboard.json --------------------------------------------------------------------------------------------- */

static const char *status_text(const struct sgrad__trial *trial) {
    static const char *const names[] = { [SGRAD__RUNNING] = "running", [SGRAD__DIVERGED] = "diverged",
                                         [SGRAD__BROKEN] = "failed", [SGRAD__STOPPED] = "stopped",
                                         [SGRAD__FINISHED] = "finished" };
    return names[status_of(trial)];
}

static json_t *standing(const struct sgrad__trial *trial) {
    const int epochs = sgrad__leaderboard_epochs(trial);
    json_t *json = json_pack("{s:s, s:s, s:i}", "name", trial->name, "status", status_text(trial), "epochs", epochs);
    for (int i = 0; i < trial->metrics && epochs; i++) {
        char *key = sgrad_format("test_%s", trial->metric[i].name);
        json_object_set_new(json, key, sgrad_json_real(sgrad__journal_test(trial, epochs - 1, i)));
        free(key);
    }
    if (epochs) json_object_set_new(json, "train_loss", sgrad_json_real(train_loss(trial, epochs - 1)));
    json_object_set_new(json, "options", sgrad__manifest_options(trial->is->options_json));
    return json;
}

static int write_leaderboard(const struct sgrad__search *search) {
    if (search->options->replay) return 0;
    char *path = sgrad_format("%s/leaderboard.json", search->folder);
    json_t *json = json_array();
    const struct sgrad__trial **list = ranked(search);
    for (int i = 0; i < search->trials; i++) json_array_append_new(json, standing(list[i]));
    int error = sgrad_json_write(path, json, 9);
    free(list);
    free(path);
    return error;
}

/* ---- the terminal ------------------------------------------------------------------------------------------------- */

/* Returns "lr 0.01, batch 64", the options of the candidate. The caller must free it. */
static char *given_text(const struct sgrad__trial *trial) {
    json_t *options = sgrad__manifest_options(trial->is->options_json), *value;
    const char *key;
    char *text = NULL, *before;
    json_object_foreach(options, key, value) {
        char *is = json_is_string(value) ? sgrad_format("%s", json_string_value(value))
                                         : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(4));
        before = text;
        text = sgrad_format("%s%s%s %s", before ? before : "", before ? ", " : "", key, is);
        free(before);
        free(is);
    }
    json_decref(options);
    return text ? text : sgrad_format("%s", "");
}

/* Returns the partition and rank that train the trial now, or its status. The caller must free it. */
static char *where_text(const struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    const struct sgrad__sub_epoch *const end = s->plan.sub_epoch + s->plan.count;
    for (const struct sgrad__sub_epoch *v = s->plan.sub_epoch; status_of(trial) == SGRAD__RUNNING && v < end; v++) {
        const int rank = sgrad__search_rank(s, v);
        if (v->model != trial->number || v->number != trial->written) continue;
        return trial->ranks > 1 ? sgrad_format("partition %d, ranks %d-%d", v->partition, rank, rank + trial->ranks - 1)
                            : sgrad_format("partition %d, rank %d", v->partition, rank);
    }
    return sgrad_format("%s", status_of(trial) == SGRAD__RUNNING ? "waiting" : status_text(trial));
}

/* Prints "  1  2/8   0.5321   91.20 %  partition 1, rank 1   lr 0.01". */
static void print_row(const struct sgrad__trial *trial, FILE *to, int width) {
    const int epochs = sgrad__leaderboard_epochs(trial);
    char *given = given_text(trial), *where = where_text(trial), loss[SGRAD_NUMBER_TEXT] = "", test[SGRAD_NUMBER_TEXT] = "";
    if (epochs) {
        sgrad_number_text(train_loss(trial, epochs - 1), loss);
        sgrad_metric_text(&trial->metric[main_metric(trial)], sgrad__journal_test(trial, epochs - 1, main_metric(trial)), test);
    }
    char *row =
        sgrad_format("%-8s %5d/%-4d %9s %9s  %-20s  %s", trial->name, epochs, trial->search->epochs, loss, test, where, given);
    fprintf(to, "%.*s\n", width, row);
    free(row);
    free(given);
    free(where);
}

static void print_table(const struct sgrad__search *search, FILE *to, int rows, int width) {
    const struct sgrad__trial **list = ranked(search), *with = list[0];
    fprintf(to, "%-8s %10s %9s %9s  %-20s\n", "", "epoch", "loss", with->metric ? with->metric[main_metric(with)].text : "test",
            "");
    for (int i = 0; i < search->trials && i < rows; i++) print_row(list[i], to, width);
    if (search->trials > rows) fprintf(to, "… %d more\n", search->trials - rows);
    free(list);
}

static void draw(struct sgrad__search *search) {
    struct sgrad__leaderboard *b = search->leaderboard;
    struct winsize window = { 0 };
    if (!b->table || sgrad_time_monotonic() - b->drawn < 0.2) return;
    ioctl(fileno(b->terminal), TIOCGWINSZ, &window);
    const int height = window.ws_row ? window.ws_row : 24, rows = height > 6 ? height - 4 : 2;
    if (b->lines) fprintf(b->terminal, "\033[%dA\033[J", b->lines);
    print_table(search, b->terminal, rows, window.ws_col ? window.ws_col - 1 : 79);
    b->lines = 1 + (search->trials > rows ? rows + 1 : search->trials);
    b->drawn = sgrad_time_monotonic();
    fflush(b->terminal);
}

static void print_epoch(const struct sgrad__trial *trial, int epoch) {
    FILE *to = trial->search->leaderboard->terminal;
    char text[SGRAD_NUMBER_TEXT];
    fprintf(to, "%s  epoch %d/%d  loss %s", trial->name, epoch + 1, trial->search->epochs,
            sgrad_number_text(train_loss(trial, epoch), text));
    for (int i = 0; i < trial->metrics; i++)
        fprintf(to, "  %s%s %s", i ? "" : "test ", trial->metric[i].text,
                sgrad_metric_text(&trial->metric[i], sgrad__journal_test(trial, epoch, i), text));
    fprintf(to, "  %.1f s\n", seconds(trial, epoch));
    fflush(to);
}

/* ---- events ------------------------------------------------------------------------------------------------------- */

int sgrad__leaderboard_open(struct sgrad__search *search) {
    struct sgrad__leaderboard *b = search->leaderboard = sgrad_xcalloc(1, sizeof *b);
    b->terminal = search->options->common.output.json ? stderr : stdout;
    b->table = sgrad_terminal(fileno(b->terminal)) && !search->options->replay && !search->options->common.output.quiet;
    SGRAD_TRY(sgrad_folder_make(search->folder));
    return sgrad_lock_take(search->folder, &b->lock);
}

void sgrad__leaderboard_close(struct sgrad__search *search) {
    if (!search->leaderboard) return;
    if (search->leaderboard->lock > 0) sgrad_lock_release(search->leaderboard->lock);
    free(search->leaderboard);
}

static int begin_metrics(struct sgrad__trial *trial) {
    char *path = sgrad_format("%s/metrics.jsonl", trial->folder);
    int error =
        unlink(path) && errno != ENOENT ? sgrad_log_error(SGRAD_EIO, "%s: cannot be removed: %s", path, strerror(errno)) : 0;
    free(path);
    for (int i = 0; i < trial->completed; i++) trial->recorded[i] = true;
    return error ? error : write_metrics(trial);
}

int sgrad__leaderboard_add(struct sgrad__trial *trial) {
    struct sgrad__config config;
    char devices[256];
    SGRAD_TRY(sgrad_folder_make(trial->folder));
    if (trial->status == SGRAD__BROKEN) return 0;
    sgrad__run_describe(trial->run, &config, devices, sizeof devices);
    config.ranks = trial->search->ranks;
    if (!trial->completed) SGRAD_TRY(sgrad__config_write(trial->folder, &config));
    return begin_metrics(trial);
}

void sgrad__leaderboard_round(struct sgrad__search *search, int from, int to) {
    FILE *terminal = search->leaderboard->terminal;
    int running = 0;
    for (int i = 0; i < search->trials; i++) running += search->trial[i].status == SGRAD__RUNNING;
    search->leaderboard->lines = 0;
    fprintf(terminal, "epochs %d-%d of %d %s: %s, %d %s in %.3g %s, ranks %.0f %% busy", from + 1, to, running,
            sgrad_plural(running, "candidate", "candidates"), search->plan.schedule, search->plan.count,
            sgrad_plural(search->plan.count, "visit", "visits"), search->plan.makespan,
            search->plan.makespan == 1 ? "slot" : "slots", 100 * search->busy);
    if (search->slots > 1) fprintf(terminal, ", %d concurrent per rank", search->slots);
    fprintf(terminal, "; %ld %s, %.3g MB moved\n", search->hops, sgrad_plural(search->hops, "hop", "hops"), search->bytes / 1e6);
    fflush(terminal);
}

int sgrad__leaderboard_update(struct sgrad__trial *trial) {
    struct sgrad__search *s = trial->search;
    const int written = trial->written;
    const bool failed = has_failed(trial);
    SGRAD_TRY(write_metrics(trial));
    const int epoch = trial->written / s->partitions - 1;
    if (trial->written == written) return 0;
    if (has_failed(trial) && !failed)
        sgrad_log_warning("candidate %s %s; the others continue", trial->name,
                          status_of(trial) == SGRAD__DIVERGED ? "has diverged: its loss is not a finite number" : "has failed");
    draw(s);
    if (epoch == written / s->partitions - 1 || epoch >= sgrad__leaderboard_epochs(trial)) return 0;
    if (!s->leaderboard->table && !s->options->replay) print_epoch(trial, epoch);
    return write_leaderboard(s);
}

int sgrad__leaderboard_end(struct sgrad__search *search) {
    struct sgrad__leaderboard *b = search->leaderboard;
    SGRAD_TRY(write_leaderboard(search));
    if (search->options->replay) return 0;
    if (b->lines) fprintf(b->terminal, "\033[%dA\033[J", b->lines);
    print_table(search, b->terminal, search->trials, 200);
    fflush(b->terminal);
    return 0;
}
