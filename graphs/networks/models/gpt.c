/* gpt.c: GPT-2, a decoder of text, with the names and layouts of Hugging Face's GPT2LMHeadModel, and sizes as options. A block:
 *
 *     x ──┬── ln_1 ── attn.c_attn ── attention ── attn.c_proj ── + ──┬── ln_2 ── mlp.c_fc ── GELU ── mlp.c_proj ── + ──
 *         └────────────────────────────────────────────────────────┘└──────────────────────────────────────────┘
 *
 * The weight of the logits is that of the embedding. Initial values are those of GPT-2: N(0, 0.02²); those of the last layer of
 * each branch are divided by the root of the number of branches.
 *
 * On a mesh with an axis tensor, the heads, the neurons of the wide layer and, between these, the rows of a sample are split over
 * its ranks, and with 3-D tensor parallelism also their features: layers.h. Each rank stores a shard of the features of the
 * embeddings. It looks up tokens and computes logits with the features of its index on tensor.features, and the loss for its
 * shard of the tokens:
 *
 *     x (N/I,T/J,C/K) ── weight (V,C/K) ── (N/I,T/J,V) ── sum, scatter K ── (N/I,T/(J·K),V) ── loss
 *
 * With an axis context, T is the number of tokens of a rank.
 *
 * Limits: dropout applies to the embedding and to the outputs of the branches, not to the weights of attention. */
#include "codelets/ops/dropout.h"
#include "codelets/ops/embedding.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/position_embedding.h"
#include "codelets/ops/reduce_scatter.h"
#include "codelets/ops/take.h"
#include "codelets/ops/take_numbers.h"
#include "codelets/ops/token_cross_entropy.h"
#include "graphs/networks/layers/layers.h"

#include <math.h>

#define DEVIATION 0.02f

/* A rank uses C/K features of a table (rows,C), and stores its shard of these. */
static void keep_parts(struct sgrad_graph *graph, const char *table) {
    sgrad_graph_partition(graph, table, SGRAD__FEATURES, 1);
    sgrad_graph_shard(graph, table, SGRAD__SAMPLES, 1);
    sgrad_graph_shard(graph, table, SGRAD__TENSOR, 1);
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    const int width = (int)sgrad_graph_option(graph, "width"), heads = (int)sgrad_graph_option(graph, "heads");
    const int vocabulary = (int)sgrad_graph_option(graph, "vocabulary"), context = (int)sgrad_graph_option(graph, "context");
    if (width % heads) return sgrad_graph_fail(graph, "width=%d must be a multiple of heads=%d", width, heads);
    if (classes > vocabulary)
        return sgrad_graph_fail(graph, "vocabulary=%d is too small for tokens up to %d of the data set; use vocabulary=%d",
                                vocabulary, classes - 1, classes);
    const int features = sgrad_graph_ranks(graph, SGRAD__FEATURES), tokens = (int)sgrad_graph_shape(graph, x).dim[1];
    SGRAD_TRY(sgrad__check_split(graph, "heads", heads, false));
    SGRAD_TRY(sgrad__check_context(graph, tokens));
    SGRAD_TRY(sgrad__check_split(graph, "tokens per sample", tokens / sgrad_graph_ranks(graph, SGRAD__CONTEXT), false));
    SGRAD_TRY(sgrad__check_split(graph, "width", width, true));
    keep_parts(graph, "transformer.wte.weight");
    keep_parts(graph, "transformer.wpe.weight");
    x = sgrad__context_rows(graph, "transformer.tokens", x);
    x = sgrad_layer(graph, embedding, "transformer.wte", (x), .count = vocabulary, .features = width / features,
                    .deviation = DEVIATION);
    x = sgrad_layer(graph, position_embedding, "transformer.wpe", (x), .context = context, .deviation = DEVIATION,
                    .cached = sgrad_graph_cached(graph), .axis = SGRAD__CONTEXT);
    const float p = (float)sgrad_graph_option(graph, "dropout");
    if (p > 0)
        x = sgrad_layer(graph, dropout, "transformer.drop", (x), .p = p, .features = SGRAD__FEATURES,
                        .context = SGRAD__CONTEXT);
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) > 1)
        x = sgrad_layer(graph, take, "transformer.rows", (x), .axis = SGRAD__TENSOR, .dimension = 1);
    x = sgrad_graph_block(graph, x);
    const int layers = (int)sgrad_graph_option(graph, "layers");
    const struct sgrad__transformer block = {
        "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj",
        .width = width,
        .heads = heads,
        .hidden = 4 * width,
        .cache = sgrad_graph_cached(graph) < context ? sgrad_graph_cached(graph) : context,
        .sequences = sgrad_graph_sequences(graph),
        .causal = true,
        .approximate = true,
        .transposed = true,
        .deviation = DEVIATION,
        .last_deviation = DEVIATION / sqrtf(2 * (float)layers),
        .dropout = p,
    };
    for (int i = 0; i < layers; i++) x = sgrad__transformer_block(graph, SGRAD__NAME("transformer.h.%d", i), x, &block);
    x = sgrad__split_norm(graph, "transformer.ln_f", x, 0);
    sgrad_graph_tie(graph, "lm_head.weight", "transformer.wte.weight");
    x = sgrad_layer(graph, linear, "lm_head", (x), .features = vocabulary);
    if (features == 1) return x;
    return sgrad_layer(graph, reduce_scatter, "lm_head/sum", (x), .axis = SGRAD__FEATURES, .dimension = 1);
}

static int loss(struct sgrad_graph *graph, int y, int target) {
    target = sgrad__context_rows(graph, "target_tokens", target);
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) > 1)
        target = sgrad_layer(graph, take_numbers, "target_rows", (target), .axis = SGRAD__TENSOR, .dimension = 1);
    if (sgrad_graph_ranks(graph, SGRAD__FEATURES) > 1)
        target = sgrad_layer(graph, take_numbers, "target_rows/part", (target), .axis = SGRAD__FEATURES, .dimension = 1);
    return sgrad_layer(graph, token_cross_entropy, "loss", (y, target), 0);
}

#define OPTIONS(layers, heads, width, context, vocabulary)                                                                       \
    (const struct sgrad_model_option[]) {                                                                                        \
        { "layers", layers, 1, 1000, false }, { "heads", heads, 1, 1000, false }, { "width", width, 1, 65536, false },           \
        { "context", context, 1, 1048576, false }, { "vocabulary", vocabulary, 2, 1 << 20, false },                              \
        { "dropout", 0, 0, 0.99, true }, { 0 },                                                                                  \
    }
/* Ignored: masks, which files of older versions contain. Prefix: files with the decoder only have names without it. */
#define FILES .prefix = "transformer.", .ignored = (const char *const[]){ ".attn.bias", ".attn.masked_bias", NULL }

const struct sgrad_model sgrad_gpt_model = {
    .name = "gpt",
    .summary = "GPT-2 of any size",
    .source = "A. Radford et al., Language models are unsupervised multitask learners, 2019",
    .options = OPTIONS(6, 6, 384, 256, 256),
    .build = build,
    .loss = loss,
    FILES,
};

const struct sgrad_model sgrad_gpt2_model = {
    .name = "gpt2",
    .summary = "GPT-2 with 124 million parameters",
    .source = "A. Radford et al., Language models are unsupervised multitask learners, 2019",
    .options = OPTIONS(12, 12, 768, 1024, 50257),
    .build = build,
    .loss = loss,
    FILES,
};
