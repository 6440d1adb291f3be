/* nin_imagenet.c: network in network for large images, with the layers and names of its authors' Caffe model: four spatial
 * convolutions, each followed by two 1×1 ones. The last one has a map per class, and the maps are averaged to the logits. */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/layers/layers.h"

static int conv(struct sgrad_graph *graph, const char *name, int x, struct sgrad_conv2d attrs) {
    attrs.bias = attrs.fan_in = true;
    x = sgrad_graph_apply(graph, &sgrad_conv2d_op, name, &x, 1, &attrs);
    return sgrad_layer(graph, relu, SGRAD__NAME("%s.relu", name), (x));
}

/* Adds conv NUMBER and the two 1×1 convolutions after it, the first of which is cccp FIRST. */
static int part(struct sgrad_graph *graph, int number, int first, int x, struct sgrad_conv2d attrs, int last) {
    x = conv(graph, SGRAD__NAME("conv%d", number), x, attrs);
    x = conv(graph, SGRAD__NAME("cccp%d", first), x, (struct sgrad_conv2d){ .channels = attrs.channels, .kernel = 1 });
    return conv(graph, SGRAD__NAME("cccp%d", first + 1), x, (struct sgrad_conv2d){ .channels = last, .kernel = 1 });
}

static int pool(struct sgrad_graph *graph, int number, int x) {
    return sgrad_layer(graph, max_pool, SGRAD__NAME("pool%d", number), (x), .kernel = 3, .stride = 2, .ceil = true);
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = part(graph, 1, 1, x, (struct sgrad_conv2d){ .channels = 96, .kernel = 11, .stride = 4 }, 96);
    x = pool(graph, 1, x);
    x = part(graph, 2, 3, x, (struct sgrad_conv2d){ .channels = 256, .kernel = 5, .padding = 2 }, 256);
    x = pool(graph, 2, x);
    x = part(graph, 3, 5, x, (struct sgrad_conv2d){ .channels = 384, .kernel = 3, .padding = 1 }, 384);
    x = pool(graph, 3, x);
    x = sgrad_layer(graph, dropout, "drop", (x), .p = 0.5f);
    x = part(graph, 4, 7, x, (struct sgrad_conv2d){ .channels = 1024, .kernel = 3, .padding = 1 }, classes);
    return sgrad_layer(graph, global_average_pool, "pool4", (x));
}

const struct sgrad_model sgrad_nin_imagenet_model = {
    .name = "nin_imagenet",
    .summary = "network in network, for large images",
    .source = "M. Lin et al., Network in network, 2013; the authors' model for Caffe",
    .min_image_side = 55,
    .build = build,
};
