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
static int keep_layer(struct sgrad__training *training, const struct sgrad_program_options *o, const struct sgrad__curvature *c,
                      const struct sgrad__curved_layer *l) {
    const char *name = training->graph->node[l->node].name;
    const bool all = c->columns == 1, here = l->column == c->own;
    const int first = all ? -1 : o->peers->rank[l->column];
    for (int which = A; which < FACTORS; which++) {
        const struct sgrad__curved_factor *f = &l->factor[which];
        const int rank = c->ranks > 1 ? f->rank : -1;
        SGRAD_TRY(sgrad__training_keep(training, factor_names[which], name, f->view.shape, rank, f->rank == o->rank));
        SGRAD_TRY(sgrad__training_keep(training, c->method->used[which], name, f->made.shape, first, here));
        if (o->kfac.lag) SGRAD_TRY(sgrad__training_keep(training, c->method->next[which], name, f->made.shape, first, here));
    }
    return 0;
}

static int allocate(struct sgrad__training *training, const struct sgrad_program_options *o) {
    struct sgrad__curvature *c = sgrad__curvature_of(training->graph, o);
    int error = 0;
    for (int i = 0; i < c->layers && !error; i++) error = keep_layer(training, o, c, &c->layer[i]);
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

static struct sgrad__when every_factor(const struct sgrad_builder *b) {
    return (struct sgrad__when){ b->o->kfac.factor_every, 1 };
}

static int lend_kept(struct sgrad_builder *b, const char *state, const char *layer) {
    struct sgrad_tensor *tensor = sgrad__training_kept(b->o->training, state, layer);
    return tensor ? sgrad__lend_buffer(b, tensor) : -1;
}

/* There are B samples with S positions each; without images, each row is a sample. */
static double scale_of(const struct sgrad_builder *b, const struct sgrad__node *node, const struct sgrad_patches *patches,
                       int which) {
    const struct sgrad_shape *y = &node->is.y.shape;
    const double samples = (double)b->p->batch.averaged, positions = (double)sgrad_shape_count(y) / (double)y->dim[y->rank - 1];
    if (which == G) return samples * positions;
    return 1 / (samples * positions * (patches->kernel ? positions : 1));
}

static void open_layer(struct sgrad_builder *b, const struct sgrad__curvature *c, struct layer *l) {
    const struct sgrad__node *node = &b->g->node[l->is->node];
    for (int which = A; which < FACTORS; which++) {
        struct factor *f = &l->factor[which];
        f->is = &l->is->factor[which];
        f->health = sgrad__own(b->p, sgrad_xcalloc(1, sizeof *f->health));
        f->health->name = sgrad__own(b->p, sgrad_format("%s %s", node->name, letters[which]));
        f->scale = scale_of(b, node, &l->is->factor[A].how.patches, which);
        f->leaf = sgrad__own(b->p, sgrad_xcalloc((size_t)b->micros, sizeof *f->leaf));
        memset(f->leaf, 0xff, (size_t)b->micros * sizeof *f->leaf);
        f->average = lend_kept(b, factor_names[which], node->name);
        f->used = lend_kept(b, c->method->used[which], node->name);
        f->next = b->o->kfac.lag ? lend_kept(b, c->method->next[which], node->name) : f->used;
        f->sum = -1;
    }
}

static struct watched *open_watched(struct sgrad_builder *b) {
    struct watched *w = b->watched = sgrad__own(b->p, sgrad_xcalloc(1, sizeof *w));
    const struct sgrad__curvature *c = w->curvature = sgrad__own(b->p, sgrad__curvature_of(b->g, b->o));
    w->of_node = sgrad__own(b->p, sgrad_xcalloc((size_t)b->g->node_count, sizeof *w->of_node));
    w->layer = sgrad__own(b->p, sgrad_xcalloc((size_t)c->layers + 1, sizeof *w->layer));
    memset(w->of_node, 0xff, (size_t)b->g->node_count * sizeof *w->of_node);
    for (int i = 0; i < c->layers; i++) {
        w->of_node[c->layer[i].node] = i;
        w->layer[i].is = &c->layer[i];
        open_layer(b, c, &w->layer[i]);
    }
    return w;
}

/* Adds the term of micro-batch M to the leaf of its lane. */
static void add_part(struct sgrad_builder *b, const struct layer *l, struct factor *f, int which, int m) {
    static const struct sgrad_use use[FACTORS] = { SGRAD_IN(X, 0), SGRAD_IN(DY, 0) };
    const char *layer = b->g->node[l->is->node].name, *letter = letters[which];
    int *leaf = &f->leaf[sgrad__lane_first(b, m)], operand[2];
    const bool begun = *leaf >= 0;
    struct sgrad_bound_kernel call = { .kernel = &sgrad_kronecker_factor_kernel, .attrs = &f->is->how, .operands = 2,
                               .access = { SGRAD_R, begun ? SGRAD_RW : SGRAD_W }, .accumulate = begun ? 2 : 0 };
    operand[0] = sgrad__add_operand(b, l->is->node, use[which], m, &call.view[0]);
    if (!begun) *leaf = sgrad__add_buffer(b, sgrad_format("%s %s#%d", layer, letter, m), f->is->view);
    operand[1] = *leaf;
    call.view[1] = f->is->view;
    const struct sgrad_bound_kernel **known = &f->call[b->p->micro[m].size][begun];
    if (!*known) *known = sgrad__add_call(b, call);
    sgrad__add_instruction(b, *known, operand, m, SGRAD__PRIORITY_INPUT, sgrad_format("%s %s #%d", layer, letter, m));
}

static void close_bucket(struct sgrad_builder *b, struct watched *w) {
    if (!w->bucket) return;
    char *name = sgrad_format("factors %d", w->buckets++);
    w->sent += sgrad__bucket_bytes(w->bucket);
    sgrad__bucket_sum(b, w->bucket, NULL, SGRAD__PRIORITY_INPUT, name);
    sgrad__bucket_free(w->bucket);
    w->bucket = NULL;
    free(name);
}

/* Adds the sum of the terms, once those of all micro-batches exist. */
static void add_sum(struct sgrad_builder *b, struct watched *w, const struct layer *l, struct factor *f) {
    f->sum = sgrad__add_sum(b, f->leaf, b->micros, f->health->name);
    if (b->sharing[0].group.count > 1) {
        if (!w->bucket) w->bucket = sgrad__bucket_open(SGRAD_F32, b->sharing[0].group);
        sgrad__bucket_put(w->bucket, f->sum, f->is->view, &f->sum, -1, b->g->node[l->is->node].name);
        if (sgrad__bucket_bytes(w->bucket) >= b->p->bucket_bytes) close_bucket(b, w);
    }
}

static void on_backward(struct sgrad_builder *b, int n, int m) {
    struct watched *w = b->watched ? b->watched : open_watched(b);
    if (w->of_node[n] < 0) return;
    struct layer *l = &w->layer[w->of_node[n]];
    b->when = every_factor(b);
    for (int which = A; which < FACTORS; which++) {
        add_part(b, l, &l->factor[which], which, m);
        if (m == b->micros - 1) add_sum(b, w, l, &l->factor[which]);
    }
    b->when = (struct sgrad__when){ 0 };
}

/* ---- averages, decompositions -------------------------------------------------------------------------------------------- */

enum { SHADOW = -1 };   /* priority: it runs if a worker has no other task */

static void add_average(struct sgrad_builder *b, const struct factor *f) {
    struct sgrad_running_average *how = sgrad__own(b->p, sgrad_xcalloc(1, sizeof *how));
    *how = (struct sgrad_running_average){ b->o->kfac.decay, f->scale, f->health };
    const struct sgrad_bound_kernel call = { .kernel = &sgrad_running_average_kernel, .attrs = how, .operands = 2,
                                     .view = { f->is->view, f->is->view }, .access = { SGRAD_R, SGRAD_RW } };
    b->when = every_factor(b);
    sgrad__add_instruction(b, sgrad__add_call(b, call), (int[]){ f->sum, f->average }, 0, SGRAD__PRIORITY_INPUT,
                           sgrad_format("%s average", f->health->name));
}

static void take_next(struct sgrad_builder *b, const struct factor *f, long every, long from) {
    b->when = (struct sgrad__when){ every, from };
    if (f->next != f->used) sgrad__add_copy(b, f->next, f->used);
}

/* Ranks of other columns count the tag as well, so that later tags are the same on all ranks. */
static void add_made(struct sgrad_builder *b, const struct sgrad__curvature *c, const struct factor *f, bool here) {
    const struct sgrad_bound_kernel call = { .kernel = c->method->make, .attrs = &f->health, .operands = 2,
                                     .view = { f->is->view, f->is->made }, .access = { SGRAD_R, SGRAD_RW } };
    if (!here) {
        if (c->rows > 1) sgrad__next_tag(b);
        return;
    }
    if (f->is->rank == b->o->rank)
        sgrad__add_instruction(b, sgrad__add_call(b, call), (int[]){ f->average, f->next }, 0, SHADOW,
                               sgrad_format("%s %s", f->health->name, c->method->made));
    const int came = sgrad__add_collective(b, SGRAD_BROADCAST, &c->column, f->is->rank, f->next, SHADOW, f->health->name);
    if (f->is->rank != b->o->rank) sgrad__add_copy(b, came, f->next);
}

/* The result of a factor replaces the one in use L steps after the decomposition starts; if L is the interval between
 * decompositions, directly before the next one starts. The first result is used at once. */
static void add_decomposition(struct sgrad_builder *b, const struct sgrad__curvature *c, const struct factor *f, bool here) {
    const long every = b->o->kfac.eigen_every;
    if (here) take_next(b, f, every, 1 + b->o->kfac.lag);
    b->when = (struct sgrad__when){ every, 1 };
    b->outlive = f->next != f->used;
    add_made(b, c, f, here);
    b->outlive = false;
    if (here) take_next(b, f, SGRAD__ONCE, 1);
    b->when = (struct sgrad__when){ 0 };
}

/* ---- the step ------------------------------------------------------------------------------------------------------------ */

/* Adds the task that computes V from the gradients of the layer's parameters (at most two). */
static void add_precondition(struct sgrad_builder *b, const struct sgrad__curvature *c, const struct layer *l,
                             const int *gradient, const int *v) {
    const struct sgrad__node *node = &b->g->node[l->is->node];
    const int operand[] = { gradient[0], gradient[1], l->factor[A].used, l->factor[G].used, v[0], v[1] };
    struct sgrad_bound_kernel call = { .kernel = c->method->precondition, .operands = 6,
                               .access = { SGRAD_R, SGRAD_R, SGRAD_R, SGRAD_R, SGRAD_W, SGRAD_W } };
    for (int i = 0; i < call.operands; i++) {
        call.view[i].shape.rank = -1;
        if (operand[i] >= 0) call.view[i] = b->p->buffer[operand[i]].view;
    }
    sgrad__add_instruction(b, sgrad__add_call(b, call), operand, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s precondition", node->name));
}

/* Replaces the GRADIENT of a parameter by V, which rank ROOT broadcasts in the row. Returns the buffer with Σ V·∇. */
static int take_preconditioned(struct sgrad_builder *b, const struct sgrad__curvature *c, int root, int v, int *gradient,
                               const char *name) {
    const struct sgrad_view view = b->p->buffer[*gradient].view, one = sgrad__doubles(sgrad_shape(1, 1));
    const struct sgrad_bound_kernel call = { .kernel = &sgrad_inner_product_kernel, .operands = 3, .view = { view, view, one },
                                     .access = { SGRAD_R, SGRAD_R, SGRAD_W } };
    const int came = sgrad__add_collective(b, SGRAD_BROADCAST, &c->row, root, v, SGRAD__PRIORITY_UPDATE, name);
    const int change = sgrad__add_buffer(b, sgrad_format("%s change", name), one);
    sgrad__add_instruction(b, sgrad__add_call(b, call), (int[]){ *gradient, came, change }, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s change", name));
    *gradient = came;
    return change;
}

/* Replaces the GRADIENTs of the layer's parameters by V. Sets CHANGE, by parameter, to the buffers with Σ V·∇. */
static void precondition(struct sgrad_builder *b, const struct sgrad__curvature *c, const struct layer *l, int *gradient,
                         int *change) {
    const int *p = b->g->node[l->is->node].p;
    int own[2] = { -1, -1 }, v[2] = { -1, -1 };
    for (int i = 0; i < l->is->parameters; i++) {
        own[i] = gradient[p[i]];
        v[i] = sgrad__add_buffer(b, sgrad_format("%s preconditioned", b->g->parameter[p[i]].name), b->p->buffer[own[i]].view);
    }
    if (l->is->column == c->own) add_precondition(b, c, l, own, v);
    for (int i = 0; i < l->is->parameters; i++)
        change[p[i]] = take_preconditioned(b, c, c->row.rank[l->is->column], v[i], &gradient[p[i]], b->g->parameter[p[i]].name);
}

static void update_all(struct sgrad_builder *b, const int *given) {
    struct watched *w = b->watched ? b->watched : open_watched(b);
    const struct sgrad__curvature *c = w->curvature;
    const size_t parameters = (size_t)b->g->parameter_count;
    int *gradient = sgrad_xcalloc(parameters, sizeof *gradient), *change = sgrad_xcalloc(parameters, sizeof *change);
    memcpy(gradient, given, parameters * sizeof *gradient);
    memset(change, 0xff, parameters * sizeof *change);
    b->when = every_factor(b);
    close_bucket(b, w);
    b->when = (struct sgrad__when){ 0 };
    for (struct layer *l = w->layer; l < w->layer + c->layers; l++)
        for (struct factor *f = l->factor; f < l->factor + FACTORS && f->sum >= 0; f++) {
            if (f->is->rank == b->o->rank) add_average(b, f);
            add_decomposition(b, c, f, l->is->column == c->own);
        }
    for (struct layer *l = w->layer; l < w->layer + c->layers; l++)
        if (l->factor[A].sum >= 0) precondition(b, c, l, gradient, change);
    const int all = sgrad__add_sum(b, change, b->g->parameter_count, "change");
    for (int i = 0; i < b->g->parameter_count; i++) {
        b->norm = change[i] >= 0 ? all : -1;
        if (gradient[i] >= 0) sgrad__add_update(b, i, gradient[i]);
    }
    b->norm = -1;
    b->p->note = sgrad__curvature_text(c, b->g, b->o, w->sent);
    free(change);
    free(gradient);
}

SGRAD_UPDATE_KERNEL(kfac);

const struct sgrad_optimizer sgrad_kfac_optimizer = {
    .name = "kfac",
    .summary = "second order: sgd by gradients that Kronecker factors of the curvature precondition",
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
