/* read.c: builds the layers of a graph from the nodes of an ONNX file, one after another. */
#include "codelets/ops/image.h"
#include "graphs/networks/onnx/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- contents of the file --------------------------------------------------------------------------------------- */

/* Finds the only input of the network. Old files also list their tensors as inputs. */
static int find_input(const struct sgrad__reader *reader, const Onnx__Value **input) {
    *input = NULL;
    for (size_t i = 0; i < reader->is->n_input; i++) {
        const Onnx__Value *v = reader->is->input[i];
        const struct sgrad__thing *t = sgrad__onnx_thing(reader, v->name);
        if (!*v->name || (t && t->tensor)) continue;
        if (*input)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: has inputs '%s' and '%s', but must have one", reader->path,
                                   (*input)->name, v->name);
        *input = v;
    }
    return *input ? 0 : sgrad_log_error(SGRAD_EFORMAT, "%s: has no input", reader->path);
}

/* Bytes are pixels, which the network normalises; other integers are ids; all other types are floats. TYPE 0: unknown. */
static int take_type(const struct sgrad__reader *reader, const char *name, int32_t type, struct sgrad__thing *thing) {
    const struct sgrad_image *image = sgrad__graph_image(reader->graph);
    const bool wide = image && image->full_scale > 255;
    if (!type || sgrad__onnx_is_real(type) || reader->graph->value[reader->x].view.dtype == SGRAD_I32) return 0;
    thing->stage = 1;
    if (image && type == (wide ? ONNX_UINT16 : ONNX_UINT8)) return 0;
    const char *data = image ? "pixels of 8 bits (type 2)" : "floats (type 1)";
    return sgrad_log_error(SGRAD_EFORMAT, "%s: input '%s' has ONNX type %d, but the data set has %s", reader->path, name,
                           type, wide ? "pixels of 16 bits (type 4)" : data);
}

/* Records the size of images for which the file was exported, if those of the data set have another one. */
static void take_size(struct sgrad__reader *reader, const Onnx__Shape *file, const struct sgrad_shape *x) {
    const Onnx__Dimension *h = file->n_dim == 4 ? file->dim[2] : NULL, *w = h ? file->dim[3] : NULL;
    if (!w || x->rank != 4 || h->dim_value < 1 || w->dim_value < 1) return;
    if (h->dim_value != x->dim[1] || w->dim_value != x->dim[2])
        snprintf(reader->size, sizeof reader->size, "images of %lld x %lld, not %lld x %lld", (long long)h->dim_value,
                 (long long)w->dim_value, (long long)x->dim[1], (long long)x->dim[2]);
}

/* Checks the input, whose first dimension is that of the samples. */
static int take_input(struct sgrad__reader *reader, const Onnx__Value *input) {
    const Onnx__TensorType *type = input->type ? input->type->tensor_type : NULL;
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, reader->x);
    struct sgrad__thing *thing = sgrad__onnx_thing(reader, input->name);
    char text[SGRAD_SHAPE_TEXT];
    if (type && type->shape && type->shape->n_dim && type->shape->dim[0]->has_dim_value)
        reader->samples = type->shape->dim[0]->dim_value;
    if (reader->samples < 1 || reader->samples > SGRAD__SAMPLES) reader->samples = SGRAD__SAMPLES;
    thing->view = sgrad__view_of(reader, reader->x);
    SGRAD_TRY(take_type(reader, input->name, type ? type->elem_type : 0, thing));
    if (!type || !type->shape) return 0;
    take_size(reader, type->shape, &x);
    if (type->shape->n_dim != (size_t)x.rank)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: input '%s' has %zu dimensions, but samples of shape %s have %d", reader->path,
                               input->name, type->shape->n_dim, sgrad_shape_text(&x, text), x.rank);
    const Onnx__Dimension *last = type->shape->dim[sgrad__onnx_channels(x.rank)];
    const bool any = !last->has_dim_value || last->dim_value <= 0;     /* some programs write 0 or -1 */
    const char *const features = reader->graph->value[reader->x].view.dtype == SGRAD_I32 ? "tokens per sample" : "features";
    if (!any && last->dim_value != x.dim[x.rank - 1])
        return sgrad_log_error(SGRAD_ESHAPE, "%s: input '%s' requires %lld %s, but the data set has %lld", reader->path,
                               input->name, (long long)last->dim_value, x.rank > 3 ? "channels" : features,
                               (long long)x.dim[x.rank - 1]);
    return 0;
}

static int list_things(struct sgrad__reader *reader) {
    size_t most = 1 + reader->is->n_initializer;
    for (size_t i = 0; i < reader->is->n_node; i++) most += reader->is->node[i]->n_output;
    reader->thing = sgrad_xcalloc(most, sizeof *reader->thing);
    for (size_t i = 0; i < reader->is->n_initializer; i++)
        if (*reader->is->initializer[i]->name)
            reader->thing[reader->things++] = (struct sgrad__thing){
                .name = reader->is->initializer[i]->name, .tensor = reader->is->initializer[i], .view.value = -1, .known = true
            };
    for (size_t i = 0; i < reader->is->n_node; i++)
        for (size_t j = 0; j < reader->is->node[i]->n_output; j++)
            if (*reader->is->node[i]->output[j])
                reader->thing[reader->things++] =
                    (struct sgrad__thing){ .name = reader->is->node[i]->output[j], .view.value = -1 };
    qsort(reader->thing, (size_t)reader->things, sizeof *reader->thing, sgrad__onnx_by_name);
    const Onnx__Value *input;
    SGRAD_TRY(find_input(reader, &input));
    reader->thing[reader->things++] = (struct sgrad__thing){ .name = input->name, .view.value = reader->x, .known = true };
    qsort(reader->thing, (size_t)reader->things, sizeof *reader->thing, sgrad__onnx_by_name);
    for (int i = 1; i < reader->things; i++)
        if (!sgrad__onnx_by_name(&reader->thing[i - 1], &reader->thing[i]))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: '%s' is defined twice", reader->path, reader->thing[i].name);
    return take_input(reader, input);
}

static bool is_needed(const struct sgrad__reader *reader, const Onnx__Node *n) {
    for (size_t i = 0; i < n->n_output; i++) {
        const struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[i]);
        if (t && t->needed) return true;
    }
    return false;
}

/* Marks the things that the output of the network depends on, from the output backwards. */
static int find_needed(struct sgrad__reader *reader) {
    const char *name = reader->is->n_output ? reader->is->output[0]->name : "";
    if (reader->is->n_output > 1)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has outputs '%s' and '%s', but must have one; export it with one output",
                               reader->path, name, reader->is->output[1]->name);
    struct sgrad__thing *last = sgrad__onnx_thing(reader, name);
    if (!last) return sgrad_log_error(SGRAD_EFORMAT, "%s: output '%s' is not computed by any node", reader->path, name);
    last->needed = true;
    last->uses++;
    reader->last = last;
    for (size_t i = reader->is->n_node; i-- > 0;) {
        const Onnx__Node *n = reader->is->node[i];
        if (!is_needed(reader, n)) continue;
        for (size_t j = 0; j < n->n_input; j++) {
            struct sgrad__thing *t = sgrad__onnx_input(reader, n, j);
            if (!t) continue;
            t->needed = true;
            t->uses++;
            if (!t->user) t->user = n;
        }
    }
    return 0;
}

/* ---- the whole graph -------------------------------------------------------------------------------------------- */

static int check_node(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__operator *operator) {
    if (!operator->name)
        return sgrad__onnx_refuse(reader, n, "the operator is not supported; see docs/guides/onnx.md for a list");
    const bool fits = (int)n->n_input >= operator->least && (int)n->n_input <= operator->most && n->n_output && *n->output[0];
    if (!fits && operator->least < operator->most)
        return sgrad__onnx_refuse(reader, n, "has %zu inputs and %zu outputs, but must have %d to %d inputs and an output",
                                  n->n_input, n->n_output, operator->least, operator->most);
    if (!fits)
        return sgrad__onnx_refuse(reader, n, "has %zu %s and %zu %s, but must have %d %s and an output", n->n_input,
                                  sgrad_plural((int64_t)n->n_input, "input", "inputs"), n->n_output,
                                  sgrad_plural((int64_t)n->n_output, "output", "outputs"), operator->most,
                                  sgrad_plural(operator->most, "input", "inputs"));
    for (size_t i = (size_t)operator->outputs; i < n->n_output; i++) {
        const struct sgrad__thing *t = *n->output[i] ? sgrad__onnx_thing(reader, n->output[i]) : NULL;
        if (t && t->uses)
            return sgrad__onnx_refuse(reader, n, "output '%s' is used, but only %d %s of this operator can be used", t->name,
                                      operator->outputs, sgrad_plural(operator->outputs, "output", "outputs"));
    }
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__Attribute *a = n->attribute[i];
        char word[64];
        snprintf(word, sizeof word, " %s ", a->name);
        if (!strstr(operator->attributes, word)) return sgrad__onnx_refuse(reader, n, "attribute%sis not supported", word);
    }
    return 0;
}

static int check_inputs(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (*n->domain && strcmp(n->domain, "ai.onnx"))
        return sgrad__onnx_refuse(reader, n, "has domain '%s', but only ONNX's own operators are supported", n->domain);
    for (size_t i = 0; i < n->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        if (*n->input[i] && (!t || !t->known))
            return sgrad__onnx_refuse(reader, n, "input '%s' is not computed by an earlier node", n->input[i]);
    }
    return 0;
}

static int read_node(struct sgrad__reader *reader, const Onnx__Node *n) {
    /* Layers that are several nodes in a file. */
    static bool (*const layers[])(struct sgrad__reader *, const Onnx__Node *, int *) = {
        sgrad__onnx_takes_gelu,   sgrad__onnx_takes_group,     sgrad__onnx_takes_norm,
        sgrad__onnx_takes_areas,  sgrad__onnx_takes_rotary,    sgrad__onnx_takes_attention,
    };
    const struct sgrad__operator *o = sgrad__operators;
    int status;
    const struct sgrad__thing *made = n->n_output ? sgrad__onnx_thing(reader, n->output[0]) : NULL;
    if (made && made->known) return 0;      /* read together with an earlier node */
    while (o->name && strcmp(o->name, n->op_type)) o++;
    SGRAD_TRY(check_inputs(reader, n));
    if (sgrad__onnx_fold(reader, n)) return 0;
    SGRAD_TRY(check_node(reader, n, o));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (layers[i](reader, n, &status)) return status;
    SGRAD_TRY(o->read(reader, n));
    return reader->graph->error;
}

static int read_all(struct sgrad__reader *reader) {
    enum { LEAST = 7 };  /* lowest opset; earlier ones broadcast shapes differently, and their batch norm is for training */
    char shape[128];
    if (reader->opset < LEAST)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: has opset %lld, but must have %d or later; convert it with onnx.version_converter",
                               reader->path, (long long)reader->opset, LEAST);
    SGRAD_TRY(list_things(reader));
    SGRAD_TRY(find_needed(reader));
    for (size_t i = 0; i < reader->is->n_node; i++)
        if (is_needed(reader, reader->is->node[i])) SGRAD_TRY(read_node(reader, reader->is->node[i]));
    if (sgrad__onnx_is_view(reader->last) && !sgrad__onnx_is_value(reader, reader->last)) {
        sgrad__view_text(&reader->last->view, reader, shape, sizeof shape);
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: output '%s' of shape %s must be classes or numbers: (N,C), (N,T,C) or (N,C,H,W)",
                               reader->path, reader->last->name, shape);
    }
    if (!sgrad__onnx_is_view(reader->last))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: output '%s' is not computed from its input", reader->path,
                               reader->last->name);
    return 0;
}

static int by_entry(const void *a, const void *b) {
    return strcmp(((const struct sgrad_entry *)a)->name, ((const struct sgrad_entry *)b)->name);
}

static int take_weights(struct sgrad__reader *reader) {
    struct sgrad_safetensors *w = &reader->imported->weights;
    w->path = sgrad_format("%s", reader->path);
    w->descriptor = -1;
    w->entry = sgrad_xcalloc((size_t)reader->bounds + 1, sizeof *w->entry);
    for (int i = 0; i < reader->bounds; i++) {
        if (!sgrad__onnx_entry(reader->bound[i].tensor, reader->bound[i].parameter, &w->entry[w->count]))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' has type %d, but weights must be floating-point numbers",
                                   reader->path, reader->bound[i].thing, reader->bound[i].tensor->data_type);
        struct sgrad_shape *shape = &w->entry[w->count++].view.shape;
        const int first = reader->bound[i].first, rank = reader->bound[i].rank;
        if (rank == 1) shape->dim[first] = sgrad_shape_count(shape); /* (C,1,1) is a vector as well */
        for (int d = 0; d < rank; d++) shape->dim[d] = shape->dim[first + d];
        shape->rank = rank;
    }
    qsort(w->entry, (size_t)w->count, sizeof *w->entry, by_entry);
    return 0;
}

/* Returns the opset of a file. The format does not define it for a file that omits it: then it is the current one. */
static int64_t opset_of(const Onnx__Model *model) {
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const Onnx__OperatorSet *set = model->opset_import[i];
        if (!set->domain || !*set->domain || !strcmp(set->domain, "ai.onnx")) return set->version;
    }
    return SGRAD_ONNX_OPSET;
}

int sgrad__onnx_build(struct sgrad__onnx *file, struct sgrad_graph *graph, int x, int classes) {
    struct sgrad__reader r = { .path = file->path,
                               .is = file->model->graph,
                               .opset = opset_of(file->model),
                               .graph = graph,
                               .x = x,
                               .classes = classes,
                               .samples = SGRAD__SAMPLES };
    if (graph->error) return -1;
    sgrad__imported_free(graph);
    r.imported = graph->imported = sgrad_xcalloc(1, sizeof *graph->imported);
    int error = read_all(&r);
    if (!error) error = take_weights(&r);
    if (!graph->error) graph->error = error;
    const int y = error ? -1 : r.last->view.value;
    for (int i = 0; i < r.bounds; i++) free(r.bound[i].parameter);
    for (int i = 0; i < r.mades; i++) onnx__tensor__free_unpacked(r.made[i], NULL);
    free(r.bound);
    free(r.made);
    free(r.thing);
    return y;
}
