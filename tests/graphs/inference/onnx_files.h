/* onnx_files.h: ONNX files in memory, for the tests of their reader: networks that are written, changed and read. */
#ifndef SGRAD_TESTS_GRAPHS_INFERENCE_ONNX_FILES_H
#define SGRAD_TESTS_GRAPHS_INFERENCE_ONNX_FILES_H

#include "graphs/graphs.h"
#include "graphs/networks/onnx/reader.h"
#include "tests/scratch.h"

#define FILE_1 scratch_path("first.onnx")
#define FILE_2 scratch_path("second.onnx")
enum { TOKENS = 7 };

static inline char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = sgrad_xcalloc(1, 1 << 25);
    *size = fread(data, 1, 1 << 25, file);
    assert_true(*size > 0 && *size < 1 << 25);
    fclose(file);
    return data;
}

/* With weights, of SEED, where the model brings none. CHANNELS 0: of SIDE tokens. */
static inline struct sgrad_graph *make(const char *text, int side, int channels, uint64_t seed) {
    const struct sgrad_model *model = sgrad_model_find(text);
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    assert_done(sgrad__graph_set_model(g, model, text));
    const int x = channels ? sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, side, side, channels))
                           : sgrad_graph_input(g, "tokens", SGRAD_I32, sgrad_shape(1, side));
    const int y = model->build(g, x, 10);
    const struct sgrad_shape logits = sgrad_graph_shape(g, y);
    struct sgrad_shape label = { .rank = logits.rank - 2 };
    for (int i = 0; i < label.rank; i++) label.dim[i] = logits.dim[i + 1];
    sgrad_graph_loss(g, y, sgrad_graph_input(g, "label", SGRAD_I32, label), 0);
    assert_done(sgrad_graph_error(g));
    assert_done(sgrad__parameters_allocate(g, seed));
    if (g->imported) assert_done(sgrad__weights_load(g, sgrad__parameters_list(g), &g->imported->weights, NULL));
    return g;
}

static inline Onnx__Node *node_of(Onnx__Model *m, const char *type) {
    for (size_t i = 0; i < m->graph->n_node; i++)
        if (!strcmp(m->graph->node[i]->op_type, type)) return m->graph->node[i];
    fail_msg("no node is a %s", type);
    return NULL;
}

static inline void put(char **text, const char *word) {
    free(*text);
    *text = strdup(word);
}

static inline Onnx__Attribute *add_attribute(Onnx__Node *n, const char *name) {
    Onnx__Attribute *a = sgrad_xcalloc(1, sizeof *a);
    onnx__attribute__init(a);
    a->name = strdup(name);
    n->attribute = realloc(n->attribute, (n->n_attribute + 1) * sizeof(Onnx__Attribute *));
    return n->attribute[n->n_attribute++] = a;
}

static inline void add_output(Onnx__Node *n, const char *name) {
    n->output = realloc(n->output, (n->n_output + 1) * sizeof *n->output);
    n->output[n->n_output++] = strdup(name);
}

/* Of images of SIDE squared; 0: of TOKENS tokens. *EPS and *SHARE, if not NULL: of the first batch norm, and how
 * much of its running statistics is a batch's. */
static inline int read_images(const void *data, size_t size, int side, float *eps, float *share) {
    struct sgrad__onnx *file;
    SGRAD_TRY(sgrad__onnx_parse("a.onnx", data, size, &file));
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int x = side ? sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, side, side, 1))
                       : sgrad_graph_input(g, "tokens", SGRAD_I32, sgrad_shape(1, TOKENS));
    sgrad__onnx_build(file, g, x, 10);
    const int error = sgrad_graph_error(g);
    for (int i = 0; i < g->node_count && eps && !error; i++) {
        if (g->node[i].op != &sgrad_batchnorm_op) continue;
        const struct sgrad_batchnorm *norm = g->node[i].attrs;
        *eps = norm->eps, *share = norm->momentum;
        break;
    }
    sgrad_graph_destroy(g);
    sgrad__onnx_close(file);
    return error;
}

/* Frees M. */
static inline int read_model(Onnx__Model *m, int side, float *eps, float *share) {
    uint8_t *changed = sgrad_xcalloc(1, onnx__model__get_packed_size(m));
    const int error = read_images(changed, onnx__model__pack(m, changed), side, eps, share);
    onnx__model__free_unpacked(m, NULL);
    free(changed);
    return error;
}
static inline Onnx__Model *unpack(const char *data, size_t size) {
    return onnx__model__unpack(NULL, size, (const uint8_t *)data);
}

/* The file after a CHANGE. */
static inline int read_changed(const char *data, size_t size, int side, void (*change)(Onnx__Model *m), float *eps,
                               float *share) {
    Onnx__Model *m = unpack(data, size);
    change(m);
    return read_model(m, side, eps, share);
}

/* A file of MODEL, which takes images of SIDE squared and one channel, or tokens if SIDE is 0. Free it. */
static inline char *file_of(const char *model, int side, size_t *size) {
    struct sgrad_context *context;
    const struct sgrad_context_options how = { .cpus = 1 };
    assert_done(sgrad_context_open(&how, &context));
    struct sgrad_graph *g = make(model, side ? side : TOKENS, side ? 1 : 0, 3);
    assert_done(sgrad__onnx_write(g, FILE_1));
    sgrad_graph_destroy(g);
    sgrad_context_close(context);
    return read_file(FILE_1, size);
}

#endif
