/* things.c: functions for the readers of operators: access to an ONNX file and to the things that were read, and creation of
 * layers. */
#include "graphs/networks/onnx/reader.h"

#include <float.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Maximum elements per sample of any value. No real network exceeds it. */
#define LARGEST (INT64_C(1) << 40)

static const char *name_of(const Onnx__Node *n) {
    if (*n->name) return n->name;
    return n->n_output ? n->output[0] : "";
}

int sgrad__onnx_refuse(struct sgrad__reader *reader, const Onnx__Node *n, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (reader->graph->error) return reader->graph->error;
    return reader->graph->error =
               sgrad_log_error(SGRAD_EFORMAT, "%s: node '%s' (%s): %s", reader->path, name_of(n), n->op_type, text);
}

float sgrad__onnx_given(float x) { return x == 0 ? FLT_MIN : x; }

bool sgrad__onnx_is_text(const Onnx__Attribute *a, const char *text) {
    return a && a->s.len == strlen(text) && !memcmp(a->s.data, text, a->s.len);
}

int sgrad__onnx_axis(int64_t axis, int rank) {
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

/* Before opset 13, the default is 1, and the dimensions from the axis on are treated as one. */
int sgrad__onnx_softmax_axis(const struct sgrad__reader *reader, const Onnx__Node *n, int rank) {
    const int axis = sgrad__onnx_axis(sgrad__onnx_int(n, "axis", reader->opset >= 13 ? -1 : 1), rank);
    return reader->opset >= 13 || axis == rank - 1 ? axis : -1;
}

/* ---- things ----------------------------------------------------------------------------------------------------- */

int sgrad__onnx_by_name(const void *a, const void *b) {
    return strcmp(((const struct sgrad__thing *)a)->name, ((const struct sgrad__thing *)b)->name);
}

struct sgrad__thing *sgrad__onnx_thing(const struct sgrad__reader *reader, const char *name) {
    const struct sgrad__thing key = { .name = name };
    return reader->things ? bsearch(&key, reader->thing, (size_t)reader->things, sizeof key, sgrad__onnx_by_name) : NULL;
}

struct sgrad__thing *sgrad__onnx_input(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i) {
    return i < n->n_input && *n->input[i] ? sgrad__onnx_thing(reader, n->input[i]) : NULL;
}

/* ---- inputs of nodes -------------------------------------------------------------------------------------------- */

int sgrad__onnx_value(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, bool pixel) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (sgrad__onnx_is_value(t) || (t && pixel && t->pixel)) return t->value;
    if (t && (t->strides[0] || t->strides[1]))
        sgrad__onnx_refuse(reader, n, "'%s' is the output of a Slice, which only a Pad of channels may use",
                                           t->name);
    else if (t && t->columns)
        sgrad__onnx_refuse(reader, n, "'%s' has shape (N,C,H·W); only a Transpose to (N,H·W,C) may use it", t->name);
    else if (t && t->pixel)
        sgrad__onnx_refuse(reader, n, "'%s' has shape (N,C,1,1), which must be flattened first; add a Flatten", t->name);
    else if (t && t->stage)
        sgrad__onnx_refuse(reader, n,
                           "'%s' has pixels, which must be normalised first: Cast, Div by the full scale, then Sub and Div with "
                           "a number per channel",
                           t->name);
    else
        sgrad__onnx_refuse(reader, n, "input %zu, '%s', is not a value that the network computes", i,
                           i < n->n_input ? n->input[i] : "");
    return -1;
}

struct sgrad__thing *sgrad__onnx_tensor(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, size_t rank) {
    struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (t && t->tensor && !t->spread && t->tensor->n_dims + t->sliced == rank) {
        for (size_t d = 0; d < t->tensor->n_dims; d++)
            if (t->tensor->dims[d] < 1) return sgrad__onnx_refuse(reader, n, "'%s' is empty", t->name), NULL;
        return t;
    }
    if (t && t->tensor)
        sgrad__onnx_refuse(reader, n, "'%s' has %zu dimensions, but must have %zu", t->name,
                           t->tensor->n_dims + t->sliced + (size_t)t->spread, rank);
    else
        sgrad__onnx_refuse(reader, n, "input %zu, '%s', must be an initializer or a constant", i,
                           i < n->n_input ? n->input[i] : "");
    return NULL;
}

bool sgrad__onnx_numbers(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int64_t *number, int *count) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (t && t->tensor) return sgrad__onnx_ints(t->tensor, number, SGRAD__NUMBERS, count);
    if (!t || !t->is_numbers) return false;
    memcpy(number, t->number, sizeof t->number);
    *count = t->count;
    return true;
}

const Onnx__Attribute *sgrad__onnx_attribute(const Onnx__Node *n, const char *name) {
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, name) == 0) return n->attribute[i];
    return NULL;
}

int64_t sgrad__onnx_int(const Onnx__Node *n, const char *name, int64_t otherwise) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, name);
    return a && a->has_i ? a->i : otherwise;
}

float sgrad__onnx_float(const Onnx__Node *n, const char *name, float otherwise) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, name);
    return a && a->has_f ? a->f : otherwise;
}

bool sgrad__onnx_take_int(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, int64_t otherwise,
                          int64_t *value) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, name);
    *value = sgrad__onnx_int(n, name, otherwise);
    if (!a || (a->has_i && (!a->has_type || a->type == ONNX_OF_INT))) return true;
    sgrad__onnx_refuse(reader, n, "attribute %s must be an integer", name);
    return false;
}

bool sgrad__onnx_take_float(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, float otherwise, float *value) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, name);
    *value = sgrad__onnx_float(n, name, otherwise);
    if (!a || (a->has_f && (!a->has_type || a->type == ONNX_OF_FLOAT))) return true;
    sgrad__onnx_refuse(reader, n, "attribute %s must be a float", name);
    return false;
}

/* ---- outputs of nodes ------------------------------------------------------------------------------------------- */

int sgrad__onnx_outputs(const struct sgrad__reader *reader, const Onnx__Node *n, int64_t has) {
    const bool last = sgrad__onnx_thing(reader, n->output[0]) == reader->last;
    const bool tokens = reader->graph->value[reader->x].view.dtype == SGRAD_I32;
    return last && reader->classes > 0 && (!tokens || reader->classes > has) ? reader->classes : (int)has;
}

static bool is_layer(const struct sgrad_graph *graph, const char *name) {
    for (int i = 0; i < graph->node_count; i++)
        if (strcmp(graph->node[i].name, name) == 0) return true;
    return false;
}

/* Returns the name of a layer: "/layer1/relu/Relu" is layer1/relu, "bn1:normal" is bn1. SLASHES: the name may contain slashes,
 * which is not allowed for a layer with parameters. */
static char *clean(const Onnx__Node *n, const char *text, int length, bool slashes) {
    char *name = sgrad_format("%.*s", length < 200 ? length : 200, text + strspn(text, "/"));
    name[strcspn(name, ":")] = 0;
    char *slash = strrchr(name, '/');
    if (slash && strncmp(slash + 1, n->op_type, strlen(n->op_type)) == 0) *slash = 0;
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c) && (*c != '/' || !slashes))
            *c = *c == '/' ? '.' : '_';
    return name;
}

char *sgrad__onnx_name(const struct sgrad__reader *reader, const Onnx__Node *n, int weight) {
    static const char end[] = ".weight";
    const char *text = weight >= 0 ? n->input[weight] : "";
    const size_t length = strlen(text), ends = sizeof end - 1;
    char *name = length > ends && !strcmp(text + length - ends, end) ? clean(n, text, (int)(length - ends), false)
                                                                      : clean(n, name_of(n), 200, weight < 0);
    char *unique = sgrad_format("%s", *name ? name : n->op_type);
    for (int i = reader->graph->node_count; is_layer(reader->graph, unique); i++) {
        free(unique);
        unique = sgrad_format("%s_%d", name, i);
    }
    free(name);
    return unique;
}

int sgrad__onnx_layer(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, const struct sgrad_op *op,
                      const int *inputs, int count, const void *attrs) {
    const int value = sgrad_graph_apply(reader->graph, op, name, inputs, count, attrs);
    if (value < 0) return -1;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, value);
    double numbers = 1;
    for (int i = 0; i < shape.rank; i++) numbers *= (double)shape.dim[i];
    if (numbers <= (double)LARGEST) return value;
    sgrad__onnx_refuse(reader, n, "its output has more than %lld numbers per sample", (long long)LARGEST);
    return -1;
}

int sgrad__onnx_plain(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad_op *op, const int *inputs, int count,
                      const void *attrs) {
    char *name = sgrad__onnx_name(reader, n, -1);
    const int y = sgrad__onnx_layer(reader, n, name, op, inputs, count, attrs);
    free(name);
    return y;
}

int sgrad__onnx_rank(const struct sgrad__reader *reader, int value) { return sgrad_graph_shape(reader->graph, value).rank; }

int sgrad__onnx_file_rank(const struct sgrad__reader *reader, const struct sgrad__thing *thing) {
    if (!thing || thing->value < 0) return 0;
    return thing->pixel ? 4 : sgrad__onnx_rank(reader, thing->value);
}

void sgrad__onnx_bind(struct sgrad__reader *reader, const char *name, const char *parameter, const struct sgrad__thing *thing) {
    sgrad__onnx_bind_less(reader, name, parameter, thing, 0);
}

void sgrad__onnx_bind_less(struct sgrad__reader *reader, const char *name, const char *parameter,
                           const struct sgrad__thing *thing, int ones) {
    char *whole = sgrad_format("%.*s.%s", (int)strcspn(name, "/"), name, parameter);
    const int rank = (int)thing->tensor->n_dims - ones;
    for (int i = 0; i < reader->bounds && thing->tensor->n_dims > 1; i++)    /* not vectors: tools store equal ones once */
        if (reader->bound[i].tensor == thing->tensor) {
            sgrad_graph_tie(reader->graph, whole, reader->bound[i].parameter);
            free(whole);
            return;
        }
    reader->bound = sgrad_array_grow(reader->bound, reader->bounds, sizeof *reader->bound);
    reader->bound[reader->bounds++] = (struct sgrad__bound){ whole, thing->tensor, rank, thing->name };
}

int sgrad__onnx_make(struct sgrad__reader *reader, const Onnx__Node *n, int value) {
    struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[0]);
    if (value < 0 || !t)
        return reader->graph->error ? reader->graph->error : sgrad__onnx_refuse(reader, n, "has no output that can be used");
    t->value = value;
    t->known = true;
    return 0;
}

int sgrad__onnx_pass(struct sgrad__reader *reader, const Onnx__Node *n, size_t i) {
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    const struct sgrad__thing *from = sgrad__onnx_input(reader, n, i);
    if (!to || !from) return sgrad__onnx_refuse(reader, n, "has no input");
    const struct sgrad__thing is = *to;
    *to = *from;
    to->name = is.name, to->needed = is.needed, to->uses = is.uses, to->user = is.user;
    return 0;
}

const Onnx__Node *sgrad__onnx_next(const struct sgrad__reader *reader, const Onnx__Node *n, const char *operator) {
    const struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[0]);
    return t && t->uses == 1 && t->user && t->user->n_output == 1 && !strcmp(t->user->op_type, operator) ? t->user : NULL;
}
