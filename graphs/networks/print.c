/* print.c: prints a network as text, before it runs. The tests compare it with golden copies. */
#include "graphs/networks/graph.h"

#include <string.h>

void sgrad__graph_print(const struct sgrad_graph *graph, FILE *to) {
    char text[SGRAD_SHAPE_TEXT], about[96], label[128];
    int width = 24;
    for (int n = 0; n < graph->node_count; n++)
        if (width < (int)strlen(graph->node[n].name)) width = (int)strlen(graph->node[n].name);
    fprintf(to, "%-*s %-46s %-16s %s\n", width, "layer", "operation", "output", "parameters");
    for (int n = 0; n < graph->node_count; n++) {
        const struct sgrad__node *node = &graph->node[n];
        int64_t parameters = 0;
        about[0] = 0;
        if (node->op->describe) node->op->describe(node->attrs, about, sizeof about);
        snprintf(label, sizeof label, "%s%s%s", node->op->name, *about ? " " : "", about);
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++)
            if (node->p[i] >= 0) parameters += sgrad_shape_count(&node->is.p[i].shape);
        fprintf(to, "%-*s %-46s %-16s %lld\n", width, node->name, label,
                node->output < 0 ? "-" : sgrad_shape_text(&node->is.y.shape, text), (long long)parameters);
    }
    const long long parameters = (long long)sgrad__parameters_count(graph);
    fprintf(to, "%lld %s\n", parameters, sgrad_plural(parameters, "parameter", "parameters"));
}
