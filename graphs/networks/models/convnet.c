/* convnet.c: the quickstart's network: two blocks of two 3×3 convolutions. */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "graphs/networks/layers/layers.h"

static int build(struct sgrad_graph *graph, int x, int classes) {
    static const int width[] = { 32, 32, 64, 64 };
    for (int i = 0; i < 4; i++) {
        if (i == 2) x = sgrad_layer(graph, max_pool, "pool1", (x), .kernel = 2);
        x = sgrad__conv_bn_relu(graph, SGRAD__NAME("conv%d", i + 1), SGRAD__NAME("bn%d", i + 1), x,
                                (struct sgrad_conv2d){ .channels = width[i], .kernel = 3, .padding = 1 });
    }
    x = sgrad_layer(graph, global_average_pool, "pool2", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

const struct sgrad_model sgrad_convnet_model = {
    .name = "convnet",
    .summary = "four 3x3 convolutions with batch norm",
    .min_image_side = 2,
    .build = build,
};
