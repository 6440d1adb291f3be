/* list.c: stargrad list: lists the models, operations, data sets, … of this build. */
#include "cli/cli.h"
#include "datasets/datasets.h"
#include "duplicates/duplicates.h"
#include "planner/planner.h"
#include "runtime/collectives.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    SGRAD__PLUGIN_OPTION,
    { "json", NULL, "print a JSON array of objects", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static void add(json_t *list, const char *name, const char *summary) {
    json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "summary", summary));
}

/* Each list is a NULL-terminated array of records of one type; all types have a name and a summary. */
#define EACH(array)                                                                                                              \
    for (size_t i = 0; (array)[i]; i++) add(list, (array)[i]->name, (array)[i]->summary)
/* Returns " (options: layers=6,heads=6)" with the default values, or "" for a model without options; the caller must free it. */
static char *model_options(const struct sgrad_model *model) {
    char *text = sgrad_format("%s", "");
    for (const struct sgrad_model_option *o = model->options; o && o->name; o++) {
        char *longer = sgrad_format("%s%s%s=%.10g", text, o == model->options ? " (options: " : ",", o->name, o->value);
        free(text);
        text = longer;
    }
    char *closed = sgrad_format(*text ? "%s)" : "%s", text);
    free(text);
    return closed;
}

static void models(json_t *list) {
    for (const struct sgrad_model *const *m = sgrad_models; *m; m++) {
        const int least = (*m)->min_image_side;
        char *summary = sgrad_format(least ? "%s (images of %dx%d or more)" : "%s", (*m)->summary, least, least);
        char *options = model_options(*m), *both = sgrad_format("%s%s", summary, options);
        add(list, (*m)->name, both);
        free(both);
        free(options);
        free(summary);
    }
}
static void layers(json_t *list) { EACH(sgrad_composites); }
static void ops(json_t *list) { EACH(sgrad_ops); }
/* Returns ", --OPTION VALUE"; an empty text if VALUE is 0, that of most optimizers. The caller must free it. */
static char *own_default(const char *option, double value) {
    return value > 0 ? sgrad_format(", --%s %g", option, value) : sgrad_format("%s", "");
}
static void optimizers(json_t *list) {
    for (const struct sgrad_optimizer *const *o = sgrad_optimizers; *o; o++) {
        char *momentum = own_default("momentum", (*o)->momentum), *beta1 = own_default("beta1", (*o)->beta1),
             *beta2 = own_default("beta2", (*o)->beta2);
        char *summary =
            sgrad_format("%s (default --lr %g%s%s%s)", (*o)->summary, (*o)->default_lr, momentum, beta1, beta2);
        add(list, (*o)->name, summary);
        free(summary);
        free(beta2);
        free(beta1);
        free(momentum);
    }
}
static void allreduce(json_t *list) {
    for (const struct sgrad_collective *const *c = sgrad_collectives; *c; c++)
        if ((*c)->kind == SGRAD_ALLREDUCE) add(list, (*c)->name, (*c)->summary);
}
static void collectives(json_t *list) {
    for (const struct sgrad_collective *const *c = sgrad_collectives; *c; c++) {
        char *name = sgrad_format("%s %s", sgrad_collective_kind_name((*c)->kind), (*c)->name);
        add(list, name, (*c)->summary);
        free(name);
    }
}
static void hashes(json_t *list) { EACH(sgrad_hash_kinds); }
static void strategies(json_t *list) { EACH(sgrad_strategies); }
static void datasets(json_t *list) {
    for (const struct sgrad_reader *const *r = sgrad_readers; *r; r++) {
        const char *argument = (*r)->argument, *augment = (*r)->augment ? (*r)->augment : "none";
        char *summary = sgrad_format("%s (%s%s%s, default --augment %s)", (*r)->summary, (*r)->name, argument ? ":" : "",
                                     argument ? argument : "", augment);
        add(list, (*r)->name, summary);
        free(summary);
    }
}

static void augmentations(json_t *list) {
    for (const struct sgrad_augmentation *const *a = sgrad_augmentations; *a; a++) {
        char *form = sgrad_augmentation_form(*a), *summary = sgrad_format("%s (%s)", (*a)->summary, form);
        add(list, (*a)->name, summary);
        free(summary);
        free(form);
    }
}

static void machines(json_t *list) {
    struct sgrad_machine_file *files = sgrad_machine_files();
    for (const struct sgrad_machine_file *file = files; file->name; file++) add(list, file->name, file->summary);
    sgrad_machine_files_free(files);
}

static const struct {
    const char *name;
    void (*fill)(json_t *list);
    const char *empty;      /* message for an empty list */
} lists[] = {
    { "models", models, "no network" },
    { "layers", layers, "no layer composed of operations" },
    { "ops", ops, "no operation" },
    { "optimizers", optimizers, "no optimizer" },
    { "datasets", datasets, "no data set" },
    { "allreduce", allreduce, "no allreduce algorithm" },
    { "collectives", collectives, "no collective" },
    { "strategies", strategies, "no strategy" },
    { "augmentations", augmentations, "no augmentation" },
    { "hashes", hashes, "no hash" },
    { "machines", machines, "no machine file: the folder machines of the installation is not found" },
};
enum { LISTS = sizeof lists / sizeof *lists };

static int unknown(const char *word) {
    const char *names[LISTS + 1] = { 0 };
    for (int i = 0; i < LISTS; i++) names[i] = lists[i].name;
    return sgrad__no_such("list", "list", word, names, "");
}

static void print(const json_t *list) {
    size_t i;
    json_t *row;
    int width = 0;
    json_array_foreach(list, i, row) {
        int length = (int)json_string_length(json_object_get(row, "name"));
        if (length > width) width = length;
    }
    json_array_foreach(list, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *summary = json_string_value(json_object_get(row, "summary"));
        printf("%-*s  %s\n", width, name, summary);
    }
}

static int run(const struct sgrad__request *request) {
    int which = 0;
    while (which < LISTS && strcmp(request->argument, lists[which].name)) which++;
    if (which == LISTS) return unknown(request->argument);

    json_t *list = json_array();
    lists[which].fill(list);
    if (!request->train.output.json && !json_array_size(list))
        fprintf(stderr, "stargrad: list: this build has %s\n", lists[which].empty);
    if (request->train.output.json) return sgrad__print_json(list), SGRAD__DONE;
    print(list);
    json_decref(list);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__list_command = {
    .name = "list",
    .summary = "list the models, operations, data sets and other components of this build",
    .argument = "models|layers|ops|optimizers|datasets|augmentations|allreduce|collectives|strategies|hashes|machines",
    .options = options,
    .run = run,
};
