/* vgg.c: VGG's configurations A, B and D (Simonyan, Zisserman 2014) for small images: batch norm after every convolution, and one
 * linear layer at the end. Layers are numbered as in torchvision's vggN_bn: a convolution, its batch norm and its ReLU count as
 * three, a pool as one. There are five pools, so images must be 32×32 or more. */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "graphs/networks/layers/layers.h"

enum { POOL, END = -1 };

static int vgg(struct sgrad_graph *graph, int x, int classes, const int *plan) {
    for (int i = 0; *plan != END; plan++) {
        if (*plan == POOL) {
            x = sgrad_layer(graph, max_pool, SGRAD__NAME("features.%d", i), (x), .kernel = 2);
            i += 1;
        } else {
            x = sgrad__conv_bn_relu(graph, SGRAD__NAME("features.%d", i), SGRAD__NAME("features.%d", i + 1), x,
                                    (struct sgrad_conv2d){ .channels = *plan, .kernel = 3, .padding = 1, .bias = true });
            i += 3;
        }
    }
    x = sgrad_layer(graph, flatten, "flatten", (x));
    return sgrad_layer(graph, linear, "classifier", (x), .features = classes, .bias = true);
}

static int build11(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes, (const int[]){ 64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL, END });
}
static int build13(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes,
               (const int[]){ 64, 64, POOL, 128, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL, END });
}
static int build16(struct sgrad_graph *graph, int x, int classes) {
    return vgg(graph, x, classes, (const int[]){ 64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512, POOL,
                                             512, 512, 512, POOL, END });
}

#define VGG(layers)                                                                             \
    const struct sgrad_model sgrad_vgg##layers##_model = {                                      \
        .name = "vgg" #layers,                                                                  \
        .summary = "VGG of " #layers " layers with batch norm",                                 \
        .source = "K. Simonyan, A. Zisserman, Very deep convolutional networks, 2014",          \
        .min_image_side = 32,                                                                       \
        .build = build##layers,                                                                 \
    }
VGG(11);
VGG(13);
VGG(16);
