/* nin.c: network in network: three times a spatial convolution and two 1×1 ones. The last one has a map per class, and the maps
 * are averaged to the logits. */
#include "codelets/ops/average_pool.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/layers/layers.h"

static int conv_relu(struct sgrad_graph *graph, int number, int x, int channels, int kernel) {
    x = sgrad_layer(graph, conv2d, SGRAD__NAME("conv%d", number), (x), .channels = channels, .kernel = kernel,
                    .padding = kernel / 2, .bias = true);
    return sgrad_layer(graph, relu, SGRAD__NAME("relu%d", number), (x));
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = conv_relu(graph, 1, x, 192, 5);
    x = conv_relu(graph, 2, x, 160, 1);
    x = conv_relu(graph, 3, x, 96, 1);
    x = sgrad_layer(graph, max_pool, "pool1", (x), .kernel = 3, .stride = 2, .padding = 1);
    x = sgrad_layer(graph, dropout, "drop1", (x), .p = 0.5f);
    x = conv_relu(graph, 4, x, 192, 5);
    x = conv_relu(graph, 5, x, 192, 1);
    x = conv_relu(graph, 6, x, 192, 1);
    x = sgrad_layer(graph, average_pool, "pool2", (x), .kernel = 3, .stride = 2, .padding = 1);
    x = sgrad_layer(graph, dropout, "drop2", (x), .p = 0.5f);
    x = conv_relu(graph, 7, x, 192, 3);
    x = conv_relu(graph, 8, x, 192, 1);
    x = conv_relu(graph, 9, x, classes, 1);
    return sgrad_layer(graph, global_average_pool, "pool3", (x));
}

const struct sgrad_model sgrad_nin_model = {
    .name = "nin",
    .summary = "network in network, for small images",
    .source = "M. Lin et al., Network in network, 2013",
    .build = build,
};
