/* lenet.c: the shape of LeNet-5, with ReLU and max pooling. Images of 28×28 are padded to the paper's 32×32. */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/networks.h"

static int build(struct sgrad_graph *graph, int x, int classes) {
    const int padding = sgrad_graph_shape(graph, x).dim[1] == 28 ? 2 : 0;
    x = sgrad_layer(graph, conv2d, "conv1", (x), .channels = 6, .kernel = 5, .padding = padding, .bias = true);
    x = sgrad_layer(graph, relu, "relu1", (x));
    x = sgrad_layer(graph, max_pool, "pool1", (x), .kernel = 2);
    x = sgrad_layer(graph, conv2d, "conv2", (x), .channels = 16, .kernel = 5, .bias = true);
    x = sgrad_layer(graph, relu, "relu2", (x));
    x = sgrad_layer(graph, max_pool, "pool2", (x), .kernel = 2);
    x = sgrad_layer(graph, flatten, "flatten", (x));
    x = sgrad_layer(graph, linear, "fc1", (x), .features = 120, .bias = true);
    x = sgrad_layer(graph, relu, "relu3", (x));
    x = sgrad_layer(graph, linear, "fc2", (x), .features = 84, .bias = true);
    x = sgrad_layer(graph, relu, "relu4", (x));
    return sgrad_layer(graph, linear, "fc3", (x), .features = classes, .bias = true);
}

const struct sgrad_model sgrad_lenet_model = {
    .name = "lenet",
    .summary = "LeNet-5 with ReLU and max pooling",
    .source = "Y. LeCun et al., Gradient-based learning applied to document recognition, 1998",
    .min_image_side = 16,
    .build = build,
};
