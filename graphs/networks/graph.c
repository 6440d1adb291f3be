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

void sgrad_graph_destroy(struct sgrad_graph *g) {
    if (!g) return;
    sgrad__parameters_free(g);
    sgrad__imported_free(g);
    free(g->file);
    for (int i = 0; i < g->value_count; i++) free(g->value[i].name);
    for (int i = 0; i < g->node_count; i++) {
        free(g->node[i].name);
        free(g->node[i].attrs);
    }
    for (int i = 0; i < g->parameter_count; i++) free(g->parameter[i].name);
    for (int i = 0; i < g->tie_count; i++) {
        free(g->tie[i].name);
        free(g->tie[i].as);
    }
    for (int i = 0; i < g->split_count; i++) {
        free(g->split[i].name);
        free(g->split[i].axis);
    }
    free(g->tie);
    free(g->split);
    free(g->value);
    free(g->node);
    free(g->parameter);
    free(g);
}

int sgrad_graph_error(const struct sgrad_graph *g) { return g->error; }

struct sgrad_shape sgrad_graph_shape(const struct sgrad_graph *g, int value) {
    return value >= 0 && value < g->value_count ? g->value[value].view.shape : (struct sgrad_shape){ 0 };
}

static int add_value(struct sgrad_graph *g, const char *name, struct sgrad_view view, bool needs_gradient) {
    g->value = sgrad_array_grow(g->value, g->value_count, sizeof *g->value);
    int v = g->value_count++;
    g->value[v] = (struct sgrad__value){ sgrad_format("%s", name), view, v, -1, needs_gradient };
    return v;
}

int sgrad_graph_input(struct sgrad_graph *g, const char *name, enum sgrad_dtype dtype, struct sgrad_shape sample) {
    struct sgrad_view view = { dtype, { 1 + sample.rank, { 1 } } };
    assert(g->inputs < SGRAD_MAX_INPUTS && sample.rank < SGRAD_MAX_RANK);
    for (int i = 0; i < sample.rank; i++) view.shape.dim[1 + i] = sample.dim[i];
    return g->input[g->inputs++] = add_value(g, name, view, false);
}

int sgrad_graph_field(struct sgrad_graph *g, const char *name) {
    for (int i = 0; i < g->inputs; i++)
        if (strcmp(g->value[g->input[i]].name, name) == 0) return g->input[i];
    if (!g->error) g->error = sgrad_log_error(SGRAD_ENAME, "the data set's samples have no field %s", name);
    return -1;
}

bool sgrad_graph_cached(const struct sgrad_graph *g) { return g->cached; }

int sgrad_graph_fail(struct sgrad_graph *g, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!g->error) g->error = sgrad_log_error(SGRAD_EINVAL, "model %s: %s", g->model ? g->model->name : "", text);
    return -1;
}

/* ---- ranks ---- */

void sgrad__graph_set_mesh(struct sgrad_graph *g, const struct sgrad_mesh *mesh) {
    g->mesh = *mesh;
    for (struct sgrad__node *n = g->node; n < g->node + g->node_count; n++)
        if (n->op->place) n->op->place(&n->is, g->rank, n->attrs);
}

int sgrad_graph_ranks(const struct sgrad_graph *g, const char *name) {
    const struct sgrad_axis *axis = sgrad_mesh_axis(&g->mesh, name);
    return axis && axis->ranks ? axis->ranks : 1;
}

bool sgrad__graph_uses(const struct sgrad_graph *g, const struct sgrad_axis *axis) {
    for (int n = 0; n < g->node_count; n++)
        if (g->node[n].is.axis && !strcmp(g->node[n].is.axis->name, axis->name)) return true;
    for (int i = 0; i < g->parameter_count; i++)
        for (int c = 0; c < g->parameter[i].cuts; c++)
            if (!strcmp(g->parameter[i].cut[c].axis->name, axis->name)) return true;
    return false;
}

void sgrad_graph_partition(struct sgrad_graph *g, const char *name, const char *axis, int dimension) {
    sgrad_graph_split_sections(g, name, axis, dimension, 1);
}

static void add_split(struct sgrad_graph *g, const char *name, const char *axis, struct sgrad__split is) {
    g->split = sgrad_array_grow(g->split, g->split_count, sizeof *g->split);
    is.name = sgrad_format("%s", name);
    is.axis = sgrad_format("%s", axis);
    g->split[g->split_count++] = is;
}

void sgrad_graph_split_sections(struct sgrad_graph *g, const char *name, const char *axis, int dimension, int sections) {
    add_split(g, name, axis, (struct sgrad__split){ .dimension = dimension, .sections = sections });
}

void sgrad_graph_shard(struct sgrad_graph *g, const char *name, const char *axis, int dimension) {
    add_split(g, name, axis, (struct sgrad__split){ .dimension = dimension, .sections = 1, .gathered = true });
}

/* The fan of initial values is that of the whole parameter: the number of outputs for SGRAD_HE, of inputs for the others. */
static void add_cut(struct sgrad_graph *g, struct sgrad__parameter *p, const struct sgrad__split *s) {
    const struct sgrad_axis *axis = sgrad_mesh_axis(&g->mesh, s->axis);
    int64_t *kept = &p->kept_shape.dim[s->dimension];
    char text[SGRAD_SHAPE_TEXT];
    assert(p->cuts < SGRAD__CUTS);
    p->cut[p->cuts++] = (struct sgrad__cut){ axis, s->dimension, s->sections, s->gathered };
    if (!s->gathered && (p->is.init == SGRAD_HE) == (s->dimension == 0)) p->is.fan *= axis->ranks;
    if (!s->gathered) return;
    if (*kept % axis->ranks)
        g->error = sgrad_log_error(SGRAD_ESHAPE, "%s: dimension %d of %s cannot be kept in parts by the %d ranks of axis %s",
                                   p->name, s->dimension, sgrad_shape_text(&p->kept_shape, text), axis->ranks, s->axis);
    *kept /= axis->ranks;
}

/* Gathered splits are applied last. */
static void split_parameter(struct sgrad_graph *g, struct sgrad__parameter *p) {
    char text[SGRAD_SHAPE_TEXT];
    for (int i = 0; i < 2 * g->split_count; i++) {
        struct sgrad__split *s = &g->split[i % g->split_count];
        if (strcmp(s->name, p->name) || s->gathered != (i >= g->split_count)) continue;
        s->made = true;
        if (s->dimension < 0 || s->dimension >= p->is.shape.rank)
            g->error = sgrad_log_error(SGRAD_ESHAPE, "%s: is to be split along dimension %d, and has shape %s", p->name,
                                       s->dimension, sgrad_shape_text(&p->is.shape, text));
        else if (s->sections < 1 || p->is.shape.dim[s->dimension] % s->sections)
            g->error = sgrad_log_error(SGRAD_ESHAPE, "%s: dimension %d of %s is not %d sections", p->name, s->dimension,
                                       sgrad_shape_text(&p->is.shape, text), s->sections);
        if (!g->error && sgrad_graph_ranks(g, s->axis) > 1) add_cut(g, p, s);
    }
}

/* ---- parameters ---- */

void sgrad_graph_tie(struct sgrad_graph *g, const char *name, const char *as) {
    g->tie = sgrad_array_grow(g->tie, g->tie_count, sizeof *g->tie);
    g->tie[g->tie_count++] = (struct sgrad__tie){ sgrad_format("%s", name), sgrad_format("%s", as), false };
}

/* Returns the parameter that TIE refers to, instead of a new one of shape IS. */
static int tied_parameter(struct sgrad_graph *g, struct sgrad__tie *tie, const struct sgrad_parameter *is) {
    char here[SGRAD_SHAPE_TEXT], there[SGRAD_SHAPE_TEXT];
    int i = 0;
    while (i < g->parameter_count && (g->parameter[i].state || strcmp(g->parameter[i].name, tie->as))) i++;
    if (i == g->parameter_count) {
        g->error =
            sgrad_log_error(SGRAD_ENAME, "%s: is tied to %s, and no layer before it has such a parameter", tie->name, tie->as);
        return -1;
    }
    const struct sgrad_parameter *other = &g->parameter[i].is;
    if (!sgrad_shape_equal(&other->shape, &is->shape) || other->layout != is->layout) {
        g->error = sgrad_log_error(SGRAD_ESHAPE, "%s: has shape %s, and %s, to which it is tied, has %s", tie->name,
                                   sgrad_shape_text(&is->shape, here), tie->as, sgrad_shape_text(&other->shape, there));
        return -1;
    }
    tie->made = true;
    return i;
}

static int add_parameter(struct sgrad_graph *g, const char *layer, const struct sgrad_parameter *is, bool state) {
    char *name = sgrad_format("%.*s.%s", (int)strcspn(layer, "/"), layer, is->name);
    for (int i = 0; i < g->tie_count && !state; i++)
        if (strcmp(g->tie[i].name, name) == 0) {
            free(name);
            return tied_parameter(g, &g->tie[i], is);
        }
    g->parameter = sgrad_array_grow(g->parameter, g->parameter_count, sizeof *g->parameter);
    g->parameter[g->parameter_count] =
        (struct sgrad__parameter){ .name = name, .is = *is, .kept_shape = is->shape, .state = state };
    if (!state) split_parameter(g, &g->parameter[g->parameter_count]);
    return g->parameter_count++;
}

/* Statistics are summed over all ranks, so all ranks must have the same parameter. */
static void check_split(struct sgrad_graph *g, const struct sgrad__node *n) {
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && !g->error; i++)
        if (n->p[i] >= 0 && g->parameter[n->p[i]].cuts && n->is.stat[0].rank)
            g->error = sgrad_log_error(SGRAD_EINVAL, "%s: cannot be split: %s takes statistics that are all ranks'",
                                       g->parameter[n->p[i]].name, n->op->name);
}

/* ---- layers ---- */

/* Activations must have the type of the network, other inputs that of the operation. */
static int check_input(const struct sgrad_graph *g, const struct sgrad_op *op, const char *name, int value, int i) {
    if (value < 0 || value >= g->value_count)
        return sgrad_log_error(SGRAD_EINVAL, "%s: input %d of %s is no value of this network", name, i, op->name);
    const enum sgrad_dtype is = g->value[value].view.dtype, takes = op->no_gradient >> i & 1 ? op->input_dtype[i] : g->dtype;
    if (is == takes || (is == SGRAD_U16 && takes == SGRAD_U8)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%s: input %d of %s is of type %s, and %s is of type %s", name, i, op->name,
                           sgrad_dtype_name(takes), g->value[value].name, sgrad_dtype_name(is));
}

static int check_inputs(struct sgrad_graph *g, const struct sgrad_op *op, const char *name, const int *inputs, int count) {
    if (count < op->inputs || count > op->inputs + op->optional_inputs)
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s takes %d to %d inputs, not %d", name, op->name, op->inputs,
                               op->inputs + op->optional_inputs, count);
    for (int i = 0; i < count; i++)
        SGRAD_TRY(check_input(g, op, name, inputs[i], i));
    for (int i = 0; i < g->node_count; i++)
        if (strcmp(g->node[i].name, name) == 0) return sgrad_log_error(SGRAD_EINVAL, "%s: two layers have this name", name);
    return 0;
}

/* A task must have each operand only once, so a layer that uses a value twice gets a copy. */
static int again(struct sgrad_graph *g, const char *layer, const int *inputs, int i) {
    bool before = false;
    for (int j = 0; j < i; j++) before |= g->value[inputs[j]].root == g->value[inputs[i]].root;
    if (!before) return inputs[i];
    char *name = sgrad_format("%s.input%d", layer, i);
    const int copy = sgrad_graph_apply(g, &sgrad_identity_op, name, &inputs[i], 1, &(struct sgrad_identity){ 0 });
    free(name);
    return copy;
}

int sgrad_graph_apply(struct sgrad_graph *g, const struct sgrad_op *op, const char *name, const int *given, int count,
                      const void *attrs) {
    int inputs[SGRAD_MAX_INPUTS];
    if (g->error) return -1;
    if ((g->error = check_inputs(g, op, name, given, count))) return -1;
    if (attrs && !op->attrs_size) {
        g->error =
            sgrad_log_error(SGRAD_EINVAL, "operation %s has no .attrs_size, the size of its attributes' structure", op->name);
        return -1;
    }
    for (int i = 0; i < count; i++) inputs[i] = again(g, name, given, i);
    if (g->error) return -1;

    struct sgrad__node n = {
        .name = sgrad_format("%s", name), .op = op, .attrs = sgrad_xcalloc(1, op->attrs_size), .output = -1
    };
    if (op->attrs_size) memcpy(n.attrs, attrs, op->attrs_size);
    n.is.layer = n.name;
    n.is.mesh = &g->mesh;
    n.is.inputs = count;
    bool needs_gradient = false;
    for (int i = 0; i < count; i++) {
        n.input[i] = inputs[i];
        n.is.x[i] = g->value[inputs[i]].view;
        needs_gradient |= g->value[inputs[i]].needs_gradient && !(op->no_gradient >> i & 1);
    }
    n.is.y.dtype = g->dtype;
    if ((g->error = op->infer(&n.is, n.attrs))) {
        free(n.name);
        free(n.attrs);
        return -1;
    }
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && !g->error; i++) {
        n.p[i] = n.is.p[i].name ? add_parameter(g, name, &n.is.p[i], false) : -1;
        n.s[i] = n.is.s[i].name ? add_parameter(g, name, &n.is.s[i], true) : -1;
        needs_gradient |= n.p[i] >= 0;
    }
    check_split(g, &n);
    if (g->error) {
        free(n.name);
        free(n.attrs);
        return -1;
    }
    if (n.is.y.shape.rank) {
        n.output = add_value(g, name, n.is.y, needs_gradient);
        g->value[n.output].maker = g->node_count;
        if (n.is.view_of_input) g->value[n.output].root = g->value[inputs[0]].root;
    }
    g->node = sgrad_array_grow(g->node, g->node_count, sizeof *g->node);
    g->node[g->node_count++] = n;
    return n.output;
}

/* ---- inputs and loss ---- */

bool sgrad__graph_prepares(const struct sgrad__node *n) { return n->op->forward[0].kernel.kind == &sgrad_input_kind; }

struct sgrad_image *sgrad__graph_image(const struct sgrad_graph *g) {
    for (int n = 0; n < g->node_count; n++)
        if (g->node[n].op == &sgrad_image_op) return g->node[n].attrs;
    return NULL;
}

const struct sgrad_metric *sgrad__graph_metrics(const struct sgrad_graph *g, int *count) {
    const struct sgrad__node *loss = &g->node[g->loss];
    *count = (int)loss->is.stat[0].dim[0] - 1;
    return loss->op->metrics;
}

void sgrad_graph_logits(struct sgrad_graph *g, int value) { g->logits = value; }

int sgrad__graph_logits(const struct sgrad_graph *g) { return g->logits >= 0 ? g->logits : g->node[g->loss].input[0]; }

int sgrad_graph_finalize(struct sgrad_graph *g) {
    if (g->error) return g->error;
    const struct sgrad__node *last = g->node_count ? &g->node[g->node_count - 1] : NULL;
    if (!last || !last->op->metrics[0].name)
        return g->error = sgrad_log_error(SGRAD_EINVAL, "%s: the network has to end with a loss, an operation with metrics",
                                          last ? last->name : "no layer");
    g->loss = g->node_count - 1;
    for (int i = 0; i < last->is.stat[0].dim[0] - 1; i++) assert(last->op->metrics[i].name);
    for (int i = 0; i < g->tie_count && !g->error; i++)
        if (!g->tie[i].made)
            g->error = sgrad_log_error(SGRAD_ENAME, "%s: is tied to %s, and no layer has such a parameter", g->tie[i].name,
                                       g->tie[i].as);
    for (int i = 0; i < g->split_count && !g->error; i++)
        if (!g->split[i].made)
            g->error = sgrad_log_error(SGRAD_ENAME, "%s: is to be split over axis %s, and no layer has such a parameter",
                                       g->split[i].name, g->split[i].axis);
    return g->error;
}

int sgrad_graph_loss(struct sgrad_graph *g, int y, int target, float label_smoothing) {
    if (g->error) return g->error;
    if (target >= 0 && target < g->value_count && g->value[target].view.dtype == SGRAD_F32)
        sgrad_layer(g, mean_squared_error, "loss", (y, target), 0);
    else
        sgrad_layer(g, softmax_cross_entropy, "loss", (y, target), .label_smoothing = label_smoothing);
    return sgrad_graph_finalize(g);
}
