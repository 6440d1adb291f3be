/* program.c: builds the tasks of one step from a graph, in the order of submission.
 *
 * The local batch of this rank is divided into micro-batches. Batch norm takes sums over a group of micro-batches; without such
 * sums, each micro-batch is a group. The sums of a group that spans several ranks are added over these ranks. Two groups of two
 * micro-batches, for a network of layers 1 and 2:
 *
 *     group 0   read 0 1   1f 0 1   2f 0 1   loss 0 1   2b 0 1   1b 0 1
 *     group 1   read 2 3   1f 2 3   2f 2 3   loss 2 3   2b 2 3   sum and update 2   1b 2 3   sum and update 1
 *
 * Backward visits the nodes in reverse order. The gradient of a node's output is complete when backward reaches the node, because
 * the consumers of the output come first. nodes.c adds the tasks of a node. */
#include "graphs/compiler/builder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if this rank's stage reads a field of the samples. */
static bool takes_input(const struct sgrad_builder *b) {
    for (int i = 0; i < b->g->inputs; i++)
        if (sgrad__graph_takes(b->g, b->g->input[i], b->g->stage)) return true;
    return false;
}

/* Makes the inputs of the loss, for each micro-batch, outputs of the program. */
static void add_answers(struct sgrad_builder *b) {
    b->p->answer = sgrad_xcalloc((size_t)b->micros, 2 * sizeof *b->p->answer);
    for (int i = 0; i < 2 * b->micros; i++) {
        struct sgrad_view view;
        const struct sgrad_use input = { .role = SGRAD_X, .index = i % 2, .access = SGRAD_R };
        b->p->answer[i] = sgrad__add_output(b, sgrad__resolve(b, b->g->loss, FORWARD, input, i / 2, &view));
    }
}

/* Returns the first node of this rank's stage. */
static int first_here(const struct sgrad_builder *b) {
    int n = 0;
    while (!sgrad__is_here(b, n)) n++;
    return n;
}

/* Returns the sums of the loss; zeros, if this stage neither computes nor receives them. */
static int loss_sums(struct sgrad_builder *b) {
    struct sgrad_view view;
    const struct sgrad_use total = SGRAD_IN(STAT, 0);
    int sums = sgrad__resolve(b, b->g->loss, FINISH, total, 0, &view);
    if (sums >= 0) return sums;
    sums = sgrad__add_buffer(b, sgrad_format("no loss"), view);
    sgrad__add_copy(b, -1, sums);
    return sums;
}

static void add_step(struct sgrad_builder *b) {
    struct sgrad_graph *g = b->g;
    int *summed = sgrad_xcalloc((size_t)g->parameter_count, sizeof *summed);
    for (int i = 0; i < g->parameter_count; i++) summed[i] = -1;
    b->rest = sgrad__parameters_count(g) * (int64_t)sizeof(float);

    for (int start = 0; start < b->micros; start += b->group_micros) {
        for (int m = start; m < start + b->group_micros && takes_input(b); m++) sgrad__add_input(b, m);
        sgrad__add_arrivals(b, start);
        for (int n = 0; n < g->node_count; n++) sgrad__add_node(b, n, FORWARD, start);
        if (!b->p->training) continue;
        sgrad__add_gradient_arrivals(b, start);
        for (int n = g->node_count - 1; n >= 0; n--) {
            sgrad__add_node(b, n, BACKWARD, start);
            if (n == first_here(b)) sgrad__add_gradient_departures(b, start);
            if (start + b->group_micros == b->micros) sgrad__add_node_updates(b, n, summed);
        }
    }
    if (b->p->training) {
        sgrad__close_gradients(b);
        if (b->o->training->hooks) b->o->training->hooks->update_all(b, summed);
        else if (b->o->clip_norm > 0) sgrad__add_clipped_updates(b, summed);
        sgrad__close_shares(b);
        if (!b->p->note) b->p->note = sgrad__assignment_text(b->o->training, b->o);
        if (b->peers > 1) sgrad__add_statistics(b);
        for (int n = 0; n < g->node_count; n++) sgrad__add_node(b, n, FINISH, 0);
        if (b->o->lookahead.every) sgrad__add_lookahead(b);
        if (b->o->ema > 0) sgrad__add_averages(b);
        for (int i = 0; i < g->parameter_count; i++)
            if (!g->parameter[i].state) sgrad__add_histogram(b, "weights", i, b->parameter[i]);
    }
    if (b->o->answers && sgrad__is_here(b, g->loss)) add_answers(b);
    b->p->statistics = sgrad__add_output(b, loss_sums(b));
    free(summed);
}

bool sgrad__has_groups(const struct sgrad_graph *g) {
    for (int n = 0; n < g->node_count; n++)
        if (g->node[n].is.part[0].rank) return true;
    return false;
}

/* Returns true if a node is recomputed. */
static bool marked(const struct sgrad_graph *g) {
    for (int n = 0; n < g->node_count; n++)
        if (g->node[n].again) return true;
    return false;
}

static int *minus_ones(size_t count) {
    int *array = sgrad_xcalloc(count, sizeof *array);
    memset(array, 0xff, count * sizeof *array);
    return array;
}

static void open_builder(struct sgrad_builder *b) {
    size_t micros = (size_t)b->micros, per_node = (size_t)b->g->node_count * SGRAD_MAX_PARAMETERS * micros;
    for (enum made made = AT_FIRST; made < MADE; made++) {
        b->activation[made] = minus_ones((size_t)b->g->value_count * micros);
        b->keep[made] = minus_ones(per_node);
    }
    b->gradient = minus_ones((size_t)b->g->value_count * micros);
    b->part = minus_ones(per_node);
    b->sum = minus_ones(per_node);
    b->leaf = minus_ones(per_node);
    b->total = minus_ones(per_node);
    b->parameter = minus_ones((size_t)b->g->parameter_count);
    b->gathered = minus_ones((size_t)b->g->parameter_count);
    b->rounded = minus_ones((size_t)b->g->parameter_count);
    b->updated = minus_ones((size_t)b->g->parameter_count);
    b->dparameter = minus_ones(per_node);
    b->first = minus_ones((size_t)b->g->node_count * SGRAD_MAX_TASKS * micros);
    b->piece = minus_ones(SGRAD_MAX_INPUTS * micros);
    b->call = sgrad_xcalloc((size_t)b->g->node_count * PHASES * SGRAD_MAX_TASKS * SGRAD__SIZES * 2, sizeof *b->call);
    b->packed = minus_ones((size_t)b->g->node_count * PHASES * SGRAD_MAX_TASKS * SGRAD__SIZES);
    b->elsewhere = sgrad_xcalloc((size_t)b->g->parameter_count, sizeof *b->elsewhere);
    b->passing = sgrad__made_in_passing(b);
    b->norm = -1;
    for (int i = 0; i < b->g->parameter_count; i++)
        if (b->g->parameter[i].tensor)
            b->parameter[i] = sgrad__lend_buffer(b, b->o->parameter ? b->o->parameter[i] : b->g->parameter[i].tensor);
}

static void close_builder(struct sgrad_builder *b) {
    int *arrays[] = { b->gradient, b->part, b->sum, b->leaf, b->total, b->parameter, b->gathered, b->rounded, b->updated,
                      b->packed, b->dparameter, b->first, b->piece };
    for (enum made made = AT_FIRST; made < MADE; made++) {
        free(b->activation[made]);
        free(b->keep[made]);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(b->sharing);
    free(b->passing);
    free(b->elsewhere);
    free(b->call);
}

/* Returns the peers with different samples, including this rank: on a mesh, the ranks along its sample axes. */
static struct sgrad_group others(struct sgrad_builder *b) {
    const struct sgrad_mesh *mesh = &b->g->mesh;
    return mesh->axes && b->o->peers ? sgrad__along(b, sgrad_mesh_sampled(mesh)) : sgrad__peers(b, 0, sgrad__peer_count(b->o));
}

int sgrad__program_build(struct sgrad_graph *g, const struct sgrad_program_options *o, struct sgrad__program **program) {
    const bool grouped = o->training && sgrad__has_groups(g);
    const int peers = sgrad__peer_count(o), place = o->peers ? sgrad_group_place(o->peers, o->rank) : 0;
    struct sgrad__program *p = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .g = g, .o = o, .place = place, .peers = peers };
    sgrad__open_gradients(&b);
    b.others = others(&b);
    if (g->stages > 1) b.stage = sgrad__along(&b, sgrad_mesh_bit(&g->mesh, sgrad_mesh_axis(&g->mesh, SGRAD__PIPE)));
    const int64_t share = o->batch / b.others.count, group = grouped ? o->group : share;
    const int64_t here = group < share ? group : share;     /* samples of a group on this rank */
    assert(o->batch % b.others.count == 0 && o->window <= SGRAD__MAX_WINDOW && g->loss >= 0);
    assert(o->batch % group == 0 && share % here == 0 && group % here == 0 && (!o->unit || here % o->unit == 0));

    const int64_t averaged = o->training && peers > 1 ? share * o->strategy->ranks(o) / g->stages : o->batch;
    p->graph = g;
    p->batch = (struct sgrad_batch){ share * peers / (o->training ? g->stages : 1), group, averaged };
    p->share = share;
    p->training = o->training;
    p->grouped = grouped;
    p->window = o->window;
    p->bucket_bytes = sgrad__bucket_bytes_of(g, o);
    sgrad__cut_share(p, o, o->unit ? o->unit : here);
    b.micros = p->micros;
    b.group_micros = grouped ? (int)(p->micros * here / share) : 1;
    b.lanes = o->lanes && o->lanes < b.micros ? o->lanes : b.micros;
    const int span = (int)(group / here), at = sgrad_group_place(&b.others, o->rank);
    b.span = (struct sgrad_group){ span, b.others.rank + at - at % span };
    if (o->source.records.shape.rank) p->records = sgrad__add_lent(&b, "records", o->source.records);
    open_builder(&b);
    add_step(&b);
    close_builder(&b);
    sgrad__pack_first(&b);
    if (o->fuse) sgrad__fuse(&b);
    sgrad__hold_back(&b);
    sgrad__mark_last_uses(p);
    if (o->fuse && o->training && (!o->gpus || o->recorded))
        sgrad__share_memory(p, sgrad__micros_at_once(&b), o->gpus || marked(g), o->gpus);
    *program = p;
    return 0;
}
