/* axes.c: which mesh ranks had better stand on: all that there are for so many ranks, what each costs (prices.c), and the
 * cheapest of those that memory has room for.
 *
 *     8 ranks     data=8   data=4,tensor=1d:2   data=2,tensor=2d:2   tensor=3d:2   data=4,pipe=2   data=2,pipe=2,tensor=1d:2 …
 *
 * The network is built for each, as a rank would have it: what it cannot be split into is told by the network itself. */
#include "graphs/runs/prices.h"
#include "graphs/runs/run.h"

#include <stdlib.h>
#include <string.h>

enum { ALONG_AXIS = 8 };            /* ranks, of a layer that is split */

/* ---- candidates ---- */

static void add(struct sgrad_mesh_choice *c, int data, int pipe, int dimensions, int side) {
    char tensor[32] = "", stages[32] = "";
    c->price = sgrad_grow(c->price, c->prices, sizeof *c->price);
    struct sgrad_mesh_price *price = &c->price[c->prices++];
    if (side > 1) snprintf(tensor, sizeof tensor, ",tensor=%dd:%d", dimensions, side);
    if (pipe > 1) snprintf(stages, sizeof stages, ",pipe=%d", pipe);
    *price = (struct sgrad_mesh_price){ .why = NULL };
    snprintf(price->mesh, sizeof price->mesh, "data=%d%s%s", data, stages, tensor);
    if (data == 1 && (pipe > 1 || side > 1)) snprintf(price->mesh, sizeof price->mesh, "%s%s", stages, tensor);
    if (*price->mesh == ',') memmove(price->mesh, price->mesh + 1, strlen(price->mesh));
}

/* Data first, then what asks least of the network. */
static void add_all(struct sgrad_mesh_choice *c, int ranks, bool data_alone) {
    for (int pipe = 1; pipe <= ranks; pipe++)
        for (int dimensions = 1; dimensions <= 3 && ranks % pipe == 0; dimensions++)
            for (int side = dimensions == 1 ? 1 : 2; side <= ALONG_AXIS; side++) {
                int tensor = side;
                for (int d = 1; d < dimensions; d++) tensor *= side;
                if (ranks / pipe % tensor || (data_alone && (pipe > 1 || tensor > 1)) || pipe > SGRAD__STAGES_MOST) continue;
                add(c, ranks / pipe / tensor, pipe, dimensions, side);
            }
}

/* ---- prices ---- */

static int build_on(struct sgrad__run *r, int (*build)(struct sgrad__run *r), const char *text, int ranks) {
    sgrad_graph_destroy(r->graph);
    free(r->model_text);
    r->graph = NULL;
    r->model_text = NULL;
    SGRAD_TRY(sgrad_mesh_parse(text, SGRAD__DATA, &r->mesh));
    SGRAD_TRY(sgrad_mesh_fit(&r->mesh, ranks));
    return build(r);
}

static int check_batch(const struct sgrad__run *r, int64_t batch) {
    const int parts = sgrad_mesh_ranks(&r->mesh, sgrad_mesh_sampled(&r->mesh));
    if (batch % parts) return sgrad_fail(SGRAD_EINVAL, "a batch of %lld is not %d ranks'", (long long)batch, parts);
    if (batch / parts < r->graph->stages)
        return sgrad_fail(SGRAD_EINVAL, "%lld %s of a rank cannot keep %d stages busy", (long long)(batch / parts),
                          sgrad_plural(batch / parts, "sample", "samples"), r->graph->stages);
    return 0;
}

/* Is the work shared over all axes that there are? */
static int check_shared(const struct sgrad__run *r) {
    for (const struct sgrad_axis *axis = r->mesh.axis; axis < r->mesh.axis + r->mesh.axes; axis++)
        if (axis->ranks > 1 && strcmp(axis->name, SGRAD__DATA) && strcmp(axis->name, SGRAD__PIPE) &&
            !sgrad__graph_uses(r->graph, axis))
            return sgrad_fail(SGRAD_EINVAL, "%s shares no work over it", r->model->name);
    return 0;
}

/* What some optimizer of the run cannot do on this mesh. */
static int check_optimizers(const struct sgrad__run *r) {
    for (const struct sgrad__parameter *p = r->graph->parameter; p < r->graph->parameter + r->graph->parameter_count; p++) {
        const struct sgrad_optimizer *is = p->state ? NULL : sgrad__run_optimizer_of(r, p->name);
        if (is && p->cuts && is->whole)
            return sgrad_fail(SGRAD_EINVAL, "optimizer %s takes norms of whole parameters, and %s is split", is->name, p->name);
    }
    return 0;
}

/* Tensors of a parameter's size that are kept for it, a parameter's mean by elements: its optimizer's states, slow weights of
 * --lookahead, averages of --ema. */
static double states_of(const struct sgrad__run *r) {
    double elements = 0, states = 0;
    for (const struct sgrad__parameter *p = r->graph->parameter; p < r->graph->parameter + r->graph->parameter_count; p++) {
        const struct sgrad_optimizer *is = p->state ? NULL : sgrad__run_optimizer_of(r, p->name);
        const double count = (double)sgrad_shape_count(&p->kept_shape);
        if (!is) continue;
        elements += count;
        for (int i = 0; is->states && is->states[i].name; i++) states += count;
    }
    return (elements > 0 ? states / elements : 0) + (r->lookahead.every > 0) + (r->options.ema > 0);
}

static int price(struct sgrad__run *r, int (*build)(struct sgrad__run *r), const struct sgrad_mesh_question *q,
                 struct sgrad_mesh_price *price) {
    const struct sgrad_train_options *o = &r->options;
    SGRAD_TRY(build_on(r, build, price->mesh, q->ranks));
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&r->mesh, SGRAD__PIPE);
    SGRAD_TRY(check_shared(r));
    if (pipe && pipe->ranks > 1) SGRAD_TRY(sgrad__graph_cut(r->graph, pipe->ranks));
    SGRAD_TRY(check_batch(r, q->batch));
    SGRAD_TRY(check_optimizers(r));
    const struct sgrad__terms terms = { .network = q->network, .batch = q->batch, .micro = o->micro_batch,
                                        .turns = sgrad__has_groups(r->graph)
                                                 && o->bn_group != SGRAD_GROUP_MICRO && o->bn_group <= 0,
                                        .flops = q->flops, .bandwidth = q->bandwidth, .workers = q->workers,
                                        .states = states_of(r),
                                        .shares = r->strategy->shares };
    const struct sgrad__price is = sgrad__graph_price(r->graph, &terms);
    price->step = is.step, price->computing = is.computing, price->sending = is.sending, price->waiting = is.waiting;
    price->memory = is.memory;
    return 0;
}

void sgrad__run_price_meshes(struct sgrad__run *r, int (*build)(struct sgrad__run *r), const struct sgrad_mesh_question *q,
                             bool data_alone, struct sgrad_mesh_choice *c) {
    char why[512];
    *c = (struct sgrad_mesh_choice){ .best = -1 };
    if (q->mesh) {
        c->price = sgrad_grow(c->price, c->prices, sizeof *c->price);
        c->price[c->prices] = (struct sgrad_mesh_price){ .why = NULL };
        snprintf(c->price[c->prices++].mesh, sizeof c->price->mesh, "%s", q->mesh);
    } else add_all(c, q->ranks, data_alone);
    for (int i = 0; i < c->prices; i++) {
        struct sgrad_mesh_price *p = &c->price[i];
        sgrad_hush(why, sizeof why);
        const int error = price(r, build, q, p);
        sgrad_hush(NULL, 0);
        if (error) p->why = sgrad_format("%s", why);
        else if (q->memory > 0 && p->memory > q->memory)
            p->why = sgrad_format("it wants %.2f GB of %.2f", 1e-9 * p->memory, 1e-9 * q->memory);
        else if (c->best < 0 || p->step < c->price[c->best].step) c->best = i;
    }
}

void sgrad_mesh_choice_free(struct sgrad_mesh_choice *c) {
    for (int i = 0; i < c->prices; i++) free(c->price[i].why);
    free(c->price);
    *c = (struct sgrad_mesh_choice){ .best = -1 };
}

/* ---- a run's ---- */

bool sgrad__run_mesh_is_open(const struct sgrad__run *r) { return r->options.mesh && !strcmp(r->options.mesh, "auto"); }

/* What goes with data alone; NULL: nothing of it is asked for. */
static const char *alone(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if (r->optimizer->keep || r->optimizer->update_all || r->optimizer->whole) return "--optimizer";
    if (r->strategy->sharded || r->strategy->served) return "--strategy";
    return o->precision == SGRAD_PRECISION_BF16 ? "--precision bf16"
           : o->ema > 0                         ? "--ema"
           : o->best                            ? "--best"
           : o->patience                        ? "--patience"
           : o->histograms                      ? "--histograms"
           : o->allreduce                       ? "--allreduce"
           : o->partition                       ? "--data-placement partition"
                                                : NULL;
}

static int by_step(const void *a, const void *b) {
    const struct sgrad_mesh_price *x = a, *y = b;
    if (!x->why != !y->why) return x->why ? 1 : -1;
    return x->why ? strcmp(x->mesh, y->mesh) : (x->step > y->step) - (x->step < y->step);
}

/* The cheapest first; those that do not go last, with why. */
static char *tell(const struct sgrad_mesh_choice *c, const char *only) {
    enum { TOLD = 16 };
    struct sgrad_mesh_price *sorted = sgrad_alloc((size_t)c->prices, sizeof *sorted);
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    memcpy(sorted, c->price, (size_t)c->prices * sizeof *sorted);
    qsort(sorted, (size_t)c->prices, sizeof *sorted, by_step);
    if (only) fprintf(to, "           data alone: %s goes with nothing else\n", only);
    for (int i = 0; i < c->prices && i < TOLD; i++) {
        const struct sgrad_mesh_price *p = &sorted[i];
        if (p->why) fprintf(to, "           %-28s not: %s\n", p->mesh, p->why);
        else fprintf(to, "           %-28s %8.2f ms a step: %.2f computing, %.2f sending, %.2f waiting; %.3f GB\n", p->mesh,
                     1e3 * p->step, 1e3 * p->computing, 1e3 * p->sending, 1e3 * p->waiting, 1e-9 * p->memory);
    }
    if (c->prices > TOLD) fprintf(to, "           and %d more\n", c->prices - TOLD);
    fclose(to);
    free(sorted);
    return text;
}

int sgrad__run_choose_mesh(struct sgrad__run *r, int (*build)(struct sgrad__run *r)) {
    const struct sgrad_context *x = r->context;
    if (!sgrad__run_mesh_is_open(r)) return 0;
    r->options.mesh = NULL;
    r->auto_mesh = true;
    if (x->ranks == 1) return 0;
    struct sgrad_mesh_question q = { .ranks = x->ranks, .network = x->network, .batch = r->options.batch };
    struct sgrad_mesh_choice c;
    q.workers = x->cpus;
    struct sgrad__roof roof = { 0 };
    SGRAD_TRY(sgrad__roof_measure(r->options.precision, &roof));
    for (int w = 0; w < roof.workers; w++)
        q.flops += 1e9 * roof.flops[w], q.bandwidth += 1e9 * roof.bytes[w];
    q.memory = x->cudas ? 0 : 4 * r->room;
    const char *only = alone(r);
    sgrad__run_price_meshes(r, build, &q, only, &c);
    sgrad_ranks_broadcast(&c.best, sizeof c.best, 0);       /* of nodes that are not alike rank 0 decides */
    if (c.best < 0) {
        const int error = sgrad_fail(SGRAD_EINVAL, "--mesh auto: none goes; %s: %s", c.price[0].mesh, c.price[0].why);
        sgrad_mesh_choice_free(&c);
        return error;
    }
    r->chosen = sgrad_format("%s", c.price[c.best].mesh);
    r->options.mesh = r->chosen;
    r->choice = tell(&c, only);
    sgrad_mesh_choice_free(&c);
    return build_on(r, build, r->chosen, x->ranks);
}
