/* report.c: stargrad report: what happened in a run, from the files in its folder. */
#include "cli/timeline.h"

static const struct sgrad__option options[] = {
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static const char *setting(const struct sgrad__history *h, const char *part, const char *key) {
    const char *text = json_string_value(json_object_get(json_object_get(h->config, part), key));
    return text ? text : "?";
}

static json_t *epochs_as_json(const struct sgrad__history *h) {
    json_t *epochs = json_array();
    for (int i = 0; i < h->epochs; i++) {
        const struct sgrad__history_epoch *e = &h->epoch[i];
        json_array_append_new(epochs, json_pack("{s:o, s:o, s:o, s:o, s:o}", "epoch", sgrad__json_real(e->epoch), "train_loss",
                                                sgrad__json_real(e->train_loss), "test_loss", sgrad__json_real(e->test_loss),
                                                "test_top1", sgrad__json_real(e->top1), "seconds", sgrad__json_real(e->seconds)));
    }
    return epochs;
}

/* ---- the trace ---- */

static json_t *kinds_as_json(const struct sgrad__overlap_row *row) {
    json_t *kinds = json_object();
    for (int k = 0; k < SGRAD_KINDS; k++) json_object_set_new(kinds, sgrad_kind_name(k), json_real(row->kind[k]));
    json_object_set_new(kinds, "waiting for messages", json_real(row->waiting));
    json_object_set_new(kinds, "idle", json_real(row->idle));
    return kinds;
}

static json_t *trace_as_json(const struct sgrad__timeline *t, const struct sgrad__overlap *o) {
    json_t *workers = json_array(), *ranks = json_array(), *layers = json_array();
    for (int i = 0; i < t->rows; i++)
        json_array_append_new(workers, json_pack("{s:i, s:i, s:o}", "rank", t->row[i].rank, "worker", t->row[i].worker, "ms", kinds_as_json(&o->row[i])));
    for (int r = 0; r < t->ranks && t->ranks > 1; r++)
        json_array_append_new(ranks, json_pack("{s:i, s:f, s:f, s:f}", "rank", r, "communication_ms", o->rank[r].communication,
                                               "hidden_ms", o->rank[r].hidden, "received_mb", o->rank[r].megabytes));
    for (int i = 0; i < o->layers; i++)
        json_array_append_new(layers, json_pack("{s:s%, s:f, s:f}", "layer", o->layer[i].name, o->layer[i].length, "ms", o->layer[i].ms, "gflop", o->layer[i].gflop));
    return json_pack("{s:f, s:i, s:i, s:o, s:o, s:o}", "ms", t->length, "tasks", t->tasks, "messages", t->messages, "workers", workers,
                     "ranks", ranks, "layers", layers);
}

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

enum { LAYERS = 10 };

static void print_trace(const struct sgrad__timeline *t, const struct sgrad__overlap *o) {
    printf("\ntrace: %.1f ms, %d tasks, %d messages\n\n%16s", t->length, t->tasks, t->messages, "% of the time");
    for (int k = 0; k < SGRAD_KINDS; k++) printf(" %10s", sgrad_kind_name(k));
    printf(" %10s %10s\n", "waiting", "idle");
    for (int i = 0; i < t->rows; i++) {
        printf("rank %d worker %-2d", t->row[i].rank, t->row[i].worker);
        for (int k = 0; k < SGRAD_KINDS; k++) printf(" %10.1f", percent(o->row[i].kind[k], t->length));
        printf(" %10.1f %10.1f\n", percent(o->row[i].waiting, t->length), percent(o->row[i].idle, t->length));
    }
    for (int r = 0; r < t->ranks && t->ranks > 1; r++)
        printf("%srank %d: %.2f MB received; messages under way for %.1f ms, %.0f %% of it hidden behind tasks\n", r ? "" : "\n", r,
               o->rank[r].megabytes, o->rank[r].communication, percent(o->rank[r].hidden, o->rank[r].communication));
    printf("\n%-24s %10s %10s %10s\n", "layer", "ms", "GFlop", "GFlop/s");
    for (int i = 0; i < o->layers && i < LAYERS; i++)
        printf("%-24.*s %10.1f %10.2f %10.1f\n", o->layer[i].length, o->layer[i].name, o->layer[i].ms, o->layer[i].gflop,
               o->layer[i].ms > 0 ? 1000 * o->layer[i].gflop / o->layer[i].ms : 0);
    if (o->layers > LAYERS) printf("and %d more (--json has all)\n", o->layers - LAYERS);
}

/* ---- all of it ---- */

static json_t *as_json(const char *folder, const struct sgrad__history *h, bool drawn) {
    const struct sgrad__history_step *last = &h->step[h->steps - 1];
    const struct sgrad__history_epoch *best = sgrad__history_best(h);
    json_t *result = json_pack("{s:s, s:O, s:I, s:o, s:o, s:o}", "folder", folder, "config", h->config, "steps",
                               (json_int_t)last->step, "loss", sgrad__json_real(last->loss), "samples_per_second",
                               sgrad__json_real(sgrad__history_median_rate(h)), "epochs", epochs_as_json(h));
    if (best)
        json_object_set_new(
            result, "best",
            json_pack("{s:o, s:o}", "epoch", sgrad__json_real(best->epoch), "test_top1", sgrad__json_real(best->top1)));
    if (drawn) json_object_set_new(result, "curve", json_pack("[s+, s+]", folder, "/curve.svg", folder, "/curve.png"));
    return result;
}

static void print(const struct sgrad__history *h) {
    const struct sgrad__history_step *last = &h->step[h->steps - 1];
    const struct sgrad__history_epoch *best = sgrad__history_best(h);
    printf("%s on %s\n", setting(h, "identity", "model"), setting(h, "options", "data"));
    if (h->epochs) printf("\n%6s %11s %11s %14s %9s\n", "epoch", "train loss", "test loss", "test accuracy", "seconds");
    for (int i = 0; i < h->epochs; i++) {
        const struct sgrad__history_epoch *e = &h->epoch[i];
        printf("%6.4g %11.4f %11.4f %12.2f %% %9.1f\n", e->epoch, e->train_loss, e->test_loss, 100 * e->top1, e->seconds);
    }
    printf("\n%.0f steps, loss of the last %.4f; %.4g images/s (median)\n", last->step, last->loss,
           sgrad__history_median_rate(h));
    if (best) printf("best test accuracy %.2f %%, after epoch %.4g\n", 100 * best->top1, best->epoch);
}

static void tell(const struct sgrad__request *request, const struct sgrad__history *history, const struct sgrad__timeline *timeline) {
    const char *folder = request->argument;
    const bool curve = sgrad__curve_draw(folder, history), gantt = timeline && sgrad__gantt_draw(folder, timeline);
    struct sgrad__overlap overlap = { 0 };
    if (timeline) sgrad__overlap_find(timeline, &overlap);
    if (request->train.json) {
        json_t *result = as_json(folder, history, curve);
        if (timeline) json_object_set_new(result, "trace", trace_as_json(timeline, &overlap));
        if (gantt) json_object_set_new(result, "gantt", json_pack("[s+, s+]", folder, "/gantt.svg", folder, "/gantt.png"));
        sgrad__print_json(result);
    } else {
        print(history);
        if (timeline) print_trace(timeline, &overlap);
        if (curve) printf("learning curve: %s/curve.svg, %s/curve.png\n", folder, folder);
        if (gantt) printf("the traced steps: %s/gantt.svg, %s/gantt.png; with ViTE: vite %s/trace/paje.trace\n", folder, folder, folder);
    }
    sgrad__overlap_free(&overlap);
}

static int run(const struct sgrad__request *request) {
    struct sgrad__history history;
    struct sgrad__timeline timeline = { 0 };
    bool traced;
    if (sgrad__history_read(request->argument, &history)) return SGRAD__FAILED;
    int error = sgrad__timeline_read(request->argument, &timeline, &traced);
    if (!error) tell(request, &history, traced ? &timeline : NULL);
    sgrad__timeline_free(&timeline);
    sgrad__history_free(&history);
    return error ? SGRAD__FAILED : SGRAD__DONE;
}

const struct sgrad__command sgrad__report_command = {
    .name = "report",
    .summary = "what happened in a run: learning curve, where the time went",
    .argument = "RUN-DIR",
    .options = options,
    .run = run,
};
