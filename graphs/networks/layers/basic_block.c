/* basic_block.c: ResNet's block of two layers (He et al., "Deep residual learning for image recognition", 2015):
 *
 *     x ── conv1 3×3 ── bn1 ── ReLU ── conv2 3×3 ── bn2 ── + ── ReLU
 *     └───────────────────── shortcut ─────────────────────┘
 *
 * The shortcut is x or, if the shape changes, a value that the network computes from x. bn2 computes the sum and the last
 * ReLU. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "graphs/networks/layers/layers.h"

int sgrad__basic_block(struct sgrad_graph *graph, const char *name, int x, int shortcut, int channels, int stride) {
    x = sgrad__conv_bn_relu(graph, SGRAD__NAME("%s.conv1", name), SGRAD__NAME("%s.bn1", name), x,
                            (struct sgrad_conv2d){ .channels = channels, .kernel = 3, .stride = stride, .padding = 1 });
    x = sgrad_layer(graph, conv2d, SGRAD__NAME("%s.conv2", name), (x), .channels = channels, .kernel = 3, .padding = 1);
    return sgrad_graph_block(graph, sgrad_layer(graph, batchnorm, SGRAD__NAME("%s.bn2", name), (x, shortcut), .relu = true));
}

const struct sgrad_composite sgrad_basic_block_composite = {
    .name = "basic_block",
    .summary = "ResNet's residual block of two 3x3 convolutions",
};
