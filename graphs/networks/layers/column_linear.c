/* column_linear.c: a linear layer whose outputs are split over the ranks along axis tensor: layers.h. */
#include "codelets/ops/all_gather.h"
#include "codelets/ops/bias.h"
#include "codelets/ops/reduce_scatter.h"
#include "codelets/ops/take.h"
#include "graphs/networks/layers/layers.h"

/* Fails with the nearest possible numbers of ranks, for 1-D tensor parallelism. For 2-D and 3-D, sgrad__check_split fails with
 * the nearest possible values of COUNT. */
static int refuse_line(struct sgrad_graph *graph, const char *what, int count, int ranks) {
    int less = ranks, more = ranks;
    while (count % less) less--;
    while (more < count && count % more) more++;
    if (more > count) more = count;
    char other[32] = "";
    if (more > less) snprintf(other, sizeof other, " or %d", more);
    return sgrad_graph_fail(graph, "%s: %d cannot be split over the %d ranks of axis " SGRAD__TENSOR "; use %d%s", what, count,
                            ranks, less, other);
}

int sgrad__check_split(struct sgrad_graph *graph, const char *what, int count, bool whole) {
    const int line = sgrad_graph_ranks(graph, SGRAD__TENSOR), side = sgrad_graph_ranks(graph, SGRAD__FEATURES);
    const int samples = sgrad_graph_ranks(graph, SGRAD__SAMPLES), ranks = line * side * (whole ? samples : 1);
    if (count % ranks == 0) return 0;
    if (ranks == line) return refuse_line(graph, what, count, ranks);
    const int more = (count + ranks - 1) / ranks * ranks, less = more > ranks ? more - ranks : more;
    return sgrad_graph_fail(graph, "%s: %d cannot be split over %d ranks, as " SGRAD__TENSOR "=%dd:%d requires; use %d or %d",
                            what, count, ranks, side > 1 ? 3 : 2, line, less, more > less ? more : 2 * more);
}

int sgrad__split_rows(struct sgrad_graph *graph, const char *name, int x) {
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) > 1)
        x = sgrad_layer(graph, take, name, (x), .axis = SGRAD__TENSOR, .dimension = 1);
    if (sgrad_graph_ranks(graph, SGRAD__FEATURES) > 1)
        x = sgrad_layer(graph, take, SGRAD__NAME("%s/features", name), (x), .axis = SGRAD__FEATURES, .dimension = 2);
    return x;
}

int sgrad__join_rows(struct sgrad_graph *graph, const char *name, int x) {
    if (sgrad_graph_ranks(graph, SGRAD__FEATURES) > 1)
        x = sgrad_layer(graph, all_gather, SGRAD__NAME("%s/features", name), (x), .axis = SGRAD__FEATURES, .dimension = 2);
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) > 1)
        x = sgrad_layer(graph, all_gather, name, (x), .axis = SGRAD__TENSOR, .dimension = 1);
    return x;
}

int sgrad__gather_rows(struct sgrad_graph *graph, const char *name, int x) {
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) == 1) return x;
    return sgrad_layer(graph, all_gather, SGRAD__NAME("%s/gather", name), (x), .axis = SGRAD__TENSOR, .dimension = 1);
}

int sgrad__column_of_rows(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs, int sections) {
    const int outputs = sgrad_graph_ranks(graph, SGRAD__TENSOR), inputs = sgrad_graph_ranks(graph, SGRAD__FEATURES);
    const bool bias = attrs.bias;
    const char *weight_name = SGRAD__NAME("%s.weight", name), *bias_name = SGRAD__NAME("%s.bias", name);
    if (sgrad__check_split(graph, name, attrs.features / sections, false)) return -1;
    if (outputs > 1) {
        sgrad_graph_split_sections(graph, weight_name, SGRAD__TENSOR, 0, sections);
        sgrad_graph_partition(graph, weight_name, SGRAD__FEATURES, 1);
        sgrad_graph_shard(graph, weight_name, SGRAD__SAMPLES, 1);
        if (bias) sgrad_graph_split_sections(graph, bias_name, SGRAD__TENSOR, 0, sections);
        if (bias) sgrad_graph_split_sections(graph, bias_name, SGRAD__FEATURES, 0, sections);
    }
    attrs.features /= outputs;
    attrs.bias = bias && inputs == 1;
    x = sgrad_graph_apply(graph, &sgrad_linear_op, name, &x, 1, &attrs);
    if (inputs == 1) return x;
    x = sgrad_layer(graph, reduce_scatter, SGRAD__NAME("%s/sum", name), (x), .axis = SGRAD__FEATURES, .dimension = 2,
                    .sections = sections);
    return bias ? sgrad_layer(graph, bias, SGRAD__NAME("%s/bias", name), (x), 0) : x;
}

int sgrad__column_linear(struct sgrad_graph *graph, const char *name, int x, struct sgrad_linear attrs, int sections) {
    if (sgrad__check_split(graph, name, attrs.features / sections, false)) return -1;
    return sgrad__column_of_rows(graph, name, sgrad__gather_rows(graph, name, x), attrs, sections);
}

const struct sgrad_composite sgrad_column_linear_composite = {
    .name = "column_linear",
    .summary = "column-parallel linear layer: outputs sharded over ranks",
};
