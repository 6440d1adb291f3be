/* conv_bn_relu.c: relu(bn(conv(x))). The batch norm computes the ReLU. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "graphs/networks/layers/layers.h"

int sgrad__conv_bn_relu(struct sgrad_graph *graph, const char *conv, const char *bn, int x, struct sgrad_conv2d attrs) {
    x = sgrad_graph_apply(graph, &sgrad_conv2d_op, conv, &x, 1, &attrs);
    return sgrad_layer(graph, batchnorm, bn, (x), .relu = true);
}

const struct sgrad_composite sgrad_conv_bn_relu_composite = {
    .name = "conv_bn_relu",
    .summary = "convolution, batch norm, ReLU",
};
