/* find_lr.c: stargrad find-lr: suggests an initial learning rate, by a short training with increasing learning rate. */
#include "cli/cli.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sgrad__option options[] = {
    { .help = "Learning rates" },
    { "from", "X", "learning rate of the first step", &sgrad__real, SGRAD__PLACE(find_lr.from), 1e-30, 1e6 },
    { "to", "X", "learning rate of the last step, approximately", &sgrad__real, SGRAD__PLACE(find_lr.to), 1e-30, 1e6 },
    { 0 },
};

static void defaults(struct sgrad__request *request) {
    request->find_lr.from = 1e-6;
    request->find_lr.to = 10;
}

/* Options of train without effect on a range test: they concern schedules, or the results of a run. */
static const char *const idle[] = { "epochs", "lr", "lr-scale-base", "schedule", "warmup", "ema", "lookahead",
                                    "freeze-after", "tta", "resume", "evaluate-every", "evaluate-last", "checkpoint-every",
                                    "stop-before", "keep", "snapshot-every", "best", "patience", "min-delta", "trace",
                                    "tensorboard", "histograms", "prometheus", "print", "show-batch", "nan-ok", NULL };

static bool is_idle(const char *option) {
    const char *const *name = idle;
    while (*name && strcmp(*name, option)) name++;
    return *name;
}

/* Warns of the options in idle that are set. Stores the others in ASKED, for the training. */
static void warn_of_idle(const struct sgrad__request *request, const char **asked) {
    int count = 0;
    for (const char *const *option = request->asked; *option; option++)
        if (!is_idle(*option)) asked[count++] = *option;
        else if (sgrad_launched_rank() == 0) sgrad_log_warning("find-lr: --%s has no effect on a range test", *option);
    asked[count] = NULL;
}

/* ---- files ---- */

static int write_points(const char *folder, const struct sgrad_lr_test *test) {
    char *path = sgrad_format("%s/find-lr.csv", folder);
    struct sgrad_file file;
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        fputs("step,lr,loss,smoothed\n", file.stream);
        for (int i = 0; i < test->count; i++)
            fprintf(file.stream, "%d,%.9g,%.9g,%.9g\n", i + 1, test->rate[i], test->loss[i], test->smoothed[i]);
        error = sgrad_file_commit(&file);
    }
    free(path);
    return error;
}

/* Sets *DRAWN to true if the plot was drawn. */
static int write_files(const struct sgrad_train_options *options, const struct sgrad_lr_test *test, bool *drawn) {
    SGRAD_TRY(write_points(options->output.folder, test));
    char *title = sgrad_format("%s on %s", options->model.name, options->data.name);
    *drawn = test->count > 1 && sgrad_report_rates(options->output.folder, "find-lr",
                                                   &(struct sgrad_rates){ title, test->count, test->rate, test->loss,
                                                                          test->smoothed, test->suggested });
    free(title);
    return 0;
}

/* ---- output ---- */

static json_t *as_json(const struct sgrad_lr_test *test) {
    json_t *points = json_array();
    for (int i = 0; i < test->count; i++)
        json_array_append_new(points, json_pack("{s:i, s:f, s:f, s:f}", "step", i + 1, "lr", test->rate[i], "loss", test->loss[i],
                                                "smoothed", test->smoothed[i]));
    return json_pack("{s:o, s:f, s:f, s:b, s:o}", "suggested", sgrad_json_real(test->suggested), "steepest",
                     test->rate[test->steepest], "least", test->rate[test->least], "diverged", test->diverged, "points", points);
}

static void print_point(const struct sgrad_lr_test *test, int point, const char *what) {
    char text[SGRAD_NUMBER_TEXT];
    printf("%-10s rate %.2g, step %d: smoothed loss %s\n", what, test->rate[point], point + 1,
           sgrad_number_text(test->smoothed[point], text));
}

static void print(const struct sgrad_lr_test *test, const struct sgrad_train_options *options, bool drawn) {
    if (isnan(test->suggested)) {
        printf("no learning rate reduced the loss, which began at %.4g\n", test->count ? test->loss[0] : NAN);
    } else {
        print_point(test, test->steepest, "steepest");
        print_point(test, test->least, "lowest");
        if (test->diverged) print_point(test, test->count - 1, "diverged");
        printf("suggested  --lr %.2g: a tenth of the rate with the lowest loss\n", test->suggested);
    }
    if (options->output.folder) printf("%s: find-lr.csv%s\n", options->output.folder, drawn ? ", find-lr.svg, find-lr.png" : "");
}

static int write_result(const struct sgrad__request *request, const struct sgrad_lr_test *test) {
    const struct sgrad_train_options *o = &request->train;
    bool drawn = false;
    if (!test->count)
        return sgrad__status(sgrad_log_error(
            SGRAD_ENAN, "find-lr: the loss of the first step is NaN or infinite; check the data, or try another --seed"));
    if (o->output.folder) SGRAD_TRY(write_files(o, test, &drawn));
    if (o->output.json) sgrad__print_json(as_json(test));
    else print(test, o, drawn);
    if (isnan(test->suggested))
        sgrad_log_warning("find-lr: no learning rate can be suggested; try a lower --from or more --steps");
    else if (!test->diverged && test->least > test->count * 9 / 10)
        sgrad_log_warning("find-lr: the loss still falls at the end; try a higher --to");
    return SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_options o = request->train;
    struct sgrad_lr_test test;
    if (request->find_lr.from >= request->find_lr.to)
        return sgrad__wrong("find-lr: --from %g must be below --to %g", request->find_lr.from, request->find_lr.to);
    const char *asked[sizeof request->asked / sizeof *request->asked];
    warn_of_idle(request, asked);
    o.output.explicit_options = asked;
    if (!sgrad__is_asked(request, "steps")) o.training.steps = 0;    /* ignore the steps of --like */
    const bool makes = o.output.folder && sgrad_launched_rank() == 0 && access(o.output.folder, F_OK);
    int error = makes ? sgrad_folder_make(o.output.folder) : 0;
    if (!error) error = sgrad_find_lr(&o, request->find_lr.from, request->find_lr.to, &test);
    if (error && makes) rmdir(o.output.folder);
    if (error) return sgrad__status(error);
    const int status = test.rank > 0 ? SGRAD__DONE : write_result(request, &test);
    sgrad_lr_test_free(&test);
    return status < 0 ? sgrad__status(status) : status;
}

const struct sgrad__command sgrad__find_lr_command = {
    .name = "find-lr",
    .summary = "find an initial learning rate",
    .options = options,
    .also = &sgrad__train_command,
    .defaults = defaults,
    .run = run,
    .notes = "find-lr runs the learning-rate range test: in a short training, the learning rate grows by the same factor in each "
             "step until the loss diverges. --steps sets the number of steps [100]. It writes files only with --out DIR: "
             "DIR/find-lr.png, .svg and .csv. Options for schedules, epochs, evaluation and checkpoints have no effect. For "
             "example:\n\n"
             "  stargrad find-lr --model resnet20 --data cifar10:DIR --batch 512 --out rates",
};
