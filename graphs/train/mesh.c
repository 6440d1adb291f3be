/* mesh.c: sets the coordinates of this rank on the mesh. Gathers tensors that not every rank has completely (sharded parameters,
 * optimizer states of some ranks, sharded optimizer states) on rank 0, which writes files, and scatters them from rank 0 after it
 * has read a file.
 *
 *     gather     shards of ranks 0 1  ──>  complete on rank 0         scatter     complete on rank 0  ──>  shards of all ranks */
#include "graphs/networks/layers/layers.h"
#include "graphs/train/setup.h"

#include <stdlib.h>
#include <string.h>

int sgrad__run_open_mesh(struct sgrad__run *run) {
    if (!run->options.parallel.mesh || sgrad__run_mesh_is_open(run)) return 0;
    SGRAD_TRY(sgrad__mesh_parse(run->options.parallel.mesh, &run->parallel.mesh));
    static const char *const lines[] = { SGRAD__PIPE, SGRAD__CONTEXT, SGRAD__EXPERT };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const struct sgrad_axis *line = sgrad_mesh_axis(&run->parallel.mesh, lines[i]);
        if (line && line->dimensions > 1)
            return sgrad_log_error(SGRAD_EINVAL, "mesh %s: %s must have one dimension, like %s=%d", run->options.parallel.mesh,
                                   line->name, line->name, line->ranks);
    }
    return 0;
}

/* Divides the graph into pipeline stages. A rank has only the layers and parameters of its stage. */
static int cut_into_stages(struct sgrad__run *run) {
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&run->parallel.mesh, SGRAD__PIPE);
    if (!pipe || pipe->ranks == 1 || run->graph->stages > 1) return 0;
    SGRAD_TRY(sgrad__graph_cut(run->graph, pipe->ranks));
    run->graph->stage = sgrad__stage_of(run->graph, run->context->rank);
    return 0;
}

/* Returns an error if ranks of axis expert have no experts, or if ranks with the same samples do not divide any work: they would
 * compute the same twice. */
static int check_axes(const struct sgrad__run *run) {
    const struct sgrad_axis *expert = sgrad_mesh_axis(&run->parallel.mesh, SGRAD__EXPERT);
    if (expert && expert->ranks > 1 && !sgrad__graph_uses(run->graph, expert))
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s: model %s has no experts to divide over axis " SGRAD__EXPERT
                                             "; use axis data",
                               run->options.parallel.mesh, run->model->name);
    for (const struct sgrad_axis *axis = run->parallel.mesh.axis; axis < run->parallel.mesh.axis + run->parallel.mesh.axes;
         axis++)
        if (!axis->samples && axis->ranks > 1 && !sgrad__graph_uses(run->graph, axis) && strcmp(axis->name, SGRAD__PIPE))
            return sgrad_log_error(SGRAD_EINVAL,
                                   "mesh %s: model %s does not divide its work over axis %s, so all %d ranks would compute the "
                                   "same; give the ranks to another axis, such as data",
                                   run->options.parallel.mesh, run->model->name, axis->name, axis->ranks);
    return 0;
}

static unsigned axes_in_use(const struct sgrad__run *run) {
    const struct sgrad_mesh *mesh = &run->parallel.mesh;
    unsigned axes = 0;
    for (const struct sgrad_axis *axis = mesh->axis; axis < mesh->axis + mesh->axes; axis++)
        if (sgrad__graph_uses(run->graph, axis)) axes |= sgrad_mesh_bit(mesh, axis);
    return axes;
}

/* With pipeline stages, checks for optimizers that need all layers on one rank, and for files that rank 0 writes from its own
 * weights. */
static int check_stages(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if (run->graph->stages == 1 || !run->data.train) return 0;
    if (run->training->hooks)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "optimizer %s requires all layers on one rank; it cannot be combined with the pipeline stages of mesh %s",
            run->update.optimizer->name, o->parallel.mesh);
    if (o->output.histograms || o->evaluation.best)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "--%s cannot be combined with the pipeline stages of mesh %s: rank 0, which writes it, does not have all layers",
            o->output.histograms ? "histograms" : "best", o->parallel.mesh);
    return 0;
}

static int check_together(const struct sgrad__run *run) {
    if (!run->parallel.joint) return 0;
    static const char *const rows[] = { SGRAD__CONTEXT, SGRAD__EXPERT };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && run->training->hooks; i++) {
        const struct sgrad_axis *axis = sgrad_mesh_axis(&run->parallel.mesh, rows[i]);
        if (axis && axis->ranks > 1)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "optimizer %s cannot be combined with axis %s of mesh %s; use another optimizer",
                                   run->update.optimizer->name, axis->name, run->options.parallel.mesh);
    }
    SGRAD_TRY(check_stages(run));
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &run->graph->parameter[i];
        const struct sgrad_optimizer *is = run->training->update[i].optimizer;
        if (p->cuts && run->options.evaluation.best)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "--best requires that one rank has the whole network, but %s is sharded over axis %s", p->name,
                                   p->cut[0].axis->name);
        if (is && p->cuts && is->needs_full_tensor)
            return sgrad_log_error(
                SGRAD_EINVAL,
                "optimizer %s requires norms of whole parameters, but %s is sharded over axis %s; use another optimizer",
                is->name, p->name, p->cut[0].axis->name);
    }
    if (run->parallel.strategy->uses_servers || run->parallel.strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s requires --strategy sync, not %s", run->options.parallel.mesh,
                               run->parallel.strategy->name);
    if (run->options.data.partition)
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s requires --data-placement replicate, not partition",
                               run->options.parallel.mesh);
    return 0;
}

int sgrad__run_place_on_mesh(struct sgrad__run *run) {
    const int rank = run->context->rank, ranks = run->context->ranks;
    run->parallel.local_batches = run->evaluation.turns = ranks;
    run->parallel.local_batch = run->evaluation.turn = run->graph->rank = rank;
    run->parallel.copies = 1;
    run->parallel.joint = false;
    run->parallel.stores_predictions = true;
    if (!run->options.parallel.mesh) return 0;
    SGRAD_TRY(sgrad_mesh_fit(&run->parallel.mesh, ranks));
    SGRAD_TRY(check_axes(run));
    sgrad__graph_set_mesh(run->graph, &run->parallel.mesh);
    SGRAD_TRY(cut_into_stages(run));
    const unsigned sampled = sgrad_mesh_sampled(&run->parallel.mesh), others = sgrad_mesh_all(&run->parallel.mesh) & ~sampled;
    run->parallel.local_batches = sgrad_mesh_ranks(&run->parallel.mesh, sampled);
    run->parallel.local_batch = sgrad_mesh_index(&run->parallel.mesh, sampled, rank);
    run->parallel.copies = sgrad_mesh_ranks(&run->parallel.mesh, others);
    run->parallel.joint = run->parallel.copies > 1 || axes_in_use(run);
    const struct sgrad_axis *pipe = sgrad_mesh_axis(&run->parallel.mesh, SGRAD__PIPE);
    const unsigned alike = others & ~(pipe ? sgrad_mesh_bit(&run->parallel.mesh, pipe) : 0);
    run->parallel.stores_predictions =
        sgrad_mesh_index(&run->parallel.mesh, alike, rank) == 0 && run->graph->stage == run->graph->stages - 1;
    const unsigned alone = sampled & ~axes_in_use(run);
    run->evaluation.turns = sgrad_mesh_ranks(&run->parallel.mesh, alone);
    run->evaluation.turn = sgrad_mesh_index(&run->parallel.mesh, alone, rank);
    return check_together(run);
}

/* ---- tensors that not all ranks have completely ---- */

static int gather_split(const struct sgrad__run *run, const struct sgrad__item *item, bool keep) {
    const struct sgrad_graph *g = run->graph;
    const unsigned axes = sgrad__part_axes(g, item->split);
    const struct sgrad_view kept = { item->view.dtype, item->split->kept_shape };
    const size_t bytes = sgrad_view_bytes(&kept);
    int *member = sgrad_xcalloc((size_t)sgrad_mesh_ranks(&g->mesh, axes), sizeof *member), error = 0;
    const struct sgrad_group from = sgrad_mesh_group(&g->mesh, axes, item->rank < 0 ? 0 : item->rank, member);
    float *part = sgrad_xcalloc(1, bytes);
    if (keep && !*item->whole) *item->whole = sgrad_xcalloc(1, sgrad_view_bytes(&item->view));
    for (int place = 0; place < from.count; place++) {
        if (from.rank[place] == run->context->rank) error = sgrad_tensor_read(item->tensor, part);
        sgrad_ranks_broadcast(part, bytes, from.rank[place]);
        if (keep) sgrad__part_put(g, item->split, from.rank[place], part, *item->whole);
    }
    free(part);
    free(member);
    return error;
}

/* Sends a tensor that only some ranks store to all. */
static int gather_kept(const struct sgrad__run *run, const struct sgrad__item *item, bool keep) {
    const int rank = run->context->rank;
    const size_t bytes = sgrad_view_bytes(&item->view);
    void *whole = sgrad_xcalloc(1, bytes);
    int error = rank == item->rank ? sgrad_tensor_read(item->tensor, whole) : 0;
    sgrad_ranks_broadcast(whole, bytes, item->rank);
    if (!keep) free(whole);
    else *item->whole = whole;
    return error;
}

/* Assembles a tensor of which every rank stores another shard (--shard). */
static int gather_shares(const struct sgrad__run *run, const struct sgrad__item *item, bool keep) {
    const int rank = run->context->rank;
    int error = 0;
    if (keep && !*item->whole) *item->whole = sgrad_xcalloc(1, sgrad_view_bytes(&item->view));
    for (int other = 0; other < run->context->ranks; other++) {
        if (!sgrad__parameter_on(run->graph, item->split, other)) continue;
        const struct sgrad__share is = sgrad__share_of(run->training, item->split, other);
        if (!is.count) continue;
        float *share = sgrad_xcalloc((size_t)is.count, sizeof *share);
        if (other == rank) error = sgrad_tensor_read(item->tensor, share);
        sgrad_ranks_broadcast(share, (size_t)is.count * sizeof *share, other);
        if (keep) sgrad__share_put(run->training, item->split, other, share, *item->whole);
        free(share);
    }
    return error;
}

static int gather_item(const struct sgrad__run *run, const struct sgrad__item *item, bool keep) {
    if (item->share.ranks) return gather_shares(run, item, keep);
    return item->split ? gather_split(run, item, keep) : gather_kept(run, item, keep);
}

static int scatter_item(const struct sgrad__run *run, const struct sgrad__item *item, bool keep) {
    (void)keep;
    const size_t bytes = sgrad_view_bytes(&item->view);
    bool there = *item->whole;
    sgrad_ranks_broadcast(&there, sizeof there, 0);
    if (!there) return 0;
    if (!*item->whole) *item->whole = sgrad_xcalloc(1, bytes);
    sgrad_ranks_broadcast(*item->whole, bytes, 0);
    const int error = sgrad__item_take(run->graph, item);
    free(*item->whole);     /* the memory of whole values of one item at a time */
    *item->whole = NULL;
    return error;
}

static int for_wholes(struct sgrad__run *run, bool with_states, bool keep,
                      int (*what)(const struct sgrad__run *run, const struct sgrad__item *item, bool keep)) {
    struct sgrad__items list = sgrad__training_list(run->training, with_states);
    int error = 0;
    for (int i = 0; i < list.count; i++) {
        const int failed = list.item[i].whole ? what(run, &list.item[i], keep) : 0;
        if (failed) error = failed;
    }
    sgrad__items_free(&list);
    return error;
}

int sgrad__run_gather(struct sgrad__run *run, bool with_states, bool keep) {
    return for_wholes(run, with_states, keep, gather_item);
}

int sgrad__run_scatter(struct sgrad__run *run) {
    int error = for_wholes(run, true, true, scatter_item);
    sgrad__training_free_wholes(run->training);
    return error;
}
