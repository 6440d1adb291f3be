/* split_experts.c: a mixture of experts, which are divided over ranks: layers.h. */
#include "codelets/ops/combine.h"
#include "codelets/ops/dispatch.h"
#include "graphs/networks/graph.h"
#include "graphs/networks/layers/layers.h"

#include <string.h>

static int check(struct sgrad_graph *graph, int experts, int ranks) {
    const int less = experts / ranks * ranks;
    char other[32] = "";
    if (experts % ranks == 0) return 0;
    if (less) snprintf(other, sizeof other, "%d or ", less);
    return sgrad_graph_fail(graph, "experts=%d cannot be divided over the %d ranks of axis " SGRAD__EXPERT "; use %s%d", experts,
                            ranks, other, less + ranks);
}

int sgrad__split_experts(struct sgrad_graph *graph, const char *name, int x, int weights, struct sgrad_experts attrs) {
    static const char *const parts[] = { "gate", "up", "down" };
    const int ranks = sgrad_graph_ranks(graph, SGRAD__EXPERT);
    if (ranks == 1) return sgrad_graph_apply(graph, &sgrad_experts_op, name, (const int[]){ x, weights }, 2, &attrs);
    const int experts = (int)sgrad_graph_shape(graph, weights).dim[2], own = experts / ranks;
    if (check(graph, experts, ranks)) return -1;
    for (int i = 0; i < 3; i++)
        sgrad_graph_partition(graph,
                              SGRAD__NAME("%.*s.experts.*.%s_proj.weight", (int)strcspn(name, "/"), name, parts[i]),
                              SGRAD__EXPERT, 0);
    attrs.expected = (float)attrs.active / (float)ranks;
    const float share = attrs.expected < 1 ? attrs.expected : 1;
    if (attrs.active > own) attrs.active = own;
    const int there = sgrad_layer(graph, dispatch, SGRAD__NAME("%s/weights", name), (weights, weights), .axis = SGRAD__EXPERT,
                                  .share = share, .columns = true);
    x = sgrad_layer(graph, dispatch, SGRAD__NAME("%s/dispatch", name), (x, weights), .axis = SGRAD__EXPERT, .share = share);
    x = sgrad_graph_apply(graph, &sgrad_experts_op, name, (const int[]){ x, there }, 2, &attrs);
    return sgrad_layer(graph, combine, SGRAD__NAME("%s/combine", name), (x, weights, there), .axis = SGRAD__EXPERT,
                       .share = share);
}

const struct sgrad_composite sgrad_split_experts_composite = {
    .name = "split_experts",
    .summary = "mixture of experts, divided over ranks: rows are sent to the ranks of their experts, and results return",
};
