/* googlenet.c: GoogLeNet: nine modules of four branches each, whose outputs are concatenated.
 *
 *     x ─┬─ 1×1 ──────────────┐
 *        ├─ 1×1 ── 3×3 ───────┤
 *        ├─ 1×1 ── 3×3 or 5×5 ┼─ concat          torchvision's third branch has 3×3, the paper's 5×5
 *        └─ max pool ── 1×1 ──┘
 *
 * aux=1 adds two classifiers, whose logits come after those of the last one, (N,3·classes); in training, their losses have the
 * weight 0.3. bn=0 is the network of the paper and of Caffe: biases and local response norms instead of batch norm. */
#include "codelets/ops/auxiliary_cross_entropy.h"
#include "codelets/ops/average_pool.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/concat.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/local_response_norm.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/relu.h"
#include "graphs/networks/layers/layers.h"

/* Adds NAME.conv, then NAME.bn or a bias, and a ReLU. */
static int conv(struct sgrad_graph *graph, const char *name, int x, int channels, int kernel, int stride, bool bn) {
    x = sgrad_layer(graph, conv2d, SGRAD__NAME("%s.conv", name), (x), .channels = channels, .kernel = kernel, .stride = stride,
                    .padding = kernel / 2, .bias = !bn, .fan_in = !bn);
    if (!bn) return sgrad_layer(graph, relu, SGRAD__NAME("%s.relu", name), (x));
    return sgrad_layer(graph, batchnorm, SGRAD__NAME("%s.bn", name), (x), .relu = true, .eps = 0.001f);
}

struct module {
    const char *name;
    int one, reduced3, three, reduced5, five, pooled;   /* channels */
};

static int inception(struct sgrad_graph *graph, const struct module *module, int x, bool bn) {
    char name[SGRAD__NAME_SIZE];
#define NAME(branch) sgrad__name(name, "inception%s." branch, module->name)
    const int one = conv(graph, NAME("branch1"), x, module->one, 1, 1, bn);
    int three = conv(graph, NAME("branch2.0"), x, module->reduced3, 1, 1, bn);
    three = conv(graph, NAME("branch2.1"), three, module->three, 3, 1, bn);
    int five = conv(graph, NAME("branch3.0"), x, module->reduced5, 1, 1, bn);
    five = conv(graph, NAME("branch3.1"), five, module->five, bn ? 3 : 5, 1, bn);
    int pool = sgrad_layer(graph, max_pool, NAME("branch4.0"), (x), .kernel = 3, .stride = 1, .padding = 1);
    pool = conv(graph, NAME("branch4.1"), pool, module->pooled, 1, 1, bn);
    return sgrad_layer(graph, concat, NAME("concat"), (one, three, five, pool), { 0 });
#undef NAME
}

/* Adds logits from the middle of the network: an average of 4×4 windows, a convolution, two layers. */
static int auxiliary(struct sgrad_graph *graph, int number, int x, int classes, bool bn) {
    const int side = (int)sgrad_graph_shape(graph, x).dim[1], stride = side / 4;
    x = sgrad_layer(graph, average_pool, SGRAD__NAME("aux%d.pool", number), (x), .kernel = stride ? side - 3 * stride : 4,
                    .stride = stride);
    x = conv(graph, SGRAD__NAME("aux%d.conv", number), x, 128, 1, 1, bn);
    x = sgrad_layer(graph, flatten, SGRAD__NAME("aux%d.flatten", number), (x));
    x = sgrad_layer(graph, linear, SGRAD__NAME("aux%d.fc1", number), (x), .features = 1024, .bias = true);
    x = sgrad_layer(graph, relu, SGRAD__NAME("aux%d.relu", number), (x));
    x = sgrad_layer(graph, dropout, SGRAD__NAME("aux%d.dropout", number), (x), .p = 0.7f);
    return sgrad_layer(graph, linear, SGRAD__NAME("aux%d.fc2", number), (x), .features = classes, .bias = true);
}

static int pool(struct sgrad_graph *graph, const char *name, int x, int kernel) {
    return sgrad_layer(graph, max_pool, name, (x), .kernel = kernel, .stride = 2, .ceil = true);
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    static const struct module modules[] = {
        { "3a", 64, 96, 128, 16, 32, 32 },    { "3b", 128, 128, 192, 32, 96, 64 },  { "4a", 192, 96, 208, 16, 48, 64 },
        { "4b", 160, 112, 224, 24, 64, 64 },  { "4c", 128, 128, 256, 24, 64, 64 },  { "4d", 112, 144, 288, 32, 64, 64 },
        { "4e", 256, 160, 320, 32, 128, 128 }, { "5a", 256, 160, 320, 32, 128, 128 }, { "5b", 384, 192, 384, 48, 128, 128 },
    };
    const bool aux = sgrad_graph_option(graph, "aux") != 0, bn = sgrad_graph_option(graph, "bn") != 0;
    int head[2], heads = 0;
    const int side = (int)sgrad_graph_shape(graph, x).dim[1], least = 63;
    if (aux && side < least)
        return sgrad_graph_fail(graph, "aux=1 requires images of at least %d pixels per side, but these have %d; leave out aux=1",
                                least, side);
    x = conv(graph, "conv1", x, 64, 7, 2, bn);
    x = pool(graph, "maxpool1", x, 3);
    if (!bn) x = sgrad_layer(graph, local_response_norm, "norm1", (x));
    x = conv(graph, "conv2", x, 64, 1, 1, bn);
    x = conv(graph, "conv3", x, 192, 3, 1, bn);
    if (!bn) x = sgrad_layer(graph, local_response_norm, "norm2", (x));
    x = pool(graph, "maxpool2", x, 3);
    for (int i = 0; i < 9; i++) {
        x = inception(graph, &modules[i], x, bn);
        if (i == 1) x = pool(graph, "maxpool3", x, 3);
        if (i == 6) x = pool(graph, "maxpool4", x, bn ? 2 : 3);
        if (aux && (i == 2 || i == 5)) head[heads] = auxiliary(graph, heads + 1, x, classes, bn), heads++;
    }
    x = sgrad_layer(graph, global_average_pool, "avgpool", (x));
    x = sgrad_layer(graph, dropout, "dropout", (x), .p = bn ? 0.2f : 0.4f);
    x = sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
    if (aux) sgrad_graph_logits(graph, x);
    return aux ? sgrad_layer(graph, concat, "heads", (x, head[0], head[1]), { 0 }) : x;
}

static int loss(struct sgrad_graph *graph, int y, int target) {
    return sgrad_layer(graph, auxiliary_cross_entropy, "loss", (y, target), .heads = 3);
}

const struct sgrad_model sgrad_googlenet_model = {
    .name = "googlenet",
    .summary = "GoogLeNet, as in torchvision; aux=1: two auxiliary classifiers; bn=0: no batch norm, as in the paper",
    .source = "C. Szegedy et al., Going deeper with convolutions, 2014",
    .min_image_side = 31,
    .options = (const struct sgrad_model_option[]){ { "aux", 0, 0, 1, false }, { "bn", 1, 0, 1, false }, { 0 } },
    .build = build,
    .loss = loss,
    .loss_option = "aux",
};
