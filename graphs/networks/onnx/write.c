/* write.c: writes a graph as an ONNX file. The record of each operation provides the ONNX nodes of a layer, in ONNX's text
 * syntax. Their local names are replaced by names in the file:
 *
 *     x, x1, x2 …     the layer's inputs          weight, running_mean …     its parameters and states
 *     y               its output                  sum                        any other: LAYER:sum
 *
 * Nodes are named after their output. Only the layers that the logits, the first input of the loss, depend on are written. */
#include "graphs/networks/onnx/writer.h"

#include <stdlib.h>
#include <string.h>

#define LOGITS "logits"

struct writer {
    const struct sgrad_graph *graph;
    int logits;                 /* value */
    bool *needed;               /* by value */
    bool *used;                 /* by parameter */
    Onnx__Graph *to;
};

/* ---- names ------------------------------------------------------------------------------------------------------ */

static const char *value_name(const struct writer *writer, int value) {
    return value == writer->logits ? LOGITS : writer->graph->value[value].name;
}

/* Returns the index of the parameter or state of node N that has NAME in its ONNX form; -1: not found. */
static int parameter_of(const struct sgrad__node *node, const char *name) {
    for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
        if (node->is.p[i].name && !strcmp(name, node->is.p[i].name)) return node->p[i];
        if (node->is.s[i].name && !strcmp(name, node->is.s[i].name)) return node->s[i];
    }
    return -1;
}

/* Returns the name in the file of NAME in the ONNX form of node N; an omitted input has none. The caller must free it. */
static char *whole_name(struct writer *writer, const struct sgrad__node *node, const char *name) {
    if (!*name) return sgrad_format("%s", "");
    if (strcmp(name, "y") == 0) return sgrad_format("%s", value_name(writer, node->output));
    for (int i = 0; i < node->is.inputs; i++) {
        char input[16];
        snprintf(input, sizeof input, i ? "x%d" : "x", i);
        if (strcmp(name, input) == 0) return sgrad_format("%s", value_name(writer, node->input[i]));
    }
    const int p = parameter_of(node, name);
    if (p < 0) return sgrad_format("%s:%s", node->name, name);
    writer->used[p] = true;
    return sgrad_format("%s", writer->graph->parameter[p].name);
}

static void rename_all(struct writer *writer, const struct sgrad__node *node, char **name, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char *whole = whole_name(writer, node, name[i]);
        free(name[i]);
        name[i] = whole;
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

static int add_lines(struct writer *writer, const struct sgrad__node *n, const char *text) {
    for (const char *line = text; *line;) {
        const char *from = line;
        Onnx__Node *node = sgrad__onnx_take_node(&line);
        if (!node)
            return sgrad_log_error(SGRAD_EINVAL, "%s: operation %s returned ONNX text that cannot be parsed as a node: %.*s",
                                   n->name, n->op->name, (int)strcspn(from, "\n"), from);
        node->name = strcmp(node->output[0], "y") ? whole_name(writer, n, node->output[0]) : sgrad_format("%s", n->name);
        rename_all(writer, n, node->output, node->n_output);
        rename_all(writer, n, node->input, node->n_input);
        writer->to->node = sgrad_array_grow(writer->to->node, (int)writer->to->n_node, sizeof *writer->to->node);
        writer->to->node[writer->to->n_node++] = node;
    }
    return 0;
}

static int add_node(struct writer *writer, const struct sgrad__node *node) {
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return sgrad_log_error(SGRAD_EIO, "%s: no memory for its ONNX form", node->name);
    if (node->op->onnx) node->op->onnx(&node->is, node->attrs, to);
    fclose(to);
    char shape[SGRAD_SHAPE_TEXT];
    int error = size ? add_lines(writer, node, text)
                     : sgrad_log_error(SGRAD_EINVAL, "%s: %s of shape %s cannot be written as ONNX; see docs/guides/onnx.md",
                                       node->name, node->op->name, sgrad_shape_text(&node->is.x[0].shape, shape));
    free(text);
    return error;
}

static int add_nodes(struct writer *writer) {
    const struct sgrad_graph *g = writer->graph;
    writer->needed[writer->logits] = true;
    for (int i = g->node_count - 1; i >= 0; i--)
        for (int j = 0; j < g->node[i].is.inputs && g->node[i].output >= 0 && writer->needed[g->node[i].output]; j++)
            writer->needed[g->node[i].input[j]] = true;
    for (const struct sgrad__node *n = g->node; n < g->node + g->node_count; n++)
        if (n->output >= 0 && writer->needed[n->output]) SGRAD_TRY(add_node(writer, n));
    return 0;
}

/* ---- inputs, outputs, tensors ----------------------------------------------------------------------------------- */

static int32_t type_of(enum sgrad_dtype type) {
    static const int32_t is[] = { [SGRAD_F32] = ONNX_FLOAT, [SGRAD_I32] = ONNX_INT32, [SGRAD_U8] = ONNX_UINT8,
                                  [SGRAD_U16] = ONNX_UINT16, [SGRAD_I64] = ONNX_INT64 };
    return (size_t)type < sizeof is / sizeof *is ? is[type] : 0;
}

/* (N,C,H,W) for images (N,H,W,C), for any N. */
static Onnx__Value *value_of(const struct writer *writer, int value, enum sgrad_dtype type) {
    const struct sgrad_shape *s = &writer->graph->value[value].view.shape;
    Onnx__Value *v = sgrad_xcalloc(1, sizeof *v);
    onnx__value__init(v);
    v->name = sgrad_format("%s", value_name(writer, value));
    onnx__type__init(v->type = sgrad_xcalloc(1, sizeof *v->type));
    Onnx__TensorType *t = v->type->tensor_type = sgrad_xcalloc(1, sizeof *t);
    onnx__tensor_type__init(t);
    t->has_elem_type = true;
    t->elem_type = type_of(type);
    onnx__shape__init(t->shape = sgrad_xcalloc(1, sizeof *t->shape));
    t->shape->dim = sgrad_xcalloc((size_t)s->rank, sizeof *t->shape->dim);
    for (int i = 0; i < s->rank; i++) {
        Onnx__Dimension *d = t->shape->dim[t->shape->n_dim++] = sgrad_xcalloc(1, sizeof *d);
        onnx__dimension__init(d);
        if (i == 0) d->dim_param = sgrad_format("N");
        d->has_dim_value = i > 0;
        d->dim_value = s->dim[sgrad__onnx_dimension(s->rank, i)];
    }
    return v;
}

static void add_ends(struct writer *writer) {
    const struct sgrad_graph *g = writer->graph;
    writer->to->input = sgrad_xcalloc(SGRAD_MAX_INPUTS, sizeof *writer->to->input);
    for (int i = 0; i < g->inputs; i++)
        if (writer->needed[g->input[i]])
            writer->to->input[writer->to->n_input++] = value_of(writer, g->input[i], g->value[g->input[i]].view.dtype);
    writer->to->output = sgrad_xcalloc(1, sizeof *writer->to->output);
    writer->to->output[writer->to->n_output++] = value_of(writer, writer->logits, SGRAD_F32);
}

/* The tensor refers to the data of ENTRY. */
static Onnx__Tensor *tensor_of(const struct sgrad_entry *entry) {
    Onnx__Tensor *t = sgrad_xcalloc(1, sizeof *t);
    onnx__tensor__init(t);
    t->name = sgrad_format("%s", entry->name);
    t->has_data_type = t->has_raw_data = true;
    t->data_type = type_of(entry->view.dtype);
    t->dims = sgrad_xcalloc((size_t)entry->view.shape.rank + 1, sizeof *t->dims);
    for (int i = 0; i < entry->view.shape.rank; i++) t->dims[t->n_dims++] = entry->view.shape.dim[i];
    t->raw_data = (ProtobufCBinaryData){ sgrad_view_bytes(&entry->view), (uint8_t *)entry->data };
    return t;
}

static void add_tensors(struct writer *writer, const struct sgrad_entry *entry, int count) {
    writer->to->initializer = sgrad_xcalloc((size_t)count + 1, sizeof *writer->to->initializer);
    for (int i = 0; i < count; i++)
        for (int p = 0; p < writer->graph->parameter_count; p++)
            if (writer->used[p] && !strcmp(writer->graph->parameter[p].name, entry[i].name))
                writer->to->initializer[writer->to->n_initializer++] = tensor_of(&entry[i]);
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

struct stream {
    ProtobufCBuffer is;
    FILE *to;
};

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *data) {
    fwrite(data, 1, size, ((struct stream *)buffer)->to);
}

static int save(const Onnx__Model *model, const char *path) {
    const size_t size = onnx__model__get_packed_size(model);
    struct sgrad_file file;
    if (size > INT32_MAX)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: would have %.1f GiB, but ONNX files must be smaller than 2 GiB", path,
                               (double)size / (1 << 30));
    SGRAD_TRY(sgrad_file_begin(path, &file));
    struct stream stream = { .is.append = append, .to = file.stream };
    onnx__model__pack_to_buffer(model, &stream.is);
    return sgrad_file_commit(&file);
}

/* Sets the lowest version of the format, and of its operators, that has the operators of the nodes, so that older programs can
 * read the file. */
static void set_versions(Onnx__Model *model) {
    static const char *const of_opset_23[] = { "Attention", "RMSNormalization", "RotaryEmbedding" };
    bool newer = false;
    for (size_t i = 0; i < model->graph->n_node; i++)
        for (size_t o = 0; o < sizeof of_opset_23 / sizeof *of_opset_23; o++)
            newer |= !strcmp(model->graph->node[i]->op_type, of_opset_23[o]);
    model->opset_import[0]->version = newer ? 23 : SGRAD_ONNX_OPSET;
    model->ir_version = newer ? 11 : 9;
}

static Onnx__Model *make_model(Onnx__Graph *graph) {
    Onnx__Model *m = sgrad_xcalloc(1, sizeof *m);
    onnx__model__init(m);
    m->has_ir_version = true;
    m->producer_name = sgrad_format("stargrad");
    m->producer_version = sgrad_format("%s", PACKAGE_VERSION);
    m->graph = graph;
    m->opset_import = sgrad_xcalloc(1, sizeof *m->opset_import);
    Onnx__OperatorSet *set = m->opset_import[m->n_opset_import++] = sgrad_xcalloc(1, sizeof *set);
    onnx__operator_set__init(set);
    set->domain = sgrad_format("%s", "");
    set->has_version = true;
    return m;
}

static int write_graph(struct writer *writer, struct sgrad__weights *copy, const char *path) {
    int count;
    struct sgrad_entry *entry = sgrad__weights_entries(copy, &count);
    Onnx__Model *model = make_model(writer->to);
    writer->to->name = sgrad_format("network");
    int error = add_nodes(writer);
    if (!error) {
        add_ends(writer);
        add_tensors(writer, entry, count);
        set_versions(model);
        error = save(model, path);
    }
    for (size_t i = 0; i < writer->to->n_initializer; i++)
        writer->to->initializer[i]->raw_data.data = NULL; /* owned by the copy */
    onnx__model__free_unpacked(model, NULL);
    free(entry);
    return error;
}

int sgrad__onnx_write(const struct sgrad_graph *graph, const char *path) {
    struct sgrad__weights copy;
    struct writer w = { .graph = graph, .logits = sgrad__graph_logits(graph) };
    SGRAD_TRY(sgrad__weights_copy(sgrad__parameters_list(graph), NULL, &copy));
    w.needed = sgrad_xcalloc((size_t)graph->value_count, sizeof *w.needed);
    w.used = sgrad_xcalloc((size_t)graph->parameter_count + 1, sizeof *w.used);
    onnx__graph__init(w.to = sgrad_xcalloc(1, sizeof *w.to));
    int error = write_graph(&w, &copy, path);
    sgrad__weights_free(&copy);
    free(w.needed);
    free(w.used);
    return error;
}
