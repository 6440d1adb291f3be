/* report.c: stargrad report: what happened in a run, from the files in its folder. */
#include "cli/cli.h"
#include "report/report.h"

static const struct sgrad__option options[] = {
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static int compare(const struct sgrad__request *request) {
    json_t *json = NULL;
    if (sgrad_report_compare(request->words, request->train.json ? &json : NULL)) return SGRAD__FAILED;
    if (json) sgrad__print_json(json);
    return SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_report *report;
    if (request->words[1]) return compare(request);
    if (sgrad_report_open(request->argument, &report)) return SGRAD__FAILED;
    sgrad_report_draw(report);
    if (request->train.json) sgrad__print_json(sgrad_report_json(report));
    else sgrad_report_print(report);
    sgrad_report_close(report);
    return SGRAD__DONE;
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
