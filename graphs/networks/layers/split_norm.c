/* split_norm.c: layer norm and RMS norm of rows whose features are split over the ranks along axis tensor.features:
 *
 *     x (N,T,C/K) ──┬── moments ── (N,T,2) ── gather ── (N,T,2·K) ── normalize ── (N,T,C/K)
 *                   └────────────────────────────────────────────────────┘ */
#include "codelets/ops/all_gather.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/moments.h"
#include "codelets/ops/normalize.h"
#include "codelets/ops/rms_norm.h"
#include "graphs/networks/layers/layers.h"

static int moments_of(struct sgrad_graph *graph, const char *name, int x) {
    int moments = sgrad_layer(graph, moments, SGRAD__NAME("%s/moments", name), (x), 0);
    return sgrad_layer(graph, all_gather, SGRAD__NAME("%s/gather", name), (moments), .axis = SGRAD__FEATURES, .dimension = 2);
}

int sgrad__split_norm(struct sgrad_graph *graph, const char *name, int x, float eps) {
    if (sgrad_graph_ranks(graph, SGRAD__FEATURES) == 1) return sgrad_layer(graph, layer_norm, name, (x), .eps = eps);
    sgrad_graph_partition(graph, SGRAD__NAME("%s.weight", name), SGRAD__FEATURES, 0);
    sgrad_graph_partition(graph, SGRAD__NAME("%s.bias", name), SGRAD__FEATURES, 0);
    return sgrad_layer(graph, normalize, name, (x, moments_of(graph, name, x)), .eps = eps);
}

int sgrad__split_rms_norm(struct sgrad_graph *graph, const char *name, int x, float eps) {
    if (sgrad_graph_ranks(graph, SGRAD__FEATURES) == 1) return sgrad_layer(graph, rms_norm, name, (x), .eps = eps);
    sgrad_graph_partition(graph, SGRAD__NAME("%s.weight", name), SGRAD__FEATURES, 0);
    return sgrad_layer(graph, normalize, name, (x, moments_of(graph, name, x)), .eps = eps, .rms = true);
}

const struct sgrad_composite sgrad_split_norm_composite = {
    .name = "split_norm",
    .summary = "layer norm or RMS norm over features sharded over ranks",
};
