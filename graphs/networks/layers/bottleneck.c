/* bottleneck.c: ResNet's block of three layers, the middle one narrow (He et al., "Deep residual learning for image recognition",
 * 2015):
 *
 *     x ── conv1 1×1 ── bn1 ── ReLU ── conv2 3×3 ── bn2 ── ReLU ── conv3 1×1 ── bn3 ── + ── ReLU
 *     └──────────────────────────────────── shortcut ──────────────────────────────────┘
 *
 * conv2 has the stride, as in torchvision ("v1.5"), so that every pixel of x is used; in the paper, conv1 has it. The shortcut is
 * x or, if the shape changes, a value that the network computes from x. bn3 computes the sum and the last ReLU. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "graphs/networks/layers/layers.h"

int sgrad__bottleneck(struct sgrad_graph *graph, const char *name, int x, int shortcut, int channels, int stride) {
    x = sgrad__conv_bn_relu(graph, SGRAD__NAME("%s.conv1", name), SGRAD__NAME("%s.bn1", name), x,
                            (struct sgrad_conv2d){ .channels = channels / 4, .kernel = 1 });
    x = sgrad__conv_bn_relu(graph, SGRAD__NAME("%s.conv2", name), SGRAD__NAME("%s.bn2", name), x,
                            (struct sgrad_conv2d){ .channels = channels / 4, .kernel = 3, .stride = stride, .padding = 1 });
    x = sgrad_layer(graph, conv2d, SGRAD__NAME("%s.conv3", name), (x), .channels = channels, .kernel = 1);
    return sgrad_graph_block(graph, sgrad_layer(graph, batchnorm, SGRAD__NAME("%s.bn3", name), (x, shortcut), .relu = true));
}

const struct sgrad_composite sgrad_bottleneck_composite = {
    .name = "bottleneck",
    .summary = "ResNet's residual block of 1x1, 3x3 (strided) and 1x1 convolutions",
};
