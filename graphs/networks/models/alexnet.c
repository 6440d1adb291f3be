/* alexnet.c: AlexNet on one device, with torchvision's names and channels. Images of 224×224 are maps of 6×6 before the
 * classifier. For other sizes, the classifier takes all remaining pixels, without torchvision's adaptive pool. */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/layers/layers.h"

static int conv(struct sgrad_graph *graph, int number, int x, struct sgrad_conv2d attrs) {
    attrs.bias = attrs.fan_in = true;
    x = sgrad_graph_apply(graph, &sgrad_conv2d_op, SGRAD__NAME("features.%d", number), &x, 1, &attrs);
    return sgrad_layer(graph, relu, SGRAD__NAME("features.%d", number + 1), (x));
}

static int pool(struct sgrad_graph *graph, int number, int x) {
    return sgrad_layer(graph, max_pool, SGRAD__NAME("features.%d", number), (x), .kernel = 3, .stride = 2);
}

static int hidden(struct sgrad_graph *graph, int number, int x) {
    x = sgrad_layer(graph, dropout, SGRAD__NAME("classifier.%d", number), (x), .p = 0.5f);
    x = sgrad_layer(graph, linear, SGRAD__NAME("classifier.%d", number + 1), (x), .features = 4096, .bias = true);
    return sgrad_layer(graph, relu, SGRAD__NAME("classifier.%d", number + 2), (x));
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = conv(graph, 0, x, (struct sgrad_conv2d){ .channels = 64, .kernel = 11, .stride = 4, .padding = 2 });
    x = pool(graph, 2, x);
    x = conv(graph, 3, x, (struct sgrad_conv2d){ .channels = 192, .kernel = 5, .padding = 2 });
    x = pool(graph, 5, x);
    x = conv(graph, 6, x, (struct sgrad_conv2d){ .channels = 384, .kernel = 3, .padding = 1 });
    x = conv(graph, 8, x, (struct sgrad_conv2d){ .channels = 256, .kernel = 3, .padding = 1 });
    x = conv(graph, 10, x, (struct sgrad_conv2d){ .channels = 256, .kernel = 3, .padding = 1 });
    x = pool(graph, 12, x);
    x = sgrad_layer(graph, flatten, "flatten", (x));
    x = hidden(graph, 0, x);
    x = hidden(graph, 3, x);
    return sgrad_layer(graph, linear, "classifier.6", (x), .features = classes, .bias = true);
}

const struct sgrad_model sgrad_alexnet_model = {
    .name = "alexnet",
    .summary = "AlexNet for one device, as in torchvision",
    .source = "A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014",
    .min_image_side = 63,
    .build = build,
};
