/* graph.c: builds a graph. Shapes are inferred, and errors detected, as layers are added. */
#include "graphs/networks/graph.h"
#include "codelets/ops/identity.h"
#include "codelets/ops/image.h"
#include "codelets/ops/mean_squared_error.h"
#include "codelets/ops/softmax_cross_entropy.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct sgrad_graph *sgrad_graph_create(enum sgrad_dtype dtype) {
    struct sgrad_graph *g = sgrad_xcalloc(1, sizeof *g);
    g->dtype = dtype;
    g->loss = g->logits = -1;
    g->stages = 1;
    return g;
}

void sgrad_graph_destroy(struct sgrad_graph *graph) {
    if (!graph) return;
    sgrad__parameters_free(graph);
    sgrad__imported_free(graph);
    free(graph->file);
    free(graph->lora.on);
    for (int i = 0; i < graph->value_count; i++) free(graph->value[i].name);
    for (int i = 0; i < graph->node_count; i++) {
        free(graph->node[i].name);
        free(graph->node[i].attrs);
    }
    for (int i = 0; i < graph->parameter_count; i++) free(graph->parameter[i].name);
    for (int i = 0; i < graph->tie_count; i++) {
        free(graph->tie[i].name);
        free(graph->tie[i].as);
    }
    for (int i = 0; i < graph->renaming_count; i++) {
        free(graph->renaming[i].name);
        free(graph->renaming[i].as);
    }
    for (int i = 0; i < graph->split_count; i++) {
        free(graph->split[i].name);
        free(graph->split[i].axis);
    }
    free(graph->tie);
    free(graph->renaming);
    free(graph->split);
    free(graph->value);
    free(graph->node);
    free(graph->parameter);
    free(graph);
}

int sgrad_graph_error(const struct sgrad_graph *graph) { return graph->error; }

struct sgrad_shape sgrad_graph_shape(const struct sgrad_graph *graph, int value) {
    return value >= 0 && value < graph->value_count ? graph->value[value].view.shape : (struct sgrad_shape){ 0 };
}

static int add_value(struct sgrad_graph *graph, const char *name, struct sgrad_view view, bool needs_gradient) {
    graph->value = sgrad_array_grow(graph->value, graph->value_count, sizeof *graph->value);
    int v = graph->value_count++;
    graph->value[v] = (struct sgrad__value){ sgrad_format("%s", name), view, v, -1, needs_gradient };
    return v;
}

int sgrad_graph_input(struct sgrad_graph *graph, const char *name, enum sgrad_dtype dtype, struct sgrad_shape sample) {
    struct sgrad_view view = { dtype, { 1 + sample.rank, { 1 } } };
    assert(graph->inputs < SGRAD_MAX_INPUTS && sample.rank < SGRAD_MAX_RANK);
    for (int i = 0; i < sample.rank; i++) view.shape.dim[1 + i] = sample.dim[i];
    return graph->input[graph->inputs++] = add_value(graph, name, view, false);
}

int sgrad_graph_field(struct sgrad_graph *graph, const char *name) {
    for (int i = 0; i < graph->inputs; i++)
        if (strcmp(graph->value[graph->input[i]].name, name) == 0) return graph->input[i];
    if (!graph->error) graph->error = sgrad_log_error(SGRAD_ENAME, "the data set's samples have no field %s", name);
    return -1;
}

int sgrad_graph_cached(const struct sgrad_graph *graph) { return graph->cached; }
int sgrad_graph_sequences(const struct sgrad_graph *graph) { return graph->sequences; }
int sgrad_graph_documents(const struct sgrad_graph *graph) { return graph->documents ? graph->documents : -1; }

int sgrad_graph_fail(struct sgrad_graph *graph, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!graph->error) graph->error = sgrad_log_error(SGRAD_EINVAL, "model %s: %s", graph->model ? graph->model->name : "", text);
    return -1;
}

/* ---- ranks ---- */

void sgrad__graph_set_mesh(struct sgrad_graph *graph, const struct sgrad_mesh *mesh) {
    graph->mesh = *mesh;
    for (struct sgrad__node *n = graph->node; n < graph->node + graph->node_count; n++)
        if (n->op->set_rank) n->op->set_rank(&n->is, graph->rank, n->attrs);
}

int sgrad_graph_ranks(const struct sgrad_graph *graph, const char *name) {
    const struct sgrad_axis *axis = sgrad_mesh_axis(&graph->mesh, name);
    return axis && axis->ranks ? axis->ranks : 1;
}

bool sgrad__graph_uses(const struct sgrad_graph *graph, const struct sgrad_axis *axis) {
    for (int n = 0; n < graph->node_count; n++)
        if (graph->node[n].is.axis && !strcmp(graph->node[n].is.axis->name, axis->name)) return true;
    for (int i = 0; i < graph->parameter_count; i++)
        for (int c = 0; c < graph->parameter[i].cuts; c++)
            if (!strcmp(graph->parameter[i].cut[c].axis->name, axis->name)) return true;
    return false;
}

int sgrad__mesh_parse(const char *text, struct sgrad_mesh *mesh) {
    return sgrad_mesh_parse(text, (const char *const[]){ SGRAD__DATA, SGRAD__EXPERT, NULL }, mesh);
}

void sgrad_graph_partition(struct sgrad_graph *graph, const char *name, const char *axis, int dimension) {
    sgrad_graph_split_sections(graph, name, axis, dimension, 1);
}

static void add_split(struct sgrad_graph *graph, const char *name, const char *axis, struct sgrad__split is) {
    graph->split = sgrad_array_grow(graph->split, graph->split_count, sizeof *graph->split);
    is.name = sgrad_format("%s", name);
    is.axis = sgrad_format("%s", axis);
    graph->split[graph->split_count++] = is;
}

void sgrad_graph_split_sections(struct sgrad_graph *graph, const char *name, const char *axis, int dimension, int sections) {
    add_split(graph, name, axis, (struct sgrad__split){ .dimension = dimension, .sections = sections });
}

void sgrad_graph_shard(struct sgrad_graph *graph, const char *name, const char *axis, int dimension) {
    add_split(graph, name, axis, (struct sgrad__split){ .dimension = dimension, .sections = 1, .gathered = true });
}

/* The fan of initial values is that of the whole parameter: the number of outputs for SGRAD_HE, of inputs for the others. */
static void add_cut(struct sgrad_graph *graph, struct sgrad__parameter *parameter, const struct sgrad__split *split) {
    const struct sgrad_axis *axis = sgrad_mesh_axis(&graph->mesh, split->axis);
    int64_t *kept = &parameter->kept_shape.dim[split->dimension];
    char text[SGRAD_SHAPE_TEXT];
    assert(parameter->cuts < SGRAD__CUTS);
    parameter->cut[parameter->cuts++] = (struct sgrad__cut){ axis, split->dimension, split->sections, split->gathered };
    if (!split->gathered && (parameter->is.init == SGRAD_HE) == (split->dimension == 0)) parameter->is.fan *= axis->ranks;
    if (!split->gathered) return;
    if (*kept % axis->ranks)
        graph->error = sgrad_log_error(SGRAD_ESHAPE, "%s: dimension %d of %s cannot be divided among the %d ranks of axis %s",
                                       parameter->name, split->dimension, sgrad_shape_text(&parameter->kept_shape, text),
                                       axis->ranks, split->axis);
    *kept /= axis->ranks;
}

/* Gathered splits are applied last. */
static void split_parameter(struct sgrad_graph *graph, struct sgrad__parameter *parameter) {
    char text[SGRAD_SHAPE_TEXT];
    for (int i = 0; i < 2 * graph->split_count; i++) {
        struct sgrad__split *s = &graph->split[i % graph->split_count];
        if (strcmp(s->name, parameter->name) || s->gathered != (i >= graph->split_count)) continue;
        s->made = true;
        if (s->dimension < 0 || s->dimension >= parameter->is.shape.rank)
            graph->error = sgrad_log_error(SGRAD_ESHAPE, "%s: cannot be split along dimension %d: its shape is %s",
                                           parameter->name, s->dimension, sgrad_shape_text(&parameter->is.shape, text));
        else if (s->sections < 1 || parameter->is.shape.dim[s->dimension] % s->sections)
            graph->error =
                sgrad_log_error(SGRAD_ESHAPE, "%s: dimension %d of %s cannot be divided into %d sections", parameter->name,
                                s->dimension, sgrad_shape_text(&parameter->is.shape, text), s->sections);
        if (!graph->error && sgrad_graph_ranks(graph, s->axis) > 1) add_cut(graph, parameter, s);
    }
}

/* ---- parameters ---- */

void sgrad_graph_tie(struct sgrad_graph *graph, const char *name, const char *as) {
    graph->tie = sgrad_array_grow(graph->tie, graph->tie_count, sizeof *graph->tie);
    graph->tie[graph->tie_count++] = (struct sgrad__tie){ sgrad_format("%s", name), sgrad_format("%s", as), false };
}

void sgrad_graph_rename(struct sgrad_graph *graph, const char *name, const char *as) {
    graph->renaming = sgrad_array_grow(graph->renaming, graph->renaming_count, sizeof *graph->renaming);
    graph->renaming[graph->renaming_count++] =
        (struct sgrad__renaming){ sgrad_format("%s", name), sgrad_format("%s", as), false };
}

static void rename_parameter(struct sgrad_graph *graph, struct sgrad__parameter *parameter) {
    for (int i = 0; i < graph->renaming_count; i++) {
        struct sgrad__renaming *r = &graph->renaming[i];
        if (r->made || strcmp(r->name, parameter->name)) continue;
        free(parameter->name);
        parameter->name = sgrad_format("%s", r->as);
        r->made = true;
    }
}

/* Returns the parameter that TIE refers to, instead of a new one of shape IS. */
static int tied_parameter(struct sgrad_graph *graph, struct sgrad__tie *tie, const struct sgrad_parameter *is) {
    char here[SGRAD_SHAPE_TEXT], there[SGRAD_SHAPE_TEXT];
    int i = 0;
    while (i < graph->parameter_count && (graph->parameter[i].state || strcmp(graph->parameter[i].name, tie->as))) i++;
    if (i == graph->parameter_count) {
        graph->error =
            sgrad_log_error(SGRAD_ENAME, "%s: cannot be tied to %s: no earlier layer has this parameter", tie->name, tie->as);
        return -1;
    }
    const struct sgrad_parameter *other = &graph->parameter[i].is;
    if (!sgrad_shape_equal(&other->shape, &is->shape) || other->layout != is->layout) {
        graph->error = sgrad_log_error(SGRAD_ESHAPE, "%s: has shape %s, but %s, to which it is tied, has %s", tie->name,
                                       sgrad_shape_text(&is->shape, here), tie->as, sgrad_shape_text(&other->shape, there));
        return -1;
    }
    tie->made = true;
    return i;
}

static int add_parameter(struct sgrad_graph *graph, const char *layer, const struct sgrad_parameter *is, bool state) {
    char *name = sgrad_format("%.*s.%s", (int)strcspn(layer, "/"), layer, is->name);
    for (int i = 0; i < graph->tie_count && !state; i++)
        if (strcmp(graph->tie[i].name, name) == 0) {
            free(name);
            return tied_parameter(graph, &graph->tie[i], is);
        }
    graph->parameter = sgrad_array_grow(graph->parameter, graph->parameter_count, sizeof *graph->parameter);
    graph->parameter[graph->parameter_count] =
        (struct sgrad__parameter){ .name = name, .is = *is, .kept_shape = is->shape, .state = state };
    if (!state) {
        split_parameter(graph, &graph->parameter[graph->parameter_count]);
        rename_parameter(graph, &graph->parameter[graph->parameter_count]);
    }
    return graph->parameter_count++;
}

/* Statistics are summed over all ranks, so all ranks must have the same parameter. */
static void check_split(struct sgrad_graph *graph, const struct sgrad__node *node) {
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && !graph->error; i++)
        if (node->p[i] >= 0 && graph->parameter[node->p[i]].cuts && node->is.stat[0].rank)
            graph->error = sgrad_log_error(SGRAD_EINVAL, "%s: cannot be split: %s computes statistics over all ranks",
                                           graph->parameter[node->p[i]].name, node->op->name);
}

/* ---- layers ---- */

/* Activations must have the type of the network, other inputs that of the operation. */
static int check_input(const struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, int value, int i) {
    if (value < 0 || value >= graph->value_count)
        return sgrad_log_error(SGRAD_EINVAL, "%s: input %d of %s is not a value of this network", name, i, op->name);
    const enum sgrad_dtype is = graph->value[value].view.dtype,
                           takes = op->no_gradient >> i & 1 ? op->input_dtype[i] : graph->dtype;
    if (is == takes || (is == SGRAD_U16 && takes == SGRAD_U8)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%s: input %d of %s must have type %s, but %s has type %s", name, i, op->name,
                           sgrad_dtype_name(takes), graph->value[value].name, sgrad_dtype_name(is));
}

static int check_inputs(struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, const int *inputs, int count) {
    const int most = op->inputs + op->optional_inputs;
    if ((count < op->inputs || count > most) && op->optional_inputs)
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s must have %d to %d inputs, not %d", name, op->name, op->inputs, most, count);
    if (count < op->inputs || count > most)
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s must have %d %s, not %d", name, op->name, most,
                               sgrad_plural(most, "input", "inputs"), count);
    for (int i = 0; i < count; i++)
        SGRAD_TRY(check_input(graph, op, name, inputs[i], i));
    for (int i = 0; i < graph->node_count; i++)
        if (strcmp(graph->node[i].name, name) == 0) return sgrad_log_error(SGRAD_EINVAL, "%s: two layers have this name", name);
    return 0;
}

/* A task must have each operand only once, so a layer that uses a value twice gets a copy. */
static int again(struct sgrad_graph *graph, const char *layer, const int *inputs, int i) {
    bool before = false;
    for (int j = 0; j < i; j++) before |= graph->value[inputs[j]].root == graph->value[inputs[i]].root;
    if (!before) return inputs[i];
    char *name = sgrad_format("%s.input%d", layer, i);
    const int copy = sgrad_graph_apply(graph, &sgrad_identity_op, name, &inputs[i], 1, &(struct sgrad_identity){ 0 });
    free(name);
    return copy;
}

int sgrad_graph_apply(struct sgrad_graph *graph, const struct sgrad_op *op, const char *name, const int *given, int count,
                      const void *attrs) {
    int inputs[SGRAD_MAX_INPUTS];
    if (graph->error) return -1;
    if ((graph->error = check_inputs(graph, op, name, given, count))) return -1;
    if (attrs && !op->attrs_size) {
        graph->error =
            sgrad_log_error(SGRAD_EINVAL, "operation %s: has no .attrs_size; set it to the size of its attributes", op->name);
        return -1;
    }
    for (int i = 0; i < count; i++) inputs[i] = again(graph, name, given, i);
    if (graph->error) return -1;

    struct sgrad__node n = {
        .name = sgrad_format("%s", name), .op = op, .attrs = sgrad_xcalloc(1, op->attrs_size), .output = -1
    };
    if (attrs) memcpy(n.attrs, attrs, op->attrs_size);
    n.is.layer = n.name;
    n.is.mesh = &graph->mesh;
    n.is.inputs = count;
    bool needs_gradient = false;
    for (int i = 0; i < count; i++) {
        n.input[i] = inputs[i];
        n.is.x[i] = graph->value[inputs[i]].view;
        needs_gradient |= graph->value[inputs[i]].needs_gradient && !(op->no_gradient >> i & 1);
    }
    n.is.y.dtype = graph->dtype;
    if ((graph->error = op->infer(&n.is, n.attrs))) {
        free(n.name);
        free(n.attrs);
        return -1;
    }
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && !graph->error; i++) {
        n.p[i] = n.is.p[i].name ? add_parameter(graph, name, &n.is.p[i], false) : -1;
        n.s[i] = n.is.s[i].name ? add_parameter(graph, name, &n.is.s[i], true) : -1;
        needs_gradient |= n.p[i] >= 0;
    }
    check_split(graph, &n);
    if (graph->error) {
        free(n.name);
        free(n.attrs);
        return -1;
    }
    if (n.is.y.shape.rank) {
        n.output = add_value(graph, name, n.is.y, needs_gradient);
        graph->value[n.output].maker = graph->node_count;
        if (n.is.view_of_input) graph->value[n.output].root = graph->value[inputs[0]].root;
    }
    graph->node = sgrad_array_grow(graph->node, graph->node_count, sizeof *graph->node);
    graph->node[graph->node_count++] = n;
    return graph->adapt ? graph->adapt(graph, graph->node_count - 1) : n.output;
}

/* ---- inputs and loss ---- */

bool sgrad__graph_prepares(const struct sgrad__node *node) { return node->op->forward[0].kernel.kind == &sgrad_input_kind; }

struct sgrad_image *sgrad__graph_image(const struct sgrad_graph *graph) {
    for (int n = 0; n < graph->node_count; n++)
        if (graph->node[n].op == &sgrad_image_op) return graph->node[n].attrs;
    return NULL;
}

const struct sgrad_metric *sgrad__graph_metrics(const struct sgrad_graph *graph, int *count) {
    const struct sgrad__node *loss = &graph->node[graph->loss];
    *count = (int)loss->is.stat[0].dim[0] - 1;
    return loss->op->metrics;
}

void sgrad_graph_logits(struct sgrad_graph *graph, int value) { graph->logits = value; }

int sgrad__graph_logits(const struct sgrad_graph *graph) {
    return graph->logits >= 0 ? graph->logits : graph->node[graph->loss].input[0];
}

/* Names of layers are those of their values in ONNX files, which must not be names of parameters. */
static int check_renamings(const struct sgrad_graph *graph) {
    for (const struct sgrad__renaming *r = graph->renaming; r < graph->renaming + graph->renaming_count; r++) {
        if (!r->made)
            return sgrad_log_error(SGRAD_ENAME, "%s: cannot be renamed %s: no layer has this parameter", r->name, r->as);
        for (int n = 0; n < graph->node_count; n++)
            if (!strcmp(graph->node[n].name, r->as))
                return sgrad_log_error(SGRAD_EINVAL, "%s: cannot be renamed %s: a layer has this name", r->name, r->as);
    }
    return 0;
}

int sgrad_graph_finalize(struct sgrad_graph *graph) {
    if (graph->error) return graph->error;
    const struct sgrad__node *last = graph->node_count ? &graph->node[graph->node_count - 1] : NULL;
    if (!last || !last->op->metrics[0].name)
        return graph->error = sgrad_log_error(SGRAD_EINVAL, "%s: the network must end with a loss, an operation with metrics",
                                              last ? last->name : "no layer");
    graph->loss = graph->node_count - 1;
    for (int i = 0; i < last->is.stat[0].dim[0] - 1; i++) assert(last->op->metrics[i].name);
    for (int i = 0; i < graph->tie_count && !graph->error; i++)
        if (!graph->tie[i].made)
            graph->error = sgrad_log_error(SGRAD_ENAME, "%s: cannot be tied to %s: no layer has the parameter %s",
                                           graph->tie[i].name, graph->tie[i].as, graph->tie[i].name);
    if (!graph->error) graph->error = check_renamings(graph);
    for (int i = 0; i < graph->split_count && !graph->error; i++)
        if (!graph->split[i].made)
            graph->error = sgrad_log_error(SGRAD_ENAME, "%s: cannot be split over axis %s: no layer has this parameter",
                                           graph->split[i].name, graph->split[i].axis);
    return graph->error;
}

int sgrad_graph_loss(struct sgrad_graph *graph, int y, int target, float label_smoothing) {
    if (graph->error) return graph->error;
    if (target >= 0 && target < graph->value_count && graph->value[target].view.dtype == SGRAD_F32)
        sgrad_layer(graph, mean_squared_error, "loss", (y, target), 0);
    else
        sgrad_layer(graph, softmax_cross_entropy, "loss", (y, target), .label_smoothing = label_smoothing);
    return sgrad_graph_finalize(graph);
}
