/* vgg.c: VGG's configurations A, B, D and E (Simonyan, Zisserman 2014). Layers are numbered as in torchvision: a convolution, its
 * batch norm and its ReLU count as three, a pool as one. There are five pools, so images must be 32×32 or more.
 *
 * By default, the networks are for small images: one linear layer classifies the last map, of 1×1 pixel for 32×32. With large=1,
 * they are torchvision's vggN_bn: the last map is resized to 7×7, which is its size for 224×224, and three linear layers classify
 * it. With bn=0, there is no batch norm: large=1,bn=0 are torchvision's vggN. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/relu.h"
#include "codelets/ops/resize.h"
#include "graphs/networks/layers/layers.h"

enum { SIDE = 7 };      /* of the last map */

/* Convolution features.I, its batch norm and its ReLU. Returns the number of torchvision's layers. */
static int convolution(struct sgrad_graph *graph, int i, int *x, int channels) {
    const struct sgrad_conv2d attrs = { .channels = channels, .kernel = 3, .padding = 1, .bias = true };
    const char *conv = SGRAD__NAME("features.%d", i), *next = SGRAD__NAME("features.%d", i + 1);
    const bool bn = sgrad_graph_option(graph, "bn") != 0, large = sgrad_graph_option(graph, "large") != 0;
    *x = bn ? sgrad__conv_bn_relu(graph, conv, next, *x, attrs) : sgrad_graph_apply(graph, &sgrad_conv2d_op, conv, x, 1, &attrs);
    if (large) sgrad_graph_initialize(graph, SGRAD__NAME("%s.bias", conv), SGRAD_ZEROS, 0);
    if (!bn) *x = sgrad_layer(graph, relu, next, (*x));
    return bn ? 3 : 2;
}

/* Layer classifier.I, with torchvision's initial weights. */
static int linear(struct sgrad_graph *graph, int i, int x, int features) {
    return sgrad_layer(graph, linear, SGRAD__NAME("classifier.%d", i), (x), .features = features, .bias = true,
                       .deviation = 0.01f);
}

static int classify(struct sgrad_graph *graph, int x, int classes) {
    const int hidden = (int)sgrad_graph_option(graph, "hidden");
    const float p = (float)sgrad_graph_option(graph, "dropout");
    const struct sgrad_shape map = sgrad_graph_shape(graph, x);
    if (map.dim[1] != SIDE || map.dim[2] != SIDE)
        x = sgrad_layer(graph, resize, "avgpool", (x), .height = SIDE, .width = SIDE, .area = true);
    x = sgrad_layer(graph, flatten, "flatten", (x));
    for (int i = 0; i < 6; i += 3) {
        x = linear(graph, i, x, hidden);
        x = sgrad_layer(graph, relu, SGRAD__NAME("classifier.%d", i + 1), (x));
        if (p > 0) x = sgrad_layer(graph, dropout, SGRAD__NAME("classifier.%d", i + 2), (x), .p = p);
    }
    return linear(graph, 6, x, classes);
}

/* BLOCKS: the number of convolutions before each pool. */
static int vgg(struct sgrad_graph *graph, int x, int classes, const int blocks[5]) {
    const int width = (int)sgrad_graph_option(graph, "width");
    for (int block = 0, i = 0; block < 5; block++) {
        for (int layer = 0; layer < blocks[block]; layer++)
            i += convolution(graph, i, &x, width << (block < 3 ? block : 3));
        x = sgrad_layer(graph, max_pool, SGRAD__NAME("features.%d", i++), (x), .kernel = 2);
    }
    if (sgrad_graph_option(graph, "large") != 0) return classify(graph, x, classes);
    x = sgrad_layer(graph, flatten, "flatten", (x));
    return sgrad_layer(graph, linear, "classifier", (x), .features = classes, .bias = true);
}

static int build11(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes, (const int[]){ 1, 1, 2, 2, 2 });
}
static int build13(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes, (const int[]){ 2, 2, 2, 2, 2 });
}
static int build16(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes, (const int[]){ 2, 2, 3, 3, 3 });
}
static int build19(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes, (const int[]){ 2, 2, 4, 4, 4 });
}

static const struct sgrad_model_option options[] = {
    { "large", 0, 0, 1, false },       { "bn", 1, 0, 1, false },         { "width", 64, 1, 4096, false },
    { "hidden", 4096, 1, 1 << 20, false }, { "dropout", 0.5, 0, 0.99, true }, { 0 },
};

#define VGG(layers)                                                                                                  \
    const struct sgrad_model sgrad_vgg##layers##_model = {                                                           \
        .name = "vgg" #layers,                                                                                       \
        .summary = "VGG of " #layers " layers with batch norm, for small images; large=1: torchvision's vgg" #layers \
                   "_bn; large=1,bn=0: torchvision's vgg" #layers,                                                   \
        .source = "K. Simonyan, A. Zisserman, Very deep convolutional networks, 2014",                               \
        .min_image_side = 32,                                                                                        \
        .options = options,                                                                                          \
        .build = build##layers,                                                                                      \
    }
VGG(11);
VGG(13);
VGG(16);
VGG(19);
