/* adapters.c: adds low-rank adapters to the linear layers of a network, so that only these are trained:
 *
 *     x ──┬── weight (K,C) ──────────────────────────────────────────── + ── y     layer NAME
 *         └── lora_A (rank,C) ── · alpha / rank ── lora_B (K,rank) ─────┘     NAME.lora_A, .lora_scale, .lora_B, .lora: the sum
 *
 * All other parameters of the network are frozen. The names and initial values are those of Hugging Face peft: A is uniform in
 * ±1/√C (Kaiming-uniform with a = √5), B is zero, so that training begins with the network without adapters.
 *
 * Source: E. J. Hu et al., LoRA: Low-rank adaptation of large language models, 2021.
 *
 * Limits: weights that are split over ranks (axis tensor of a mesh) cannot be adapted. There is no dropout on the input of an
 * adapter. */
#include "codelets/ops/add.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/scale.h"
#include "graphs/networks/graph.h"

#include <stdlib.h>
#include <string.h>

/* Adds layer LAYER.SUFFIX. */
static int add(struct sgrad_graph *graph, const struct sgrad_op *op, const char *layer, const char *suffix, const int *inputs,
               int count, const void *attrs) {
    char *name = sgrad_format("%s.%s", layer, suffix);
    const int y = sgrad_graph_apply(graph, op, name, inputs, count, attrs);
    free(name);
    return y;
}

/* Returns the index of the weight of node N that can be adapted; -1: it is no linear layer, or its weight is tied to that of an
 * earlier layer, which it would change, too, or is renamed (sgrad_graph_rename), so that peft has no name for its adapter. */
static int weight_of(const struct sgrad_graph *graph, const struct sgrad__node *node) {
    if (node->op != &sgrad_linear_op || graph->parameter[node->p[0]].adapter) return -1;
    const char *name = graph->parameter[node->p[0]].name, *end = strrchr(name, '.');
    const size_t length = strcspn(node->name, "/");
    return length == (size_t)(end - name) && !strncmp(name, node->name, length) ? node->p[0] : -1;
}

static int adapt(struct sgrad_graph *graph, int n) {
    const int x = graph->node[n].input[0], y = graph->node[n].output, weight = weight_of(graph, &graph->node[n]);
    if (weight < 0 || !sgrad__is_listed(graph->lora.on, graph->parameter[weight].name)) return y;
    const int features = (int)graph->parameter[weight].is.shape.dim[0], first = graph->parameter_count;
    const float scale = (float)(graph->lora.alpha / graph->lora.rank);
    if (graph->parameter[weight].cuts) {
        graph->error = sgrad_log_error(
            SGRAD_EINVAL, "--lora: %s is split over axis %s of the mesh; a mesh with --lora may only have axes data and pipe",
            graph->parameter[weight].name, graph->parameter[weight].cut[0].axis->name);
        return -1;
    }
    char *layer = sgrad_format("%.*s", (int)strcspn(graph->node[n].name, "/"), graph->node[n].name);
    graph->adapt = NULL;        /* the layers of adapters have none */
    int z = add(graph, &sgrad_linear_op, layer, "lora_A", &x, 1, &(struct sgrad_linear){ .features = graph->lora.rank });
    if (scale != 1) z = add(graph, &sgrad_scale_op, layer, "lora_scale", &z, 1, &(struct sgrad_scale){ .factor = scale });
    z = add(graph, &sgrad_linear_op, layer, "lora_B", &z, 1, &(struct sgrad_linear){ .features = features });
    z = add(graph, &sgrad_add_op, layer, "lora", (const int[]){ y, z }, 2, &(struct sgrad_add){ 0 });
    graph->adapt = adapt;
    free(layer);
    for (int i = first; i < graph->parameter_count; i++) graph->parameter[i].adapter = true;
    if (z >= 0) graph->parameter[graph->parameter_count - 1].is.init = SGRAD_ZEROS;
    return z;
}

void sgrad__graph_adapt(struct sgrad_graph *graph, const struct sgrad__lora *lora) {
    graph->lora = (struct sgrad__lora){ lora->rank, lora->alpha, sgrad_format("%s", lora->on) };
    graph->adapt = adapt;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Returns the weight of node N that can be adapted; NULL: it has none. */
static const char *name_of(const struct sgrad_graph *graph, int n) {
    const int weight = weight_of(graph, &graph->node[n]);
    return weight < 0 ? NULL : graph->parameter[weight].name;
}

/* Returns a list of some weights that can be adapted, "a.weight, b.weight, …". The caller must free it. */
static char *some_names(const struct sgrad_graph *graph) {
    enum { MOST = 8 };
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    int count = 0;
    for (int n = 0; n < graph->node_count; n++) {
        const char *name = name_of(graph, n);
        if (name && count++ < MOST) fprintf(to, "%s%s", count > 1 ? ", " : "", name);
    }
    if (count > MOST) fprintf(to, " and %d more", count - MOST);
    fclose(to);
    return text;
}

static int fail_to_match(const struct sgrad_graph *graph, const char *pattern, int length) {
    char *names = some_names(graph);
    if (*names)
        sgrad_log_error(SGRAD_EINVAL, "--lora-on: '%.*s' matches no weight of a linear layer; these are %s", length, pattern,
                        names);
    else
        sgrad_log_error(SGRAD_EINVAL, "--lora: the network has no linear layer that can be adapted");
    free(names);
    return SGRAD_EINVAL;
}

int sgrad__check_adapters(const struct sgrad_graph *graph, bool each) {
    if (!sgrad__adapters_count(graph, &(int){ 0 })) return fail_to_match(graph, graph->lora.on, (int)strlen(graph->lora.on));
    for (const char *at = graph->lora.on, *end; each && *at; at = end + (*end == ',')) {
        end = at + strcspn(at, ",");
        char *pattern = sgrad_format("%.*s", (int)(end - at), at);
        bool found = false;
        for (int n = 0; n < graph->node_count && !found; n++) {
            const char *name = name_of(graph, n);
            found = name && sgrad__is_listed(pattern, name);
        }
        free(pattern);
        if (!found) return fail_to_match(graph, at, (int)(end - at));
    }
    return 0;
}

int sgrad__adapters_count(const struct sgrad_graph *graph, int *layers) {
    int matrices = 0;
    *layers = 0;
    for (int i = 0; i < graph->parameter_count; i++) matrices += graph->parameter[i].adapter;
    for (int n = 0; n < graph->node_count; n++) *layers += name_of(graph, n) != NULL;
    return matrices / 2;
}
