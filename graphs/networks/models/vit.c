/* vit.c: vision transformers with a class token, with torchvision's names and initial values, and sizes as options:
 *
 *     pixels ── conv_proj, a convolution as wide as its stride ── rows ── class_token, rows ── + pos_embedding ── layers ──
 *     ── the first row ── ln ── head
 *
 * Limits: dropout applies to the embedding and to the outputs of the branches, not to the weights of attention or inside the MLP.
 * On a mesh with an axis tensor, the number of rows, patches + 1, must be a multiple of its ranks: layers.h. */
#include "codelets/ops/class_token.h"
#include "codelets/ops/crop.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/position_embedding.h"
#include "codelets/ops/rows.h"
#include "graphs/networks/layers/layers.h"

#include <math.h>

#define EPS 1e-6f

/* N(0, deviation²) for biases of an MLP. */
#define BIAS_DEVIATION 1e-6

/* Xavier's initial values of a layer (Glorot and Bengio, 2010): uniform, with the variance 2 / (inputs + outputs). The variance
 * of SGRAD_UNIFORM is 1 / (3·fan). */
static void initialize_weight(struct sgrad_graph *graph, const char *name, int inputs, int outputs) {
    sgrad_graph_initialize(graph, name, SGRAD_UNIFORM, (inputs + outputs) / 6.0);
}

static int block(struct sgrad_graph *graph, int number, int x, const struct sgrad__transformer *is) {
    const char *name = SGRAD__NAME("encoder.layers.encoder_layer_%d", number);
#define NAME(part) SGRAD__NAME("%s." part, name)
    sgrad_graph_rename(graph, NAME("self_attention.in_proj.weight"), NAME("self_attention.in_proj_weight"));
    sgrad_graph_rename(graph, NAME("self_attention.in_proj.bias"), NAME("self_attention.in_proj_bias"));
    x = sgrad__transformer_block(graph, name, x, is);
    initialize_weight(graph, NAME("self_attention.in_proj_weight"), is->width, 3 * is->width);
    sgrad_graph_initialize(graph, NAME("self_attention.in_proj_bias"), SGRAD_ZEROS, 0);
    sgrad_graph_initialize(graph, NAME("self_attention.out_proj.bias"), SGRAD_ZEROS, 0);
    initialize_weight(graph, NAME("mlp.0.weight"), is->width, is->hidden);
    sgrad_graph_initialize(graph, NAME("mlp.0.bias"), SGRAD_NORMAL, BIAS_DEVIATION);
    initialize_weight(graph, NAME("mlp.3.weight"), is->width, is->hidden);
    sgrad_graph_initialize(graph, NAME("mlp.3.bias"), SGRAD_NORMAL, BIAS_DEVIATION);
#undef NAME
    return x;
}

/* Adds the layers before the blocks. */
static int embed(struct sgrad_graph *graph, int x, int width) {
    const int patch = (int)sgrad_graph_option(graph, "patch"), channels = (int)sgrad_graph_shape(graph, x).dim[3];
    const float p = (float)sgrad_graph_option(graph, "dropout");
    sgrad_graph_rename(graph, "token.weight", "class_token");
    sgrad_graph_rename(graph, "positions.weight", "encoder.pos_embedding");
    x = sgrad_layer(graph, conv2d, "conv_proj", (x), .channels = width, .kernel = patch, .stride = patch, .bias = true);
    sgrad_graph_initialize(graph, "conv_proj.weight", SGRAD_NORMAL, sqrt(1.0 / (channels * patch * patch)));
    sgrad_graph_initialize(graph, "conv_proj.bias", SGRAD_ZEROS, 0);
    x = sgrad_layer(graph, rows, "rows", (x), 0);
    x = sgrad_layer(graph, class_token, "token", (x), 0);
    x = sgrad_layer(graph, position_embedding, "positions", (x), .batched = true, .deviation = 0.02f,
                    .context = (int)sgrad_graph_shape(graph, x).dim[1]);
    return p > 0 ? sgrad_layer(graph, dropout, "encoder.dropout", (x), .p = p) : x;
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    const int width = (int)sgrad_graph_option(graph, "width"), heads = (int)sgrad_graph_option(graph, "heads");
    const int layers = (int)sgrad_graph_option(graph, "layers"), hidden = (int)sgrad_graph_option(graph, "hidden");
    const struct sgrad__transformer is = {
        "ln_1", "self_attention.in_proj", "self_attention.out_proj", "ln_2", "mlp.0", "mlp.3",
        .width = width,
        .heads = heads,
        .hidden = hidden ? hidden : 4 * width,
        .eps = EPS,
        .dropout = (float)sgrad_graph_option(graph, "dropout"),
    };
    if (width % heads) return sgrad_graph_fail(graph, "width=%d must be a multiple of heads=%d", width, heads);
    x = embed(graph, x, width);
    if (sgrad_graph_error(graph)) return -1;
    SGRAD_TRY(sgrad__check_split(graph, "heads", heads, false));
    const int rows = (int)sgrad_graph_shape(graph, x).dim[1];
    SGRAD_TRY(sgrad__check_split(graph, "patches of an image and its class token", rows, false));
    SGRAD_TRY(sgrad__check_split(graph, "width", width, true));
    SGRAD_TRY(sgrad__check_split(graph, "hidden", is.hidden, false));
    x = sgrad_graph_block(graph, sgrad__split_rows(graph, "split", x));
    for (int i = 0; i < layers; i++) x = block(graph, i, x, &is);
    x = sgrad__join_rows(graph, "all_rows", x);
    x = sgrad_layer(graph, crop, "first", (x), .size = { 0, 0, 1 });
    x = sgrad_layer(graph, flatten, "flatten", (x), 0);
    x = sgrad_layer(graph, layer_norm, "encoder.ln", (x), .eps = EPS);
    x = sgrad_layer(graph, linear, "heads.head", (x), .features = classes, .bias = true);
    sgrad_graph_initialize(graph, "heads.head.weight", SGRAD_ZEROS, 0);
    sgrad_graph_initialize(graph, "heads.head.bias", SGRAD_ZEROS, 0);
    return x;
}

/* hidden=0 is four times the width. */
#define OPTIONS(patch, layers, heads, width)                                                                             \
    (const struct sgrad_model_option[]) {                                                                                \
        { "patch", patch, 1, 1024, false }, { "layers", layers, 1, 1000, false }, { "heads", heads, 1, 1000, false },    \
        { "width", width, 1, 65536, false }, { "hidden", 0, 0, 1 << 20, false }, { "dropout", 0, 0, 0.99, true }, { 0 }, \
    }
#define VIT(id, text, side, ...)                                                                                         \
    const struct sgrad_model sgrad_##id##_model = {                                                                      \
        .name = #id,                                                                                                     \
        .summary = text,                                                                                                 \
        .source = "A. Dosovitskiy et al., An image is worth 16x16 words, 2021",                                          \
        .min_image_side = side,                                                                                          \
        .side_option = "patch",                                                                                          \
        .options = OPTIONS(side, __VA_ARGS__),                                                                           \
        .build = build,                                                                                                  \
    }
VIT(vit, "vision transformer with a class token, of any size; hidden=0: four times the width", 8, 6, 6, 384);
VIT(vit_b_16, "vision transformer, as in torchvision: patches of 16 pixels, 12 layers of width 768", 16, 12, 12, 768);
VIT(vit_b_32, "vision transformer, as in torchvision: patches of 32 pixels, 12 layers of width 768", 32, 12, 12, 768);
VIT(vit_l_16, "vision transformer, as in torchvision: patches of 16 pixels, 24 layers of width 1024", 16, 24, 16, 1024);
VIT(vit_l_32, "vision transformer, as in torchvision: patches of 32 pixels, 24 layers of width 1024", 32, 24, 16, 1024);
