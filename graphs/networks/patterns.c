/* patterns.c: matches names of parameters and layers with lists of patterns, "fc.*,layer1.*". */
#include "graphs/networks/graph.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if NAME, or its beginning up to a dot, matches the first pattern of LIST. */
static bool matches_first(const char *list, const char *name) {
    char *pattern = sgrad_format("%.*s", (int)strcspn(list, ",="), list), *part = sgrad_format("%s", name), *dot;
    bool found = fnmatch(pattern, part, 0) == 0;
    while (!found && (dot = strrchr(part, '.'))) {
        *dot = 0;
        found = fnmatch(pattern, part, 0) == 0;
    }
    free(pattern);
    free(part);
    return found;
}

static const char *next(const char *list) {
    list += strcspn(list, ",");
    return list + (*list == ',');
}

const char *sgrad__find_listed(const char *list, const char *name) {
    while (list && *list && !matches_first(list, name)) list = next(list);
    return list && *list ? list : NULL;
}

bool sgrad__is_listed(const char *list, const char *name) { return sgrad__find_listed(list, name) != NULL; }

int sgrad__check_listed(const struct sgrad_graph *graph, const char *option, const char *list) {
    for (; list && *list; list = next(list)) {
        bool found = false;
        for (int i = 0; i < graph->parameter_count && !found; i++) found = matches_first(list, graph->parameter[i].name);
        if (!found)
            return sgrad_log_error(
                SGRAD_EINVAL, "--%s: '%.*s' matches no parameter (names are like %s); list them with --print --no-fuse", option,
                (int)strcspn(list, ","), list, graph->parameter_count ? graph->parameter[0].name : "conv1.weight");
    }
    return 0;
}

/* Returns the parameter NAME. NULL: an earlier error, or there is no such parameter, which then is an error of the graph; VERB is
 * part of its message. */
static struct sgrad__parameter *find(struct sgrad_graph *graph, const char *name, const char *verb) {
    for (int i = 0; i < graph->parameter_count && !graph->error; i++)
        if (!graph->parameter[i].state && !strcmp(graph->parameter[i].name, name)) return &graph->parameter[i];
    if (!graph->error)
        graph->error = sgrad_log_error(SGRAD_ENAME, "%s: cannot be %s: no layer has this parameter", name, verb);
    return NULL;
}

void sgrad_graph_freeze(struct sgrad_graph *graph, const char *name) {
    struct sgrad__parameter *parameter = find(graph, name, "frozen");
    if (parameter) parameter->fixed = true;
}

void sgrad_graph_initialize(struct sgrad_graph *graph, const char *name, enum sgrad_init init, double of) {
    struct sgrad__parameter *parameter = find(graph, name, "initialized");
    if (!parameter) return;
    parameter->is.init = init;
    parameter->is.fan = parameter->is.deviation = of;
}

void sgrad__graph_freeze(struct sgrad_graph *graph, const bool *frozen) {
    for (int i = 0; i < graph->parameter_count; i++) {
        struct sgrad__parameter *parameter = &graph->parameter[i];
        const bool fixed = parameter->fixed || (graph->lora.rank && !parameter->adapter);
        parameter->frozen = !parameter->state && (fixed || (frozen && frozen[i]));
    }
    for (int n = 0; n < graph->node_count; n++) {
        const struct sgrad__node *node = &graph->node[n];
        bool needs = false;
        for (int i = 0; i < node->is.inputs; i++)
            needs |= graph->value[node->input[i]].needs_gradient && !(node->op->no_gradient >> i & 1);
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) needs |= node->p[i] >= 0 && !graph->parameter[node->p[i]].frozen;
        if (node->output >= 0) graph->value[node->output].needs_gradient = needs;
    }
}
