/* mesh_choice.c: chooses the mesh of --mesh auto: lists every mesh of the given number of ranks, estimates the cost of each
 * (mesh_costs.c), and takes the cheapest one that fits into memory.
 *
 *     8 ranks     data=8   data=4,tensor=1d:2   data=2,tensor=2d:2   tensor=3d:2   data=4,pipe=2   data=2,pipe=2,tensor=1d:2 …
 *                 data=4,context=2   data=2,context=2,tensor=1d:2   context=8   pipe=2,context=4 …
 *
 * The network is built for each mesh as a rank would build it. If it cannot be sharded over a mesh, this fails, and the error
 * message is the reason why the mesh cannot be used. */
#include "graphs/costs/mesh_costs.h"
#include "graphs/api/costs.h"
#include "graphs/costs/costs.h"

#include <stdlib.h>
#include <string.h>

enum { ALONG_AXIS = 8 };            /* maximum number of ranks along an axis; of context also higher powers of two */

/* ---- candidates ---- */

static void add(struct sgrad_mesh_result *result, int data, int pipe, int context, int dimensions, int side) {
    char tensor[32] = "", stages[32] = "", tokens[32] = "";
    result->cost = sgrad_array_grow(result->cost, result->costs, sizeof *result->cost);
    struct sgrad_mesh_cost *cost = &result->cost[result->costs++];
    if (side > 1) snprintf(tensor, sizeof tensor, ",tensor=%dd:%d", dimensions, side);
    if (pipe > 1) snprintf(stages, sizeof stages, ",pipe=%d", pipe);
    if (context > 1) snprintf(tokens, sizeof tokens, ",context=%d", context);
    *cost = (struct sgrad_mesh_cost){ .error = NULL };
    snprintf(cost->mesh, sizeof cost->mesh, "data=%d%s%s%s", data, stages, tokens, tensor);
    if (data == 1 && (pipe > 1 || context > 1 || side > 1))
        snprintf(cost->mesh, sizeof cost->mesh, "%s%s%s", stages, tokens, tensor);
    if (*cost->mesh == ',') memmove(cost->mesh, cost->mesh + 1, strlen(cost->mesh));
}

/* Adds the meshes in which tokens are split over CONTEXT ranks: those with fewer pipeline stages and fewer shards first. */
static void add_all(struct sgrad_mesh_result *result, int ranks, int context, bool data_alone) {
    for (int pipe = 1; pipe <= ranks; pipe++)
        for (int dimensions = 1; dimensions <= 3 && ranks % pipe == 0; dimensions++)
            for (int side = dimensions == 1 ? 1 : 2; side <= ALONG_AXIS; side++) {
                int tensor = side;
                for (int d = 1; d < dimensions; d++) tensor *= side;
                if (ranks / pipe % tensor || (data_alone && (pipe > 1 || tensor > 1)) || pipe > SGRAD__STAGES_MOST) continue;
                if (context == 1 || dimensions == 1) add(result, ranks / pipe / tensor, pipe, context, dimensions, side);
            }
}

/* ---- costs ---- */

static int build_on(struct sgrad__run *run, int (*build)(struct sgrad__run *run), const char *text, int ranks) {
    sgrad__training_destroy(run->training);
    sgrad_graph_destroy(run->graph);
    free(run->model_text);
    run->training = NULL;
    run->graph = NULL;
    run->model_text = NULL;
    SGRAD_TRY(sgrad__mesh_parse(text, &run->parallel.mesh));
    SGRAD_TRY(sgrad_mesh_fit(&run->parallel.mesh, ranks));
    return build(run);
}

static int check_batch(const struct sgrad__run *run, int64_t batch) {
    const int parts = sgrad_mesh_ranks(&run->parallel.mesh, sgrad_mesh_sampled(&run->parallel.mesh));
    if (batch % parts)
        return sgrad_log_error(SGRAD_EINVAL, "a batch of %lld cannot be divided among %d ranks", (long long)batch, parts);
    if (batch / parts < run->graph->stages)
        return sgrad_log_error(SGRAD_EINVAL, "%lld %s per rank cannot keep %d stages busy", (long long)(batch / parts),
                               sgrad_plural(batch / parts, "sample", "samples"), run->graph->stages);
    return 0;
}

/* Returns an error if the network does not divide its work over one of the axes. */
static int check_shared(const struct sgrad__run *run) {
    for (const struct sgrad_axis *axis = run->parallel.mesh.axis; axis < run->parallel.mesh.axis + run->parallel.mesh.axes;
         axis++)
        if (axis->ranks > 1 && strcmp(axis->name, SGRAD__DATA) && strcmp(axis->name, SGRAD__PIPE) &&
            !sgrad__graph_uses(run->graph, axis))
            return sgrad_log_error(SGRAD_EINVAL, "model %s does not divide its work over this mesh", run->model->name);
    return 0;
}

/* Returns an error if an optimizer of the run, or --lookahead, needs whole parameters, and this mesh splits one of them. */
static int check_whole(const struct sgrad__run *run) {
    const struct sgrad__parameter *split =
        run->options.training.lookahead.every ? sgrad__training_find_split(run->training) : NULL;
    if (split) return sgrad_log_error(SGRAD_EINVAL, "--lookahead requires whole parameters, but %s is sharded", split->name);
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &run->graph->parameter[i];
        const struct sgrad_optimizer *is = run->training->update[i].optimizer;
        if (is && p->cuts && (is->needs_full_tensor || is->average))
            return sgrad_log_error(SGRAD_EINVAL, "optimizer %s requires whole parameters, but %s is sharded", is->name, p->name);
    }
    return 0;
}

/* Returns the number of values stored in addition to each parameter, as a mean over all elements: optimizer states, slow
 * weights of --lookahead, averages. */
static double states_of(const struct sgrad__run *run) {
    double elements = 0, states = 0;
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad_shape *shape = &run->graph->parameter[i].kept_shape;
        if (!run->training->update[i].optimizer) continue;
        elements += (double)sgrad_shape_count(shape);
        states += sgrad__state_elements(run->training, i, shape);
        if (run->training->update[i].optimizer->average) states += (double)sgrad_shape_count(shape);
    }
    return (elements > 0 ? states / elements : 0) + (run->options.training.lookahead.every > 0) + (run->options.training.ema > 0);
}

static int estimate(struct sgrad__run *run, int (*build)(struct sgrad__run *run), const struct sgrad_mesh_query *query,
                    struct sgrad_mesh_cost *cost) {
    const struct sgrad_train_options *o = &run->options;
    SGRAD_TRY(build_on(run, build, cost->mesh, query->ranks));
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&run->parallel.mesh, SGRAD__PIPE);
    SGRAD_TRY(check_shared(run));
    if (pipe && pipe->ranks > 1) SGRAD_TRY(sgrad__graph_cut(run->graph, pipe->ranks));
    SGRAD_TRY(check_batch(run, query->batch));
    SGRAD_TRY(check_whole(run));
    sgrad__training_freeze(run->training, o->training.freeze, 0);
    const struct sgrad__terms terms = { .network = query->network, .batch = query->batch, .micro = o->training.micro_batch,
                                        .turns = sgrad__has_groups(run->graph)
                                                 && o->training.bn_group != SGRAD_GROUP_MICRO && o->training.bn_group <= 0,
                                        .flops = query->flops, .bandwidth = query->bandwidth, .workers = query->workers,
                                        .states = states_of(run),
                                        .shares = run->parallel.strategy->shards_optimizer,
                                        .gathers = run->parallel.strategy->shards_parameters };
    const struct sgrad__price is = sgrad__graph_price(run->graph, &terms);
    cost->step = is.step, cost->computing = is.computing, cost->sending = is.sending, cost->waiting = is.waiting;
    cost->memory = is.memory;
    return 0;
}

void sgrad__run_price_meshes(struct sgrad__run *run, int (*build)(struct sgrad__run *run), const struct sgrad_mesh_query *query,
                             bool data_alone, struct sgrad_mesh_result *result) {
    char why[512];
    *result = (struct sgrad_mesh_result){ .best = -1 };
    if (query->mesh) {
        result->cost = sgrad_array_grow(result->cost, result->costs, sizeof *result->cost);
        result->cost[result->costs] = (struct sgrad_mesh_cost){ .error = NULL };
        snprintf(result->cost[result->costs++].mesh, sizeof result->cost->mesh, "%s", query->mesh);
    } else {
        add_all(result, query->ranks, 1, data_alone);
        for (int context = 2; context <= query->ranks && !data_alone; context++) {
            const bool tried = context <= ALONG_AXIS || !(context & (context - 1));
            if (tried && query->ranks % context == 0) add_all(result, query->ranks / context, context, false);
        }
    }
    for (int i = 0; i < result->costs; i++) {
        struct sgrad_mesh_cost *p = &result->cost[i];
        sgrad_log_capture(why, sizeof why);
        const int error = estimate(run, build, query, p);
        sgrad_log_capture(NULL, 0);
        if (error) p->error = sgrad_format("%s", why);
        else if (query->memory > 0 && p->memory > query->memory)
            p->error = sgrad_format("requires %.2f GB of memory; %.2f GB are available", 1e-9 * p->memory, 1e-9 * query->memory);
        else if (result->best < 0 || p->step < result->cost[result->best].step) result->best = i;
    }
}

void sgrad_mesh_result_free(struct sgrad_mesh_result *result) {
    for (int i = 0; i < result->costs; i++) free(result->cost[i].error);
    free(result->cost);
    *result = (struct sgrad_mesh_result){ .best = -1 };
}

/* ---- the mesh of a run ---- */

bool sgrad__run_mesh_is_open(const struct sgrad__run *run) {
    return run->options.parallel.mesh && !strcmp(run->options.parallel.mesh, "auto");
}

/* Returns the option that restricts the mesh to data parallelism; NULL: none is set. */
static const char *alone(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if (sgrad__layer_hooks_of(run->update.optimizer) || run->update.optimizer->needs_full_tensor ||
        run->update.optimizer->average)
        return "--optimizer";
    if (run->parallel.strategy->uses_servers || run->parallel.strategy->asynchronous) return "--strategy";
    if (o->training.ema > 0) return "--ema";
    if (o->evaluation.best) return "--best";
    if (o->evaluation.patience) return "--patience";
    if (o->output.histograms) return "--histograms";
    if (o->parallel.allreduce) return "--allreduce";
    return o->data.partition ? "--data-placement partition" : NULL;
}

static int by_step(const void *a, const void *b) {
    const struct sgrad_mesh_cost *x = a, *y = b;
    if (!x->error != !y->error) return x->error ? 1 : -1;
    return x->error ? strcmp(x->mesh, y->mesh) : (x->step > y->step) - (x->step < y->step);
}

/* Returns the table of the meshes: the cheapest first; those that cannot be used last, with the reason. The caller must free
 * it. */
static char *table_of(const struct sgrad_mesh_result *result, const char *only) {
    enum { LISTED = 16 };
    struct sgrad_mesh_cost *sorted = sgrad_xcalloc((size_t)result->costs, sizeof *sorted);
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    memcpy(sorted, result->cost, (size_t)result->costs * sizeof *sorted);
    qsort(sorted, (size_t)result->costs, sizeof *sorted, by_step);
    if (only) fprintf(to, "           only data parallelism: %s cannot be combined with other meshes\n", only);
    for (int i = 0; i < result->costs && i < LISTED; i++) {
        const struct sgrad_mesh_cost *p = &sorted[i];
        if (p->error)
            fprintf(to, "           %-28s not possible: %s\n", p->mesh, p->error);
        else fprintf(to, "           %-28s %8.2f ms a step: %.2f computing, %.2f sending, %.2f waiting; %.3f GB\n", p->mesh,
                     1e3 * p->step, 1e3 * p->computing, 1e3 * p->sending, 1e3 * p->waiting, 1e-9 * p->memory);
    }
    if (result->costs > LISTED) fprintf(to, "           and %d more\n", result->costs - LISTED);
    fclose(to);
    free(sorted);
    return text;
}

int sgrad__run_choose_mesh(struct sgrad__run *run, int (*build)(struct sgrad__run *run)) {
    const struct sgrad_context *x = run->context;
    if (!sgrad__run_mesh_is_open(run)) return 0;
    run->options.parallel.mesh = NULL;
    run->parallel.auto_mesh = true;
    if (x->ranks == 1) return 0;
    struct sgrad_mesh_query q = { .ranks = x->ranks, .network = x->network, .batch = run->options.training.batch };
    struct sgrad_mesh_result c;
    q.workers = x->cpus;
    struct sgrad__roof roof = { 0 };
    SGRAD_TRY(sgrad__roof_measure(run->options.model.precision, &roof));
    for (int w = 0; w < roof.workers; w++)
        q.flops += 1e9 * roof.flops[w], q.bandwidth += 1e9 * roof.bytes[w];
    q.memory = x->gpus ? 0 : 4 * run->update.kfac_room;
    const char *only = alone(run);
    sgrad__run_price_meshes(run, build, &q, only, &c);
    sgrad_ranks_broadcast(&c.best, sizeof c.best, 0);       /* costs of ranks may differ: rank 0 decides */
    if (c.best < 0) {
        const int error =
            sgrad_log_error(SGRAD_EINVAL, "--mesh auto: no mesh is possible; for example, %s: %s", c.cost[0].mesh,
                            c.cost[0].error);
        sgrad_mesh_result_free(&c);
        return error;
    }
    run->parallel.chosen_mesh = sgrad_format("%s", c.cost[c.best].mesh);
    run->options.parallel.mesh = run->parallel.chosen_mesh;
    run->parallel.mesh_table = table_of(&c, only);
    sgrad_mesh_result_free(&c);
    return build_on(run, build, run->parallel.chosen_mesh, x->ranks);
}
