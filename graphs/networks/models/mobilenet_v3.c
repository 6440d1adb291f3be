/* mobilenet_v3.c: MobileNetV3, small and large, with torchvision's names and initial weights: a convolution, 11 or 15 inverted
 * residual blocks, some of which have squeeze and excitation, a 1×1 convolution, and two linear layers on the means of the
 * channels. The image is halved five times. */
#include "codelets/ops/dropout.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/hard_sigmoid.h"
#include "codelets/ops/hard_swish.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/layers/layers.h"

struct block {
    int kernel, expanded, channels;
    bool squeezes, swishes;
    int stride;
};

/* Builds COUNT blocks, and a hidden layer of HIDDEN neurons. */
static int mobilenet(struct sgrad_graph *graph, int x, int classes, const struct block *blocks, int count, int hidden) {
    struct sgrad__style swish = { .parts = "block", .eps = 0.001f, .momentum = 0.01f, .inner = &sgrad_relu_op,
                                  .gate = &sgrad_hard_sigmoid_op, .activation = &sgrad_hard_swish_op };
    struct sgrad__style relu = swish;
    relu.activation = &sgrad_relu_op;
    const double width = sgrad_graph_option(graph, "width_mult"), dropped = sgrad_graph_option(graph, "dropout");
    const struct sgrad_conv2d first = { sgrad__multiple_of_8(16 * width), .kernel = 3, .stride = 2 };
    x = sgrad__conv_norm_activation(graph, "features.0", x, first, &swish);
    for (int i = 0; i < count; i++) {
        const int expanded = sgrad__multiple_of_8(blocks[i].expanded * width);
        const struct sgrad__inverted_residual block = {
            .expanded = expanded,
            .channels = sgrad__multiple_of_8(blocks[i].channels * width),
            .kernel = blocks[i].kernel,
            .stride = blocks[i].stride,
            .squeezed = blocks[i].squeezes ? sgrad__multiple_of_8(expanded / 4) : 0,
        };
        x = sgrad__inverted_residual(graph, SGRAD__NAME("features.%d", i + 1), x, &block, blocks[i].swishes ? &swish : &relu);
    }
    const struct sgrad_conv2d last = { 6 * sgrad__multiple_of_8(blocks[count - 1].channels * width), .kernel = 1 };
    x = sgrad__conv_norm_activation(graph, SGRAD__NAME("features.%d", count + 1), x, last, &swish);
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x));
    x = sgrad_layer(graph, linear, "classifier.0", (x), .features = sgrad__multiple_of_8(hidden * width), .bias = true,
                    .deviation = 0.01f);
    x = sgrad_layer(graph, hard_swish, "classifier.1", (x));
    if (dropped > 0) x = sgrad_layer(graph, dropout, "classifier.2", (x), .p = (float)dropped);
    return sgrad_layer(graph, linear, "classifier.3", (x), .features = classes, .bias = true, .deviation = 0.01f);
}

static int build_small(struct sgrad_graph *graph, int x, int classes) {
    static const struct block blocks[] = {
        { 3, 16, 16, true, false, 2 }, { 3, 72, 24, false, false, 2 }, { 3, 88, 24, false, false, 1 },
        { 5, 96, 40, true, true, 2 },  { 5, 240, 40, true, true, 1 },  { 5, 240, 40, true, true, 1 },
        { 5, 120, 48, true, true, 1 }, { 5, 144, 48, true, true, 1 },  { 5, 288, 96, true, true, 2 },
        { 5, 576, 96, true, true, 1 }, { 5, 576, 96, true, true, 1 },
    };
    return mobilenet(graph, x, classes, blocks, sizeof blocks / sizeof *blocks, 1024);
}

static int build_large(struct sgrad_graph *graph, int x, int classes) {
    static const struct block blocks[] = {
        { 3, 16, 16, false, false, 1 }, { 3, 64, 24, false, false, 2 }, { 3, 72, 24, false, false, 1 },
        { 5, 72, 40, true, false, 2 },  { 5, 120, 40, true, false, 1 }, { 5, 120, 40, true, false, 1 },
        { 3, 240, 80, false, true, 2 }, { 3, 200, 80, false, true, 1 }, { 3, 184, 80, false, true, 1 },
        { 3, 184, 80, false, true, 1 }, { 3, 480, 112, true, true, 1 }, { 3, 672, 112, true, true, 1 },
        { 5, 672, 160, true, true, 2 }, { 5, 960, 160, true, true, 1 }, { 5, 960, 160, true, true, 1 },
    };
    return mobilenet(graph, x, classes, blocks, sizeof blocks / sizeof *blocks, 1280);
}

#define MOBILENET(size)                                                                                                          \
    const struct sgrad_model sgrad_mobilenet_v3_##size##_model = {                                                               \
        .name = "mobilenet_v3_" #size,                                                                                           \
        .summary = "MobileNetV3, " #size ": depthwise convolutions, squeeze and excitation",                                     \
        .source = "A. Howard et al., Searching for MobileNetV3, 2019",                                                           \
        .options = options,                                                                                                      \
        .build = build_##size,                                                                                                   \
    }
static const struct sgrad_model_option options[] = {
    { "width_mult", 1, 0.01, 100, true }, { "dropout", 0.2, 0, 0.99, true }, { 0 },
};
MOBILENET(small);
MOBILENET(large);
