/* conv_norm_activation.c: torchvision's Conv2dNormActivation: a convolution that does not change the size of the image, except by
 * its stride; batch norm; an activation. The batch norm computes a ReLU, and an addition. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/layers/layers.h"

int sgrad__conv_norm(struct sgrad_graph *graph, const char *conv, const char *norm, int x, int shortcut,
                     struct sgrad_conv2d attrs, const struct sgrad__style *style, bool relu) {
    attrs.padding = attrs.kernel / 2;
    const int y[] = { sgrad_graph_apply(graph, &sgrad_conv2d_op, conv, &x, 1, &attrs), shortcut };
    const struct sgrad_batchnorm of_norm = { .relu = relu, .eps = style->eps, .momentum = style->momentum };
    return sgrad_graph_apply(graph, &sgrad_batchnorm_op, norm, y, shortcut < 0 ? 1 : 2, &of_norm);
}

int sgrad__conv_norm_activation(struct sgrad_graph *graph, const char *name, int x, struct sgrad_conv2d attrs,
                                const struct sgrad__style *style) {
    const bool relu = style->activation == &sgrad_relu_op;
    x = sgrad__conv_norm(graph, SGRAD__NAME("%s.0", name), SGRAD__NAME("%s.1", name), x, -1, attrs, style, relu);
    return relu ? x : sgrad_graph_apply(graph, style->activation, SGRAD__NAME("%s.2", name), &x, 1, style->attrs);
}

const struct sgrad_composite sgrad_conv_norm_activation_composite = {
    .name = "conv_norm_activation",
    .summary = "convolution, batch norm, any activation",
};
