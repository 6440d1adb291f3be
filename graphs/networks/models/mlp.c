/* mlp.c: three fully connected layers. Takes any image. */
#include "codelets/ops/flatten.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/networks.h"

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, flatten, "flatten", (x));
    x = sgrad_layer(graph, linear, "fc1", (x), .features = 512, .bias = true);
    x = sgrad_layer(graph, relu, "relu1", (x));
    x = sgrad_layer(graph, linear, "fc2", (x), .features = 256, .bias = true);
    x = sgrad_layer(graph, relu, "relu2", (x));
    return sgrad_layer(graph, linear, "fc3", (x), .features = classes, .bias = true);
}

const struct sgrad_model sgrad_mlp_model = {
    .name = "mlp",
    .summary = "three fully connected layers of 512, 256 and CLASSES features",
    .build = build,
};
