/* program.c: builds the tasks of one step from a graph, in the order of submission.
 *
 * The local batch of this rank is divided into micro-batches. Batch norm takes sums over a group of micro-batches; without such
 * sums, each micro-batch is a group. The sums of a group that spans several ranks are added over these ranks. Two groups of two
 * micro-batches, for a network of layers 1 and 2:
 *
 *     group 0   read 0 1   1f 0 1   2f 0 1   loss 0 1   2b 0 1   1b 0 1
 *     group 1   read 2 3   1f 2 3   2f 2 3   loss 2 3   2b 2 3   sum and update 2   1b 2 3   sum and update 1
 *
 * If weights are gathered for each use (--shard parameters), all groups are computed layer by layer, so that this is done once:
 *
 *     both      read 0 1 2 3   1f 0 1   1f 2 3   2f 0 1   2f 2 3   loss 0 1   loss 2 3   2b 0 1   2b 2 3   update 2   1b …
 *
 * If memory is limited, as many groups as there are workers for are computed likewise, one such wave after another, so that
 * tasks that run at the same time are neighbours in the order in which memory is planned (passes/spill.c).
 *
 * Backward visits the nodes in reverse order. The gradient of a node's output is complete when backward reaches the node, because
 * the consumers of the output come first. nodes.c adds the tasks of a node. */
#include "graphs/compiler/builder.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a GPU with limited memory: fused tasks whose operands fit at the same time, so that moves of others overlap with one; tasks
 * that StarPU has started at the same time. */
enum { TASKS_OF_MEMORY = 4, STARTED = 3 };

/* Returns true if this rank's stage reads a field of the samples. */
static bool takes_input(const struct sgrad_builder *builder) {
    for (int i = 0; i < builder->g->inputs; i++)
        if (sgrad__graph_takes(builder->g, builder->g->input[i], builder->g->stage)) return true;
    return false;
}

/* Makes the inputs of the loss, for each micro-batch, outputs of the program. */
static void add_answers(struct sgrad_builder *builder) {
    builder->p->answer = sgrad_xcalloc((size_t)builder->micros, 2 * sizeof *builder->p->answer);
    for (int i = 0; i < 2 * builder->micros; i++) {
        struct sgrad_view view;
        const struct sgrad_use input = { .role = SGRAD_X, .index = i % 2, .access = SGRAD_R };
        builder->p->answer[i] =
            sgrad__add_output(builder, sgrad__resolve(builder, builder->g->loss, FORWARD, input, i / 2, &view));
    }
}

/* Returns the first node of this rank's stage. */
static int first_here(const struct sgrad_builder *builder) {
    int n = 0;
    while (!sgrad__is_here(builder, n)) n++;
    return n;
}

/* Returns the sums of the loss; zeros, if this stage neither computes nor receives them. */
static int loss_sums(struct sgrad_builder *builder) {
    struct sgrad_view view;
    const struct sgrad_use total = SGRAD_IN(STAT, 0);
    int sums = sgrad__resolve(builder, builder->g->loss, FINISH, total, 0, &view);
    if (sums >= 0) return sums;
    sums = sgrad__add_buffer(builder, sgrad_format("no loss"), view);
    sgrad__add_copy(builder, -1, sums);
    return sums;
}

/* Adds the forward pass of the groups that begin at FROM to TO - 1, layer by layer. */
static void add_forward(struct sgrad_builder *builder, int from, int to) {
    const int each = builder->group_micros;
    for (int m = from; m < to && takes_input(builder); m++) sgrad__add_input(builder, m);
    for (int start = from; start < to; start += each) sgrad__add_arrivals(builder, start);
    for (int n = 0; n < builder->g->node_count; n++)
        for (int start = from; start < to; start += each) sgrad__add_node(builder, n, FORWARD, start);
}

/* Adds their backward pass. After the last group, adds the sums and updates of gradients. */
static void add_backward(struct sgrad_builder *builder, int from, int to, int *summed) {
    const int each = builder->group_micros;
    for (int start = from; start < to; start += each) sgrad__add_gradient_arrivals(builder, start);
    for (int n = builder->g->node_count - 1; n >= 0; n--) {
        for (int start = from; start < to; start += each) {
            sgrad__add_node(builder, n, BACKWARD, start);
            if (n == first_here(builder)) sgrad__add_gradient_departures(builder, start);
        }
        if (to == builder->micros) sgrad__add_node_updates(builder, n, summed);
    }
}

static void add_step(struct sgrad_builder *builder) {
    struct sgrad_graph *g = builder->g;
    int *summed = sgrad_xcalloc((size_t)g->parameter_count, sizeof *summed);
    for (int i = 0; i < g->parameter_count; i++) summed[i] = -1;
    builder->rest = sgrad__parameters_trained(g) * (int64_t)sizeof(float);

    for (int first = 0; first < builder->micros; first += builder->wave) {
        const int rest = builder->micros - first, end = first + (rest < builder->wave ? rest : builder->wave);
        add_forward(builder, first, end);
        if (builder->p->training) add_backward(builder, first, end, summed);
    }
    if (builder->p->training) {
        sgrad__close_gradients(builder);
        if (builder->o->training->hooks) builder->o->training->hooks->update_all(builder, summed);
        else if (builder->o->clip_norm > 0) sgrad__add_clipped_updates(builder, summed);
        sgrad__close_shares(builder);
        if (!builder->p->note) builder->p->note = sgrad__assignment_text(builder->o->training, builder->o);
        if (builder->peers > 1) sgrad__add_statistics(builder);
        for (int n = 0; n < g->node_count; n++) sgrad__add_node(builder, n, FINISH, 0);
        if (builder->o->lookahead.every) sgrad__add_lookahead(builder);
        sgrad__add_averages(builder);
        for (int i = 0; i < g->parameter_count; i++)
            if (!g->parameter[i].state) sgrad__add_histogram(builder, "weights", i, builder->parameter[i]);
    }
    if (builder->o->answers && sgrad__is_here(builder, g->loss)) add_answers(builder);
    builder->p->statistics = sgrad__add_output(builder, loss_sums(builder));
    free(summed);
}

bool sgrad__has_groups(const struct sgrad_graph *graph) {
    for (int n = 0; n < graph->node_count; n++)
        if (graph->node[n].is.partial[0].rank) return true;
    return false;
}

/* Returns true if a node is recomputed. */
static bool marked(const struct sgrad_graph *graph) {
    for (int n = 0; n < graph->node_count; n++)
        if (graph->node[n].again) return true;
    return false;
}

static int *minus_ones(size_t count) {
    int *array = sgrad_xcalloc(count, sizeof *array);
    memset(array, 0xff, count * sizeof *array);
    return array;
}

static void open_builder(struct sgrad_builder *builder) {
    size_t micros = (size_t)builder->micros, per_node = (size_t)builder->g->node_count * SGRAD_MAX_PARAMETERS * micros;
    for (enum made made = AT_FIRST; made < MADE; made++) {
        builder->activation[made] = minus_ones((size_t)builder->g->value_count * micros);
        builder->keep[made] = minus_ones(per_node);
    }
    builder->gradient = minus_ones((size_t)builder->g->value_count * micros);
    builder->part = minus_ones(per_node);
    builder->sum = minus_ones(per_node);
    builder->leaf = minus_ones(per_node);
    builder->total = minus_ones(per_node);
    builder->parameter = minus_ones((size_t)builder->g->parameter_count);
    builder->gathered = minus_ones(2 * (size_t)builder->g->parameter_count);
    builder->rounded = minus_ones(2 * (size_t)builder->g->parameter_count);
    builder->whole = minus_ones(2 * (size_t)builder->g->parameter_count);
    builder->updated = minus_ones((size_t)builder->g->parameter_count);
    builder->dparameter = minus_ones(per_node);
    builder->first = minus_ones((size_t)builder->g->node_count * SGRAD_MAX_TASKS * micros);
    builder->piece = minus_ones((SGRAD_MAX_INPUTS + 1) * micros);
    builder->call =
        sgrad_xcalloc((size_t)builder->g->node_count * PHASES * SGRAD_MAX_TASKS * SGRAD__SIZES * 2, sizeof *builder->call);
    builder->turn = sgrad_xcalloc((size_t)builder->g->node_count, sizeof *builder->turn);
    builder->packed = minus_ones((size_t)builder->g->node_count * PHASES * SGRAD_MAX_TASKS * SGRAD__SIZES);
    builder->elsewhere = sgrad_xcalloc((size_t)builder->g->parameter_count, sizeof *builder->elsewhere);
    builder->passing = sgrad__made_in_passing(builder);
    builder->norm = -1;
    for (int i = 0; i < builder->g->parameter_count; i++)
        if (builder->g->parameter[i].tensor)
            builder->parameter[i] =
                sgrad__lend_buffer(builder, builder->o->parameter && builder->o->parameter[i] ? builder->o->parameter[i]
                                                                                            : builder->g->parameter[i].tensor);
}

static void close_builder(struct sgrad_builder *builder) {
    int *arrays[] = { builder->gradient,   builder->part,     builder->sum,     builder->leaf,    builder->total,
                      builder->parameter,  builder->gathered, builder->rounded, builder->updated, builder->packed,
                      builder->dparameter, builder->first,    builder->piece,   builder->whole };
    for (enum made made = AT_FIRST; made < MADE; made++) {
        free(builder->activation[made]);
        free(builder->keep[made]);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(builder->turn);
    free(builder->scattered);
    free(builder->sharing);
    free(builder->passing);
    free(builder->elsewhere);
    free(builder->call);
}

/* Returns the peers with different samples, including this rank: on a mesh, the ranks along its sample axes. */
static struct sgrad_group others(struct sgrad_builder *builder) {
    const struct sgrad_mesh *mesh = &builder->g->mesh;
    return mesh->axes && builder->o->peers ? sgrad__along(builder, sgrad_mesh_sampled(mesh))
                                           : sgrad__peers(builder, 0, sgrad__peer_count(builder->o));
}

/* Fills PROGRAM, which is empty, and the parts of BUILDER that depend on the sizes. */
static void begin_program(struct sgrad_builder *b, struct sgrad__program *p) {
    struct sgrad_graph *graph = b->g;
    const struct sgrad_program_options *options = b->o;
    const bool grouped = options->training && sgrad__has_groups(graph);
    sgrad__open_gradients(b);
    b->others = others(b);
    if (graph->stages > 1) b->stage = sgrad__along(b, sgrad_mesh_bit(&graph->mesh, sgrad_mesh_axis(&graph->mesh, SGRAD__PIPE)));
    const int64_t share = options->batch / b->others.count, group = grouped ? options->group : share;
    const int64_t here = group < share ? group : share;     /* samples of a group on this rank */
    assert(options->batch % b->others.count == 0 && options->window <= SGRAD__MAX_WINDOW && graph->loss >= 0);
    assert(options->batch % group == 0 && share % here == 0 && group % here == 0 &&
           (!options->unit || here % options->unit == 0));

    const int64_t averaged =
        options->training && b->peers > 1 ? share * options->strategy->ranks(options) / graph->stages : options->batch;
    p->graph = graph;
    p->batch = (struct sgrad_batch){ share * b->peers / (options->training ? graph->stages : 1), group, averaged };
    p->share = share;
    p->training = options->training;
    p->shared = options->shares;
    p->grouped = grouped;
    p->window = options->window;
    p->bucket_bytes = sgrad__bucket_bytes_of(graph, options);
    sgrad__cut_share(p, options, options->unit ? options->unit : here);
    b->micros = p->micros;
    b->group_micros = grouped ? (int)(p->micros * here / share) : 1;
    b->lanes = options->lanes && options->lanes < b->micros ? options->lanes : b->micros;
    const int span = (int)(group / here), at = sgrad_group_index(&b->others, options->rank);
    b->span = (struct sgrad_group){ span, b->others.rank + at - at % span };
    if (options->source.records.shape.rank) p->records = sgrad__add_lent(b, "records", options->source.records);
}

/* Returns true if ranks exchange values of micro-batches. */
static bool is_joint(const struct sgrad_builder *builder) {
    for (int n = 0; n < builder->g->node_count; n++)
        if (builder->g->node[n].is.axis) return true;
    return builder->others.count != builder->peers;
}

/* Returns the number of micro-batches of a wave. Ranks that exchange values of these must have the same waves, because their
 * messages are numbered in this order, also if only some of them have a limit, and if they have different numbers of workers. */
static int wave_of(const struct sgrad_builder *builder) {
    if (builder->o->shares) return builder->micros;
    if (!builder->o->limit.waves) return builder->group_micros;
    if (!is_joint(builder)) return builder->o->limit.gpu ? builder->group_micros : sgrad__micros_at_once(builder, true);
    const int wanted = 2 * builder->g->stages, groups = (wanted + builder->group_micros - 1) / builder->group_micros;
    return groups * builder->group_micros;
}

/* Returns the bytes of PROGRAM in the memory that is limited. */
static struct sgrad__memory memory_of(const struct sgrad__program *program, const struct sgrad_program_options *options) {
    struct sgrad__memory memory = sgrad__program_memory(program, options->cpus, NULL);
    if (options->limit.gpu) memory.workspaces = (double)sgrad__program_gpu_workspace(program);
    return memory;
}

/* Builds the program whose planned buffers occupy at most PLANNED bytes, if that is above 0. Returns NULL if this is not
 * possible. */
static struct sgrad__program *build(struct sgrad_graph *graph, const struct sgrad_program_options *options, double planned) {
    struct sgrad__program *p = sgrad__program_create();
    const int place = options->peers ? sgrad_group_index(options->peers, options->rank) : 0;
    struct sgrad_builder b = { .p = p, .g = graph, .o = options, .place = place, .peers = sgrad__peer_count(options) };
    begin_program(&b, p);
    open_builder(&b);
    b.wave = wave_of(&b);
    b.most_bytes = options->limit.gpu ? planned / TASKS_OF_MEMORY : 0;
    add_step(&b);
    sgrad__pack_first(&b);
    if (options->fuse) sgrad__fuse(&b);
    sgrad__hold_back(&b);
    sgrad__gather_weights(&b);
    close_builder(&b);
    const bool shares = options->fuse && options->training && (!options->gpus || options->recorded);
    if (planned > 0 && !sgrad__spill(&b, options->limit.gpu ? STARTED : options->cpus, planned)) {
        sgrad__program_destroy(p);
        return NULL;
    }
    sgrad__mark_last_uses(p);
    p->on_gpu = options->limit.gpu;
    if (planned > 0) sgrad__place_in_arena(&b);
    else if (shares) sgrad__share_memory(p, sgrad__micros_at_once(&b, false), options->gpus || marked(graph), options->gpus);
    return p;
}

/* Returns the bytes of P, with those of the instructions that a step without a limit does not have. */
static double bytes_of(const struct sgrad__program *p, const struct sgrad_program_options *options,
                       struct sgrad__memory *memory) {
    const struct sgrad__memory_limit *limit = &options->limit;
    *memory = memory_of(p, options);
    return sgrad__memory_all(memory) + limit->instruction * (p->instruction_count - limit->instructions);
}

/* Returns the program that occupies at most LIMIT bytes; NULL: none is found. The arena has gaps between buffers, so that a
 * program may occupy more than planned; the plan then gets less. WHOLE: the program without moves. */
static struct sgrad__program *try_within(struct sgrad_graph *graph, const struct sgrad_program_options *options, double limit,
                                         const struct sgrad__program *whole) {
    enum { TRIES = 12 };
    struct sgrad__memory memory = memory_of(whole, options);
    double planned = limit - (memory.messages + memory.inputs + memory.workspaces);
    for (int i = 0; i < TRIES && planned > 0; i++) {
        struct sgrad__program *p = build(graph, options, planned);
        if (!p) return NULL;
        const double all = bytes_of(p, options, &memory), allowed = limit - (all - memory.activations);
        if (all <= limit) return p;
        sgrad__program_destroy(p);
        planned *= 0.99 * allowed / memory.activations;
    }
    return NULL;
}

/* The same. If the fastest plan has too many moves, whose instructions occupy memory too, uses a simple one. */
static struct sgrad__program *build_within(struct sgrad_graph *graph, const struct sgrad_program_options *options, double limit,
                                           const struct sgrad__program *whole) {
    struct sgrad_program_options simple = *options;
    struct sgrad__program *p = try_within(graph, options, limit, whole);
    simple.limit.simple = true;
    return p || !options->limit.spills ? p : try_within(graph, &simple, limit, whole);
}

double sgrad__program_least_memory(struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    enum { MOST = 8 };      /* times the memory without a limit */
    struct sgrad__program *whole = build(graph, options, 0), *p;
    const struct sgrad__memory memory = memory_of(whole, options);
    double low = 0, high = sgrad__memory_all(&memory);
    while (!(p = build_within(graph, options, high, whole)) && high < MOST * sgrad__memory_all(&memory)) high *= 1.25;
    sgrad__program_destroy(p);
    while (high - low > 0.01 * high) {
        const double middle = (low + high) / 2;
        if ((p = build_within(graph, options, middle, whole))) high = middle;
        else low = middle;
        sgrad__program_destroy(p);
    }
    sgrad__program_destroy(whole);
    return high;
}

int sgrad__program_build(struct sgrad_graph *graph, const struct sgrad_program_options *options,
                         struct sgrad__program **program) {
    const struct sgrad__memory_limit *limit = &options->limit;
    struct sgrad__program *whole = build(graph, options, 0);
    if (!limit->bytes) return *program = whole, 0;
    struct sgrad__memory memory;
    if (!limit->moved && bytes_of(whole, options, &memory) <= limit->bytes) {
        whole->spilling.seconds = sgrad__spill_seconds(whole, options);
        return *program = whole, 0;
    }
    struct sgrad__program *p = NULL;
    for (double most = limit->bytes; !p && most > 0.8 * limit->bytes; most *= 0.95)     /* with less, the gaps may be smaller */
        p = build_within(graph, options, most, whole);
    sgrad__program_destroy(whole);
    return p ? *program = p, 0 : SGRAD_ENOMEM;
}

double sgrad__program_predict(struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    struct sgrad__program *program;
    if (sgrad__program_build(graph, options, &program)) return INFINITY;
    const double seconds = program->spilling.read > 0 ? program->spilling.seconds : 0;
    sgrad__program_destroy(program);
    return seconds;
}
