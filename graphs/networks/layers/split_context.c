/* split_context.c: samples of text whose tokens are split over the ranks of axis context: layers.h. */
#include "codelets/ops/context_rows.h"
#include "graphs/networks/layers/layers.h"

int sgrad__check_context(struct sgrad_graph *graph, int tokens) {
    const int ranks = sgrad_graph_ranks(graph, SGRAD__CONTEXT);
    const int line = sgrad_graph_ranks(graph, SGRAD__TENSOR) * sgrad_graph_ranks(graph, SGRAD__FEATURES);
    const int unit = ranks * (line % 2 ? 2 * line : line), less = tokens / unit * unit;
    if (ranks == 1 || tokens % unit == 0) return 0;
    char other[32] = "";
    if (less) snprintf(other, sizeof other, "%d or ", less);
    return sgrad_graph_fail(graph,
                            "tokens per sample: %d cannot be split over the %d ranks of axis " SGRAD__CONTEXT
                            ", which requires a multiple of %d; use %s%d",
                            tokens, ranks, unit, other, less + unit);
}

int sgrad__context_rows(struct sgrad_graph *graph, const char *name, int x) {
    if (sgrad_graph_ranks(graph, SGRAD__CONTEXT) == 1) return x;
    return sgrad_layer(graph, context_rows, name, (x), .axis = SGRAD__CONTEXT);
}

const struct sgrad_composite sgrad_split_context_composite = {
    .name = "split_context",
    .summary = "tokens of samples sharded over ranks",
};
