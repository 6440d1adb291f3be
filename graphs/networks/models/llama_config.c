/* llama_config.c: reads config.json of a Hugging Face model of the Llama family as options of network llama. A feature that
 * llama.c does not have is refused by its key.
 *
 * Source: the configuration classes of Hugging Face transformers: LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config,
 * MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig, OlmoeConfig. */
#include "graphs/networks/models/llama_config.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <string.h>

enum { CONFIG_LIMIT = 1 << 20 };

/* The model types, and the values of absent keys in which they differ: num_key_value_heads (0: num_attention_heads), head_dim
 * (0: hidden_size / num_attention_heads), sliding_window (0: none), rms_norm_eps and rope_theta. SWITCHED: windows require
 * use_sliding_window. */
static const struct family {
    const char *type;
    double kv_heads, head_size, window, eps, theta;
    bool switched, bias;
    int qk_norm;                        /* the option's value */
    const struct mixture {              /* NULL: no experts */
        const char *count, *hidden;     /* keys of the number of experts, and of their hidden features */
        double experts, active, features, shared, balance;      /* if absent */
        bool normalize;                 /* always; false: norm_topk_prob */
    } *mixture;
} families[] = {
    { "llama", 0, 0, 0, 1e-6, 1e4, false, false, 0, NULL },
    { "mistral", 8, 0, 4096, 1e-6, 1e4, false, false, 0, NULL },
    { "qwen2", 32, 0, 4096, 1e-6, 1e4, true, true, 0, NULL },
    { "qwen3", 32, 128, 4096, 1e-6, 1e4, true, false, 1, NULL },
    { "mixtral", 8, 0, 0, 1e-5, 1e6, false, false, 0,
      &(const struct mixture){ "num_local_experts", "intermediate_size", 8, 2, 14336, 0, 0.001, true } },
    { "qwen2_moe", 16, 0, 4096, 1e-6, 1e4, true, true, 0,
      &(const struct mixture){ "num_experts", "moe_intermediate_size", 60, 4, 1408, 5632, 0.001, false } },
    { "qwen3_moe", 4, 0, 4096, 1e-6, 1e4, true, false, 1,
      &(const struct mixture){ "num_experts", "moe_intermediate_size", 128, 8, 768, 0, 0.001, false } },
    { "olmoe", 0, 0, 0, 1e-5, 1e4, false, false, 2,
      &(const struct mixture){ "num_experts", "intermediate_size", 64, 8, 2048, 0, 0.01, false } },
    { 0 },
};

struct reading {
    const char *path;
    const json_t *config;
    const struct sgrad_model_option *options;
    double *value;
    int error;
};

/* Sets option NAME. The first error is logged and ends the reading. */
static void set(struct reading *r, const char *key, const char *name, double x) {
    int i = 0;
    while (strcmp(r->options[i].name, name)) i++;
    const struct sgrad_model_option *o = &r->options[i];
    if (r->error) return;
    if (!(x >= o->low && x <= o->high) || (!o->fraction && x != (double)(long)x))
        r->error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s is %g, but must be a %s from %g to %.10g", r->path, key, x,
                                   o->fraction ? "number" : "whole number", o->low, o->high);
    else r->value[i] = x;
}

/* Sets option NAME to the number KEY of OBJECT. Without that key, the option is set to ABSENT, or is an error if ABSENT is
 * negative. */
static void take(struct reading *r, const json_t *object, const char *key, const char *name, double absent) {
    const json_t *x = json_object_get(object, key);
    if (r->error) return;
    if (json_is_number(x)) set(r, key, name, json_number_value(x));
    else if (x && !json_is_null(x)) r->error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s must be a number", r->path, key);
    else if (absent >= 0) set(r, key, name, absent);
    else r->error = sgrad_log_error(SGRAD_EFORMAT, "%s: has no %s", r->path, key);
}

static void refuse(struct reading *r, const char *key, const char *supported) {
    const json_t *x = json_object_get(r->config, key);
    char *text = x ? json_dumps(x, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (!r->error)
        r->error =
            sgrad_log_error(SGRAD_EINVAL, "%s: %s %.60s is not supported; %s", r->path, key, text ? text : "(absent)", supported);
    free(text);
}

static bool is_set(const json_t *x) {
    return x && !json_is_null(x) && !json_is_false(x) && !(json_is_number(x) && json_number_value(x) == 0);
}

/* Returns whether KEY is true; ABSENT without it. Refuses values that are not boolean. */
static bool is_true(struct reading *r, const char *key, bool absent) {
    const json_t *x = json_object_get(r->config, key);
    if (x && !json_is_boolean(x)) refuse(r, key, "it must be true or false");
    return x ? json_is_true(x) : absent;
}

/* Reads the scaling of rotary frequencies: rope_scaling, or the entry of rope_parameters, in which it is optional. */
static void read_scaling(struct reading *r, const json_t *rope, const char *key, bool optional) {
    const json_t *type = json_object_get(rope, "rope_type"), *old = json_object_get(rope, "type");
    const char *name = json_string_value(type ? type : old);
    if (!type && !old && optional) return;
    if (type && old && !json_equal(type, old)) return refuse(r, key, "rope_type and type must be equal");
    if (name && strcmp(name, "default") == 0) return;
    if (!name || (strcmp(name, "linear") && strcmp(name, "llama3")))
        return refuse(r, key, "rope_type must be default, linear or llama3");
    take(r, rope, "factor", "rope_factor", -1);
    if (strcmp(name, "linear") == 0) return;
    take(r, rope, "original_max_position_embeddings", "rope_original", -1);
    take(r, rope, "low_freq_factor", "rope_low", -1);
    take(r, rope, "high_freq_factor", "rope_high", -1);
}

/* Refuses KEY of the configuration if OBJECT specifies that only a part of a head is rotated. */
static void check_partial(struct reading *r, const json_t *object, const char *key) {
    const json_t *partial = json_object_get(object, "partial_rotary_factor");
    if (partial && json_number_value(partial) != 1) refuse(r, key, "partial_rotary_factor must be 1");
}

static void read_rotary(struct reading *r, const struct family *family) {
    const json_t *both = json_object_get(r->config, "rope_parameters"), *scaling = json_object_get(r->config, "rope_scaling");
    const bool parameters = json_is_object(both);
    take(r, parameters && json_object_get(both, "rope_theta") ? both : r->config, "rope_theta", "rope_base", family->theta);
    set(r, "rope_scaling", "rope_factor", 1);
    set(r, "rope_scaling", "rope_original", 0);
    if (parameters) read_scaling(r, both, "rope_parameters", true);
    else if (is_set(both)) refuse(r, "rope_parameters", "it must be an object or null");
    else if (json_is_object(scaling)) read_scaling(r, scaling, "rope_scaling", false);
    else if (is_set(scaling)) refuse(r, "rope_scaling", "it must be an object or null");
    check_partial(r, r->config, "partial_rotary_factor");
    check_partial(r, both, "rope_parameters");
}

/* Returns whether layer_types or max_window_layers (default 28) exclude windows from all layers. */
static bool has_full_layers(const struct reading *r) {
    const json_t *first = json_object_get(r->config, "max_window_layers");
    if (json_is_array(json_object_get(r->config, "layer_types"))) return true;
    return (first ? json_number_value(first) : 28) >= json_number_value(json_object_get(r->config, "num_hidden_layers"));
}

/* Refuses windows of attention that are shorter than the context. */
static void check_windows(struct reading *r, const struct family *family) {
    const json_t *window = json_object_get(r->config, "sliding_window");
    const json_t *types = json_object_get(r->config, "layer_types"), *type;
    const double context = json_number_value(json_object_get(r->config, "max_position_embeddings"));
    size_t i;
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention")) return refuse(r, "layer_types", "all layers must be full_attention");
    }
    if (json_is_null(window) || (!window && family->window == 0)) return;
    if (family->switched && (!is_set(json_object_get(r->config, "use_sliding_window")) || has_full_layers(r))) return;
    if ((window ? json_number_value(window) : family->window) >= context) return;
    if (family->switched) refuse(r, "use_sliding_window", "it must be false");
    else refuse(r, "sliding_window", "it must be null, or at least max_position_embeddings");
}

static void check_features(struct reading *r, const struct family *family) {
    static const char *const off[] = { "attention_bias", "mlp_bias", "attention_dropout", "quantization_config", "clip_qkv",
                                       "router_jitter_noise", NULL };
    static const char *const experts[] = { "num_experts", "num_local_experts", NULL };
    const char *act = json_string_value(json_object_get(r->config, "hidden_act"));
    for (int i = 0; off[i]; i++)
        if (is_set(json_object_get(r->config, off[i]))) refuse(r, off[i], "it must be absent, null, false or 0");
    for (int i = 0; experts[i] && !family->mixture; i++)
        if (is_set(json_object_get(r->config, experts[i]))) refuse(r, experts[i], "it must be absent, null, false or 0");
    if (act && strcmp(act, "silu") && strcmp(act, "swish")) refuse(r, "hidden_act", "it must be silu");
    check_windows(r, family);
}

/* Reads the experts. All layers must have them. The balance loss is part of transformers' loss only with output_router_logits. */
static void read_mixture(struct reading *r, const struct family *family) {
    const struct mixture *m = family->mixture;
    const json_t *step = json_object_get(r->config, "decoder_sparse_step");
    const json_t *plain = json_object_get(r->config, "mlp_only_layers");
    if (!m) return set(r, "model_type", "experts", 0);
    if (step && json_number_value(step) != 1) refuse(r, "decoder_sparse_step", "it must be 1");
    if (is_set(plain) && (!json_is_array(plain) || json_array_size(plain))) refuse(r, "mlp_only_layers", "it must be empty");
    take(r, r->config, m->count, "experts", m->experts);
    take(r, r->config, "num_experts_per_tok", "active", m->active);
    take(r, r->config, m->hidden, "hidden", m->features);
    if (m->shared > 0) take(r, r->config, "shared_expert_intermediate_size", "shared", m->shared);
    set(r, "norm_topk_prob", "normalize", m->normalize || is_true(r, "norm_topk_prob", false));
    set(r, "model_type", "mixtral", strcmp(family->type, "mixtral") == 0);
    if (is_true(r, "output_router_logits", false)) take(r, r->config, "router_aux_loss_coef", "balance", m->balance);
    else set(r, "output_router_logits", "balance", 0);
}

static void read_config(struct reading *r) {
    const char *type = json_string_value(json_object_get(r->config, "model_type"));
    const json_t *kv_heads = json_object_get(r->config, "num_key_value_heads");
    const json_t *tied = json_object_get(r->config, "tie_word_embeddings");
    const struct family *family = families;
    while (family->type && (!type || strcmp(family->type, type))) family++;
    if (!family->type) 
        return refuse(r, "model_type", "use type llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe or olmoe");
    check_features(r, family);
    take(r, r->config, "num_hidden_layers", "layers", -1);
    take(r, r->config, "num_attention_heads", "heads", -1);
    take(r, r->config, "num_key_value_heads", "kv_heads", json_is_null(kv_heads) ? 0 : family->kv_heads);
    take(r, r->config, "hidden_size", "width", -1);
    if (!family->mixture) take(r, r->config, "intermediate_size", "hidden", -1);
    take(r, r->config, "max_position_embeddings", "context", -1);
    take(r, r->config, "vocab_size", "vocabulary", -1);
    take(r, r->config, "head_dim", "head_size", family->head_size);
    take(r, r->config, "rms_norm_eps", "eps", family->eps);
    set(r, "qkv_bias", "bias", family->bias && (!family->mixture || is_true(r, "qkv_bias", true)));
    set(r, "model_type", "qk_norm", family->qk_norm);
    if (tied && !json_is_boolean(tied) && !json_is_null(tied)) refuse(r, "tie_word_embeddings", "it must be true or false");
    set(r, "tie_word_embeddings", "tied", json_is_true(tied));
    read_rotary(r, family);
    read_mixture(r, family);
}

int sgrad__llama_configure(const char *folder, const struct sgrad_model_option *options, double *value) {
    char *path = sgrad_format("%s/config.json", folder);
    json_t *config = NULL;
    struct reading r = { .path = path, .options = options, .value = value };
    r.error = sgrad_json_read(path, CONFIG_LIMIT, &config);
    r.config = config;
    if (!r.error && !json_is_object(config)) r.error = sgrad_log_error(SGRAD_EFORMAT, "%s: is not a JSON object", path);
    if (!r.error) read_config(&r);
    json_decref(config);
    free(path);
    return r.error;
}
