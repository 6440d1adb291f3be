/* unet2d.c: U-Net (Ronneberger et al. 2015), with batch norm, a quarter of its channels, and an output of the size of the input.
 * Four levels down, each with half the side and twice the channels, then up, where each level is concatenated with the same level
 * on the path down. With width=N, enc1 has N channels. With levels=N, it goes down N - 1 times: smaller networks are faster, but
 * have a smaller receptive field.
 *
 *     enc1 ───────────────────────────────── concat ─ dec1 ─ out
 *       └ pool ─ enc2 ──────────── concat ─ dec2 ─ up1 ┘
 *                  └ pool ─ … enc5 ─ up4 ─ …
 *
 * It takes images, or volumes, whose slices are processed independently. If a side is odd, its last pixel is a window of the
 * pool, and a value on the path up that is one pixel too large is cropped. With groups=N, group norm replaces batch norm. */
#include "codelets/ops/concat.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/conv_transpose.h"
#include "codelets/ops/group_norm.h"
#include "codelets/ops/max_pool.h"
#include "graphs/networks/layers/layers.h"

enum { MOST_LEVELS = 7 };

static int two_convolutions(struct sgrad_graph *graph, const char *name, int x, int channels) {
    const int groups = (int)sgrad_graph_option(graph, "groups");
    for (int i = 1; i <= 2; i++) {
        const char *conv = SGRAD__NAME("%s.conv%d", name, i), *norm = SGRAD__NAME("%s.bn%d", name, i);
        const struct sgrad_conv2d attrs = { .channels = channels, .kernel = 3, .padding = 1 };
        if (!groups) {
            x = sgrad__conv_bn_relu(graph, conv, norm, x, attrs);
            continue;
        }
        x = sgrad_graph_apply(graph, &sgrad_conv2d_op, conv, &x, 1, &attrs);
        x = sgrad_layer(graph, group_norm, SGRAD__NAME("%s.gn%d", name, i), (x), .groups = groups, .relu = true);
    }
    return x;
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    const int levels = (int)sgrad_graph_option(graph, "levels"), width = (int)sgrad_graph_option(graph, "width");
    int across[MOST_LEVELS];
    for (int level = 0; level < levels; level++) {
        if (level) x = sgrad_layer(graph, max_pool, SGRAD__NAME("pool%d", level), (x), .kernel = 2, .ceil = true);
        x = across[level] = two_convolutions(graph, SGRAD__NAME("enc%d", level + 1), x, width << level);
    }
    for (int level = levels - 1; level > 0; level--) {
        x = sgrad_layer(graph, conv_transpose, SGRAD__NAME("up%d", level), (x), .channels = width << (level - 1), .kernel = 2);
        x = sgrad__crop_like(graph, SGRAD__NAME("crop%d", level), x, across[level - 1]);
        x = sgrad_layer(graph, concat, SGRAD__NAME("concat%d", level), (across[level - 1], x), { 0 });
        x = two_convolutions(graph, SGRAD__NAME("dec%d", level), x, width << (level - 1));
    }
    return sgrad_layer(graph, conv2d, "out", (x), .channels = classes, .kernel = 1, .bias = true);
}

const struct sgrad_model sgrad_unet2d_model = {
    .name = "unet2d",
    .summary = "U-Net that classifies pixels of images or slices; groups=N: group norm; width: channels of the first level; "
               "levels: depth",
    .source = "O. Ronneberger et al., U-Net, 2015",
    .min_image_side = 9,
    .options = (const struct sgrad_model_option[]){
        { "groups", 0, 0, 64, false }, { "width", 16, 1, 256, false }, { "levels", 5, 1, MOST_LEVELS, false }, { 0 } },
    .build = build,
};
