/* report.c: the report of a run: reads its folder, computes the results once, and prints them, returns them as JSON, or plots
 * them. */
#include "report/report.h"

#include "report/details.h"
#include "report/history.h"
#include "report/overlap.h"
#include "report/pictures.h"
#include "report/timeline.h"
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sgrad_report {
    const char *folder;
    struct sgrad__history history;
    json_t *details;                    /* results of eval --details, by class; NULL: it was not run */
    bool traced;                        /* false: the next three are empty */
    struct sgrad__timeline timeline;
    struct sgrad__overlap overlap;
    struct sgrad__critical critical;
    json_t *json;
};

/* ---- JSON; numbers that are not finite are null ---- */

/* Adds the metrics FROM to END - 1 of the test set, as "test_top1". */
static void add_tests(json_t *to, const struct sgrad__history *history, const struct sgrad__history_epoch *epoch, int from,
                      int end) {
    for (int i = from; i < end; i++) {
        char *key = sgrad_format("test_%s", history->metric[i].name);
        json_object_set_new(to, key, json_pack("o?", json_real(epoch->test[i])));
        free(key);
    }
}

static json_t *metrics_as_json(const struct sgrad__history *history) {
    json_t *metrics = json_array();
    for (const struct sgrad__history_metric *m = history->metric; m < history->metric + history->metrics; m++)
        json_array_append_new(metrics, json_pack("{s:s, s:s, s:b}", "name", m->name, "title", m->title, "share", m->share));
    return metrics;
}

static json_t *epochs_as_json(const struct sgrad__history *history) {
    json_t *epochs = json_array();
    for (int i = 0; i < history->epochs; i++) {
        const struct sgrad__history_epoch *e = &history->epoch[i];
        json_t *epoch = json_pack("{s:o?, s:o?}", "epoch", json_real(e->epoch), "train_loss", json_real(e->train_loss));
        if (isfinite(e->train)) {
            char *key = sgrad_format("train_%s", history->metric[history->trained].name);
            json_object_set_new(epoch, key, json_real(e->train));
            free(key);
        }
        add_tests(epoch, history, e, 0, history->metrics);
        json_object_set_new(epoch, "seconds", json_pack("o?", json_real(e->seconds)));
        json_array_append_new(epochs, epoch);
    }
    return epochs;
}

/* Returns the evaluation of the final weights: the best one with --best or --patience, else the last one. */
static const struct sgrad__history_epoch *best_or_last(const struct sgrad__history *history,
                                                       const struct sgrad__history_epoch *best) {
    const bool kept = json_is_true(json_object_get(history->options, "best")) ||
                      json_integer_value(json_object_get(history->options, "patience")) > 0;
    return kept && best ? best : &history->epoch[history->epochs - 1];
}

static json_t *as_json(const struct sgrad_report *report) {
    const struct sgrad__history *h = &report->history;
    const struct sgrad__history_step *last = &h->step[h->steps - 1];
    const struct sgrad__history_epoch *best = sgrad__history_best(h);
    json_t *json = json_pack("{s:s, s:O, s:I, s:o?, s:o?, s:o}", "folder", report->folder, "config", h->config, "steps",
                             (json_int_t)last->step, "loss", json_real(last->loss), "samples_per_second",
                             json_real(sgrad__history_median_rate(h)), "epochs", epochs_as_json(h));
    json_object_set_new(json, "metrics", metrics_as_json(h));
    json_object_set_new(json, "main", json_string(h->metric[h->main].name));
    json_object_set_new(json, "samples", json_string(h->samples));
    if (h->failures) json_object_set(json, "failures", h->failures);
    if (h->moves.steps) json_object_set_new(json, "moves", sgrad__moves_as_json(h));
    if (h->slow_ranks) json_object_set(json, "slow_ranks", h->slow_ranks);
    if (best) {
        json_object_set_new(json, "best", json_pack("{s:o?}", "epoch", json_real(best->epoch)));
        add_tests(json_object_get(json, "best"), h, best, h->main, h->main + 1);
    }
    const struct sgrad__history_epoch *end = h->epochs ? best_or_last(h, best) : NULL;
    if (end && end->classes)
        json_object_set_new(json, "classes", json_pack("{s:f, s:O, s:O, s:O, s:O}", "epoch", end->epoch,
                                                       "samples", json_object_get(end->classes, "samples"), "precision",
                                                       json_object_get(end->classes, "precision"), "recall",
                                                       json_object_get(end->classes, "recall"), "f1",
                                                       json_object_get(end->classes, "f1")));
    if (report->details) json_object_set(json, "details", report->details);
    if (report->traced)
        json_object_set_new(json, "trace", sgrad__trace_as_json(&report->timeline, &report->overlap, &report->critical,
                                                                 h->moves.steps ? 1e3 * h->moves.waiting / h->moves.steps : 0));
    return json;
}

json_t *sgrad_report_json(const struct sgrad_report *report) { return json_incref(report->json); }

/* ---- text ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

/* Prints the texts on the start of the run and on the changes of each continuation, as recorded in config.json. */
static void print_settings(const struct sgrad__history *history) {
    const char *begun = json_string_value(json_object_get(history->config, "begun"));
    json_t *entry;
    size_t i;
    if (begun) printf("begun      %s\n", begun);
    json_array_foreach(json_object_get(history->config, "continued"), i, entry) {
        const char *changes = json_string_value(json_object_get(entry, "changes"));
        printf("continued  after step %.0f%s%s\n", json_number_value(json_object_get(entry, "step")), changes ? ", " : "",
               changes ? changes : "");
    }
}

/* Prints a line for each of the first failures, and one for all. */
static void print_failures(const json_t *failures) {
    enum { SHOWN = 10 };
    double seconds = 0, steps = 0;
    json_t *is;
    size_t i;
    json_array_foreach(failures, i, is) {
        const double lost = json_number_value(json_object_get(is, "seconds")),
                     repeated = json_number_value(json_object_get(is, "repeated"));
        const json_t *rank = json_object_get(is, "rank"), *signal = json_object_get(is, "signal");
        const long status = (long)json_integer_value(signal ? signal : json_object_get(is, "status"));
        seconds += lost;
        steps += repeated;
        if (i >= SHOWN) continue;
        printf("failure    after step %.0f: ", json_number_value(json_object_get(is, "step")) + repeated);
        if (json_is_integer(rank)) printf("rank %d, ", (int)json_integer_value(rank));
        if (signal || json_object_get(is, "status")) printf("%s %ld, ", signal ? "signal" : "exit status", status);
        printf("%.2f s until the next step; %.0f %s repeated\n", lost, repeated,
               sgrad_plural((int64_t)repeated, "step", "steps"));
    }
    if (i > 1)
        printf("failures   %zu in total, %.2f s, %.0f %s repeated\n", i, seconds, steps,
               sgrad_plural((int64_t)steps, "step", "steps"));
}

static void print_slow_ranks(const json_t *slow_ranks) {
    json_t *is;
    size_t i;
    json_array_foreach(slow_ranks, i, is)
        printf("slow rank  until step %.0f: rank %.0f on %s computed %.1f times as long as the others\n",
               json_number_value(json_object_get(is, "step")), json_number_value(json_object_get(is, "rank")),
               text_of(is, "host"), json_number_value(json_object_get(is, "times")));
}

#define NUMBER(x) sgrad_number_text(x, (char[SGRAD_NUMBER_TEXT]){ 0 })

#define METRIC(metric, x) sgrad__history_text(metric, x, (char[SGRAD_NUMBER_TEXT]){ 0 })

/* Prints a table; a metric's column is as wide as its title. */
static void print_epochs(const struct sgrad__history *history) {
    const int loss = 11, end = (int)strlen("test ") + 1;
    const bool trained = history->epochs && isfinite(history->epoch[history->epochs - 1].train);
    char text[SGRAD_AMOUNT_TEXT];
    if (history->epochs) printf("\n%6s %11s %11s", "epoch", "train loss", "test loss");
    if (trained) printf("  train %s", history->metric[history->trained].title);
    for (int k = 1; k < history->metrics && history->epochs; k++) printf("  test %s", history->metric[k].title);
    if (history->epochs) printf(" %9s\n", "seconds");
    for (const struct sgrad__history_epoch *e = history->epoch; e < history->epoch + history->epochs; e++) {
        printf("%6s %*s %*s", sgrad_amount_text(e->epoch, text), loss, NUMBER(e->train_loss), loss, NUMBER(e->test[0]));
        if (trained)
            printf(" %*s", (int)strlen(history->metric[history->trained].title) + end + 1,
                   METRIC(&history->metric[history->trained], e->train));
        for (int k = 1; k < history->metrics; k++)
            printf(" %*s", (int)strlen(history->metric[k].title) + end, METRIC(&history->metric[k], e->test[k]));
        printf(" %9.1f\n", e->seconds);
    }
}

static void print_history(const struct sgrad__history *history) {
    const struct sgrad__history_step *last = &history->step[history->steps - 1];
    const struct sgrad__history_epoch *best = sgrad__history_best(history);
    char text[SGRAD_AMOUNT_TEXT];
    printf("%s on %s\n", text_of(json_object_get(history->config, "identity"), "model"), text_of(history->options, "data"));
    print_settings(history);
    print_failures(history->failures);
    print_slow_ranks(history->slow_ranks);
    print_epochs(history);
    printf("\n%.0f %s, last loss %s; %.4g %s/s (median)\n", last->step, sgrad_plural((int64_t)last->step, "step", "steps"),
           NUMBER(last->loss), sgrad__history_median_rate(history), history->samples);
    sgrad__moves_print(history);
    if (best)
        printf("best test %s %s, after epoch %s\n", history->metric[history->main].title,
               METRIC(&history->metric[history->main], best->test[history->main]), sgrad_amount_text(best->epoch, text));
}

void sgrad_report_print(const struct sgrad_report *report) {
    const char *folder = report->folder;
    const struct sgrad__timeline *t = &report->timeline;
    print_history(&report->history);
    if (report->details) sgrad__details_print(report->details);
    if (report->traced)
        sgrad__trace_print(&report->timeline, &report->overlap, &report->critical, json_object_get(report->json, "trace"));
    if (json_object_get(report->json, "curve")) printf("learning curve: %s/curve.svg, %s/curve.png\n", folder, folder);
    if (json_object_get(report->json, "details_picture")) printf("classes: %s/details.svg, %s/details.png\n", folder, folder);
    if (json_object_get(report->json, "gantt")) printf("traced steps: %s/gantt.svg, %s/gantt.png\n", folder, folder);
    if (report->traced)
        printf("to view the trace with ViTE (range in ms): vite -t %.0f:%.0f %s/trace/paje.trace\n", floor(t->start),
               ceil(t->start + t->length), folder);
    if (json_object_get(report->json, "page")) printf("report: %s/report.html\n", folder);
}

/* ---- plots ---- */

static void note_picture(struct sgrad_report *report, const char *key, const char *name) {
    json_object_set_new(
        report->json, key,
        json_pack("[o, o]", json_sprintf("%s/%s.svg", report->folder, name), json_sprintf("%s/%s.png", report->folder, name)));
}

void sgrad_report_draw(struct sgrad_report *report) {
    const struct sgrad__timeline *timeline = report->traced ? &report->timeline : NULL;
    const bool curve = sgrad__curve_draw(report->folder, &report->history);
    if (curve) note_picture(report, "curve", "curve");
    if (report->details && sgrad__details_draw(report->folder, report->details))
        note_picture(report, "details_picture", "details");
    if (timeline && sgrad__gantt_draw(report->folder, timeline)) note_picture(report, "gantt", "gantt");
    if (sgrad__page_write(report->folder, report->json, timeline, curve))
        json_object_set_new(report->json, "page", json_sprintf("%s/report.html", report->folder));
}

bool sgrad_report_curve(const char *folder) {
    struct sgrad__history history;
    if (sgrad__history_read(folder, &history)) return false;
    const bool drawn = sgrad__curve_draw(folder, &history);
    sgrad__history_free(&history);
    return drawn;
}

/* ---- entry points ---- */

static int read_folder(struct sgrad_report *report) {
    SGRAD_TRY(sgrad__history_read(report->folder, &report->history));
    SGRAD_TRY(sgrad__details_read(report->folder, &report->details));
    SGRAD_TRY(sgrad__timeline_read(report->folder, &report->timeline, &report->traced));
    if (report->traced) {
        sgrad__overlap_find(&report->timeline, &report->overlap);
        sgrad__critical_find(&report->timeline, &report->critical);
    }
    report->json = as_json(report);
    return 0;
}

int sgrad_report_open(const char *folder, struct sgrad_report **report) {
    struct sgrad_report *r = sgrad_xcalloc(1, sizeof *r);
    r->folder = folder;
    const int error = read_folder(r);
    if (error) sgrad_report_close(r);
    else *report = r;
    return error;
}

void sgrad_report_close(struct sgrad_report *report) {
    sgrad__overlap_free(&report->overlap);
    sgrad__timeline_free(&report->timeline);
    sgrad__history_free(&report->history);
    json_decref(report->details);
    json_decref(report->json);
    free(report);
}
