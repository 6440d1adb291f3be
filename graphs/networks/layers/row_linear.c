/* row_linear.c: a linear layer whose inputs are split over the ranks along axis tensor: layers.h. */
#include "codelets/ops/all_gather.h"
#include "codelets/ops/bias.h"
#include "codelets/ops/reduce_scatter.h"
#include "graphs/networks/layers/layers.h"

int sgrad__row_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs) {
    const int inputs = sgrad_graph_ranks(graph, SGRAD__TENSOR), outputs = sgrad_graph_ranks(graph, SGRAD__FEATURES);
    const bool bias = attrs.bias, split = inputs > 1;
    const char *weight = SGRAD__NAME("%s.weight", name);
    if (split) {
        sgrad_graph_partition(graph, weight, SGRAD__FEATURES, 0);
        sgrad_graph_partition(graph, weight, SGRAD__TENSOR, 1);
        sgrad_graph_shard(graph, weight, SGRAD__SAMPLES, 1);
        if (bias) sgrad_graph_partition(graph, SGRAD__NAME("%s.bias", name), SGRAD__FEATURES, 0);
        attrs.bias = false;
    }
    if (outputs > 1)
        x = sgrad_layer(graph, all_gather, SGRAD__NAME("%s/gather", name), (x), .axis = SGRAD__FEATURES, .dimension = 2);
    attrs.features /= outputs;
    x = sgrad_graph_apply(graph, &sgrad_linear_op, name, &x, 1, &attrs);
    if (!split) return x;
    x = sgrad_layer(graph, reduce_scatter, SGRAD__NAME("%s/sum", name), (x), .axis = SGRAD__TENSOR, .dimension = 1);
    return bias ? sgrad_layer(graph, bias, SGRAD__NAME("%s/bias", name), (x), 0) : x;
}

const struct sgrad_composite sgrad_row_linear_composite = {
    .name = "row_linear",
    .summary = "row-parallel linear layer: inputs sharded over ranks",
};
