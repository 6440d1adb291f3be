/* unet3d.c: the residual symmetric U-Net for electron microscopy (Lee et al. 2017), with ReLU, and widths that are multiples of
 * SIMD vectors. Four levels down, only in the plane, because a thin stack has few slices, then up, where the same level on the
 * path down is added.
 *
 *     module     x ─ 1x3x3 ─ bn ─ ReLU ─┬─ 3x3x3 ─ bn ─ ReLU ─ 3x3x3 ─ bn ─ + ─ ReLU
 *                                       └───────────────────────────────────┘
 *
 * If a side of y or x is odd, its last pixel is a window of the pool, and a value on the path up that is one pixel too large is
 * cropped. With groups=N, group norm replaces batch norm. */
#include "codelets/ops/add.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv3d.h"
#include "codelets/ops/conv_transpose.h"
#include "codelets/ops/group_norm.h"
#include "codelets/ops/max_pool.h"
#include "graphs/networks/layers/layers.h"

enum { LEVELS = 5 };
static const int width[LEVELS] = { 16, 32, 48, 64, 80 };

/* Adds norm NUMBER of a module, of x, plus ADDED if it is not below 0; then a ReLU. */
static int norm(struct sgrad_graph *graph, const char *name, int number, int x, int added) {
    const int groups = (int)sgrad_graph_option(graph, "groups");
    const char *bn = SGRAD__NAME("%s.bn%d", name, number), *gn = SGRAD__NAME("%s.gn%d", name, number);
    if (!groups && added < 0) return sgrad_layer(graph, batchnorm, bn, (x), .relu = true);
    if (!groups) return sgrad_layer(graph, batchnorm, bn, (x, added), .relu = true);
    x = sgrad_layer(graph, group_norm, gn, (x), .groups = groups, .relu = added < 0);
    return added < 0 ? x : sgrad_layer(graph, add, SGRAD__NAME("%s.sum", name), (x, added), .relu = true);
}

static int module(struct sgrad_graph *graph, const char *name, int x, int channels) {
    x = sgrad_layer(graph, conv3d, SGRAD__NAME("%s.conv1", name), (x), .channels = channels, .kernel = 3, .depth = 1,
                    .padding = 1);
    x = norm(graph, name, 1, x, -1);
    int y = sgrad_layer(graph, conv3d, SGRAD__NAME("%s.conv2", name), (x), .channels = channels, .kernel = 3, .padding = 1);
    y = norm(graph, name, 2, y, -1);
    y = sgrad_layer(graph, conv3d, SGRAD__NAME("%s.conv3", name), (y), .channels = channels, .kernel = 3, .padding = 1);
    return norm(graph, name, 3, y, x);
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    int across[LEVELS];
    for (int level = 0; level < LEVELS; level++) {
        if (level) x = sgrad_layer(graph, max_pool, SGRAD__NAME("pool%d", level), (x), .kernel = 2, .ceil = true);
        x = across[level] = module(graph, SGRAD__NAME("enc%d", level + 1), x, width[level]);
    }
    for (int level = LEVELS - 1; level > 0; level--) {
        x = sgrad_layer(graph, conv_transpose, SGRAD__NAME("up%d", level), (x), .channels = width[level - 1], .kernel = 2,
                        .volume = true);
        x = sgrad__crop_like(graph, SGRAD__NAME("crop%d", level), x, across[level - 1]);
        x = sgrad_layer(graph, add, SGRAD__NAME("add%d", level), (across[level - 1], x), 0);
        x = module(graph, SGRAD__NAME("dec%d", level), x, width[level - 1]);
    }
    return sgrad_layer(graph, conv3d, "out", (x), .channels = classes, .kernel = 1, .bias = true);
}

const struct sgrad_model sgrad_unet3d_model = {
    .name = "unet3d",
    .summary = "residual symmetric U-Net that classifies voxels of volumes; groups=N: group norm",
    .source = "K. Lee et al., Superhuman accuracy on the SNEMI3D connectomics challenge, 2017",
    .min_image_side = 9,
    .options = (const struct sgrad_model_option[]){ { "groups", 0, 0, 16, false }, { 0 } },
    .volumes = true,
    .build = build,
};
