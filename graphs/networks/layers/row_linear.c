/* row_linear.c: a linear layer whose inputs are split over the ranks along axis tensor: layers.h. */
#include "codelets/ops/all_gather.h"
#include "codelets/ops/bias.h"
#include "codelets/ops/reduce_scatter.h"
#include "graphs/networks/layers/layers.h"

int sgrad__row_linear(struct sgrad_graph *g, const char *name, int x, struct sgrad_linear attrs) {
    const int inputs = sgrad_graph_ranks(g, SGRAD__TENSOR), outputs = sgrad_graph_ranks(g, SGRAD__FEATURES);
    const bool bias = attrs.bias, split = inputs > 1;
    const char *weight = SGRAD__NAME("%s.weight", name);
    if (split) {
        sgrad_graph_partition(g, weight, SGRAD__FEATURES, 0);
        sgrad_graph_partition(g, weight, SGRAD__TENSOR, 1);
        sgrad_graph_shard(g, weight, SGRAD__SAMPLES, 1);
        if (bias) sgrad_graph_partition(g, SGRAD__NAME("%s.bias", name), SGRAD__FEATURES, 0);
        attrs.bias = false;
    }
    if (outputs > 1)
        x = sgrad_layer(g, all_gather, SGRAD__NAME("%s/gather", name), (x), .axis = SGRAD__FEATURES, .dimension = 2);
    attrs.features /= outputs;
    x = sgrad_graph_apply(g, &sgrad_linear_op, name, &x, 1, &attrs);
    if (!split) return x;
    x = sgrad_layer(g, reduce_scatter, SGRAD__NAME("%s/sum", name), (x), .axis = SGRAD__TENSOR, .dimension = 1);
    return bias ? sgrad_layer(g, bias, SGRAD__NAME("%s/bias", name), (x), 0) : x;
}

const struct sgrad_composite sgrad_row_linear_composite = {
    .name = "row_linear",
    .summary = "linear layer whose inputs are split over ranks",
};
