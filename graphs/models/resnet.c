/* resnet.c: the residual networks of 6n+2 layers for small images (He et al. 2015, section 4.2): a convolution, three
 * stages of n blocks with 16, 32 and 64 channels, the later two of which begin by halving the image, and one linear layer. */
#include "graphs/layers/layers.h"

static int resnet(struct sgrad_graph *g, int x, int classes, int layers) {
    x = sgrad__conv_bn_relu(g, "conv1", "bn1", x, (struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 1 });
    for (int stage = 0; stage < 3; stage++)
        for (int block = 0; block < (layers - 2) / 6; block++)
            x = sgrad__basic_block(g, SGRAD__NAME("layer%d.%d", stage + 1, block), x, 16 << stage, stage && !block ? 2 : 1);
    x = sgrad_layer(g, global_average_pool, "pool", (x));
    return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
}

static int build20(struct sgrad_graph *g, int x, int classes) { return resnet(g, x, classes, 20); }
static int build32(struct sgrad_graph *g, int x, int classes) { return resnet(g, x, classes, 32); }
static int build44(struct sgrad_graph *g, int x, int classes) { return resnet(g, x, classes, 44); }
static int build56(struct sgrad_graph *g, int x, int classes) { return resnet(g, x, classes, 56); }
static int build110(struct sgrad_graph *g, int x, int classes) { return resnet(g, x, classes, 110); }
static int build1202(struct sgrad_graph *g, int x, int classes) { return resnet(g, x, classes, 1202); }

#define RESNET(layers)                                                                          \
    const struct sgrad_model sgrad_resnet##layers##_model = {                                   \
        .name = "resnet" #layers,                                                               \
        .summary = "residual network of " #layers " layers for small images, shortcut A",       \
        .source = "K. He et al., Deep residual learning for image recognition, 2015",           \
        .build = build##layers,                                                                 \
    }
RESNET(20);
RESNET(32);
RESNET(44);
RESNET(56);
RESNET(110);
RESNET(1202);
