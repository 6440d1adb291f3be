/* convnext.c: ConvNeXt (Liu et al. 2022), with torchvision's names and initial values. A convolution as wide as its stride makes
 * patches of 4×4 pixels; three such convolutions of 2×2 follow between four stages. A block of a stage:
 *
 *     x ──┬── conv 7×7, each channel alone ── layer norm ── linear, 4·C ── GELU ── linear, C ── layer_scale ── drop_path ── + ──
 *         └───────────────────────────────────────────────────────────────────────────────────────────────────────────┘
 *
 * Norms and linear layers apply to the channels of each pixel. The probability of drop_path grows from 0 in the first block to
 * the option drop_path in the last. */
#include "codelets/ops/add.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/drop_path.h"
#include "codelets/ops/gelu.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/layer_scale.h"
#include "codelets/ops/linear.h"
#include "graphs/networks/layers/layers.h"

#define DEVIATION 0.02f
#define EPS 1e-6f

static int norm(struct sgrad_graph *graph, const char *name, int x) {
    return sgrad_layer(graph, layer_norm, name, (x), .eps = EPS);
}

static int conv(struct sgrad_graph *graph, const char *name, int x, struct sgrad_conv2d attrs) {
    attrs.bias = true;
    x = sgrad_graph_apply(graph, &sgrad_conv2d_op, name, &x, 1, &attrs);
    sgrad_graph_initialize(graph, SGRAD__NAME("%s.weight", name), SGRAD_NORMAL, DEVIATION);
    sgrad_graph_initialize(graph, SGRAD__NAME("%s.bias", name), SGRAD_ZEROS, 0);
    return x;
}

static int linear(struct sgrad_graph *graph, const char *name, int x, int features) {
    return sgrad_layer(graph, linear, name, (x), .features = features, .bias = true, .deviation = DEVIATION);
}

/* DROP: the probability of drop_path. */
static int block(struct sgrad_graph *graph, const char *name, int x, int channels, double drop) {
#define NAME(part) SGRAD__NAME("%s." part, name)
    int y = conv(graph, NAME("block.0"), x, (struct sgrad_conv2d){ .channels = channels, .kernel = 7, .padding = 3,
                                                                   .groups = channels });
    y = norm(graph, NAME("block.2"), y);
    y = linear(graph, NAME("block.3"), y, 4 * channels);
    y = sgrad_layer(graph, gelu, NAME("block.4"), (y), 0);
    y = linear(graph, NAME("block.5"), y, channels);
    sgrad_graph_rename(graph, NAME("scale.weight"), NAME("layer_scale"));
    y = sgrad_layer(graph, layer_scale, NAME("scale"), (y), .planes = true);
    if (drop > 0) y = sgrad_layer(graph, drop_path, NAME("stochastic_depth"), (y), .p = (float)drop);
    return sgrad_graph_block(graph, sgrad_layer(graph, add, NAME("add"), (y, x), 0));
#undef NAME
}

/* BLOCKS: the number of blocks in each stage. */
static int convnext(struct sgrad_graph *graph, int x, int classes, const int blocks[4]) {
    const int width = (int)sgrad_graph_option(graph, "width"), count = blocks[0] + blocks[1] + blocks[2] + blocks[3];
    const double drop = sgrad_graph_option(graph, "drop_path");
    int before = 0;
    for (int stage = 0; stage < 4; stage++) {
        const char *down = SGRAD__NAME("features.%d", 2 * stage), *first = SGRAD__NAME("%s.0", down);
        const int channels = width << stage, kernel = stage ? 2 : 4;
        if (stage) x = norm(graph, first, x);
        x = conv(graph, stage ? SGRAD__NAME("%s.1", down) : first, x,
                 (struct sgrad_conv2d){ .channels = channels, .kernel = kernel, .stride = kernel });
        if (!stage) x = norm(graph, SGRAD__NAME("%s.1", down), x);
        for (int i = 0; i < blocks[stage]; i++, before++)
            x = block(graph, SGRAD__NAME("features.%d.%d", 2 * stage + 1, i), x, channels, drop * before / (count - 1));
    }
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x), 0);
    x = norm(graph, "classifier.0", x);
    return linear(graph, "classifier.2", x, classes);
}

static int tiny(struct sgrad_graph *graph, int x, int classes) {
    return convnext(graph, x, classes, (const int[]){ 3, 3, 9, 3 });
}
static int large(struct sgrad_graph *graph, int x, int classes) {
    return convnext(graph, x, classes, (const int[]){ 3, 3, 27, 3 });
}

#define CONVNEXT(size, channels, drop, function)                                                  \
    const struct sgrad_model sgrad_convnext_##size##_model = {                                    \
        .name = "convnext_" #size,                                                                \
        .summary = "ConvNeXt, as in torchvision, with " #channels " channels in the first stage", \
        .source = "Z. Liu et al., A ConvNet for the 2020s, 2022",                                 \
        .min_image_side = 32,                                                                     \
        .options = (const struct sgrad_model_option[]){                                           \
            { "width", channels, 1, 4096, false }, { "drop_path", drop, 0, 0.99, true }, { 0 } }, \
        .build = function,                                                                        \
    }
CONVNEXT(tiny, 96, 0.1, tiny);
CONVNEXT(small, 96, 0.4, large);
CONVNEXT(base, 128, 0.5, large);
CONVNEXT(large, 192, 0.5, large);
