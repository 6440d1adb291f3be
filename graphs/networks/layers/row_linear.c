/* row_linear.c: a linear layer of whose inputs each rank along axis tensor has a part: layers.h. */
#include "codelets/ops/bias.h"
#include "codelets/ops/reduce_scatter.h"
#include "graphs/networks/layers/layers.h"

int sgrad__row_linear(struct sgrad_graph *g, const char *name, int x, struct sgrad_linear attrs) {
    const bool bias = attrs.bias, split = sgrad_graph_ranks(g, SGRAD__TENSOR) > 1;
    if (split) {
        sgrad_graph_split(g, SGRAD__NAME("%s.weight", name), SGRAD__TENSOR, 1);
        attrs.bias = false;
    }
    x = sgrad_graph_apply(g, &sgrad_linear_op, name, &x, 1, &attrs);
    if (!split) return x;
    x = sgrad_layer(g, reduce_scatter, SGRAD__NAME("%s/sum", name), (x), .axis = SGRAD__TENSOR, .dimension = 1);
    return bias ? sgrad_layer(g, bias, SGRAD__NAME("%s/bias", name), (x), 0) : x;
}

const struct sgrad_composite sgrad_row_linear_composite = {
    .name = "row_linear",
    .summary = "linear layer whose inputs are split over ranks",
};
