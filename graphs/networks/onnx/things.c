/* things.c: functions for the readers of operators: access to an ONNX file and to the things that were read, and creation of
 * layers. */
#include "graphs/networks/onnx/reader.h"

#include <float.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Maximum elements per sample of any value. No real network exceeds it. Times SGRAD__SAMPLES, it is an int64_t. */
#define LARGEST (INT64_C(1) << 31)

static const char *name_of(const Onnx__Node *n) {
    if (*n->name) return n->name;
    return n->n_output ? n->output[0] : "";
}

/* Writes the shapes of the inputs of N: "; its inputs are (N,8,4,4) and (8,3,1,1)". */
static void inputs_text(const struct sgrad__reader *reader, const Onnx__Node *n, char *text, size_t size) {
    size_t at = 0;
    int listed = 0, left = 0;
    *text = 0;
    for (size_t i = 0; i < n->n_input; i++) left += sgrad__onnx_input(reader, n, i) != NULL;
    for (size_t i = 0; i < n->n_input && i < SGRAD_MAX_INPUTS && at + 1 < size; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        char shape[128] = "(unknown)";
        if (!t) continue;
        if (t->tensor) {
            struct sgrad__view is = { .rank = (int)t->tensor->n_dims };
            for (int d = 0; d < is.rank && d < SGRAD__FACTORS; d++)
                is.factor[is.count++] = (struct sgrad__factor){ d, 1, t->tensor->dims[t->turned ? is.rank - 1 - d : d], 1 };
            sgrad__view_text(&is, reader, shape, sizeof shape);
        } else if (t->view.value >= 0 && t->step < ATTENTION_SCORES)
            sgrad__view_text(&t->view, reader, shape, sizeof shape);
        left--;
        at += (size_t)snprintf(text + at, size - at, "%s%s",
                               !listed++ ? "; its inputs have shapes "
                               : left    ? ", "
                                         : " and ",
                               shape);
    }
}

int sgrad__onnx_refuse(struct sgrad__reader *reader, const Onnx__Node *n, const char *format, ...) {
    char text[512], inputs[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (reader->graph->error) return reader->graph->error;
    inputs_text(reader, n, inputs, sizeof inputs);
    return reader->graph->error =
               sgrad_log_error(SGRAD_EFORMAT, "%s: node '%s' (%s): %s%s%s%s", reader->path, name_of(n), n->op_type, text, inputs,
                               *reader->size ? "; the file was exported for " : "", reader->size);
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

/* Returns the name of the layer of which STEP is an intermediate result. */
static const char *layer_of(enum sgrad__step step) {
    static const struct {
        enum sgrad__step last;
        const char *name;
    } layers[] = { { GELU_CHANCE, "GELU" },
                   { SILU_PRODUCT, "SiLU" },
                   { NORM_SCALED, "layer normalisation" },
                   { GROUP_SCALED, "group normalisation" },
                   { ROTARY_SINE, "rotary positions" },
                   { ATTENTION_WEIGHTS, "attention" } };
    size_t i = 0;
    while (layers[i].last < step) i++;
    return layers[i].name;
}

/* Explains why thing T, input I of N, is not a value that a layer can use. */
static int refuse_input(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, const struct sgrad__thing *t) {
    if (!t || t->view.value < 0)
        return sgrad__onnx_refuse(reader, n, "input %zu, '%s', is not a value that the network computes", i,
                                  i < n->n_input ? n->input[i] : "");
    if (t->strides[0] || t->strides[1])
        return sgrad__onnx_refuse(reader, n, "'%s' is the output of a Slice, which only a Pad of channels may use", t->name);
    if (t->stage)
        return sgrad__onnx_refuse(
            reader, n,
            "'%s' has pixels, which must be normalised first: Cast, Div by the full scale, then Sub and Div "
            "with a number per channel",
            t->name);
    if (t->step)
        return sgrad__onnx_refuse(reader, n, "is not a supported step of %s, of which '%s' is an intermediate result",
                                  layer_of(t->step), t->name);
    if (sgrad__view_is_pixel(reader, &t->view))
        return sgrad__onnx_refuse(reader, n, "'%s' has shape (N,C,1,1), which must be flattened first; add a Flatten", t->name);
    return sgrad__onnx_refuse(reader, n, "no layer has the result of reshaping, transposing or slicing '%s' as its input",
                              t->name);
}

int sgrad__onnx_value(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, bool pixel) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (sgrad__onnx_is_value(reader, t)) return t->view.value;
    if (pixel && sgrad__onnx_is_view(t) && sgrad__view_is_pixel(reader, &t->view)) return t->view.value;
    refuse_input(reader, n, i, t);
    return -1;
}

struct sgrad__thing *sgrad__onnx_whole(struct sgrad__reader *reader, const Onnx__Node *n, size_t i) {
    struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (sgrad__onnx_is_view(t) && sgrad__view_is_whole(reader, &t->view)) return t;
    refuse_input(reader, n, i, t);
    return NULL;
}

struct sgrad__thing *sgrad__onnx_tensor(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, size_t rank) {
    struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (t && t->tensor && t->tensor->n_dims + t->sliced == rank) {
        for (size_t d = 0; d < t->tensor->n_dims; d++)
            if (t->tensor->dims[d] < 1) return sgrad__onnx_refuse(reader, n, "'%s' is empty", t->name), NULL;
        return t;
    }
    if (t && t->tensor)
        sgrad__onnx_refuse(reader, n, "'%s' has %zu dimensions, but must have %zu", t->name, t->tensor->n_dims + t->sliced, rank);
    else
        sgrad__onnx_refuse(reader, n, "input %zu, '%s', must be an initializer or a constant", i,
                           i < n->n_input ? n->input[i] : "");
    return NULL;
}

bool sgrad__onnx_numbers(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int64_t *number, int *count) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    return t && t->tensor && sgrad__onnx_ints(t->tensor, number, SGRAD__NUMBERS, count);
}

bool sgrad__onnx_axes(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int rank, int64_t *axis, int *count) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "axes");
    *count = 0;
    if (a && a->n_ints > SGRAD__NUMBERS) return false;
    for (size_t k = 0; a && k < a->n_ints; k++) axis[(*count)++] = a->ints[k];
    if (!a && sgrad__onnx_input(reader, n, i) && !sgrad__onnx_numbers(reader, n, i, axis, count)) return false;
    for (int k = 0; k < *count; k++)
        if ((axis[k] = sgrad__onnx_axis(axis[k], rank)) < 0) return false;
    return true;
}

bool sgrad__onnx_number(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, float *number) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    int count;
    return t && t->tensor && sgrad__onnx_floats(t->tensor, number, 1, &count) && count == 1;
}

int sgrad__onnx_along(const struct sgrad__thing *tensor, const struct sgrad__view *view) {
    const Onnx__Tensor *t = tensor->tensor;
    int found = -1;
    if (!t || tensor->turned || tensor->sliced || t->n_dims > SGRAD_MAX_RANK || (int)t->n_dims > view->rank) return -1;
    for (int i = 0; i < (int)t->n_dims; i++) {
        const int dimension = view->rank - (int)t->n_dims + i;
        if (t->dims[i] == 1) continue;
        if (found >= 0 || t->dims[i] != sgrad__view_size(view, dimension)) return -1;
        found = dimension;
    }
    return found;
}

bool sgrad__onnx_is_per_channel(const struct sgrad__reader *reader, const struct sgrad__thing *tensor,
                                const struct sgrad__view *view) {
    const int channels = sgrad__view_channels(reader, view);
    if (!tensor || !tensor->tensor || channels < 0) return false;
    if (sgrad__view_size(view, channels) > 1) return sgrad__onnx_along(tensor, view) == channels;
    return sgrad__onnx_count(tensor->tensor) == 1 && (int)tensor->tensor->n_dims >= view->rank - channels &&
           (int)tensor->tensor->n_dims <= view->rank && tensor->tensor->n_dims <= SGRAD_MAX_RANK;
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

Onnx__Tensor *sgrad__onnx_new_tensor(struct sgrad__reader *reader, int32_t type, const int64_t *dim, size_t rank, size_t bytes) {
    Onnx__Tensor *t = sgrad_xcalloc(1, sizeof *t);
    onnx__tensor__init(t);
    t->has_data_type = t->has_raw_data = true;
    t->data_type = type;
    t->n_dims = rank;
    t->dims = sgrad_xcalloc(rank + 1, sizeof *t->dims);
    if (rank) memcpy(t->dims, dim, rank * sizeof *dim);
    t->raw_data.len = bytes;
    t->raw_data.data = sgrad_xcalloc(1, bytes + 1);
    reader->made = sgrad_array_grow(reader->made, reader->mades, sizeof *reader->made);
    return reader->made[reader->mades++] = t;
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

void sgrad__onnx_bind(struct sgrad__reader *reader, const char *name, const char *parameter, const struct sgrad__thing *thing) {
    sgrad__onnx_bind_part(reader, name, parameter, thing, 0, (int)thing->tensor->n_dims);
}

void sgrad__onnx_bind_part(struct sgrad__reader *reader, const char *name, const char *parameter,
                           const struct sgrad__thing *thing, int first, int rank) {
    char *whole = sgrad_format("%.*s.%s", (int)strcspn(name, "/"), name, parameter);
    for (int i = 0; i < reader->bounds && rank > 1; i++) /* not vectors: tools store equal ones once */
        if (reader->bound[i].tensor == thing->tensor) {
            sgrad_graph_tie(reader->graph, whole, reader->bound[i].parameter);
            free(whole);
            return;
        }
    reader->bound = sgrad_array_grow(reader->bound, reader->bounds, sizeof *reader->bound);
    reader->bound[reader->bounds++] = (struct sgrad__bound){ whole, thing->tensor, first, rank, thing->name };
}

int sgrad__onnx_set(struct sgrad__reader *reader, const Onnx__Node *n, size_t output, const struct sgrad__view *view) {
    struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[output]);
    if (view->value < 0 || !t)
        return reader->graph->error ? reader->graph->error : sgrad__onnx_refuse(reader, n, "has no output that can be used");
    t->view = *view;
    t->known = true;
    return 0;
}

int sgrad__onnx_make(struct sgrad__reader *reader, const Onnx__Node *n, int value) {
    const struct sgrad__view view = sgrad__view_of(reader, value);
    return sgrad__onnx_set(reader, n, 0, &view);
}

int sgrad__onnx_make_like(struct sgrad__reader *reader, const Onnx__Node *n, int value, const struct sgrad__view *from) {
    struct sgrad__view view = *from;
    const bool pixel = sgrad__view_is_pixel(reader, from);
    if (value < 0 || pixel || sgrad__view_is_plain(reader, from)) {
        view = sgrad__view_of(reader, value);
        if (pixel) view.rank = from->rank;
        return sgrad__onnx_set(reader, n, 0, &view);
    }
    view.value = value;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, value);
    for (int i = 0; i < view.count; i++)
        if (view.factor[i].axis == shape.rank - 1 && view.factor[i].stride == 1 &&
            sgrad__view_channels(reader, from) == view.factor[i].dimension)
            view.factor[i].size = shape.dim[shape.rank - 1];
    return sgrad__onnx_set(reader, n, 0, &view);
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

struct sgrad__thing *sgrad__onnx_step(struct sgrad__reader *reader, const Onnx__Node *n, enum sgrad__step step,
                                      const struct sgrad__view *view) {
    struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[0]);
    if (!t || sgrad__onnx_set(reader, n, 0, view)) return NULL;
    t->step = step;
    return t;
}

const Onnx__Node *sgrad__onnx_next(const struct sgrad__reader *reader, const Onnx__Node *n, const char *operator) {
    const struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[0]);
    return t && t->uses == 1 && t->user && t->user->n_output == 1 && !strcmp(t->user->op_type, operator) ? t->user : NULL;
}
