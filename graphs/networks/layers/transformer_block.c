/* transformer_block.c: the block that transformers repeat: layers.h. */
#include "codelets/ops/add.h"
#include "codelets/ops/document_attention.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/gelu.h"
#include "codelets/ops/ring_attention.h"
#include "codelets/ops/ring_document_attention.h"
#include "graphs/networks/layers/layers.h"

static struct sgrad_linear linear(const struct sgrad__transformer *is, int features, float deviation) {
    return (struct sgrad_linear){ .features = features, .bias = true, .deviation = deviation, .transposed = is->transposed };
}

static int drop(struct sgrad_graph *graph, const char *name, int x, float p) {
    if (p == 0) return x;
    return sgrad_layer(graph, dropout, name, (x), .p = p, .rows = SGRAD__TENSOR, .features = SGRAD__FEATURES,
                       .context = SGRAD__CONTEXT);
}

static int ring(struct sgrad_graph *graph, const char *name, const int *x, int count, const struct sgrad_attention *attrs) {
    const struct sgrad_ring_attention is = { .axis = SGRAD__CONTEXT, .heads = attrs->heads, .kv_heads = attrs->kv_heads,
                                             .causal = true };
    const int documents = sgrad_graph_documents(graph);
    if (documents < 0) return sgrad_graph_apply(graph, &sgrad_ring_attention_op, name, x, count, &is);
    const struct sgrad_ring_document_attention within = { .axis = SGRAD__CONTEXT, .heads = attrs->heads,
                                                          .kv_heads = attrs->kv_heads, .causal = true };
    const int start = sgrad__context_rows(graph, SGRAD__NAME("%s/documents", name), documents);
    const int input[] = { x[0], start, count > 1 ? x[1] : -1, count > 2 ? x[2] : -1 };
    return sgrad_graph_apply(graph, &sgrad_ring_document_attention_op, name, input, count + 1, &within);
}

int sgrad__attention(struct sgrad_graph *graph, const char *name, const int *x, int count, struct sgrad_attention attrs) {
    const int documents = attrs.causal ? sgrad_graph_documents(graph) : -1;
    if (attrs.causal && sgrad_graph_ranks(graph, SGRAD__CONTEXT) > 1) return ring(graph, name, x, count, &attrs);
    if (documents < 0) return sgrad_graph_apply(graph, &sgrad_attention_op, name, x, count, &attrs);
    const int input[] = { x[0], documents, count > 1 ? x[1] : -1, count > 2 ? x[2] : -1 };
    const struct sgrad_document_attention within = { .heads = attrs.heads, .kv_heads = attrs.kv_heads, .causal = true };
    return sgrad_graph_apply(graph, &sgrad_document_attention_op, name, input, count + 1, &within);
}

int sgrad__transformer_block(struct sgrad_graph *graph, const char *name, int x, const struct sgrad__transformer *is) {
#define NAME(part) SGRAD__NAME("%s.%s", name, part)
    const int parts = sgrad_graph_ranks(graph, SGRAD__TENSOR) * sgrad_graph_ranks(graph, SGRAD__FEATURES);
    int y = sgrad__split_norm(graph, NAME(is->norm1), x, is->eps);
    y = sgrad__column_linear(graph, NAME(is->qkv), y, linear(is, 3 * is->width, is->deviation), 3);
    y = sgrad__attention(graph, NAME("attn"), &y, 1,
                         (struct sgrad_attention){ .heads = is->heads / parts,
                                                   .causal = is->causal,
                                                   .cache = is->cache,
                                                   .sequences = is->sequences });
    y = sgrad__row_linear(graph, NAME(is->proj), y, linear(is, is->width, is->last_deviation));
    x = sgrad_layer(graph, add, NAME("add_1"), (drop(graph, NAME("attn.drop"), y, is->dropout), x), 0);
    y = sgrad__split_norm(graph, NAME(is->norm2), x, is->eps);
    y = sgrad__column_linear(graph, NAME(is->up), y, linear(is, is->hidden, is->deviation), 1);
    y = sgrad_layer(graph, gelu, NAME("mlp.act"), (y), .approximate = is->approximate);
    y = sgrad__row_linear(graph, NAME(is->down), y, linear(is, is->width, is->last_deviation));
    return sgrad_graph_block(graph,
                             sgrad_layer(graph, add, NAME("add_2"), (drop(graph, NAME("mlp.drop"), y, is->dropout), x), 0));
#undef NAME
}

const struct sgrad_composite sgrad_transformer_block_composite = {
    .name = "transformer_block",
    .summary = "pre-norm transformer block: attention and an MLP, each with a residual connection",
};
