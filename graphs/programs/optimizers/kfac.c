/* kfac.c: second-order training by Kronecker factors (codelets/kronecker.h); the step itself is codelets/kfac.c.
 *
 * Of every layer that takes patches of its input, on four ranks; the second part in the background, with lag L:
 *
 *     steps 1, 1 + F, …   each micro-batch ─> lanes ─> sum ─> sum over the ranks, upper triangles ─> average         A, and G
 *     steps 1, 1 + E, …   one rank: average ─> eigen ─> broadcast ─> next                    which may outlive the step
 *     steps 1 + L, …      next ─> used                                                       and in step 1
 *     every step          gradients of weight and bias ─> V, with what is used now ─> Σ V·∇ over all layers ─> updates
 *
 * L is fixed: what a step is does not depend on who was fast. Decompositions are dealt out to the ranks by their cost, n³, the
 * largest first, each to the rank that has least to do (R. L. Graham: Bounds on Multiprocessing Timing Anomalies, 1969).
 *
 * What is kept, factors, what is used and what is next, is in checkpoints. Limits: every rank preconditions every layer. Layers
 * that share parameters with others are left out. On CPUs alone. */
#include "codelets/kronecker.h"
#include "codelets/updates.h"
#include "graphs/programs/builder.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { A, G, FACTORS };
static const char *const factor_names[FACTORS] = { "factor_a", "factor_g" };
static const char *const eigen_names[FACTORS] = { "eigen_a", "eigen_g" };
static const char *const next_names[FACTORS] = { "next_a", "next_g" };

/* ---- which layers, and what is kept of them ------------------------------------------------------------------------------ */

/* Is NAME one of the patterns in LIST? */
static bool is_listed(const char *list, const char *name) {
    bool found = false;
    for (const char *at = list; at && *at && !found; at += strcspn(at, ","), at += *at == ',') {
        char *pattern = sgrad_format("%.*s", (int)strcspn(at, ","), at);
        found = fnmatch(pattern, name, 0) == 0;
        free(pattern);
    }
    return found;
}

static bool is_shared(const struct sgrad_graph *g, int n) {
    for (int other = 0; other < g->node_count; other++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && other != n; i++)
            if (g->node[other].p[i] >= 0 && (g->node[other].p[i] == g->node[n].p[0] || g->node[other].p[i] == g->node[n].p[1]))
                return true;
    return false;
}

/* The patches of node N, if it is preconditioned. */
static bool takes_patches(const struct sgrad_graph *g, int n, const struct sgrad__kfac *how, struct sgrad_patches *patches) {
    enum { MOST_TAPS = 31 };    /* along a side: kronecker_factor.c */
    const struct sgrad__node *node = &g->node[n];
    if (!node->op->patches || node->p[0] < 0 || is_listed(how->skip, node->name) || is_shared(g, n)) return false;
    *patches = node->op->patches(node->attrs);
    return patches->kernel <= MOST_TAPS;
}

/* A's or G's, of the whole layer; how a micro-batch's part of it is made. */
static struct sgrad_kronecker_factor factor_of(const struct sgrad__node *node, const struct sgrad_patches *patches, int which) {
    if (which == A) return (struct sgrad_kronecker_factor){ *patches, node->p[1] >= 0 };
    return (struct sgrad_kronecker_factor){ { .groups = patches->groups }, false };
}

/* Of a group: n. */
static int64_t length_of(const struct sgrad__node *node, const struct sgrad_kronecker_factor *how, int which) {
    const struct sgrad_shape *shape = which == A ? &node->is.x[0].shape : &node->is.y.shape;
    return sgrad__patch_length(&how->patches, shape->dim[shape->rank - 1], how->bias);
}

static int keep(struct sgrad_graph *g, const struct sgrad__program_options *o) {
    struct sgrad_patches patches;
    for (int n = 0; n < g->node_count; n++)
        for (int which = A; which < FACTORS && takes_patches(g, n, &o->kfac, &patches); which++) {
            const struct sgrad__node *node = &g->node[n];
            const struct sgrad_kronecker_factor how = factor_of(node, &patches, which);
            const int64_t length = length_of(node, &how, which);
            const struct sgrad_shape factor = { 2, { patches.groups, sgrad__triangle(length) } };
            const struct sgrad_shape eigen = { 3, { patches.groups, length + 1, length } };
            SGRAD_TRY(sgrad__graph_keep(g, factor_names[which], node->name, factor));
            SGRAD_TRY(sgrad__graph_keep(g, eigen_names[which], node->name, eigen));
            if (o->kfac.lag) SGRAD_TRY(sgrad__graph_keep(g, next_names[which], node->name, eigen));
        }
    return 0;
}

/* ---- factors ------------------------------------------------------------------------------------------------------------- */

struct factor {
    struct sgrad_kronecker_factor how;
    int64_t length;
    double scale;                           /* of the sum over all samples */
    struct sgrad_view view;
    const struct sgrad_call *call[SGRAD__SIZES][2];     /* by the micro-batch's size; where its lane has begun */
    int *leaf;                              /* by a lane's first micro-batch; -1: not begun */
    int sum;                                /* over all ranks, in the end; -1: the loss does not depend on the layer */
    int average, used, next;                /* buffers; next is used, where nothing lags */
    int rank;                               /* whose it is to decompose it */
    double flops;
};
struct layer {
    int node;
    struct factor factor[FACTORS];
};
struct watched {
    int layers, *of_node;                   /* of_node: -1: not preconditioned */
    struct layer *layer;
    struct sgrad__bucket *bucket;           /* of sums; NULL: none is open */
    int buckets;
    int64_t sent;                           /* bytes of sums over ranks */
};

static struct sgrad__when every_factor(const struct sgrad__builder *b) {
    return (struct sgrad__when){ b->o->kfac.factor_every, 1 };
}

static int lend_kept(struct sgrad__builder *b, const char *state, const char *layer) {
    struct sgrad_tensor *tensor = sgrad__graph_kept(b->g, state, layer);
    return tensor ? sgrad__lend_buffer(b, tensor) : -1;
}

/* B samples, of S positions each: rows count as samples where there are no images. */
static double scale_of(const struct sgrad__builder *b, const struct sgrad__node *node, const struct sgrad_patches *patches,
                       int which) {
    const struct sgrad_shape *y = &node->is.y.shape;
    const double samples = (double)b->p->batch.averaged, positions = (double)sgrad_shape_count(y) / (double)y->dim[y->rank - 1];
    if (which == G) return samples * positions;
    return 1 / (samples * positions * (patches->kernel ? positions : 1));
}

static void open_layer(struct sgrad__builder *b, struct layer *l, const struct sgrad_patches *patches) {
    const struct sgrad__node *node = &b->g->node[l->node];
    for (int which = A; which < FACTORS; which++) {
        struct factor *f = &l->factor[which];
        f->how = factor_of(node, patches, which);
        f->length = length_of(node, &f->how, which);
        f->scale = scale_of(b, node, patches, which);
        f->view = (struct sgrad_view){ SGRAD_F32, { 2, { patches->groups, sgrad__triangle(f->length) } } };
        f->leaf = sgrad__own(b->p, sgrad_alloc((size_t)b->micros, sizeof *f->leaf));
        memset(f->leaf, 0xff, (size_t)b->micros * sizeof *f->leaf);
        f->average = lend_kept(b, factor_names[which], node->name);
        f->used = lend_kept(b, eigen_names[which], node->name);
        f->next = b->o->kfac.lag ? lend_kept(b, next_names[which], node->name) : f->used;
        f->sum = -1;
        f->rank = b->o->rank;
        f->flops = (double)patches->groups * (double)f->length * (double)f->length * (double)f->length;
    }
}

/* Decompositions to ranks: the largest that is left to the one that has least to do. */
static void deal_out(struct sgrad__builder *b, struct watched *w) {
    const struct sgrad_group *group = &b->sharing[0];
    double *load = sgrad_alloc((size_t)group->count, sizeof *load);
    bool *dealt = sgrad_alloc((size_t)w->layers * FACTORS, sizeof *dealt);
    for (int i = 0; i < w->layers * FACTORS; i++) {
        int largest = -1, place = 0;
        for (int j = 0; j < w->layers * FACTORS; j++)
            if (!dealt[j] && (largest < 0 || w->layer[j / FACTORS].factor[j % FACTORS].flops >
                                                 w->layer[largest / FACTORS].factor[largest % FACTORS].flops))
                largest = j;
        for (int p = 1; p < group->count; p++)
            if (load[p] < load[place]) place = p;
        struct factor *f = &w->layer[largest / FACTORS].factor[largest % FACTORS];
        dealt[largest] = true;
        load[place] += f->flops;
        f->rank = group->rank[place];
    }
    free(dealt);
    free(load);
}

static struct watched *open_watched(struct sgrad__builder *b) {
    struct watched *w = b->watched = sgrad__own(b->p, sgrad_alloc(1, sizeof *w));
    struct sgrad_patches patches;
    w->of_node = sgrad__own(b->p, sgrad_alloc((size_t)b->g->node_count, sizeof *w->of_node));
    w->layer = sgrad__own(b->p, sgrad_alloc((size_t)b->g->node_count, sizeof *w->layer));
    for (int n = 0; n < b->g->node_count; n++) {
        w->of_node[n] = -1;
        if (!takes_patches(b->g, n, &b->o->kfac, &patches)) continue;
        w->of_node[n] = w->layers;
        w->layer[w->layers].node = n;
        open_layer(b, &w->layer[w->layers++], &patches);
    }
    deal_out(b, w);
    return w;
}

/* Micro-batch M's part, to its lane's leaf. */
static void add_part(struct sgrad__builder *b, const struct layer *l, struct factor *f, int which, int m) {
    static const struct sgrad_use use[FACTORS] = { SGRAD_IN(X, 0), SGRAD_IN(DY, 0) };
    const char *layer = b->g->node[l->node].name, *letter = which == A ? "A" : "G";
    int *leaf = &f->leaf[sgrad__lane_first(b, m)], operand[2];
    const bool begun = *leaf >= 0;
    struct sgrad_call call = { .kernel = &sgrad_kronecker_factor_kernel, .attrs = &f->how, .operands = 2,
                               .access = { SGRAD_R, begun ? SGRAD_RW : SGRAD_W }, .accumulate = begun ? 2 : 0 };
    operand[0] = sgrad__add_operand(b, l->node, use[which], m, &call.view[0]);
    if (!begun) *leaf = sgrad__add_buffer(b, sgrad_format("%s %s#%d", layer, letter, m), f->view);
    operand[1] = *leaf;
    call.view[1] = f->view;
    const struct sgrad_call **known = &f->call[b->p->micro[m].size][begun];
    if (!*known) *known = sgrad__add_call(b, call);
    sgrad__add_instruction(b, *known, operand, m, SGRAD__PRIORITY_INPUT, sgrad_format("%s %s #%d", layer, letter, m));
}

static void close_bucket(struct sgrad__builder *b, struct watched *w) {
    if (!w->bucket) return;
    char *name = sgrad_format("factors %d", w->buckets++);
    w->sent += sgrad__bucket_bytes(w->bucket);
    sgrad__bucket_sum(b, w->bucket, NULL, SGRAD__PRIORITY_INPUT, name);
    sgrad__bucket_free(w->bucket);
    w->bucket = NULL;
    free(name);
}

/* All micro-batches' parts are there. */
static void add_sum(struct sgrad__builder *b, struct watched *w, const struct layer *l, struct factor *f, int which) {
    char *name = sgrad_format("%s %s", b->g->node[l->node].name, which == A ? "A" : "G");
    f->sum = sgrad__add_sum(b, f->leaf, b->micros, name);
    if (b->sharing[0].count > 1) {
        if (!w->bucket) w->bucket = sgrad__bucket_open(SGRAD_F32, &b->sharing[0]);
        sgrad__bucket_put(w->bucket, f->sum, f->view, &f->sum, -1, b->g->node[l->node].name);
        if (sgrad__bucket_bytes(w->bucket) >= b->p->bucket_bytes) close_bucket(b, w);
    }
    free(name);
}

static void watch(struct sgrad__builder *b, int n, int m) {
    struct watched *w = b->watched ? b->watched : open_watched(b);
    if (w->of_node[n] < 0) return;
    struct layer *l = &w->layer[w->of_node[n]];
    b->when = every_factor(b);
    for (int which = A; which < FACTORS; which++) {
        add_part(b, l, &l->factor[which], which, m);
        if (m == b->micros - 1) add_sum(b, w, l, &l->factor[which], which);
    }
    b->when = (struct sgrad__when){ 0 };
}

/* ---- averages, decompositions -------------------------------------------------------------------------------------------- */

enum { SHADOW = -1 };   /* priority: when nobody has anything else to do */

static void add_average(struct sgrad__builder *b, const struct factor *f, const char *name) {
    struct sgrad_running_average *how = sgrad__own(b->p, sgrad_alloc(1, sizeof *how));
    *how = (struct sgrad_running_average){ b->o->kfac.decay, f->scale };
    const struct sgrad_call call = { .kernel = &sgrad_running_average_kernel, .attrs = how, .operands = 2,
                                     .view = { f->view, f->view }, .access = { SGRAD_R, SGRAD_RW } };
    b->when = every_factor(b);
    sgrad__add_instruction(b, sgrad__add_call(b, call), (int[]){ f->sum, f->average }, 0, SGRAD__PRIORITY_INPUT,
                           sgrad_format("%s average", name));
}

static void take_next(struct sgrad__builder *b, const struct factor *f, long every, long from) {
    b->when = (struct sgrad__when){ every, from };
    if (f->next != f->used) sgrad__add_copy(b, f->next, f->used);
}

/* What comes of a decomposition takes the place of what is used L steps later, or, where that is as long as it takes to the next
 * one, just before that; of the first at once. */
static void add_decomposition(struct sgrad__builder *b, const struct factor *f, const char *name) {
    const long every = b->o->kfac.eigen_every;
    const struct sgrad_call call = { .kernel = &sgrad_eigendecomposition_kernel, .operands = 2,
                                     .view = { f->view, b->p->buffer[f->next].view }, .access = { SGRAD_R, SGRAD_RW } };
    take_next(b, f, every, 1 + b->o->kfac.lag);
    b->when = (struct sgrad__when){ every, 1 };
    b->outlive = f->next != f->used;
    if (f->rank == b->o->rank)
        sgrad__add_instruction(b, sgrad__add_call(b, call), (int[]){ f->average, f->next }, 0, SHADOW,
                               sgrad_format("%s eigen", name));
    const int came = sgrad__add_collective(b, SGRAD_BROADCAST, &b->sharing[0], f->rank, f->next, SHADOW, name);
    if (f->rank != b->o->rank) sgrad__add_copy(b, came, f->next);
    b->outlive = false;
    take_next(b, f, SGRAD__ONCE, 1);
    b->when = (struct sgrad__when){ 0 };
}

/* ---- what is told of it -------------------------------------------------------------------------------------------------- */

static double bytes_of(const struct sgrad__builder *b, int buffer) {
    return buffer < 0 ? 0 : (double)sgrad_view_bytes(&b->p->buffer[buffer].view);
}

/* The layers, what their decompositions cost, and whose they are. */
static char *note_of(struct sgrad__builder *b, const struct watched *w) {
    const struct sgrad__kfac *how = &b->o->kfac;
    const bool alone = b->sharing[0].count == 1;
    double factors = 0, eigens = 0;
    char *note = NULL;
    size_t size;
    FILE *to = open_memstream(&note, &size);
    for (int i = 0; i < w->layers * FACTORS; i++) {
        const struct factor *f = &w->layer[i / FACTORS].factor[i % FACTORS];
        factors += bytes_of(b, f->average);
        eigens += bytes_of(b, f->used);
    }
    fprintf(to, "curvature  of %d %s: factors every %ld %s (%.1f MB), decomposed every %ld (%.1f MB), used ", w->layers,
            sgrad_plural(w->layers, "layer", "layers"), how->factor_every, sgrad_plural(how->factor_every, "step", "steps"),
            factors / 1e6, how->eigen_every, eigens / 1e6);
    if (how->lag) fprintf(to, "%ld %s later\n", how->lag, sgrad_plural(how->lag, "step", "steps"));
    else fprintf(to, "at once\n");
    fprintf(to, "preconditioned: %.1f MB kept%s; decompositions of A and G:\n",
            (factors + (how->lag ? 2 : 1) * eigens) / 1e6, alone ? "" : " on each rank");
    if (!alone)
        fprintf(to, "  sent: factors of %.1f MB every %ld steps, eigenvectors of %.1f MB every %ld; nothing in other steps\n",
                (double)w->sent / 1e6, how->factor_every, eigens / 1e6, how->eigen_every);
    for (const struct layer *l = w->layer; l < w->layer + w->layers; l++) {
        fprintf(to, "  %-28s", b->g->node[l->node].name);
        for (int which = A; which < FACTORS; which++) {
            const struct factor *f = &l->factor[which];
            char *text = sgrad_format("%lldx%lld", (long long)f->length, (long long)f->length);
            fprintf(to, "  %-9s", text);
            if (f->view.shape.dim[0] > 1) fprintf(to, " of %lld groups", (long long)f->view.shape.dim[0]);
            fprintf(to, " %8.1f Mflop", 6e-6 * f->flops);
            free(text);
            if (!alone) fprintf(to, ", rank %d", f->rank);
        }
        fputc('\n', to);
    }
    fclose(to);
    return note;
}

/* ---- the step ------------------------------------------------------------------------------------------------------------ */

/* GRADIENT's of the layer's parameters become V; returns the buffer with Σ V·∇. */
static int add_precondition(struct sgrad__builder *b, const struct layer *l, int *gradient) {
    enum { WEIGHT = 4, BIAS, SUM, OPERANDS };
    const struct sgrad__node *node = &b->g->node[l->node];
    struct sgrad_call call = { .kernel = &sgrad_precondition_kernel, .operands = OPERANDS,
                               .access = { SGRAD_R, SGRAD_R, SGRAD_R, SGRAD_R, SGRAD_W, SGRAD_W, SGRAD_W } };
    int operand[OPERANDS] = { -1, -1, l->factor[A].used, l->factor[G].used, -1, -1, -1 };
    for (int i = 0; i < 2; i++) {
        call.view[i].shape.rank = call.view[WEIGHT + i].shape.rank = -1;
        if (node->p[i] < 0) continue;
        call.view[i] = call.view[WEIGHT + i] = b->p->buffer[gradient[node->p[i]]].view;
        operand[i] = gradient[node->p[i]];
        gradient[node->p[i]] = operand[WEIGHT + i] =
            sgrad__add_buffer(b, sgrad_format("%s preconditioned", b->g->parameter[node->p[i]].name), call.view[i]);
    }
    call.view[2] = b->p->buffer[operand[2]].view;
    call.view[3] = b->p->buffer[operand[3]].view;
    call.view[SUM] = sgrad__doubles(sgrad_shape(1, 1));
    operand[SUM] = sgrad__add_buffer(b, sgrad_format("%s change", node->name), call.view[SUM]);
    sgrad__add_instruction(b, sgrad__add_call(b, call), operand, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s precondition", node->name));
    return operand[SUM];
}

static void update_all(struct sgrad__builder *b, const int *given) {
    struct watched *w = b->watched ? b->watched : open_watched(b);
    const size_t parameters = (size_t)b->g->parameter_count;
    int *gradient = sgrad_alloc(parameters, sizeof *gradient), *change = sgrad_alloc((size_t)w->layers + 1, sizeof *change);
    bool *preconditioned = sgrad_alloc(parameters, sizeof *preconditioned);
    memcpy(gradient, given, parameters * sizeof *gradient);
    b->when = every_factor(b);
    close_bucket(b, w);
    b->when = (struct sgrad__when){ 0 };
    for (struct layer *l = w->layer; l < w->layer + w->layers; l++)
        for (int which = A; which < FACTORS && l->factor[which].sum >= 0; which++) {
            char *name = sgrad_format("%s %s", b->g->node[l->node].name, which == A ? "A" : "G");
            add_average(b, &l->factor[which], name);
            add_decomposition(b, &l->factor[which], name);
            free(name);
        }
    for (int i = 0; i < w->layers; i++) {
        const struct sgrad__node *node = &b->g->node[w->layer[i].node];
        change[i] = -1;
        if (w->layer[i].factor[A].sum < 0) continue;
        change[i] = add_precondition(b, &w->layer[i], gradient);
        for (int p = 0; p < 2; p++)
            if (node->p[p] >= 0) preconditioned[node->p[p]] = true;
    }
    const int all = sgrad__add_sum(b, change, w->layers, "change");
    for (int i = 0; i < b->g->parameter_count; i++) {
        b->norm = preconditioned[i] ? all : -1;
        if (gradient[i] >= 0) sgrad__add_update(b, i, gradient[i]);
    }
    b->norm = -1;
    b->p->note = note_of(b, w);
    free(preconditioned);
    free(change);
    free(gradient);
}

SGRAD_UPDATE_KERNEL(kfac);

const struct sgrad_optimizer sgrad_kfac_optimizer = {
    .name = "kfac",
    .summary = "second order: sgd by gradients that Kronecker factors of the curvature precondition",
    .source = "J. G. Pauloski et al., Convolutional neural network training with distributed K-FAC, 2020",
    .rate = 0.1,
    .options = (const char *const[]){ "momentum", "nesterov", "kfac-damping", "kfac-damping-schedule", "kfac-decay", "kfac-clip",
                                      "kfac-factor-every", "kfac-eigen-every", "kfac-lag", "kfac-skip", NULL },
    .update = &sgrad_kfac_kernel,
    .whole = true,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
    .keep = keep,
    .watch = watch,
    .update_all = update_all,
};
