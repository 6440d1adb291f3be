/* mesh.c: sets the coordinates of this rank on the mesh. Gathers tensors that not every rank has completely (sharded parameters,
 * optimizer states of some ranks, sharded optimizer states) on rank 0, which writes files, and scatters them from rank 0 after it
 * has read a file.
 *
 *     gather     shards of ranks 0 1  ──>  complete on rank 0         scatter     complete on rank 0  ──>  shards of all ranks */
#include "graphs/train/setup.h"

#include <stdlib.h>
#include <string.h>

int sgrad__run_open_mesh(struct sgrad__run *r) {
    if (!r->options.mesh || sgrad__run_mesh_is_open(r)) return 0;
    SGRAD_TRY(sgrad_mesh_parse(r->options.mesh, SGRAD__DATA, &r->mesh));
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&r->mesh, SGRAD__PIPE);
    if (pipe && pipe->dimensions > 1)
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s: stages stand in a line: %s=%d", r->options.mesh, pipe->name, pipe->ranks);
    return 0;
}

/* Divides the graph into pipeline stages. A rank has only the layers and parameters of its stage. */
static int cut_into_stages(struct sgrad__run *r) {
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&r->mesh, SGRAD__PIPE);
    if (!pipe || pipe->ranks == 1 || r->graph->stages > 1) return 0;
    SGRAD_TRY(sgrad__graph_cut(r->graph, pipe->ranks));
    r->graph->stage = sgrad__stage_of(r->graph, r->context->rank);
    return 0;
}

/* Returns an error if ranks with the same samples do not divide any work: they would compute the same twice. */
static int check_axes(const struct sgrad__run *r) {
    for (const struct sgrad_axis *axis = r->mesh.axis; axis < r->mesh.axis + r->mesh.axes; axis++)
        if (!axis->samples && axis->ranks > 1 && !sgrad__graph_uses(r->graph, axis) && strcmp(axis->name, SGRAD__PIPE))
            return sgrad_log_error(SGRAD_EINVAL, "mesh %s: model %s shares no work over axis %s: all %d ranks would do the same",
                                   r->options.mesh, r->model->name, axis->name, axis->ranks);
    return 0;
}

static unsigned axes_in_use(const struct sgrad__run *r) {
    unsigned axes = 0;
    for (const struct sgrad_axis *axis = r->mesh.axis; axis < r->mesh.axis + r->mesh.axes; axis++)
        if (sgrad__graph_uses(r->graph, axis)) axes |= sgrad_mesh_bit(&r->mesh, axis);
    return axes;
}

/* Returns an error if the gradient of a value comes from several stages. Such gradients are added one after another, which is
 * implemented only for f32. */
static int check_gradients(const struct sgrad__run *r) {
    const struct sgrad_graph *g = r->graph;
    for (int v = 0; v < g->value_count; v++) {
        int takers = 0;
        for (int s = 0; s < g->stages && g->value[v].maker >= 0 && g->value[v].needs_gradient; s++)
            takers += s != g->node[g->value[v].maker].stage && sgrad__graph_takes(g, v, s);
        if (takers > 1)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "--precision bf16: %s goes to several stages, as mesh %s has them, and gradients "
                                   "from several are added in f32 alone: fewer stages may do",
                                   g->value[v].name, r->options.mesh);
    }
    return 0;
}

/* With pipeline stages, checks for optimizers that need all layers on one rank, and for files that rank 0 writes from its own
 * weights. */
static int check_stages(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if (r->graph->stages == 1 || !r->train) return 0;
    if (r->training->hooks)
        return sgrad_log_error(SGRAD_EINVAL,
                               "optimizer %s takes all layers, and mesh %s has stages of them on ranks of their own",
                               r->optimizer->name, o->mesh);
    if (o->histograms || o->best)
        return sgrad_log_error(SGRAD_EINVAL, "--%s: stages of the network are on other ranks, as mesh %s has them, and rank 0 "
                                        "alone writes", o->histograms ? "histograms" : "best", o->mesh);
    return o->precision == SGRAD_PRECISION_BF16 ? check_gradients(r) : 0;
}

static int check_together(const struct sgrad__run *r) {
    if (r->copies == 1) return 0;
    SGRAD_TRY(check_stages(r));
    for (int i = 0; i < r->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &r->graph->parameter[i];
        const struct sgrad_optimizer *is = r->training->update[i].optimizer;
        if (p->cuts && is->needs_full_tensor)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "optimizer %s takes norms of whole parameters, and %s is split over axis %s: another "
                                   "does without",
                                   is->name, p->name, p->cut[0].axis->name);
    }
    if (r->strategy->uses_servers || r->strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s goes with --strategy sync, not with %s", r->options.mesh,
                               r->strategy->name);
    if (r->options.partition_data)
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s goes with --data-placement replicate, not with partition", r->options.mesh);
    return 0;
}

int sgrad__run_place_on_mesh(struct sgrad__run *r) {
    const int rank = r->context->rank, ranks = r->context->ranks;
    r->parts = r->turns = ranks;
    r->part = r->turn = r->graph->rank = rank;
    r->copies = 1;
    r->speaks = true;
    if (!r->options.mesh) return 0;
    SGRAD_TRY(sgrad_mesh_fit(&r->mesh, ranks));
    SGRAD_TRY(check_axes(r));
    sgrad__graph_set_mesh(r->graph, &r->mesh);
    SGRAD_TRY(cut_into_stages(r));
    const unsigned sampled = sgrad_mesh_sampled(&r->mesh), others = sgrad_mesh_all(&r->mesh) & ~sampled;
    r->parts = sgrad_mesh_ranks(&r->mesh, sampled);
    r->part = sgrad_mesh_place(&r->mesh, sampled, rank);
    r->copies = sgrad_mesh_ranks(&r->mesh, others);
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&r->mesh, SGRAD__PIPE);
    const unsigned alike = others & ~(pipe ? sgrad_mesh_bit(&r->mesh, pipe) : 0);
    r->speaks = sgrad_mesh_place(&r->mesh, alike, rank) == 0 && r->graph->stage == r->graph->stages - 1;
    const unsigned alone = sampled & ~axes_in_use(r);
    r->turns = sgrad_mesh_ranks(&r->mesh, alone);
    r->turn = sgrad_mesh_place(&r->mesh, alone, rank);
    return check_together(r);
}

/* ---- tensors that not all ranks have completely ---- */

static int gather_split(const struct sgrad__run *r, const struct sgrad__item *item) {
    const struct sgrad_graph *g = r->graph;
    const unsigned axes = sgrad__part_axes(g, item->split);
    const struct sgrad_view kept = { item->view.dtype, item->split->kept_shape };
    const size_t bytes = sgrad_view_bytes(&kept);
    int *member = sgrad_xcalloc((size_t)sgrad_mesh_ranks(&g->mesh, axes), sizeof *member), error = 0;
    const struct sgrad_group from = sgrad_mesh_group(&g->mesh, axes, item->rank < 0 ? 0 : item->rank, member);
    float *part = sgrad_xcalloc(1, bytes);
    if (r->context->rank == 0 && !*item->whole) *item->whole = sgrad_xcalloc(1, sgrad_view_bytes(&item->view));
    for (int place = 0; place < from.count; place++) {
        if (from.rank[place] == r->context->rank) error = sgrad_tensor_read(item->tensor, part);
        sgrad_ranks_broadcast(part, bytes, from.rank[place]);
        if (r->context->rank == 0) sgrad__part_put(g, item->split, from.rank[place], part, *item->whole);
    }
    free(part);
    free(member);
    return error;
}

/* Sends a tensor that only some ranks store to rank 0. */
static int gather_kept(const struct sgrad__run *r, const struct sgrad__item *item) {
    const int rank = r->context->rank;
    const size_t bytes = sgrad_view_bytes(&item->view);
    void *whole = sgrad_xcalloc(1, bytes);
    int error = rank == item->rank ? sgrad_tensor_read(item->tensor, whole) : 0;
    if (item->rank) sgrad_ranks_broadcast(whole, bytes, item->rank);
    if (rank) free(whole);
    else *item->whole = whole;
    return error;
}

/* Assembles a tensor of which every rank stores another shard (--shard). */
static int gather_shares(const struct sgrad__run *r, const struct sgrad__item *item) {
    const int rank = r->context->rank;
    int error = 0;
    if (rank == 0 && !*item->whole) *item->whole = sgrad_xcalloc(1, sgrad_view_bytes(&item->view));
    for (int other = 0; other < r->context->ranks; other++) {
        if (!sgrad__parameter_on(r->graph, item->split, other)) continue;
        const struct sgrad__share is = sgrad__share_of(r->training, item->split, other);
        if (!is.count) continue;
        float *share = sgrad_xcalloc((size_t)is.count, sizeof *share);
        if (other == rank) error = sgrad_tensor_read(item->tensor, share);
        sgrad_ranks_broadcast(share, (size_t)is.count * sizeof *share, other);
        if (rank == 0) sgrad__share_put(r->training, item->split, other, share, *item->whole);
        free(share);
    }
    return error;
}

static int gather_item(const struct sgrad__run *r, const struct sgrad__item *item) {
    if (item->share.ranks) return gather_shares(r, item);
    return item->split ? gather_split(r, item) : gather_kept(r, item);
}

static int scatter_item(const struct sgrad__run *r, const struct sgrad__item *item) {
    const size_t bytes = sgrad_view_bytes(&item->view);
    bool there = *item->whole;
    sgrad_ranks_broadcast(&there, sizeof there, 0);
    if (!there) return 0;
    if (!*item->whole) *item->whole = sgrad_xcalloc(1, bytes);
    sgrad_ranks_broadcast(*item->whole, bytes, 0);
    return sgrad__item_take(r->graph, item);
}

static int for_wholes(struct sgrad__run *r, bool with_states,
                     int (*what)(const struct sgrad__run *r, const struct sgrad__item *item)) {
    struct sgrad__items list = sgrad__training_list(r->training, with_states);
    int error = 0;
    for (int i = 0; i < list.count; i++) {
        const int failed = list.item[i].whole ? what(r, &list.item[i]) : 0;
        if (failed) error = failed;
    }
    sgrad__items_free(&list);
    return error;
}

int sgrad__run_gather(struct sgrad__run *r, bool with_states) { return for_wholes(r, with_states, gather_item); }

int sgrad__run_scatter(struct sgrad__run *r) {
    int error = for_wholes(r, true, scatter_item);
    sgrad__training_free_wholes(r->training);
    return error;
}
