/* mobilenet_v2.c: MobileNetV2, with torchvision's names and initial weights: a convolution, 17 inverted residual blocks in seven
 * stages, a 1×1 convolution, and a linear layer on the means of the channels. The image is halved five times. */
#include "codelets/ops/clip.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/global_average_pool.h"
#include "graphs/networks/layers/layers.h"

static int build(struct sgrad_graph *graph, int x, int classes) {
    static const struct {
        int expansion, channels, blocks, stride;
    } stages[] = {
        { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 }, { 6, 64, 4, 2 }, { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 },
    };
    const struct sgrad__style style = {
        .parts = "conv", .flat = true, .activation = &sgrad_clip_op, .attrs = &(struct sgrad_clip){ .high = 6 }
    };
    const double width = sgrad_graph_option(graph, "width_mult"), dropped = sgrad_graph_option(graph, "dropout");
    int channels = sgrad__multiple_of_8(32 * width), layer = 1;
    x = sgrad__conv_norm_activation(graph, "features.0", x, (struct sgrad_conv2d){ channels, .kernel = 3, .stride = 2 }, &style);
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (int i = 0; i < stages[s].blocks; i++) {
            const struct sgrad__inverted_residual block = {
                .expanded = channels * stages[s].expansion,
                .channels = sgrad__multiple_of_8(stages[s].channels * width),
                .kernel = 3,
                .stride = i ? 1 : stages[s].stride,
            };
            x = sgrad__inverted_residual(graph, SGRAD__NAME("features.%d", layer++), x, &block, &style);
            channels = block.channels;
        }
    const struct sgrad_conv2d last = { sgrad__multiple_of_8(1280 * (width > 1 ? width : 1)), .kernel = 1 };
    x = sgrad__conv_norm_activation(graph, SGRAD__NAME("features.%d", layer), x, last, &style);
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x));
    if (dropped > 0) x = sgrad_layer(graph, dropout, "classifier.0", (x), .p = (float)dropped);
    return sgrad_layer(graph, linear, "classifier.1", (x), .features = classes, .bias = true, .deviation = 0.01f);
}

const struct sgrad_model sgrad_mobilenet_v2_model = {
    .name = "mobilenet_v2",
    .summary = "MobileNetV2: inverted residual blocks with depthwise convolutions",
    .source = "M. Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, 2018",
    .options = (const struct sgrad_model_option[]){ { "width_mult", 1, 0.01, 100, true }, { "dropout", 0.2, 0, 0.99, true },
                                                    { 0 } },
    .build = build,
};
