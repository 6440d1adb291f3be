/* unet3d.c: the residual symmetric U-Net of electron microscopy (Lee et al. 2017), with ReLU, and widths that are whole vectors:
 * down four times in the plane, the slices of a thin stack being few, and up again, where what was there on the way down is
 * added.
 *
 *     module     x ─ 1x3x3 ─ bn ─ ReLU ─┬─ 3x3x3 ─ bn ─ ReLU ─ 3x3x3 ─ bn ─ + ─ ReLU
 *                                       └───────────────────────────────────┘
 *
 * Volumes, whose sides y and x are multiples of 16. */
#include "codelets/ops/add.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv3d.h"
#include "codelets/ops/conv_transpose.h"
#include "codelets/ops/max_pool.h"
#include "graphs/networks/layers/layers.h"

enum { LEVELS = 5 };
static const int width[LEVELS] = { 16, 32, 48, 64, 80 };

static int module(struct sgrad_graph *g, const char *name, int x, int channels) {
    x = sgrad_layer(g, conv3d, SGRAD__NAME("%s.conv1", name), (x), .channels = channels, .kernel = 3, .depth = 1, .padding = 1);
    x = sgrad_layer(g, batchnorm, SGRAD__NAME("%s.bn1", name), (x), .relu = true);
    int y = sgrad_layer(g, conv3d, SGRAD__NAME("%s.conv2", name), (x), .channels = channels, .kernel = 3, .padding = 1);
    y = sgrad_layer(g, batchnorm, SGRAD__NAME("%s.bn2", name), (y), .relu = true);
    y = sgrad_layer(g, conv3d, SGRAD__NAME("%s.conv3", name), (y), .channels = channels, .kernel = 3, .padding = 1);
    return sgrad_layer(g, batchnorm, SGRAD__NAME("%s.bn3", name), (y, x), .relu = true);
}

static int build(struct sgrad_graph *g, int x, int classes) {
    int across[LEVELS];
    for (int level = 0; level < LEVELS; level++) {
        if (level) x = sgrad_layer(g, max_pool, SGRAD__NAME("pool%d", level), (x), .kernel = 2);
        x = across[level] = module(g, SGRAD__NAME("enc%d", level + 1), x, width[level]);
    }
    for (int level = LEVELS - 1; level > 0; level--) {
        x = sgrad_layer(g, conv_transpose, SGRAD__NAME("up%d", level), (x), .channels = width[level - 1], .kernel = 2,
                        .volume = true);
        x = sgrad_layer(g, add, SGRAD__NAME("add%d", level), (across[level - 1], x), 0);
        x = module(g, SGRAD__NAME("dec%d", level), x, width[level - 1]);
    }
    return sgrad_layer(g, conv3d, "out", (x), .channels = classes, .kernel = 1, .bias = true);
}

const struct sgrad_model sgrad_unet3d_model = {
    .name = "unet3d",
    .summary = "residual symmetric U-Net for volumes: classes of voxels; sides y and x are multiples of 16",
    .source = "K. Lee et al., Superhuman accuracy on the SNEMI3D connectomics challenge, 2017",
    .least_side = 16,
    .side_multiple = 16,
    .volumes = true,
    .build = build,
};
