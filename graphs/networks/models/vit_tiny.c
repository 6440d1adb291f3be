/* vit_tiny.c: a vision transformer: the patches of an image are rows, to which transformer blocks are applied; their mean is
 * classified. Positions are learned. Blocks have the names of timm.
 *
 *     pixels ── patch_embed.proj, a convolution as wide as its stride ── rows ── + pos_embed ── blocks ── mean ── fc_norm ── head
 *
 * On a mesh with an axis tensor, the heads, the neurons of the wide layer and the patches are split over its ranks, and with 3-D
 * tensor parallelism also their features: layers.h. */
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/position_embedding.h"
#include "codelets/ops/rows.h"
#include "graphs/networks/layers/layers.h"

#define DEVIATION 0.02f

static int build(struct sgrad_graph *graph, int x, int classes) {
    const int width = (int)sgrad_graph_option(graph, "width"), heads = (int)sgrad_graph_option(graph, "heads");
    const int patch = (int)sgrad_graph_option(graph, "patch"), layers = (int)sgrad_graph_option(graph, "layers");
    const struct sgrad__transformer block = {
        "norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2",
        .width = width,
        .heads = heads,
        .hidden = 4 * width,
        .deviation = DEVIATION,
        .last_deviation = DEVIATION,
        .dropout = (float)sgrad_graph_option(graph, "dropout"),
    };
    if (width % heads) return sgrad_graph_fail(graph, "width=%d must be a multiple of heads=%d", width, heads);
    x = sgrad_layer(graph, conv2d, "patch_embed.proj", (x), .channels = width, .kernel = patch, .stride = patch, .bias = true);
    x = sgrad_layer(graph, rows, "patch_embed", (x), 0);
    const int patches = (int)sgrad_graph_shape(graph, x).dim[1];
    x = sgrad_layer(graph, position_embedding, "pos_embed", (x), .context = patches, .deviation = DEVIATION);
    if (sgrad_graph_error(graph)) return -1;
    SGRAD_TRY(sgrad__check_split(graph, "heads", heads, false));
    SGRAD_TRY(sgrad__check_split(graph, "patches of an image", patches, false));
    SGRAD_TRY(sgrad__check_split(graph, "width", width, true));
    x = sgrad_graph_block(graph, sgrad__split_rows(graph, "rows", x));
    for (int i = 0; i < layers; i++) x = sgrad__transformer_block(graph, SGRAD__NAME("blocks.%d", i), x, &block);
    x = sgrad__join_rows(graph, "all_rows", x);
    x = sgrad_layer(graph, global_average_pool, "pool", (x), 0);
    x = sgrad_layer(graph, layer_norm, "fc_norm", (x), 0);
    return sgrad_layer(graph, linear, "head", (x), .features = classes, .bias = true, .deviation = DEVIATION);
}

const struct sgrad_model sgrad_vit_tiny_model = {
    .name = "vit_tiny",
    .summary = "vision transformer with patches of 4 pixels; use vit_tiny:patch=16 for large images",
    .source = "A. Dosovitskiy et al., An image is worth 16x16 words, 2021; H. Touvron et al., DeiT, 2021 (tiny)",
    .options = (const struct sgrad_model_option[]) {
        { "layers", 12, 1, 1000, false }, { "heads", 3, 1, 1000, false }, { "width", 192, 1, 65536, false },
        { "patch", 4, 1, 1024, false }, { "dropout", 0, 0, 0.99, true }, { 0 },
    },
    .min_image_side = 4,
    .side_option = "patch",
    .build = build,
};
