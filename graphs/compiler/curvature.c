/* curvature.c: selects the layers that second-order training preconditions, and assigns this work to ranks, by cost. */
#include "graphs/compiler/curvature.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct sgrad__method eigen = {
    .made = "eigen",
    .make = &sgrad_eigendecomposition_kernel, .precondition = &sgrad_precondition_kernel,
    .more = 1,
    .used = { "eigen_a", "eigen_g" }, .next = { "next_a", "next_g" },
};
static const struct sgrad__method inverse = {
    .made = "inverse",
    .make = &sgrad_damped_inverse_kernel, .precondition = &sgrad_precondition_by_inverse_kernel,
    .used = { "inverse_a", "inverse_g" }, .next = { "next_inverse_a", "next_inverse_g" },
};

/* ---- selection of layers -------------------------------------------------------------------------------------------------- */

static bool is_shared(const struct sgrad_graph *graph, int n) {
    for (int other = 0; other < graph->node_count; other++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && other != n; i++)
            if (graph->node[other].p[i] >= 0 &&
                (graph->node[other].p[i] == graph->node[n].p[0] || graph->node[other].p[i] == graph->node[n].p[1]))
                return true;
    return false;
}

/* Returns true if node N is preconditioned; then sets *PATCHES. */
static bool takes_patches(const struct sgrad_graph *graph, int n, const struct sgrad__kfac *how, struct sgrad_patches *patches) {
    enum { MOST_TAPS = 31 };    /* maximum size along a side: kronecker_factor.c */
    const struct sgrad__node *node = &graph->node[n];
    if (!node->op->patches || node->p[0] < 0 || sgrad__is_listed(how->skip, node->name) || is_shared(graph, n)) return false;
    if (graph->parameter[node->p[0]].frozen || (node->p[1] >= 0 && graph->parameter[node->p[1]].frozen)) return false;
    *patches = node->op->patches(node->attrs);
    return patches->kernel <= MOST_TAPS;
}

static double flops_of(const struct sgrad_kernel *kernel, const struct sgrad_view *view) {
    return sgrad_kernel_flops(kernel, &(struct sgrad_args){ .view = view });
}

static struct sgrad__curved_factor factor_of(const struct sgrad__node *node, const struct sgrad_patches *patches, int which,
                                             const struct sgrad__method *method) {
    const struct sgrad_shape *shape = which == SGRAD__A ? &node->is.x[0].shape : &node->is.y.shape;
    struct sgrad__curved_factor f = { .how = { { .groups = patches->groups }, false } };
    if (which == SGRAD__A) f.how = (struct sgrad_kronecker_factor){ *patches, node->p[1] >= 0 };
    f.length = sgrad__patch_length(&f.how.patches, shape->dim[shape->rank - 1], f.how.bias);
    f.view = (struct sgrad_view){ SGRAD_F32, { 2, { patches->groups, sgrad__triangle(f.length) } } };
    f.made = (struct sgrad_view){ SGRAD_F32, { 3, { patches->groups, f.length + method->more, f.length } } };
    f.flops = flops_of(method->make, (struct sgrad_view[]){ f.view, f.made });
    return f;
}

static struct sgrad__curved_layer layer_of(const struct sgrad_graph *graph, int n, const struct sgrad_patches *patches,
                                           const struct sgrad__method *method) {
    const struct sgrad__node *node = &graph->node[n];
    struct sgrad__curved_layer l = { .node = n };
    struct sgrad_view view[4] = { 0 };
    for (int which = SGRAD__A; which < SGRAD__FACTORS; which++) {
        l.factor[which] = factor_of(node, patches, which, method);
        view[2 + which] = l.factor[which].made;
    }
    for (int i = 0; i < 2 && node->p[i] >= 0; i++)
        l.bytes[l.parameters++] = (double)sgrad_shape_count(&node->is.p[i].shape) * sizeof(float);
    l.flops = flops_of(method->precondition, view);
    return l;
}

/* ---- assignment to ranks -------------------------------------------------------------------------------------------------- */

/* Returns the work for a layer on each rank of its column, per step on average. */
static double work_of(const struct sgrad__curvature *curvature, const struct sgrad__curved_layer *layer, double every) {
    return layer->flops + (layer->factor[SGRAD__A].flops + layer->factor[SGRAD__G].flops) / every / curvature->rows;
}

/* Assigns layers to columns, and factors to the ranks of their layer's column; .rank is an index among the ranks for now. */
static void assign(struct sgrad__curvature *curvature, double every) {
    const int factors = curvature->layers * SGRAD__FACTORS;
    double *size = sgrad_xcalloc((size_t)factors + 1, sizeof *size),
           *load = sgrad_xcalloc((size_t)curvature->ranks, sizeof *load);
    int *bin = sgrad_xcalloc((size_t)factors + 1, sizeof *bin);
    for (int i = 0; i < curvature->layers; i++) size[i] = work_of(curvature, &curvature->layer[i], every);
    sgrad_lpt_assign(size, curvature->layers, bin, 1, curvature->columns, load);
    for (int i = 0; i < curvature->layers; i++) curvature->layer[i].column = bin[i];
    memset(load, 0, (size_t)curvature->ranks * sizeof *load);
    for (int i = 0; i < factors; i++) {
        size[i] = curvature->layer[i / SGRAD__FACTORS].factor[i % SGRAD__FACTORS].flops;
        bin[i] = curvature->layer[i / SGRAD__FACTORS].column;
    }
    sgrad_lpt_assign(size, factors, bin, curvature->columns, curvature->ranks, load);
    for (int i = 0; i < factors; i++) curvature->layer[i / SGRAD__FACTORS].factor[i % SGRAD__FACTORS].rank = bin[i];
    free(bin);
    free(load);
    free(size);
}

/* ---- costs ---------------------------------------------------------------------------------------------------------------- */

static const double RATE = 5e10;    /* flops per second of a rank that does this in addition to its steps: order of magnitude */

static double seconds_to_send(const struct sgrad_program_options *options, double bytes, struct sgrad_group group) {
    const struct sgrad_exchange each = { .bytes = bytes, .limit = 1, .group = &group, .root = group.rank[0] };
    if (group.count < 2) return 0;
    return sgrad_collective_cost(sgrad_collective_cheapest(SGRAD_BROADCAST, &each, options->network), &each, options->network);
}

static double largest(const double *x, int count) {
    double most = 0;
    for (int i = 0; i < count; i++) most = fmax(most, x[i]);
    return most;
}

static struct sgrad__curvature_cost cost_of(const struct sgrad__curvature *curvature,
                                            const struct sgrad_program_options *options) {
    const double every = (double)options->kfac.eigen_every, copies = options->kfac.lag ? 2 : 1;
    double *flops = sgrad_xcalloc((size_t)curvature->ranks, sizeof *flops),
           *bytes = sgrad_xcalloc((size_t)curvature->ranks, sizeof *bytes);
    struct sgrad__curvature_cost cost = { .rows = curvature->rows };
    for (const struct sgrad__curved_layer *l = curvature->layer; l < curvature->layer + curvature->layers; l++) {
        for (int i = 0; i < l->parameters; i++) cost.sending += seconds_to_send(options, l->bytes[i], curvature->row);
        for (int place = l->column; place < curvature->ranks; place += curvature->columns) flops[place] += l->flops;
        for (const struct sgrad__curved_factor *f = l->factor; f < l->factor + SGRAD__FACTORS; f++) {
            const double made = (double)sgrad_view_bytes(&f->made);
            cost.sending += seconds_to_send(options, made, curvature->column) / every;
            flops[f->rank] += f->flops / every;
            bytes[f->rank] += (double)sgrad_view_bytes(&f->view);
            for (int place = l->column; place < curvature->ranks; place += curvature->columns) bytes[place] += copies * made;
        }
    }
    cost.computing = largest(flops, curvature->ranks) / RATE;
    cost.bytes = largest(bytes, curvature->ranks);
    free(bytes);
    free(flops);
    return cost;
}

/* ---- the grid ------------------------------------------------------------------------------------------------------------ */

/* The memory after the layers contains the ranks of the column. */
static void set_rows(struct sgrad__curvature *curvature, int rows, const struct sgrad_program_options *options) {
    int *column = (int *)(curvature->layer + curvature->layers);
    const int place = options->peers ? sgrad_group_index(options->peers, options->rank) : 0,
              *rank = options->peers ? options->peers->rank : &options->rank;
    curvature->rows = rows;
    curvature->columns = curvature->ranks / rows;
    curvature->own = place % curvature->columns;
    for (int i = 0; i < rows; i++) column[i] = rank[i * curvature->columns + curvature->own];
    curvature->row = (struct sgrad_group){ curvature->columns, rank + place - curvature->own };
    curvature->column = (struct sgrad_group){ rows, column };
    assign(curvature, (double)options->kfac.eigen_every);
}

static bool has_room(const struct sgrad__curvature_cost *cost, const struct sgrad__kfac *how) {
    return !how->room || cost->bytes <= how->room;
}
/* Returns true if grid ONE is better than OTHER. */
static bool is_better(const struct sgrad__curvature_cost *one, const struct sgrad__curvature_cost *other,
                      const struct sgrad__kfac *how) {
    if (!has_room(one, how) || !has_room(other, how)) return one->bytes < other->bytes;
    return one->computing + one->sending < other->computing + other->sending;
}

/* Returns the index of the selected grid: the one nearest to the requested fraction of ranks, or the cheapest. */
static int choose(struct sgrad__curvature *curvature, const struct sgrad_program_options *options) {
    const double wanted = options->kfac.share * curvature->ranks;
    int best = 0;
    for (int rows = curvature->ranks; rows > 0; rows--) {
        if (curvature->ranks % rows || curvature->grids == SGRAD__MOST_GRIDS) continue;
        set_rows(curvature, rows, options);
        const struct sgrad__curvature_cost *is = &curvature->grid[curvature->grids], *was = &curvature->grid[best];
        curvature->grid[curvature->grids++] = cost_of(curvature, options);
        if (curvature->chosen ? is_better(is, was, &options->kfac) : fabs(is->rows - wanted) < fabs(was->rows - wanted))
            best = curvature->grids - 1;
    }
    return best;
}

struct sgrad__curvature *sgrad__curvature_of(const struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    const struct sgrad__method *method = options->kfac.inverse ? &inverse : &eigen;
    const int ranks = sgrad__peer_count(options);
    const size_t layers = (size_t)graph->node_count * sizeof(struct sgrad__curved_layer);
    struct sgrad__curvature *c = sgrad_xcalloc(1, sizeof *c + layers + (size_t)ranks * sizeof(int));
    struct sgrad_patches patches;
    *c = (struct sgrad__curvature){ .method = method, .ranks = ranks, .chosen = options->kfac.share < 0,
                                    .layer = (struct sgrad__curved_layer *)(c + 1) };
    for (int n = 0; n < graph->node_count; n++)
        if (takes_patches(graph, n, &options->kfac, &patches)) c->layer[c->layers++] = layer_of(graph, n, &patches, method);
    c->cost = &c->grid[choose(c, options)];
    c->fits = has_room(c->cost, &options->kfac);
    set_rows(c, c->cost->rows, options);
    for (int i = 0; i < c->layers * SGRAD__FACTORS && options->peers; i++) {
        int *rank = &c->layer[i / SGRAD__FACTORS].factor[i % SGRAD__FACTORS].rank;
        *rank = options->peers->rank[*rank];
    }
    return c;
}

/* ---- text ----------------------------------------------------------------------------------------------------------------- */

static const char *steps(long count) { return sgrad_plural(count, "step", "steps"); }

/* Prints the name of the grid with ROWS rows: "opt", "lw", or the fraction, "0.5". */
static void print_variant(const struct sgrad__curvature *curvature, int rows, FILE *to) {
    if (rows == curvature->ranks) fprintf(to, "opt");
    else if (rows == 1) fprintf(to, "lw");
    else fprintf(to, "%.3g", (double)rows / curvature->ranks);
}

static void print_grids(const struct sgrad__curvature *curvature, FILE *to) {
    fprintf(to, "variant ");
    print_variant(curvature, curvature->rows, to);
    const char *why = curvature->fits ? "the cheapest that fits in memory" : "the smallest, which does not fit in memory";
    if (!curvature->chosen) why = "as requested";
    fprintf(to, ", %s: a layer is preconditioned by %d of %d ranks\n", why, curvature->rows, curvature->ranks);
    for (const struct sgrad__curvature_cost *g = curvature->grid; g < curvature->grid + curvature->grids; g++) {
        fprintf(to, "  ");
        print_variant(curvature, g->rows, to);
        fprintf(to, ": %.3g ms of computation and %.3g ms of communication per step, %.1f MB stored per rank\n",
                1e3 * g->computing, 1e3 * g->sending, g->bytes / 1e6);
    }
}

/* Prints the messages of a step, except those of gradients, and how often they are sent. */
static void print_sent(const struct sgrad__curvature *curvature, const struct sgrad_program_options *options, int64_t sent,
                       double made, FILE *to) {
    double gradients = 0;
    for (int i = 0; i < curvature->layers; i++) gradients += curvature->layer[i].bytes[0] + curvature->layer[i].bytes[1];
    fprintf(to, "  sent: factors of %.1f MB every %ld %s", (double)sent / 1e6, options->kfac.factor_every,
            steps(options->kfac.factor_every));
    if (curvature->rows > 1)
        fprintf(to, ", %s of %.1f MB every %ld", options->kfac.inverse ? "inverses" : "eigenvectors", made / 1e6,
                options->kfac.eigen_every);
    if (curvature->columns > 1) fprintf(to, ", preconditioned gradients of %.1f MB in every step\n", gradients / 1e6);
    else fprintf(to, "; nothing in other steps\n");
}

static void print_layer(const struct sgrad__curvature *curvature, const struct sgrad__curved_layer *layer, const char *name,
                        FILE *to) {
    fprintf(to, "  %-28s", name);
    for (const struct sgrad__curved_factor *f = layer->factor; f < layer->factor + SGRAD__FACTORS; f++) {
        char *text = sgrad_format("%lldx%lld", (long long)f->length, (long long)f->length);
        fprintf(to, "  %-9s", text);
        if (f->view.shape.dim[0] > 1) fprintf(to, " of %lld groups", (long long)f->view.shape.dim[0]);
        fprintf(to, " %8.1f Mflop", 1e-6 * f->flops);
        free(text);
        if (curvature->ranks > 1) fprintf(to, ", rank %d", f->rank);
    }
    fputc('\n', to);
}

char *sgrad__curvature_text(const struct sgrad__curvature *curvature, const struct sgrad_graph *graph,
                            const struct sgrad_program_options *options, int64_t sent) {
    const struct sgrad__kfac *how = &options->kfac;
    double factors = 0, made = 0;
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    for (int i = 0; i < curvature->layers * SGRAD__FACTORS; i++) {
        const struct sgrad__curved_factor *f = &curvature->layer[i / SGRAD__FACTORS].factor[i % SGRAD__FACTORS];
        factors += (double)sgrad_view_bytes(&f->view);
        made += (double)sgrad_view_bytes(&f->made);
    }
    fprintf(to, "curvature  of %d %s: factors every %ld %s (%.1f MB), %s every %ld (%.1f MB), used ", curvature->layers,
            sgrad_plural(curvature->layers, "layer", "layers"), how->factor_every, steps(how->factor_every), factors / 1e6,
            how->inverse ? "inverted" : "decomposed", how->eigen_every, made / 1e6);
    if (how->lag) fprintf(to, "%ld %s later\n", how->lag, steps(how->lag));
    else fprintf(to, "immediately\n");
    if (curvature->ranks > 1) print_grids(curvature, to);
    fprintf(to, "preconditioned: %.1f MB stored%s; %s of A and G:\n", curvature->cost->bytes / 1e6,
            curvature->ranks > 1 ? " on the rank that stores most" : "", how->inverse ? "inverses" : "decompositions");
    if (curvature->ranks > 1) print_sent(curvature, options, sent, made, to);
    for (const struct sgrad__curved_layer *l = curvature->layer; l < curvature->layer + curvature->layers; l++)
        print_layer(curvature, l, graph->node[l->node].name, to);
    fclose(to);
    return text;
}
