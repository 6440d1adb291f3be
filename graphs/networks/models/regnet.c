/* regnet.c: RegNet, with torchvision's names and initial weights: a convolution, four stages of residual bottlenecks whose 3×3
 * convolutions have groups of a fixed width, and a linear layer on the means of the channels. RegNetY also has squeeze and
 * excitation. Stem and stages halve the image.
 *
 *     x ── a 1×1 ── b 3×3 ── squeeze and excitation ── c 1×1 ── + ── ReLU
 *     └──── x, or proj 1×1 if the shape changes ────────────────┘ */
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/relu.h"
#include "codelets/ops/sigmoid.h"
#include "graphs/networks/layers/layers.h"

struct regnet {
    int blocks[4], channels[4], group;
    bool squeezes;      /* RegNetY */
};

static int bottleneck(struct sgrad_graph *graph, const char *name, int x, int inputs, int channels, int stride, int group,
                      bool squeezes) {
    static const struct sgrad__style style = {
        .activation = &sgrad_relu_op, .inner = &sgrad_relu_op, .gate = &sgrad_sigmoid_op, .uniform_bias = true
    };
    const struct sgrad_conv2d one = { channels, .kernel = 1 }, projection = { channels, .kernel = 1, .stride = stride };
    const struct sgrad_conv2d three = { channels, .kernel = 3, .stride = stride, .groups = channels / group };
    int shortcut = x;
    if (inputs != channels || stride > 1)
        shortcut = sgrad__conv_norm(graph, SGRAD__NAME("%s.proj.0", name), SGRAD__NAME("%s.proj.1", name), x, -1, projection,
                                    &style, false);
    x = sgrad__conv_norm_activation(graph, SGRAD__NAME("%s.f.a", name), x, one, &style);
    x = sgrad__conv_norm_activation(graph, SGRAD__NAME("%s.f.b", name), x, three, &style);
    if (squeezes) x = sgrad__squeeze_excitation(graph, SGRAD__NAME("%s.f.se", name), x, inputs / 4, &style);
    x = sgrad__conv_norm(graph, SGRAD__NAME("%s.f.c.0", name), SGRAD__NAME("%s.f.c.1", name), x, shortcut, one, &style, true);
    return sgrad_graph_block(graph, x);
}

static int regnet(struct sgrad_graph *graph, int x, int classes, const struct regnet *is) {
    static const struct sgrad__style stem = { .activation = &sgrad_relu_op };
    int inputs = 32;
    x = sgrad__conv_norm_activation(graph, "stem", x, (struct sgrad_conv2d){ inputs, .kernel = 3, .stride = 2 }, &stem);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < is->blocks[stage]; i++) {
            const char *name = SGRAD__NAME("trunk_output.block%d.block%d-%d", stage + 1, stage + 1, i);
            x = bottleneck(graph, name, x, inputs, is->channels[stage], i ? 1 : 2, is->group, is->squeezes);
            inputs = is->channels[stage];
        }
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true, .deviation = 0.01f);
}

#define REGNET(size, flops, ...)                                                                                                 \
    static int build_##size(struct sgrad_graph *graph, int x, int classes) {                                                     \
        return regnet(graph, x, classes, &(const struct regnet)__VA_ARGS__);                                                     \
    }                                                                                                                            \
    const struct sgrad_model sgrad_regnet_##size##_model = {                                                                     \
        .name = "regnet_" #size,                                                                                                 \
        .summary = "RegNet of " flops " multiplications per image of 224x224",                                                   \
        .source = "I. Radosavovic et al., Designing network design spaces, 2020",                                                \
        .build = build_##size,                                                                                                   \
    }
REGNET(x_400mf, "400 million", { { 1, 2, 7, 12 }, { 32, 64, 160, 400 }, 16, false });
REGNET(y_400mf, "400 million", { { 1, 3, 6, 6 }, { 48, 104, 208, 440 }, 8, true });
REGNET(y_800mf, "800 million", { { 1, 3, 8, 2 }, { 64, 144, 320, 784 }, 16, true });
