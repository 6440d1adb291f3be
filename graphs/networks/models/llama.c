/* llama.c: the Llama family of decoders of text: Llama 2 and 3, Mistral without sliding windows, Qwen 2.5 and 3, SmolLM, with the
 * names of Hugging Face's LlamaForCausalLM. A block:
 *
 *     x ──┬── input_layernorm ─┬─ q_proj ── (q_norm) ── rotary ─┐
 *         │                    ├─ k_proj ── (k_norm) ── rotary ─┼─ attention ── o_proj ── + ── x'
 *         │                    └─ v_proj ───────────────────────┘                         │
 *         └───────────────────────────────────────────────────────────────────────────────┘
 *     x' ─┬── post_attention_layernorm ─┬─ gate_proj ── SiLU ─┐
 *         │                             └─ up_proj ────────── · ── down_proj ── + ──
 *         └────────────────────────────────────────────────────────────────────┘
 *
 * All norms are RMS norms; q_norm and k_norm normalize each head (qk_norm=1, Qwen 3) or all heads together (qk_norm=2, OLMoE).
 * Layers have no biases, except q_proj, k_proj and v_proj with bias=1 (Qwen 2.5). With tied=1, the weight of the logits is that
 * of the embedding. Initial values are N(0, 0.02²); those of o_proj and down_proj are divided by the root of the number of
 * branches.
 *
 * With experts=N (Mixtral, Qwen 2 and 3 MoE, OLMoE), a mixture replaces gate_proj to down_proj. Each row uses ACTIVE experts, and
 * the shared expert if it exists (Qwen 2 MoE):
 *
 *     post_attention_layernorm ─┬─ gate ── router ──┐
 *                               ├───────────────────┴─ experts ──────────── + ──
 *                               ├─ shared_expert_gate ── σ ──┐              │
 *                               └────────────────────────────┴─ shared_expert
 *
 * llama:config=FOLDER reads the options from Hugging Face's config.json: llama_config.c.
 *
 * On a mesh, heads, hidden features, rows and features are split over the axes of tensor as in gpt.c; queries, keys and values
 * share one gather. With an axis context, tokens are split over its ranks. */
#include "codelets/ops/add.h"
#include "codelets/ops/balance.h"
#include "codelets/ops/concat.h"
#include "codelets/ops/embedding.h"
#include "codelets/ops/experts.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/multiply.h"
#include "codelets/ops/reduce_scatter.h"
#include "codelets/ops/rms_norm.h"
#include "codelets/ops/rotary.h"
#include "codelets/ops/router.h"
#include "codelets/ops/sigmoid.h"
#include "codelets/ops/take.h"
#include "codelets/ops/take_numbers.h"
#include "codelets/ops/token_cross_entropy.h"
#include "graphs/networks/layers/layers.h"
#include "graphs/networks/models/llama_config.h"

#include <math.h>

#define DEVIATION 0.02f
enum { MOST_EXPERTS = 512, MOST_LAYERS = 1000 };

struct sizes {
    int layers, heads, kv_heads, size, width, hidden, context, vocabulary, qk_norm;
    int experts, shared;                /* experts of a mixture; hidden features of the shared expert; 0: none */
    bool bias, tied, mixtral;           /* mixtral: names of Mixtral */
    float eps, last_deviation;
    struct sgrad_rotary rotary;
    struct sgrad_router router;
    float balance;                      /* coefficient of the loss that balances experts; 0: none */
    int mixtures, numbers[MOST_LAYERS]; /* of each mixture so far: the value that its router reads */
};

static int option(const struct sgrad_graph *graph, const char *name) { return (int)sgrad_graph_option(graph, name); }

static int read_mixture(struct sgrad_graph *graph, struct sizes *is) {
    is->experts = option(graph, "experts");
    is->shared = option(graph, "shared");
    is->mixtral = option(graph, "mixtral");
    is->router = (struct sgrad_router){ .active = option(graph, "active"), .sigmoid = option(graph, "sigmoid"),
                                        .normalize = option(graph, "normalize"),
                                        .rate = (float)sgrad_graph_option(graph, "bias_rate") };
    is->balance = (float)sgrad_graph_option(graph, "balance");
    if (!is->experts && is->shared) return sgrad_graph_fail(graph, "shared=%d requires experts", is->shared);
    if (!is->experts) return 0;
    if (is->router.active > is->experts)
        return sgrad_graph_fail(graph, "active=%d must be at most experts=%d", is->router.active, is->experts);
    if (is->mixtral && is->shared) return sgrad_graph_fail(graph, "mixtral=1 has no shared expert; use shared=0");
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) * sgrad_graph_ranks(graph, SGRAD__FEATURES) > 1)
        return sgrad_graph_fail(graph,
                                "experts cannot be split over the ranks of axis tensor; use axes data, pipe and context");
    if (is->balance > 0 && sgrad_graph_ranks(graph, SGRAD__CONTEXT) > 1)
        return sgrad_graph_fail(graph, "balance=%g requires all tokens of a sample on a rank; with axis " SGRAD__CONTEXT
                                       " use balance=0 and bias_rate",
                                (double)is->balance);
    return 0;
}

static int read_sizes(struct sgrad_graph *graph, struct sizes *is) {
    *is = (struct sizes){ .layers = option(graph, "layers"), .heads = option(graph, "heads"), .width = option(graph, "width"),
                          .hidden = option(graph, "hidden"), .context = option(graph, "context"),
                          .vocabulary = option(graph, "vocabulary"), .bias = option(graph, "bias"),
                          .qk_norm = option(graph, "qk_norm"), .tied = option(graph, "tied") };
    is->kv_heads = option(graph, "kv_heads") ? option(graph, "kv_heads") : is->heads;
    is->size = option(graph, "head_size") ? option(graph, "head_size") : is->width / is->heads;
    is->eps = (float)sgrad_graph_option(graph, "eps");
    is->last_deviation = DEVIATION / sqrtf(2 * (float)is->layers);
    is->rotary = (struct sgrad_rotary){ .base = (float)sgrad_graph_option(graph, "rope_base"),
                                        .factor = (float)sgrad_graph_option(graph, "rope_factor"),
                                        .low = (float)sgrad_graph_option(graph, "rope_low"),
                                        .high = (float)sgrad_graph_option(graph, "rope_high"),
                                        .original = option(graph, "rope_original"),
                                        .cached = sgrad_graph_cached(graph),
                                        .axis = SGRAD__CONTEXT };
    if (is->heads % is->kv_heads)
        return sgrad_graph_fail(graph, "heads=%d must be a multiple of kv_heads=%d", is->heads, is->kv_heads);
    if (!option(graph, "head_size") && is->width % is->heads)
        return sgrad_graph_fail(graph, "width=%d must be a multiple of heads=%d, unless head_size is given", is->width,
                                is->heads);
    if (is->size % 2) return sgrad_graph_fail(graph, "heads must have an even number of features, not %d", is->size);
    if (is->qk_norm == 2 && sgrad_graph_ranks(graph, SGRAD__TENSOR) * sgrad_graph_ranks(graph, SGRAD__FEATURES) > 1)
        return sgrad_graph_fail(graph, "qk_norm=2 normalizes all heads together, which cannot be split over axis tensor");
    return read_mixture(graph, is);
}

static struct sgrad_linear linear(int features, bool bias, float deviation) {
    return (struct sgrad_linear){ .features = features, .bias = bias, .deviation = deviation };
}

/* Returns the number of ranks over which heads are split. */
static int ranks_of_heads(const struct sgrad_graph *graph) {
    return sgrad_graph_ranks(graph, SGRAD__TENSOR) * sgrad_graph_ranks(graph, SGRAD__FEATURES);
}

/* Projects X, the rows of all ranks, to the COUNT heads of queries or keys of a block, normalizes them, and rotates them. */
static int heads_at(struct sgrad_graph *graph, const char *block, const char *which, int x, int count, const struct sizes *is) {
    const int own = count / ranks_of_heads(graph);
    struct sgrad_rotary rotary = is->rotary;
    rotary.heads = own;
    int y = sgrad__column_of_rows(graph, SGRAD__NAME("%s.self_attn.%s_proj", block, which), x,
                                  linear(count * is->size, is->bias, DEVIATION), 1);
    if (is->qk_norm)
        y = sgrad_layer(graph, rms_norm, SGRAD__NAME("%s.self_attn.%s_norm", block, which), (y),
                        .heads = is->qk_norm == 1 ? own : 1, .eps = is->eps);
    return sgrad_graph_apply(graph, &sgrad_rotary_op, SGRAD__NAME("%s.self_attn.%s_rotary", block, which), &y, 1, &rotary);
}

static int attention(struct sgrad_graph *graph, const char *block, int x, const struct sizes *is) {
    const int ranks = ranks_of_heads(graph);
    int y = sgrad__split_rms_norm(graph, SGRAD__NAME("%s.input_layernorm", block), x, is->eps);
    y = sgrad__gather_rows(graph, SGRAD__NAME("%s.self_attn", block), y);
    const int q = heads_at(graph, block, "q", y, is->heads, is), k = heads_at(graph, block, "k", y, is->kv_heads, is);
    const int v = sgrad__column_of_rows(graph, SGRAD__NAME("%s.self_attn.v_proj", block), y,
                                        linear(is->kv_heads * is->size, is->bias, DEVIATION), 1);
    y = sgrad__attention(
        graph, SGRAD__NAME("%s.self_attn", block), (const int[]){ q, k, v }, 3,
        (struct sgrad_attention){ .heads = is->heads / ranks,
                                  .kv_heads = is->kv_heads / ranks,
                                  .causal = true,
                                  .sequences = sgrad_graph_sequences(graph),
                                  .cache = sgrad_graph_cached(graph) < is->context ? sgrad_graph_cached(graph) : is->context });
    y = sgrad__row_linear(graph, SGRAD__NAME("%s.self_attn.o_proj", block), y, linear(is->width, false, is->last_deviation));
    return sgrad_layer(graph, add, SGRAD__NAME("%s.add_1", block), (y, x), 0);
}

/* The expert that all rows use: SINGLE, whose weight is the logistic function of one number per row. */
static int shared_expert(struct sgrad_graph *graph, const char *mlp, int x, const struct sizes *is) {
    int weight = sgrad_layer(graph, linear, SGRAD__NAME("%s.shared_expert_gate", mlp), (x), .features = 1,
                             .deviation = DEVIATION);
    weight = sgrad_layer(graph, sigmoid, SGRAD__NAME("%s.shared_expert_gate/sigmoid", mlp), (weight), 0);
    return sgrad_layer(graph, experts, SGRAD__NAME("%s.shared_expert", mlp), (x, weight), .features = is->shared, .active = 1,
                       .deviation = DEVIATION, .last_deviation = is->last_deviation, .single = true);
}

static int mixture(struct sgrad_graph *graph, const char *mlp, int x, struct sizes *is) {
    static const char *const names[][2] = { { "gate_proj", "w1" }, { "up_proj", "w3" }, { "down_proj", "w2" } };
    for (int i = 0; i < 3 && is->mixtral; i++)
        sgrad_graph_rename(graph, SGRAD__NAME("%s.experts.*.%s.weight", mlp, names[i][0]),
                           SGRAD__NAME("%s.experts.*.%s.weight", mlp, names[i][1]));
    const int numbers = sgrad_layer(graph, linear, SGRAD__NAME("%s.gate", mlp), (x), .features = is->experts,
                                    .deviation = DEVIATION);
    const int weights = sgrad_graph_apply(graph, &sgrad_router_op, SGRAD__NAME("%s.gate/router", mlp), &numbers, 1, &is->router);
    is->numbers[is->mixtures++] = numbers;
    const int y = sgrad__split_experts(graph, SGRAD__NAME("%s/experts", mlp), x, weights,
                                       (struct sgrad_experts){ .features = is->hidden, .active = is->router.active,
                                                               .deviation = DEVIATION, .last_deviation = is->last_deviation });
    if (!is->shared) return y;
    return sgrad_layer(graph, add, SGRAD__NAME("%s.add", mlp), (y, shared_expert(graph, mlp, x, is)), 0);
}

static int mlp(struct sgrad_graph *graph, const char *block, int x, struct sizes *is) {
    int y = sgrad__split_rms_norm(graph, SGRAD__NAME("%s.post_attention_layernorm", block), x, is->eps);
    if (is->experts) {
        y = mixture(graph, SGRAD__NAME("%s.%s", block, is->mixtral ? "block_sparse_moe" : "mlp"), y, is);
        return sgrad_layer(graph, add, SGRAD__NAME("%s.add_2", block), (y, x), 0);
    }
    y = sgrad__gather_rows(graph, SGRAD__NAME("%s.mlp", block), y);
    const int gate =
        sgrad__column_of_rows(graph, SGRAD__NAME("%s.mlp.gate_proj", block), y, linear(is->hidden, false, DEVIATION), 1);
    const int up = sgrad__column_of_rows(graph, SGRAD__NAME("%s.mlp.up_proj", block), y, linear(is->hidden, false, DEVIATION), 1);
    y = sgrad_layer(graph, multiply, SGRAD__NAME("%s.mlp.act", block), (gate, up), .silu = true);
    y = sgrad__row_linear(graph, SGRAD__NAME("%s.mlp.down_proj", block), y, linear(is->width, false, is->last_deviation));
    return sgrad_layer(graph, add, SGRAD__NAME("%s.add_2", block), (y, x), 0);
}

/* Adds the loss that balances the experts, from the numbers of all routers, as a layer on X. */
static int balance(struct sgrad_graph *graph, int x, struct sizes *is) {
    int *value = is->numbers, count = is->mixtures;
    for (int round = 0; count > 1; round++) {
        int joined = 0;
        for (int i = 0; i < count; i += SGRAD_MAX_INPUTS, joined++) {
            const int some = count - i < SGRAD_MAX_INPUTS ? count - i : SGRAD_MAX_INPUTS;
            const char *name = SGRAD__NAME("model.routers.%d.%d", round, joined);
            value[joined] = some == 1 ? value[i] : sgrad_graph_apply(graph, &sgrad_concat_op, name, value + i, some, NULL);
        }
        count = joined;
    }
    return sgrad_layer(graph, balance, "model.balance", (x, value[0]), .experts = is->experts, .active = is->router.active,
                       .coefficient = is->balance);
}

/* A rank uses C/K features of a table (rows,C), and stores its shard of these. */
static void shard(struct sgrad_graph *graph, const char *table) {
    sgrad_graph_partition(graph, table, SGRAD__FEATURES, 1);
    sgrad_graph_shard(graph, table, SGRAD__SAMPLES, 1);
    sgrad_graph_shard(graph, table, SGRAD__TENSOR, 1);
}

static int build(struct sgrad_graph *graph, int x, int classes) {
    struct sizes is;
    if (read_sizes(graph, &is)) return -1;
    const int tokens = (int)sgrad_graph_shape(graph, x).dim[1], features = sgrad_graph_ranks(graph, SGRAD__FEATURES);
    if (classes > is.vocabulary)
        return sgrad_graph_fail(graph, "vocabulary=%d is too small for tokens up to %d of the data set; use vocabulary=%d",
                                is.vocabulary, classes - 1, classes);
    if (tokens > is.context)
        return sgrad_graph_fail(graph, "samples have %d tokens, but the network has context=%d", tokens, is.context);
    SGRAD_TRY(sgrad__check_split(graph, "kv_heads", is.kv_heads, false));
    SGRAD_TRY(sgrad__check_context(graph, tokens));
    SGRAD_TRY(sgrad__check_split(graph, "tokens per sample", tokens / sgrad_graph_ranks(graph, SGRAD__CONTEXT), false));
    SGRAD_TRY(sgrad__check_split(graph, "width", is.width, true));
    shard(graph, "model.embed_tokens.weight");
    x = sgrad__context_rows(graph, "model.tokens", x);
    x = sgrad_layer(graph, embedding, "model.embed_tokens", (x), .count = is.vocabulary, .features = is.width / features,
                    .deviation = DEVIATION);
    if (sgrad_graph_ranks(graph, SGRAD__TENSOR) > 1)
        x = sgrad_layer(graph, take, "model.rows", (x), .axis = SGRAD__TENSOR, .dimension = 1);
    x = sgrad_graph_block(graph, x);
    for (int i = 0; i < is.layers; i++) {
        const char *block = SGRAD__NAME("model.layers.%d", i);
        x = sgrad_graph_block(graph, mlp(graph, block, attention(graph, block, x, &is), &is));
    }
    x = sgrad__split_rms_norm(graph, "model.norm", x, is.eps);
    if (is.experts && is.balance > 0) x = balance(graph, x, &is);
    if (is.tied) sgrad_graph_tie(graph, "lm_head.weight", "model.embed_tokens.weight");
    else shard(graph, "lm_head.weight");
    x = sgrad_layer(graph, linear, "lm_head", (x), .features = is.vocabulary, .deviation = DEVIATION);
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

const struct sgrad_model sgrad_llama_model = {
    .name = "llama",
    .summary =
        "decoder of the Llama family, of any size: Llama 2 and 3, Mistral, Qwen 2.5 and 3; with experts=N Mixtral, Qwen MoE and "
        "OLMoE; config=FOLDER reads config.json",
    .source = "H. Touvron et al., Llama 2: open foundation and fine-tuned chat models, 2023",
    .options =
        (const struct sgrad_model_option[]){
            { "layers", 6, 1, MOST_LAYERS, false },
            { "heads", 6, 1, 1000, false },
            { "kv_heads", 0, 0, 1000, false },
            { "width", 384, 1, 65536, false },
            { "hidden", 1024, 1, 1 << 20, false },
            { "context", 256, 1, 1 << 24, false },
            { "vocabulary", 256, 2, 1 << 20, false },
            { "head_size", 0, 0, 512, false },
            { "rope_base", 10000, 1, 1e12, true },
            { "rope_factor", 1, 1, 1000, true },
            { "rope_original", 0, 0, 1 << 24, false },
            { "rope_low", 1, 0.01, 1000, true },
            { "rope_high", 4, 0.01, 1000, true },
            { "eps", 1e-5, 1e-12, 1, true },
            { "tied", 1, 0, 1, false },
            { "qk_norm", 0, 0, 2, false },
            { "bias", 0, 0, 1, false },
            { "experts", 0, 0, MOST_EXPERTS, false },
            { "active", 2, 1, MOST_EXPERTS, false },
            { "shared", 0, 0, 1 << 20, false },
            { "normalize", 1, 0, 1, false },
            { "sigmoid", 0, 0, 1, false },
            { "balance", 0, 0, 1000, true },
            { "bias_rate", 0, 0, 1, true },
            { "mixtral", 0, 0, 1, false },
            { 0 },
        },
    .configure = sgrad__llama_configure,
    .build = build,
    .loss = loss,
    .prefix = "model.",
    .ignored = (const char *const[]){ ".rotary_emb.inv_freq", NULL },
};
