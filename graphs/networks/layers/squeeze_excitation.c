/* squeeze_excitation.c: squeeze and excitation (J. Hu et al., 2017): two layers compute a factor for each channel of an image
 * from the means of the channels. The layers are 1×1 convolutions, as in torchvision:
 *
 *     x (N,H,W,C) ─┬─ avgpool ── fc1 ── inner activation ── fc2 ── gate ── (N,1,1,C) ── ×
 *                  └────────────────────────────────────────────────────────────────────┘ */
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/multiply.h"
#include "graphs/networks/layers/layers.h"

int sgrad__squeeze_excitation(struct sgrad_graph *graph, const char *name, int x, int squeezed,
                              const struct sgrad__style *style) {
    const struct sgrad_shape is = sgrad_graph_shape(graph, x);
    const int channels = is.rank ? (int)is.dim[is.rank - 1] : 0;
    int y = sgrad_layer(graph, global_average_pool, SGRAD__NAME("%s.avgpool", name), (x), .keep = true);
    y = sgrad_layer(graph, conv2d, SGRAD__NAME("%s.fc1", name), (y), .channels = squeezed, .kernel = 1, .bias = true,
                    .zero_bias = !style->uniform_bias);
    y = sgrad_graph_apply(graph, style->inner, SGRAD__NAME("%s.activation", name), &y, 1, NULL);
    y = sgrad_layer(graph, conv2d, SGRAD__NAME("%s.fc2", name), (y), .channels = channels, .kernel = 1, .bias = true,
                    .zero_bias = !style->uniform_bias);
    y = sgrad_graph_apply(graph, style->gate, SGRAD__NAME("%s.scale_activation", name), &y, 1, NULL);
    return sgrad_layer(graph, multiply, name, (x, y));
}

const struct sgrad_composite sgrad_squeeze_excitation_composite = {
    .name = "squeeze_excitation",
    .summary = "factors for channels, computed from their means",
};
