/* airbench94.c: the network of the CIFAR-10 speed record: a whitening layer, three blocks of two convolutions, with a pool after
 * the first one, a linear layer, and logits divided by nine. For images of 32×32:
 *
 *     image     31×31×24    15×15×64    7×7×256    3×3×256    1×1×256    classes
 *          whiten      block1      block2     block3      pool        fc
 *
 * The whitening filters are not trained, nor are the scales of batch norms, which are 1. The other convolutions initially copy
 * their input. Options disable either, to measure its effect: then the first layer is trained, and all convolutions have He's
 * initial values. The last pool covers the rest of the image; if that is not square, one window of its shorter side. */
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/gelu.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/scale.h"
#include "graphs/networks/layers/layers.h"

static int norm_gelu(struct sgrad_graph *graph, const char *block, int i, int x) {
    x = sgrad_layer(graph, batchnorm, SGRAD__NAME("%s.norm%d", block, i), (x), .eps = 1e-12f, .momentum = 0.4f);
    sgrad_graph_freeze(graph, SGRAD__NAME("%s.norm%d.weight", block, i));
    return sgrad_layer(graph, gelu, SGRAD__NAME("%s.gelu%d", block, i), (x), 0);
}

/* x (N,H,W,C), returns (N,⌊H/2⌋,⌊W/2⌋,channels) */
static int add_block(struct sgrad_graph *graph, const char *name, int x, int channels) {
    const bool identity = !sgrad_graph_option(graph, "no_identity");
    const struct sgrad_conv2d conv = { .channels = channels, .kernel = 3, .padding = 1, .dirac = identity };
    x = sgrad_graph_apply(graph, &sgrad_conv2d_op, SGRAD__NAME("%s.conv1", name), &x, 1, &conv);
    x = sgrad_layer(graph, max_pool, SGRAD__NAME("%s.pool", name), (x), .kernel = 2);
    x = norm_gelu(graph, name, 1, x);
    x = sgrad_graph_apply(graph, &sgrad_conv2d_op, SGRAD__NAME("%s.conv2", name), &x, 1, &conv);
    return sgrad_graph_block(graph, norm_gelu(graph, name, 2, x));
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    const struct sgrad_shape image = sgrad_graph_shape(graph, x);
    const int patch = 2 * 2 * (int)image.dim[3];
    const bool whitening = !sgrad_graph_option(graph, "no_whitening");
    x = sgrad_layer(graph, conv2d, "whiten", (x), .channels = 2 * patch, .kernel = 2, .bias = true, .whitening = whitening);
    if (whitening) sgrad_graph_freeze(graph, "whiten.weight");
    x = sgrad_layer(graph, gelu, "gelu", (x), 0);
    x = add_block(graph, "block1", x, 64);
    x = add_block(graph, "block2", x, 256);
    x = add_block(graph, "block3", x, 256);
    const struct sgrad_shape last = sgrad_graph_shape(graph, x);
    const int64_t side = last.dim[1] < last.dim[2] ? last.dim[1] : last.dim[2];
    x = sgrad_layer(graph, max_pool, "pool", (x), .kernel = (int)side);
    x = sgrad_layer(graph, flatten, "flatten", (x), 0);
    x = sgrad_layer(graph, linear, "fc", (x), .features = classes);
    return sgrad_layer(graph, scale, "scale", (x), .factor = 1 / 9.f);
}

const struct sgrad_model sgrad_airbench94_model = {
    .name = "airbench94",
    .summary = "network of a CIFAR-10 speed record: whitening, six 3x3 convolutions (docs/performance/record.md)",
    .source = "K. Jordan, 94 % on CIFAR-10 in 3.29 seconds on a single GPU, arXiv:2404.00498, 2024",
    .min_image_side = 9,
    .options = (const struct sgrad_model_option[]){
        { "no_whitening", 0, 0, 1, false }, { "no_identity", 0, 0, 1, false }, { 0 } },
    .build = build,
};
