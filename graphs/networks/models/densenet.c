/* densenet.c: DenseNet (Huang et al. 2016), with torchvision's names. Each layer of a block takes the outputs of all layers
 * before it, concatenated, and adds GROWTH channels to them:
 *
 *     x ──┬── norm1 ── ReLU ── conv1 1×1, 4·growth ── norm2 ── ReLU ── conv2 3×3, growth ── concat ──
 *         └───────────────────────────────────────────────────────────────────────────────────┘
 *
 * Between blocks, a transition halves the channels and the sides. The networks begin with 2·growth channels. */
#include "codelets/ops/average_pool.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/concat.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "graphs/networks/layers/layers.h"

/* Batch norm, ReLU, convolution. */
static int conv(struct sgrad_graph *graph, const char *bn, const char *conv, int x, int channels, int kernel) {
    x = sgrad_layer(graph, batchnorm, bn, (x), .relu = true);
    return sgrad_layer(graph, conv2d, conv, (x), .channels = channels, .kernel = kernel, .padding = kernel / 2, .fan_in = true);
}

static int layer(struct sgrad_graph *graph, const char *name, int x, int growth) {
#define NAME(part) SGRAD__NAME("%s." part, name)
    int y = conv(graph, NAME("norm1"), NAME("conv1"), x, 4 * growth, 1);
    y = conv(graph, NAME("norm2"), NAME("conv2"), y, growth, 3);
    return sgrad_graph_block(graph, sgrad_layer(graph, concat, NAME("concat"), (x, y), { 0 }));
#undef NAME
}

static int channels_of(const struct sgrad_graph *graph, int x) { return (int)sgrad_graph_shape(graph, x).dim[3]; }

/* LAYERS: the number of layers in each block. */
static int densenet(struct sgrad_graph *graph, int x, int classes, const int layers[4]) {
    const int growth = (int)sgrad_graph_option(graph, "growth");
    x = sgrad_layer(graph, conv2d, "features.conv0", (x), .channels = 2 * growth, .kernel = 7, .stride = 2, .padding = 3,
                    .fan_in = true);
    x = sgrad_layer(graph, batchnorm, "features.norm0", (x), .relu = true);
    x = sgrad_graph_block(graph, sgrad_layer(graph, max_pool, "features.pool0", (x), .kernel = 3, .stride = 2, .padding = 1));
    for (int block = 1; block <= 4; block++) {
        for (int i = 1; i <= layers[block - 1]; i++)
            x = layer(graph, SGRAD__NAME("features.denseblock%d.denselayer%d", block, i), x, growth);
        if (block == 4) break;
        const char *name = SGRAD__NAME("features.transition%d", block);
        x = conv(graph, SGRAD__NAME("%s.norm", name), SGRAD__NAME("%s.conv", name), x, channels_of(graph, x) / 2, 1);
        x = sgrad_graph_block(graph, sgrad_layer(graph, average_pool, SGRAD__NAME("%s.pool", name), (x), .kernel = 2));
    }
    x = sgrad_layer(graph, batchnorm, "features.norm5", (x), .relu = true);
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x), 0);
    x = sgrad_layer(graph, linear, "classifier", (x), .features = classes, .bias = true);
    sgrad_graph_initialize(graph, "classifier.bias", SGRAD_ZEROS, 0);
    return x;
}

static int build121(struct sgrad_graph *graph, int x, int classes) {
    return densenet(graph, x, classes, (const int[]){ 6, 12, 24, 16 });
}
static int build161(struct sgrad_graph *graph, int x, int classes) {
    return densenet(graph, x, classes, (const int[]){ 6, 12, 36, 24 });
}
static int build169(struct sgrad_graph *graph, int x, int classes) {
    return densenet(graph, x, classes, (const int[]){ 6, 12, 32, 32 });
}
static int build201(struct sgrad_graph *graph, int x, int classes) {
    return densenet(graph, x, classes, (const int[]){ 6, 12, 48, 32 });
}

#define DENSENET(layers, channels)                                                                                               \
    const struct sgrad_model sgrad_densenet##layers##_model = {                                                                  \
        .name = "densenet" #layers,                                                                                              \
        .summary = "densely connected network of " #layers " layers, as in torchvision; growth: channels that a layer adds",     \
        .source = "G. Huang et al., Densely connected convolutional networks, 2016",                                             \
        .min_image_side = 29,                                                                                                    \
        .options = (const struct sgrad_model_option[]){ { "growth", channels, 1, 1024, false }, { 0 } },                         \
        .build = build##layers,                                                                                                  \
    }
DENSENET(121, 32);
DENSENET(161, 48);
DENSENET(169, 32);
DENSENET(201, 32);
