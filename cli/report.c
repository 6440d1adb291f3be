/* report.c: stargrad report: reports on a run, from the files in its folder. */
#include "cli/cli.h"
#include "report/report.h"

#include <stdlib.h>

static const struct sgrad__option options[] = {
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static int compare(const struct sgrad__request *request) {
    json_t *json = NULL;
    if (sgrad_report_compare(request->words, request->train.output.json ? &json : NULL)) return SGRAD__FAILED;
    if (json) sgrad__print_json(json);
    return SGRAD__DONE;
}

static void print_candidate(const json_t *c) {
    const json_t *top1 = json_object_get(c, "test_top1");
    const double value = json_number_value(top1 ? top1 : json_object_get(c, "test_loss"));
    char *given = json_dumps(json_object_get(c, "options"), JSON_COMPACT | JSON_REAL_PRECISION(4)), test[SGRAD_NUMBER_TEXT] = "-";
    if (json_is_number(top1)) snprintf(test, sizeof test, "%.2f %%", 100 * value);
    else if (json_is_number(json_object_get(c, "test_loss"))) sgrad_number_text(value, test);
    printf("%-8s %-9s %6d %9s  %s\n", json_string_value(json_object_get(c, "name")),
           json_string_value(json_object_get(c, "status")), (int)json_integer_value(json_object_get(c, "epochs")), test, given);
    free(given);
}

static int print_search(const struct sgrad__request *request) {
    json_t *leaderboard = NULL, *one;
    size_t i;
    const bool drawn = sgrad_report_search(request->argument, &leaderboard);
    if (!leaderboard) return SGRAD__FAILED;
    if (request->train.output.json) {
        sgrad__print_json(json_pack("{s:s, s:o}", "folder", request->argument, "leaderboard", leaderboard));
        return SGRAD__DONE;
    }
    printf("%-8s %-9s %6s %9s  %s\n", "name", "status", "epochs", "test", "options");
    json_array_foreach(leaderboard, i, one) print_candidate(one);
    if (drawn) printf("\n%s/report.html, %s/curves.svg\n", request->argument, request->argument);
    json_decref(leaderboard);
    return SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_report *report;
    if (request->words[1]) return compare(request);
    if (sgrad_report_is_search(request->argument)) return print_search(request);
    if (sgrad_report_open(request->argument, &report)) return SGRAD__FAILED;
    sgrad_report_draw(report);
    if (request->train.output.json) sgrad__print_json(sgrad_report_json(report));
    else sgrad_report_print(report);
    sgrad_report_close(report);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__report_command = {
    .name = "report",
    .summary = "summarise a run: learning curve and use of time",
    .argument = "RUN-DIR",
    .repeats = true,
    .notes = "report also works during the run. For a run with --trace, it prints the use of time in the traced steps, the "
             "communication hidden by computation, and the critical path. It also draws gantt.svg and writes report.html. "
             "With more than one RUN-DIR, report compares the runs side by side.",
    .options = options,
    .run = run,
};
