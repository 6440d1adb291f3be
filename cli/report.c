/* report.c: stargrad report: what happened in a run, from the files in its folder. */
#include "report/timeline.h"

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
    struct sgrad__critical critical = { 0 };
    json_t *result = as_json(folder, history, curve);
    if (timeline) {
        sgrad__overlap_find(timeline, &overlap);
        sgrad__critical_find(timeline, &critical);
        json_object_set_new(result, "trace", sgrad__trace_as_json(timeline, &overlap, &critical));
    }
    if (gantt) json_object_set_new(result, "gantt", json_pack("[s+, s+]", folder, "/gantt.svg", folder, "/gantt.png"));
    const bool page = sgrad__page_write(folder, result, timeline, curve);
    if (page) json_object_set_new(result, "page", json_sprintf("%s/report.html", folder));
    if (request->train.json) {
        sgrad__print_json(result);
    } else {
        print(history);
        if (timeline) sgrad__trace_print(timeline, &overlap, &critical, json_object_get(result, "trace"));
        if (curve) printf("learning curve: %s/curve.svg, %s/curve.png\n", folder, folder);
        if (gantt) printf("the traced steps: %s/gantt.svg, %s/gantt.png; with ViTE: vite %s/trace/paje.trace\n", folder, folder, folder);
        if (page) printf("all of it as a page: %s/report.html\n", folder);
        json_decref(result);
    }
    sgrad__overlap_free(&overlap);
}

static int run(const struct sgrad__request *request) {
    struct sgrad__history history;
    struct sgrad__timeline timeline = { 0 };
    bool traced;
    if (request->words[1]) return sgrad__compare(request->words, request->train.json) ? SGRAD__FAILED : SGRAD__DONE;
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
    .repeats = true,
    .notes = "Several folders are laid side by side.",
    .options = options,
    .run = run,
};
