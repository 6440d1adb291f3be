/* options.c: parses the options of a network, which follow its name: "gpt:layers=6,heads=6,width=384". */
#include "graphs/networks/graph.h"

#include <stdlib.h>
#include <string.h>

static int count_options(const struct sgrad_model *model) {
    int count = 0;
    while (model && model->options && model->options[count].name) count++;
    return count;
}

static int no_such(const struct sgrad_model *model, const char *word) {
    const char *names[SGRAD_MAX_MODEL_OPTIONS + 1] = { NULL };
    char *list = sgrad_format("%s", "");
    for (int i = 0; i < count_options(model); i++) {
        char *longer = sgrad_format("%s%s%s", list, i ? ", " : "", names[i] = model->options[i].name);
        free(list);
        list = longer;
    }
    const char *nearest = sgrad_suggest(word, names);
    if (!names[0]) sgrad_log_error(SGRAD_EINVAL, "model %s: unknown option '%s': this model has no options", model->name, word);
    else if (nearest)
        sgrad_log_error(SGRAD_EINVAL, "model %s: unknown option '%s'; did you mean %s?", model->name, word, nearest);
    else sgrad_log_error(SGRAD_EINVAL, "model %s: unknown option '%s'; use one of %s", model->name, word, list);
    free(list);
    return SGRAD_EINVAL;
}

/* WORD is "key=value". */
static int take(const struct sgrad_model *model, char *word, double *value) {
    char *equals = strchr(word, '='), *end = NULL;
    if (equals) *equals = 0;
    if (equals && model->configure && strcmp(word, "config") == 0) return model->configure(equals + 1, model->options, value);
    int i = 0;
    while (i < count_options(model) && strcmp(model->options[i].name, word)) i++;
    if (i == count_options(model)) return no_such(model, word);
    const struct sgrad_model_option *o = &model->options[i];
    const double x = equals ? strtod(equals + 1, &end) : 0;
    const bool number = equals && end > equals + 1 && !*end && strspn(equals + 1, "0123456789.e-+") == strlen(equals + 1);
    if (number && x >= o->low && x <= o->high && (o->fraction || x == (double)(long)x)) {
        value[i] = x;
        return 0;
    }
    return sgrad_log_error(SGRAD_EINVAL, "model %s: %s=%s must be a %s from %g to %.10g", model->name, word,
                           equals ? equals + 1 : "", o->fraction ? "number" : "whole number", o->low, o->high);
}

int sgrad__graph_set_model(struct sgrad_graph *graph, const struct sgrad_model *model, const char *text) {
    const char *colon = text ? strchr(text, ':') : NULL;
    int error = 0;
    graph->model = model;
    for (int i = 0; i < count_options(model); i++) graph->option[i] = model->options[i].value;
    if (!colon) return 0;
    if (model->from_file) return graph->file = sgrad_format("%s", colon + 1), 0;
    char *words = sgrad_format("%s", colon + 1), *rest = words;
    for (char *word; !error && (word = strsep(&rest, ","));) error = take(model, word, graph->option);
    free(words);
    return error;
}

double sgrad_graph_option(const struct sgrad_graph *graph, const char *name) {
    for (int i = 0; i < count_options(graph->model); i++)
        if (strcmp(graph->model->options[i].name, name) == 0) return graph->option[i];
    return 0;
}

bool sgrad__graph_own_loss(const struct sgrad_graph *graph) {
    return graph->model->loss && (!graph->model->loss_option || sgrad_graph_option(graph, graph->model->loss_option) != 0);
}

char *sgrad__graph_model_text(const struct sgrad_graph *graph) {
    char *text = sgrad_format(graph->file ? "%s:%s" : "%s", graph->model->name, graph->file);
    for (int i = 0; i < count_options(graph->model); i++) {
        char *longer = sgrad_format("%s%c%s=%.10g", text, i ? ',' : ':', graph->model->options[i].name, graph->option[i]);
        free(text);
        text = longer;
    }
    return text;
}
