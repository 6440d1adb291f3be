/* column_linear.c: a linear layer of whose outputs each rank along axis tensor has a part: layers.h. */
#include "codelets/ops/all_gather.h"
#include "graphs/networks/layers/layers.h"

int sgrad__check_split(struct sgrad_graph *g, const char *what, int count) {
    const int ranks = sgrad_graph_ranks(g, SGRAD__TENSOR);
    int less = ranks, more = ranks;
    if (count % ranks == 0) return 0;
    while (count % less) less--;
    while (more < count && count % more) more++;
    return sgrad_graph_refuse(g, "%s: %d cannot be split over the %d ranks of axis " SGRAD__TENSOR ", but over %d or %d", what,
                              count, ranks, less, more < count ? more : count);
}

int sgrad__column_linear(struct sgrad_graph *g, const char *name, int x, struct sgrad_linear attrs, int sections) {
    const int ranks = sgrad_graph_ranks(g, SGRAD__TENSOR);
    if (ranks > 1) {
        if (sgrad__check_split(g, name, attrs.features / sections)) return -1;
        x = sgrad_layer(g, all_gather, SGRAD__NAME("%s/gather", name), (x), .axis = SGRAD__TENSOR, .dimension = 1);
        sgrad_graph_split_sections(g, SGRAD__NAME("%s.weight", name), SGRAD__TENSOR, 0, sections);
        if (attrs.bias) sgrad_graph_split_sections(g, SGRAD__NAME("%s.bias", name), SGRAD__TENSOR, 0, sections);
        attrs.features /= ranks;
    }
    return sgrad_graph_apply(g, &sgrad_linear_op, name, &x, 1, &attrs);
}

const struct sgrad_composite sgrad_column_linear_composite = {
    .name = "column_linear",
    .summary = "linear layer whose outputs are split over ranks",
};
