/* transformer_block.c: the block that transformers repeat: layers.h. */
#include "codelets/ops/add.h"
#include "codelets/ops/attention.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/gelu.h"
#include "graphs/networks/layers/layers.h"

static struct sgrad_linear linear(const struct sgrad__transformer *is, int features, float deviation) {
    return (struct sgrad_linear){ .features = features, .bias = true, .deviation = deviation, .turned = is->turned };
}

static int drop(struct sgrad_graph *g, const char *name, int x, float p) {
    return p > 0 ? sgrad_layer(g, dropout, name, (x), .p = p, .rows = SGRAD__TENSOR, .features = SGRAD__FEATURES) : x;
}

int sgrad__transformer_block(struct sgrad_graph *g, const char *name, int x, const struct sgrad__transformer *is) {
#define NAME(part) SGRAD__NAME("%s.%s", name, part)
    const int parts = sgrad_graph_ranks(g, SGRAD__TENSOR) * sgrad_graph_ranks(g, SGRAD__FEATURES);
    int y = sgrad__split_norm(g, NAME(is->norm1), x);
    y = sgrad__column_linear(g, NAME(is->qkv), y, linear(is, 3 * is->width, is->deviation), 3);
    y = sgrad_layer(g, attention, NAME("attn"), (y), .heads = is->heads / parts, .causal = is->causal, .cache = is->cache);
    y = sgrad__row_linear(g, NAME(is->proj), y, linear(is, is->width, is->last_deviation));
    x = sgrad_layer(g, add, NAME("add_1"), (drop(g, NAME("attn.drop"), y, is->dropout), x), 0);
    y = sgrad__split_norm(g, NAME(is->norm2), x);
    y = sgrad__column_linear(g, NAME(is->up), y, linear(is, 4 * is->width, is->deviation), 1);
    y = sgrad_layer(g, gelu, NAME("mlp.act"), (y), .approximate = is->approximate);
    y = sgrad__row_linear(g, NAME(is->down), y, linear(is, is->width, is->last_deviation));
    return sgrad_graph_block(g, sgrad_layer(g, add, NAME("add_2"), (drop(g, NAME("mlp.drop"), y, is->dropout), x), 0));
#undef NAME
}

const struct sgrad_composite sgrad_transformer_block_composite = {
    .name = "transformer_block",
    .summary = "attention and two wide layers, each added to what came in",
};
