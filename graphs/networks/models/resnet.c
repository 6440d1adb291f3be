/* resnet.c: residual networks (He et al. 2015). The number of layers counts the convolutions and the linear layer at the end.
 *
 * 6n+2 layers, for small images (section 4.2): a convolution, and three stages of n basic blocks with 16, 32 and 64 channels. 18
 * to 152 layers, for large images (table 1): a convolution and a pool that quarter the image, and four stages of basic blocks
 * with 64, 128, 256 and 512 channels; from 50 layers on, they are bottlenecks with four times as many channels, torchvision's
 * "v1.5". Later stages begin by halving the image. 224x224 is usual and ends as 7x7, but any size is accepted. With small=1, the
 * image is not quartered: the first filters are 3x3, at every pixel, and there is no pool, so that 32x32 ends as 4x4. */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/shortcut_a.h"
#include "graphs/networks/layers/layers.h"

static int classifier(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, global_average_pool, "pool", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

static int small(struct sgrad_graph *graph, int x, int classes, int layers) {
    x = sgrad__conv_bn_relu(graph, "conv1", "bn1", x, (struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 1 });
    sgrad_graph_block(graph, x);
    for (int stage = 0; stage < 3; stage++)
        for (int block = 0; block < (layers - 2) / 6; block++) {
            const char *name = SGRAD__NAME("layer%d.%d", stage + 1, block);
            const int channels = 16 << stage, stride = stage && !block ? 2 : 1;
            int shortcut = x;
            if (stride > 1)
                shortcut =
                    sgrad_layer(graph, shortcut_a, SGRAD__NAME("%s.shortcut", name), (x), .channels = channels, .stride = stride);
            x = sgrad__basic_block(graph, name, x, shortcut, channels, stride);
        }
    return classifier(graph, x, classes);
}

static int large(struct sgrad_graph *graph, int x, int classes, const int blocks[4], bool bottleneck) {
    const struct sgrad_conv2d quartering = { .channels = 64, .kernel = 7, .stride = 2, .padding = 3 };
    const struct sgrad_conv2d keeping = { .channels = 64, .kernel = 3, .padding = 1 };
    const bool keeps = sgrad_graph_option(graph, "small") != 0;
    x = sgrad__conv_bn_relu(graph, "conv1", "bn1", x, keeps ? keeping : quartering);
    if (!keeps) x = sgrad_layer(graph, max_pool, "maxpool", (x), .kernel = 3, .stride = 2, .padding = 1);
    sgrad_graph_block(graph, x);
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < blocks[stage]; block++) {
            const char *name = SGRAD__NAME("layer%d.%d", stage + 1, block);
            const int channels = (bottleneck ? 256 : 64) << stage, stride = stage && !block ? 2 : 1;
            const int shortcut = sgrad__projection(graph, SGRAD__NAME("%s.downsample", name), x, channels, stride);
            x = (bottleneck ? sgrad__bottleneck : sgrad__basic_block)(graph, name, x, shortcut, channels, stride);
        }
    return classifier(graph, x, classes);
}

static int build18(struct sgrad_graph *graph, int x, int classes) {
    return large(graph, x, classes, (const int[]){ 2, 2, 2, 2 }, false);
}
static int build20(struct sgrad_graph *graph, int x, int classes) { return small(graph, x, classes, 20); }
static int build32(struct sgrad_graph *graph, int x, int classes) { return small(graph, x, classes, 32); }
static int build34(struct sgrad_graph *graph, int x, int classes) {
    return large(graph, x, classes, (const int[]){ 3, 4, 6, 3 }, false);
}
static int build44(struct sgrad_graph *graph, int x, int classes) { return small(graph, x, classes, 44); }
static int build50(struct sgrad_graph *graph, int x, int classes) {
    return large(graph, x, classes, (const int[]){ 3, 4, 6, 3 }, true);
}
static int build56(struct sgrad_graph *graph, int x, int classes) { return small(graph, x, classes, 56); }
static int build101(struct sgrad_graph *graph, int x, int classes) {
    return large(graph, x, classes, (const int[]){ 3, 4, 23, 3 }, true);
}
static int build110(struct sgrad_graph *graph, int x, int classes) { return small(graph, x, classes, 110); }
static int build152(struct sgrad_graph *graph, int x, int classes) {
    return large(graph, x, classes, (const int[]){ 3, 8, 36, 3 }, true);
}
static int build1202(struct sgrad_graph *graph, int x, int classes) { return small(graph, x, classes, 1202); }

static const struct sgrad_model_option of_large[] = { { "small", 0, 0, 1, false }, { 0 } };

#define RESNET(layers, purpose, has)                                                                                             \
    const struct sgrad_model sgrad_resnet##layers##_model = {                                                                    \
        .name = "resnet" #layers,                                                                                                \
        .summary = "residual network of " #layers " layers for " purpose,                                                        \
        .source = "K. He et al., Deep residual learning for image recognition, 2015",                                            \
        .options = has,                                                                                                          \
        .build = build##layers,                                                                                                  \
    }
#define SMALL "small images, shortcut A"
#define LARGE "large images, shortcut B; small=1: for small images"
RESNET(18, LARGE, of_large);
RESNET(20, SMALL, NULL);
RESNET(32, SMALL, NULL);
RESNET(34, LARGE, of_large);
RESNET(44, SMALL, NULL);
RESNET(50, LARGE, of_large);
RESNET(56, SMALL, NULL);
RESNET(101, LARGE, of_large);
RESNET(110, SMALL, NULL);
RESNET(152, LARGE, of_large);
RESNET(1202, SMALL, NULL);
