/* kfac.c: second-order training by Kronecker factors (codelets/kfac/kronecker.h). The update itself is codelets/kfac/kfac.c;
 * graphs/compiler/curvature.h assigns the work to ranks.
 *
 * For every layer that processes patches of its input, on several ranks (F: steps between two updates of factors; E: between two
 * decompositions, which run in the background, with lag L):
 *
 *     steps 1, 1 + F, …   each micro-batch ─> lanes ─> sum ─> sum over the ranks, upper triangles          of A, and of G
 *                         one rank: sum ─> average
 *     steps 1, 1 + E, …   that rank: average ─> eigen ─> broadcast in its column ─> next                 may outlive the step
 *     steps 1 + L, …      next ─> used                                                                   also in step 1
 *     every step          gradients of weight and bias ─> V, by the results in use ─> broadcast in the row
 *                         Σ V·∇ over all layers ─> updates
 *
 * L is fixed, so that the result of a step does not depend on the speed of a task. The same applies with damped inverses instead
 * of eigenvectors.
 *
 * Checkpoints contain the factors, the results in use and the next ones. Limits: layers with tied parameters are left out. */
#include "codelets/kfac/kronecker.h"
#include "codelets/updates.h"
#include "graphs/compiler/builder.h"
#include "graphs/compiler/curvature.h"

#include <stdlib.h>
#include <string.h>

enum { A = SGRAD__A, G = SGRAD__G, FACTORS = SGRAD__FACTORS };
static const char *const factor_names[FACTORS] = { "factor_a", "factor_g" };
static const char *const letters[FACTORS] = { "A", "G" };

/* ---- states --------------------------------------------------------------------------------------------------------------- */

/* A rank stores the factors that it decomposes, and the results that it uses. */
static int keep_layer(struct sgrad__training *training, const struct sgrad_program_options *options,
                      const struct sgrad__curvature *curvature, const struct sgrad__curved_layer *layer) {
    const char *name = training->graph->node[layer->node].name;
    const bool all = curvature->columns == 1, here = layer->column == curvature->own;
    const int first = all ? -1 : options->peers->rank[layer->column];
    for (int which = A; which < FACTORS; which++) {
        const struct sgrad__curved_factor *f = &layer->factor[which];
        const int rank = curvature->ranks > 1 ? f->rank : -1;
        SGRAD_TRY(sgrad__training_keep(training, factor_names[which], name, f->view.shape, rank, f->rank == options->rank));
        SGRAD_TRY(sgrad__training_keep(training, curvature->method->used[which], name, f->made.shape, first, here));
        if (options->kfac.lag)
            SGRAD_TRY(sgrad__training_keep(training, curvature->method->next[which], name, f->made.shape, first, here));
    }
    return 0;
}

static int allocate(struct sgrad__training *training, const struct sgrad_program_options *options) {
    struct sgrad__curvature *c = sgrad__curvature_of(training->graph, options);
    int error = 0;
    for (int i = 0; i < c->layers && !error; i++) error = keep_layer(training, options, c, &c->layer[i]);
    free(c);
    return error;
}

/* ---- factors ------------------------------------------------------------------------------------------------------------- */

struct factor {
    const struct sgrad__curved_factor *is;
    struct sgrad_factor_health *health;
    double scale;                           /* of the sum over all samples */
    const struct sgrad_bound_kernel *call[SGRAD__SIZES][2];     /* by size of the micro-batch; 1: the lane has a value */
    int *leaf;                              /* by first micro-batch of the lane; -1: not created */
    int sum;                                /* finally over all ranks; -1: the loss does not depend on the layer */
    int average, used, next;                /* buffers; next is used, if there is no lag; -1: only other ranks have it */
};
struct layer {
    const struct sgrad__curved_layer *is;
    struct factor factor[FACTORS];
};
struct watched {
    const struct sgrad__curvature *curvature;
    int *of_node;                           /* index of its layer; -1: not preconditioned */
    struct layer *layer;
    struct sgrad_bucket *bucket;            /* of sums; NULL: none is open */
    int buckets;
    int64_t sent;                           /* bytes of factors that are summed over the ranks */
};

static struct sgrad__when every_factor(const struct sgrad_builder *builder) {
    return (struct sgrad__when){ builder->o->kfac.factor_every, 1 };
}

static int lend_kept(struct sgrad_builder *builder, const char *state, const char *layer) {
    struct sgrad_tensor *tensor = sgrad__training_kept(builder->o->training, state, layer);
    return tensor ? sgrad__lend_buffer(builder, tensor) : -1;
}

/* There are B samples with S positions each; without images, each row is a sample. */
static double scale_of(const struct sgrad_builder *builder, const struct sgrad__node *node, const struct sgrad_patches *patches,
                       int which) {
    const struct sgrad_shape *y = &node->is.y.shape;
    const double samples = (double)builder->p->batch.averaged,
                 positions = (double)sgrad_shape_count(y) / (double)y->dim[y->rank - 1];
    if (which == G) return samples * positions;
    return 1 / (samples * positions * (patches->kernel ? positions : 1));
}

static void open_layer(struct sgrad_builder *builder, const struct sgrad__curvature *curvature, struct layer *layer) {
    const struct sgrad__node *node = &builder->g->node[layer->is->node];
    for (int which = A; which < FACTORS; which++) {
        struct factor *f = &layer->factor[which];
        f->is = &layer->is->factor[which];
        f->health = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *f->health));
        f->health->name = sgrad__own(builder->p, sgrad_format("%s %s", node->name, letters[which]));
        f->scale = scale_of(builder, node, &layer->is->factor[A].how.patches, which);
        f->leaf = sgrad__own(builder->p, sgrad_xcalloc((size_t)builder->micros, sizeof *f->leaf));
        memset(f->leaf, 0xff, (size_t)builder->micros * sizeof *f->leaf);
        f->average = lend_kept(builder, factor_names[which], node->name);
        f->used = lend_kept(builder, curvature->method->used[which], node->name);
        f->next = builder->o->kfac.lag ? lend_kept(builder, curvature->method->next[which], node->name) : f->used;
        f->sum = -1;
    }
}

static struct watched *open_watched(struct sgrad_builder *builder) {
    struct watched *w = builder->watched = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *w));
    const struct sgrad__curvature *c = w->curvature = sgrad__own(builder->p, sgrad__curvature_of(builder->g, builder->o));
    w->of_node = sgrad__own(builder->p, sgrad_xcalloc((size_t)builder->g->node_count, sizeof *w->of_node));
    w->layer = sgrad__own(builder->p, sgrad_xcalloc((size_t)c->layers + 1, sizeof *w->layer));
    memset(w->of_node, 0xff, (size_t)builder->g->node_count * sizeof *w->of_node);
    for (int i = 0; i < c->layers; i++) {
        w->of_node[c->layer[i].node] = i;
        w->layer[i].is = &c->layer[i];
        open_layer(builder, c, &w->layer[i]);
    }
    return w;
}

/* Adds the term of micro-batch M to the leaf of its lane. */
static void add_part(struct sgrad_builder *builder, const struct layer *l, struct factor *factor, int which, int m) {
    static const struct sgrad_use use[FACTORS] = { SGRAD_IN(X, 0), SGRAD_IN(DY, 0) };
    const char *layer = builder->g->node[l->is->node].name, *letter = letters[which];
    int *leaf = &factor->leaf[sgrad__lane_first(builder, m)], operand[2];
    const bool begun = *leaf >= 0;
    struct sgrad_bound_kernel call = { .kernel = &sgrad_kronecker_factor_kernel, .attrs = &factor->is->how, .operands = 2,
                               .access = { SGRAD_R, begun ? SGRAD_RW : SGRAD_W }, .accumulate = begun ? 2 : 0 };
    operand[0] = sgrad__add_operand(builder, l->is->node, use[which], m, &call.view[0]);
    if (!begun) *leaf = sgrad__add_buffer(builder, sgrad_format("%s %s#%d", layer, letter, m), factor->is->view);
    operand[1] = *leaf;
    call.view[1] = factor->is->view;
    const struct sgrad_bound_kernel **known = &factor->call[builder->p->micro[m].size][begun];
    if (!*known) *known = sgrad__add_call(builder, call);
    sgrad__add_instruction(builder, *known, operand, m, SGRAD__PRIORITY_INPUT, sgrad_format("%s %s #%d", layer, letter, m));
}

static void close_bucket(struct sgrad_builder *builder, struct watched *watched) {
    if (!watched->bucket) return;
    char *name = sgrad_format("factors %d", watched->buckets++);
    watched->sent += sgrad__bucket_bytes(watched->bucket);
    sgrad__bucket_sum(builder, watched->bucket, NULL, SGRAD__PRIORITY_INPUT, name);
    sgrad__bucket_free(watched->bucket);
    watched->bucket = NULL;
    free(name);
}

/* Adds the sum of the terms, once those of all micro-batches exist. */
static void add_sum(struct sgrad_builder *builder, struct watched *watched, const struct layer *layer, struct factor *factor) {
    factor->sum = sgrad__add_sum(builder, factor->leaf, builder->micros, factor->health->name);
    if (builder->sharing[0].group.count > 1) {
        if (!watched->bucket) watched->bucket = sgrad__bucket_open(SGRAD_F32, builder->sharing[0].group);
        sgrad__bucket_put(watched->bucket, factor->sum, factor->is->view, &factor->sum, -1,
                          builder->g->node[layer->is->node].name);
        if (sgrad__bucket_bytes(watched->bucket) >= builder->p->bucket_bytes) close_bucket(builder, watched);
    }
}

static void on_backward(struct sgrad_builder *builder, int n, int m) {
    struct watched *w = builder->watched ? builder->watched : open_watched(builder);
    if (w->of_node[n] < 0) return;
    struct layer *l = &w->layer[w->of_node[n]];
    builder->when = every_factor(builder);
    for (int which = A; which < FACTORS; which++) {
        add_part(builder, l, &l->factor[which], which, m);
        if (m == builder->micros - 1) add_sum(builder, w, l, &l->factor[which]);
    }
    builder->when = (struct sgrad__when){ 0 };
}

/* ---- averages, decompositions -------------------------------------------------------------------------------------------- */

enum { SHADOW = -1 };   /* priority: it runs if a worker has no other task */

static void add_average(struct sgrad_builder *builder, const struct factor *factor) {
    struct sgrad_running_average *how = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *how));
    *how = (struct sgrad_running_average){ builder->o->kfac.decay, factor->scale, factor->health };
    const struct sgrad_bound_kernel call = { .kernel = &sgrad_running_average_kernel, .attrs = how, .operands = 2,
                                     .view = { factor->is->view, factor->is->view }, .access = { SGRAD_R, SGRAD_RW } };
    builder->when = every_factor(builder);
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), (int[]){ factor->sum, factor->average }, 0,
                           SGRAD__PRIORITY_INPUT, sgrad_format("%s average", factor->health->name));
}

static void take_next(struct sgrad_builder *builder, const struct factor *factor, long every, long from) {
    builder->when = (struct sgrad__when){ every, from };
    if (factor->next != factor->used) sgrad__add_copy(builder, factor->next, factor->used);
}

/* Ranks of other columns count the tag as well, so that later tags are the same on all ranks. */
static void add_made(struct sgrad_builder *builder, const struct sgrad__curvature *curvature, const struct factor *factor,
                     bool here) {
    const struct sgrad_bound_kernel call = { .kernel = curvature->method->make, .attrs = &factor->health, .operands = 2,
                                     .view = { factor->is->view, factor->is->made }, .access = { SGRAD_R, SGRAD_RW } };
    if (!here) {
        if (curvature->rows > 1) sgrad__next_tag(builder);
        return;
    }
    if (factor->is->rank == builder->o->rank)
        sgrad__add_instruction(builder, sgrad__add_call(builder, call), (int[]){ factor->average, factor->next }, 0, SHADOW,
                               sgrad_format("%s %s", factor->health->name, curvature->method->made));
    const int came = sgrad__add_collective(builder, SGRAD_BROADCAST, &curvature->column, factor->is->rank, factor->next, SHADOW,
                                           factor->health->name);
    if (factor->is->rank != builder->o->rank) sgrad__add_copy(builder, came, factor->next);
}

/* The result of a factor replaces the one in use L steps after the decomposition starts; if L is the interval between
 * decompositions, directly before the next one starts. The first result is used at once. */
static void add_decomposition(struct sgrad_builder *builder, const struct sgrad__curvature *curvature,
                              const struct factor *factor, bool here) {
    const long every = builder->o->kfac.eigen_every;
    if (here) take_next(builder, factor, every, 1 + builder->o->kfac.lag);
    builder->when = (struct sgrad__when){ every, 1 };
    builder->outlive = factor->next != factor->used;
    add_made(builder, curvature, factor, here);
    builder->outlive = false;
    if (here) take_next(builder, factor, SGRAD__ONCE, 1);
    builder->when = (struct sgrad__when){ 0 };
}

/* ---- the step ------------------------------------------------------------------------------------------------------------ */

/* Adds the task that computes V from the gradients of the layer's parameters (at most two). */
static void add_precondition(struct sgrad_builder *builder, const struct sgrad__curvature *curvature, const struct layer *layer,
                             const int *gradient, const int *v) {
    const struct sgrad__node *node = &builder->g->node[layer->is->node];
    const int operand[] = { gradient[0], gradient[1], layer->factor[A].used, layer->factor[G].used, v[0], v[1] };
    struct sgrad_bound_kernel call = { .kernel = curvature->method->precondition, .operands = 6,
                               .access = { SGRAD_R, SGRAD_R, SGRAD_R, SGRAD_R, SGRAD_W, SGRAD_W } };
    for (int i = 0; i < call.operands; i++) {
        call.view[i].shape.rank = -1;
        if (operand[i] >= 0) call.view[i] = builder->p->buffer[operand[i]].view;
    }
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s precondition", node->name));
}

/* Replaces the GRADIENT of a parameter by V, which rank ROOT broadcasts in the row. Returns the buffer with Σ V·∇. */
static int take_preconditioned(struct sgrad_builder *builder, const struct sgrad__curvature *curvature, int root, int v,
                               int *gradient, const char *name) {
    const struct sgrad_view view = builder->p->buffer[*gradient].view, one = sgrad__doubles(sgrad_shape(1, 1));
    const struct sgrad_bound_kernel call = { .kernel = &sgrad_inner_product_kernel, .operands = 3, .view = { view, view, one },
                                     .access = { SGRAD_R, SGRAD_R, SGRAD_W } };
    const int came = sgrad__add_collective(builder, SGRAD_BROADCAST, &curvature->row, root, v, SGRAD__PRIORITY_UPDATE, name);
    const int change = sgrad__add_buffer(builder, sgrad_format("%s change", name), one);
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), (int[]){ *gradient, came, change }, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s change", name));
    *gradient = came;
    return change;
}

/* Replaces the GRADIENTs of the layer's parameters by V. Sets CHANGE, by parameter, to the buffers with Σ V·∇. */
static void precondition(struct sgrad_builder *builder, const struct sgrad__curvature *curvature, const struct layer *layer,
                         int *gradient, int *change) {
    const int *p = builder->g->node[layer->is->node].p;
    int own[2] = { -1, -1 }, v[2] = { -1, -1 };
    for (int i = 0; i < layer->is->parameters; i++) {
        own[i] = gradient[p[i]];
        v[i] = sgrad__add_buffer(builder, sgrad_format("%s preconditioned", builder->g->parameter[p[i]].name),
                                 builder->p->buffer[own[i]].view);
    }
    if (layer->is->column == curvature->own) add_precondition(builder, curvature, layer, own, v);
    for (int i = 0; i < layer->is->parameters; i++)
        change[p[i]] = take_preconditioned(builder, curvature, curvature->row.rank[layer->is->column], v[i], &gradient[p[i]],
                                           builder->g->parameter[p[i]].name);
}

static void update_all(struct sgrad_builder *builder, const int *given) {
    struct watched *w = builder->watched ? builder->watched : open_watched(builder);
    const struct sgrad__curvature *c = w->curvature;
    const size_t parameters = (size_t)builder->g->parameter_count;
    int *gradient = sgrad_xcalloc(parameters, sizeof *gradient), *change = sgrad_xcalloc(parameters, sizeof *change);
    memcpy(gradient, given, parameters * sizeof *gradient);
    memset(change, 0xff, parameters * sizeof *change);
    builder->when = every_factor(builder);
    close_bucket(builder, w);
    builder->when = (struct sgrad__when){ 0 };
    for (struct layer *l = w->layer; l < w->layer + c->layers; l++)
        for (struct factor *f = l->factor; f < l->factor + FACTORS && f->sum >= 0; f++) {
            if (f->is->rank == builder->o->rank) add_average(builder, f);
            add_decomposition(builder, c, f, l->is->column == c->own);
        }
    for (struct layer *l = w->layer; l < w->layer + c->layers; l++)
        if (l->factor[A].sum >= 0) precondition(builder, c, l, gradient, change);
    const int all = sgrad__add_sum(builder, change, builder->g->parameter_count, "change");
    for (int i = 0; i < builder->g->parameter_count; i++) {
        builder->norm = change[i] >= 0 ? all : -1;
        if (gradient[i] >= 0) sgrad__add_update(builder, i, gradient[i]);
    }
    builder->norm = -1;
    builder->p->note = sgrad__curvature_text(c, builder->g, builder->o, w->sent);
    free(change);
    free(gradient);
}

SGRAD_UPDATE_KERNEL(kfac);

const struct sgrad_optimizer sgrad_kfac_optimizer = {
    .name = "kfac",
    .summary = "K-FAC: SGD on gradients preconditioned by Kronecker factors of the curvature (second order)",
    .source = "J. G. Pauloski et al., Convolutional neural network training with distributed K-FAC, 2020",
    .default_lr = 0.1,
    .options = (const char *const[]){ "momentum", "nesterov", "kfac-damping", "kfac-damping-schedule", "kfac-decay", "kfac-clip",
                                      "kfac-factor-every", "kfac-eigen-every", "kfac-lag", "kfac-skip", "kfac-inverse",
                                      "kfac-variant", NULL },
    .update = &sgrad_kfac_kernel,
    .needs_full_tensor = true,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
};

const struct sgrad__layer_hooks sgrad__kfac_hooks = {
    .optimizer = &sgrad_kfac_optimizer,
    .allocate = allocate,
    .on_backward = on_backward,
    .update_all = update_all,
};
