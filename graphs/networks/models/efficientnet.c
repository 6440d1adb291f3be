/* efficientnet.c: EfficientNet B0, with torchvision's names and initial weights: a convolution, 16 inverted residual blocks with
 * squeeze and excitation in seven stages, a 1×1 convolution, and a linear layer on the means of the channels. The image is halved
 * five times. Later blocks are dropped more often: block i of n with probability i/n of the option. */
#include "codelets/ops/dropout.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/sigmoid.h"
#include "codelets/ops/silu.h"
#include "graphs/networks/layers/layers.h"

static int build(struct sgrad_graph *graph, int x, int classes) {
    static const struct {
        int expansion, kernel, stride, channels, blocks;
    } stages[] = {
        { 1, 3, 1, 16, 1 }, { 6, 3, 2, 24, 2 }, { 6, 5, 2, 40, 2 }, { 6, 3, 2, 80, 3 }, { 6, 5, 1, 112, 3 }, { 6, 5, 2, 192, 4 },
        { 6, 3, 1, 320, 1 },
    };
    const struct sgrad__style style = {
        .parts = "block", .activation = &sgrad_silu_op, .inner = &sgrad_silu_op, .gate = &sgrad_sigmoid_op
    };
    const double drop = sgrad_graph_option(graph, "drop_path"), dropped = sgrad_graph_option(graph, "dropout");
    const int count = sizeof stages / sizeof *stages;
    int channels = 32, number = 0, blocks = 0;
    for (int s = 0; s < count; s++) blocks += stages[s].blocks;
    x = sgrad__conv_norm_activation(graph, "features.0", x, (struct sgrad_conv2d){ channels, .kernel = 3, .stride = 2 }, &style);
    for (int s = 0; s < count; s++)
        for (int i = 0; i < stages[s].blocks; i++) {
            const struct sgrad__inverted_residual block = {
                .expanded = channels * stages[s].expansion,
                .channels = stages[s].channels,
                .kernel = stages[s].kernel,
                .stride = i ? 1 : stages[s].stride,
                .squeezed = channels / 4,
                .drop = (float)(drop * number++ / blocks),
            };
            x = sgrad__inverted_residual(graph, SGRAD__NAME("features.%d.%d", s + 1, i), x, &block, &style);
            channels = block.channels;
        }
    const struct sgrad_conv2d last = { 4 * channels, .kernel = 1 };
    x = sgrad__conv_norm_activation(graph, SGRAD__NAME("features.%d", count + 1), x, last, &style);
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x));
    if (dropped > 0) x = sgrad_layer(graph, dropout, "classifier.0", (x), .p = (float)dropped);
    return sgrad_layer(graph, linear, "classifier.1", (x), .features = classes, .bias = true, .fan_out = true);
}

const struct sgrad_model sgrad_efficientnet_b0_model = {
    .name = "efficientnet_b0",
    .summary = "EfficientNet B0: depthwise convolutions, squeeze and excitation, stochastic depth",
    .source = "M. Tan, Q. Le, EfficientNet: rethinking model scaling for convolutional neural networks, 2019",
    .options = (const struct sgrad_model_option[]){ { "dropout", 0.2, 0, 0.99, true },
                                                    { "drop_path", 0.2, 0, 0.99, true }, { 0 } },
    .build = build,
};
