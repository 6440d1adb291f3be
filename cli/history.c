/* history.c: reads data of an existing run for commands: its weights, the names of its classes. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "datasets/datasets.h"

#include <stdlib.h>

void sgrad__weights_of_run(const struct sgrad__request *request, struct sgrad_train_options *options) {
    if (!sgrad__is_asked(request, "tta")) options->evaluation.tta = NULL; /* of the run's final evaluation; no default here */
    if (!sgrad__is_asked(request, "class-names")) options->data.class_names = NULL; /* config.json has its content */
    if (!request->argument || sgrad__is_asked(request, "weights") || sgrad__is_asked(request, "model")) return;
    options->model.init = sgrad_run_weights(request->argument);
}

/* Sets the names to COUNT names, and of the other classes to their numbers. */
static void set_names(struct sgrad__classes *classes, const char *const *name, int count) {
    for (int c = 0; c < classes->count; c++)
        classes->name[c] = name && c < count ? sgrad_format("%s", name[c]) : sgrad_format("%d", c);
}

static int find_in_data(const struct sgrad_train_options *options, struct sgrad__classes *classes) {
    struct sgrad_dataset *dataset;
    SGRAD_TRY(sgrad_run_open_samples(options, false, &dataset));
    set_names(classes, dataset->class_name, dataset->classes);
    sgrad_dataset_close(dataset);
    return 0;
}

static int find_in_run(const char *run, struct sgrad__classes *classes) {
    struct sgrad_run_input input;
    SGRAD_TRY(sgrad_run_input(run, &input));
    set_names(classes, (const char *const *)input.class_name, input.classes);
    sgrad_run_input_free(&input);
    return 0;
}

int sgrad__classes_find(const struct sgrad__request *request, const struct sgrad_train_options *options, int count,
                        struct sgrad__classes *classes) {
    char *of_weights = NULL;
    classes->count = count;
    if (options->data.class_names) return sgrad_class_titles_read(options->data.class_names, count, &classes->name);
    classes->name = sgrad_xcalloc((size_t)count + 1, sizeof *classes->name);
    if (request->argument) return find_in_run(request->argument, classes);
    if (request->files) SGRAD_TRY(sgrad_run_of_weights(options, &of_weights));
    int error = 0;
    if (of_weights) error = find_in_run(of_weights, classes);
    else if (options->data.name) error = find_in_data(options, classes);
    else set_names(classes, NULL, 0);
    free(of_weights);
    return error;
}

void sgrad__classes_free(struct sgrad__classes *classes) {
    for (int c = 0; classes->name && c < classes->count; c++) free(classes->name[c]);
    free(classes->name);
}
