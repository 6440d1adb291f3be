/* onnx_language: the operators of language models in ONNX files: files are read, or refused; their opset. */
#include "config.h"
#include "tests/scratch.h"

#ifdef SGRAD_HAVE_PROTOBUF_C
#include "tests/graphs/inference/onnx_files.h"

#include <math.h>

static Onnx__Attribute *attribute_of(Onnx__Node *n, const char *name) {
    for (size_t i = 0; i < n->n_attribute; i++)
        if (!strcmp(n->attribute[i]->name, name)) return n->attribute[i];
    return add_attribute(n, name);
}
static void set(Onnx__Node *n, const char *name, bool whole, double value) {
    Onnx__Attribute *a = attribute_of(n, name);
    a->has_type = true;
    a->type = whole ? ONNX_OF_INT : ONNX_OF_FLOAT;
    a->has_i = whole, a->has_f = !whole;
    if (whole) a->i = value < 1e18 ? (int64_t)value : INT64_MAX;
    else a->f = (float)value;
}

static void add_input(Onnx__Node *n, const char *name) {
    n->input = realloc(n->input, (n->n_input + 1) * sizeof *n->input);
    n->input[n->n_input++] = strdup(name);
}
/* The constant that is input I of the first node of TYPE. */
static Onnx__Tensor *constant(Onnx__Model *m, const char *type, size_t i) {
    const char *name = node_of(m, type)->input[i];
    for (size_t k = 0; k < m->graph->n_node; k++)
        if (!strcmp(m->graph->node[k]->output[0], name)) return m->graph->node[k]->attribute[0]->t;
    fail_msg("%s is not a constant", name);
    return NULL;
}
static void set_cosine(Onnx__Model *m, float value) {
    memcpy(constant(m, "RotaryEmbedding", 1)->raw_data.data + 4 * sizeof value, &value, sizeof value);
}

static void cosine_of_other(Onnx__Model *m) { set_cosine(m, 0.9f); }
static void cosine_nan(Onnx__Model *m) { set_cosine(m, NAN); }
static void table_of_4(Onnx__Model *m) {
    Onnx__Tensor *t = constant(m, "RotaryEmbedding", 2);
    t->dims[0] = 4, t->dims[1] = 7;
}
static void late(Onnx__Model *m) { constant(m, "Expand", 0)->raw_data.data[0] = 1; }
static void no_positions(Onnx__Model *m) { node_of(m, "RotaryEmbedding")->n_input--; }
static void masked(Onnx__Model *m) { add_input(node_of(m, "Attention"), "model.norm.weight"); }
static void with_cache(Onnx__Model *m) { add_input(node_of(m, "Attention"), ""), masked(m); }
static void short_scale(Onnx__Model *m) {
    put(&node_of(m, "RMSNormalization")->input[1], "model.layers.0.self_attn.q_norm.weight");
}
static void swapped(Onnx__Model *m) {
    Onnx__Node *n = node_of(m, "Attention");
    char *q = n->input[0];
    n->input[0] = n->input[1], n->input[1] = q;
}
static void present_key(Onnx__Model *m) {
    add_output(node_of(m, "Attention"), "present_key");
    put(&m->graph->output[0]->name, "present_key");
}

static void language(void **state) {
    (void)state;
    static const struct {
        const char *type, *name;
        bool whole;
        double value;
        const char *text;       /* NULL: is read */
    } attributes[] = {
        { "RMSNormalization", "axis", true, 1, "(RMSNormalization): axis is 1, but rows must be normalised along" },
        { "RMSNormalization", "axis", true, 2, NULL },
        { "RMSNormalization", "axis", false, -1, "(RMSNormalization): attribute axis must be an integer" },
        { "RMSNormalization", "epsilon", true, 1, "(RMSNormalization): attribute epsilon must be a float" },
        { "RMSNormalization", "epsilon", false, -1e-6, "(RMSNormalization): epsilon is -1e-06" },
        { "RMSNormalization", "epsilon", false, NAN, "(RMSNormalization): epsilon is nan" },
        { "RMSNormalization", "epsilon", false, 0, NULL },
        { "RMSNormalization", "stash_type", true, 11, "(RMSNormalization): stash_type is 11, but must be 1" },
        { "RotaryEmbedding", "interleaved", true, 1, "(RotaryEmbedding): interleaved is 1, but must be 0: order the features" },
        { "RotaryEmbedding", "interleaved", false, 1, "(RotaryEmbedding): attribute interleaved must be an integer" },
        { "RotaryEmbedding", "rotary_embedding_dim", true, 4, "(RotaryEmbedding): rotary_embedding_dim is 4, but must be 0" },
        { "RotaryEmbedding", "rotary_embedding_dim", true, 8, NULL },
        { "RotaryEmbedding", "num_heads", true, 0, "(RotaryEmbedding): num_heads is 0" },
        { "RotaryEmbedding", "num_heads", true, 5, "(RotaryEmbedding): num_heads is 5" },
        { "RotaryEmbedding", "num_heads", true, -4, "(RotaryEmbedding): num_heads is -4" },
        { "RotaryEmbedding", "num_heads", true, 1e19, "(RotaryEmbedding): num_heads is 9223372036854775807" },
        { "RotaryEmbedding", "num_heads", true, 32, "(RotaryEmbedding): 32 heads of 32 features: a head must have an even" },
        { "RotaryEmbedding", "num_heads", true, 2, "(RotaryEmbedding): its tables must be constants, cosines and sines" },
        { "RotaryEmbedding", "scale", true, 1, "(RotaryEmbedding): attribute scale is not supported" },
        { "Attention", "is_causal", true, 0, NULL },
        { "Attention", "is_causal", true, 2, "(Attention): is_causal is 2, but must be 0 or 1" },
        { "Attention", "is_causal", false, 1, "(Attention): attribute is_causal must be an integer" },
        { "Attention", "softcap", false, 30, "(Attention): softcap is 30, but must be 0" },
        { "Attention", "softcap", false, 0, NULL },
        { "Attention", "softcap", true, 30, "(Attention): attribute softcap must be a float" },
        { "Attention", "scale", false, 1, "(Attention): scale is 1, but must be 0.353553" },
        { "Attention", "scale", false, 0.35355339, NULL },
        { "Attention", "scale", false, NAN, "(Attention): scale is nan" },
        { "Attention", "softmax_precision", true, 11, "(Attention): softmax_precision is 11, but must be 1" },
        { "Attention", "q_num_heads", true, 0, "(Attention): q_num_heads is 0" },
        { "Attention", "q_num_heads", true, 2, "(Attention): q_num_heads is 2 and kv_num_heads 2, but" },
        { "Attention", "kv_num_heads", true, 3, "(Attention): kv_num_heads is 3" },
        { "Attention", "kv_num_heads", true, -2, "(Attention): kv_num_heads is -2" },
        { "Attention", "kv_num_heads", true, 1e19, "(Attention): kv_num_heads is 9223372036854775807" },
    };
    static const struct {
        void (*change)(Onnx__Model *m);
        const char *text;
    } is[] = {
        { cosine_of_other, "(RotaryEmbedding): its tables must be constants, cosines and sines of t·f without a factor" },
        { cosine_nan, "(RotaryEmbedding): its tables must be constants" },
        { table_of_4, "(RotaryEmbedding): its tables must be constants" },
        { late, "the positions, must be the constants 0 to 6 for each sample; its inputs have shapes (N,7,32), (7,4), (7,4) and "
                "(1,7)" },
        { no_positions, "has 2 dimensions, but must have 3" },
        { masked, "(Attention): input attn_mask, 'model.norm.weight', is not supported; export the network without it" },
        { with_cache, "(Attention): input past_key, 'model.norm.weight', is not supported" },
        { short_scale, "'model.layers.0.self_attn.q_norm.weight' has 8 numbers, but rows have 32 features" },
        { swapped, "(Attention): q_num_heads is 4 and kv_num_heads 2, but" },
        { present_key, "output 'present_key' is used, but only 1 output" },
    };
    size_t size;
    char *data = file_of("llama:layers=1,heads=4,kv_heads=2,width=32,hidden=12,vocabulary=10,qk_norm=1", 0, &size);
    assert_done(read_images(data, size, 0, NULL, NULL));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        Onnx__Model *m = unpack(data, size);
        set(node_of(m, attributes[i].type), attributes[i].name, attributes[i].whole, attributes[i].value);
        if (attributes[i].text) assert_fails(read_model(m, 0, NULL, NULL), SGRAD_EFORMAT, attributes[i].text);
        else assert_done(read_model(m, 0, NULL, NULL));
    }
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        assert_fails(read_changed(data, size, 0, is[i].change, NULL, NULL), SGRAD_EFORMAT, is[i].text);
    for (size_t end = 0; end < size; end += end < 4000 ? 97 : 1009)
        assert_false(survives(read_images(data, end, 0, NULL, NULL)));
    free(data);
}

/* A network gets the lowest opset that has its operators. */
static void opsets(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int opset, ir;
    } is[] = { { "gpt:layers=1,heads=2,width=8,context=7,vocabulary=10", 20, 9 },
               { "llama:layers=1,heads=2,width=8,vocabulary=10", 23, 11 } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        size_t size;
        char *data = file_of(is[i].model, 0, &size);
        Onnx__Model *m = unpack(data, size);
        assert_int_equal(m->opset_import[0]->version, is[i].opset);
        assert_int_equal(m->ir_version, is[i].ir);
        onnx__model__free_unpacked(m, NULL);
        free(data);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("operators of language models are read if Stargrad computes the same, and refused otherwise", language),
        sentence("a file has the lowest opset that has the operators of its network", opsets),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
#else
SKIPPED_WITHOUT("protobuf-c")
#endif
