/* projection.c: ResNet's shortcut B: x or, if the shape changes, a 1×1 convolution of x and batch norm. They are named NAME.0 and
 * NAME.1, as in torchvision. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "graphs/networks/layers/layers.h"

int sgrad__projection(struct sgrad_graph *graph, const char *name, int x, int channels, int stride) {
    if (stride == 1 && sgrad_graph_shape(graph, x).dim[3] == channels) return x;
    x = sgrad_layer(graph, conv2d, SGRAD__NAME("%s.0", name), (x), .channels = channels, .kernel = 1, .stride = stride);
    return sgrad_layer(graph, batchnorm, SGRAD__NAME("%s.1", name), (x));
}

const struct sgrad_composite sgrad_projection_composite = {
    .name = "projection",
    .summary = "ResNet's shortcut B: 1x1 convolution and batch norm where the shape changes",
};
