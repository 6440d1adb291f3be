/* gradients.c: adds sums of gradients and statistics over this rank's micro-batches, their exchange in buckets over the ranks
 * that store the same parameters, and updates.
 *
 *     parameter    leaves of its gradient      this rank's sum      bucket      the sum over the ranks with this parameter
 *     conv.weight  lane 0  lane 1  lane 2  ─>         Σ        ─>  ┐
 *     conv.bias    lane 0  lane 1  lane 2  ─>         Σ        ─>  ┴─ exchange ─>  update, update
 *
 * The sum and the update of a large parameter are divided into chunks, so that all cores do them.
 *
 * For a sharded parameter, each rank's sum is first reduced and scattered to the ranks that store the shards (gathers.c). */
#include "graphs/compiler/builder.h"
#include "runtime/partitions.h"

#include <stdlib.h>

void sgrad__open_gradients(struct sgrad_builder *builder) {
    builder->sharing = sgrad_array_grow(builder->sharing, builder->sharings, sizeof *builder->sharing);
    builder->sharing[builder->sharings++] = (struct sgrad__sharing){ 0, 0, sgrad__peers(builder, 0, builder->peers), NULL };
}

/* Gradients of whole parameters are summed over all ranks, those of shards over the ranks with the same shard, and those of a
 * stage's parameters over the ranks of the stage. */
struct sgrad__sharing *sgrad__sharing_of(struct sgrad_builder *builder, int parameter) {
    const struct sgrad__parameter *p = &builder->g->parameter[parameter];
    const unsigned axes = sgrad__part_axes(builder->g, p);
    int i = 0;
    while (i < builder->sharings && (builder->sharing[i].axes != axes || builder->sharing[i].stages != p->stages)) i++;
    if (i < builder->sharings) return &builder->sharing[i];
    int *member = sgrad__own(builder->p, sgrad_xcalloc((size_t)builder->peers, sizeof *member));
    const struct sgrad_group group = sgrad__holders(builder->g, p, builder->o->rank, member);
    builder->sharing = sgrad_array_grow(builder->sharing, builder->sharings, sizeof *builder->sharing);
    builder->sharing[builder->sharings] = (struct sgrad__sharing){ axes, p->stages, group, NULL };
    return &builder->sharing[builder->sharings++];
}

static void close_bucket(struct sgrad_builder *builder, struct sgrad__sharing *sharing) {
    struct sgrad_bucket **bucket = &sharing->bucket;
    if (!*bucket) return;
    char *name = sgrad_format("bucket %d", builder->p->buckets);
    builder->p->exchanged_bytes += sgrad__bucket_bytes(*bucket);
    builder->o->strategy->exchange(builder, *bucket, builder->p->buckets++, name);
    if (!sgrad__bucket_is_held(builder, *bucket)) sgrad__bucket_free(*bucket);
    *bucket = NULL;
    free(name);
}

void sgrad__close_gradients(struct sgrad_builder *builder) {
    for (int i = 0; i < builder->sharings; i++) close_bucket(builder, &builder->sharing[i]);
}

/* Buckets of the deepest layers are closed first. The last bucket, which the next step waits for first, has the highest priority
 * of those that are ready. Unless the user has set the size, a bucket is not larger than the gradients that come after it,
 * because no computation overlaps with the transfer of the last one. */
static void put_gradient(struct sgrad_builder *builder, int parameter, int *summed) {
    const struct sgrad__parameter *w = &builder->g->parameter[parameter];
    struct sgrad__sharing *sharing = sgrad__sharing_of(builder, parameter);
    if (summed[parameter] < 0 && !builder->elsewhere[parameter]) return;
    if (!sharing->bucket) sharing->bucket = sgrad__bucket_open(SGRAD_F32, sharing->group);
    sgrad__bucket_put(sharing->bucket, summed[parameter], (struct sgrad_view){ SGRAD_F32, w->kept_shape }, &summed[parameter],
                      parameter, w->name);
    builder->rest -= sgrad_shape_count(&w->kept_shape) * (int64_t)sizeof(float);
    const int64_t bytes = sgrad__bucket_bytes(sharing->bucket);
    if (w->stages & (w->stages - 1)) {              /* several stages: a separate bucket, as their collective counts differ */
        const int before = sgrad__number_from(builder, sgrad__parameter_number(parameter));
        close_bucket(builder, sharing);
        sgrad__number_from(builder, before);
    } else if (bytes >= builder->p->bucket_bytes || (bytes >= builder->rest && !builder->o->bucket))
        close_bucket(builder, sharing);
}

void sgrad__add_statistics(struct sgrad_builder *builder) {
    struct sgrad_bucket *bucket = sgrad__bucket_open(SGRAD_F64, *builder->o->peers);
    const struct sgrad__workers *workers = builder->o->workers;
    struct sgrad_view ballot = sgrad__doubles(sgrad_shape(1, 1 + (workers ? workers->count : 0)));
    struct sgrad_bound_kernel vote = { .kernel = &sgrad__vote_kernel, .attrs = workers, .access = { SGRAD_W, SGRAD_R },
                               .view = { ballot, sgrad__doubles(builder->g->node[builder->g->loss].is.stat[0]) } };
    int loss = -1;
    for (int n = 0; n < builder->g->node_count; n++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && builder->g->node[n].is.stat[i].rank; i++) {
            int at = (n * SGRAD_MAX_PARAMETERS + i) * builder->micros;
            int local = sgrad__add_sum(builder, &builder->leaf[at], builder->micros, builder->g->node[n].name);
            if (n == builder->g->loss) loss = local;
            sgrad__bucket_put(bucket, local, sgrad__doubles(builder->g->node[n].is.stat[i]), &builder->total[at], -1,
                              builder->g->node[n].name);
        }
    int votes = sgrad__add_buffer(builder, sgrad_format("vote"), ballot);
    vote.operands = loss >= 0 ? 2 : 1;      /* late: the end may be requested while the step computes */
    sgrad__add_instruction(builder, sgrad__add_call(builder, vote), (int[]){ votes, loss }, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("vote"));
    sgrad__bucket_put(bucket, votes, ballot, &votes, -1, "votes");
    const int before = sgrad__number_from(builder, sgrad__statistics_number(builder));
    sgrad__bucket_sum(builder, bucket, NULL, SGRAD__PRIORITY_UPDATE, "statistics");
    if (builder->g->stages > 1) sgrad__number_from(builder, before);
    sgrad__bucket_free(bucket);
    builder->p->votes = sgrad__add_output(builder, votes);
}

/* Returns true if a node before N, whose backward pass comes later, uses the parameter as well. */
static bool used_before(const struct sgrad_graph *graph, int n, int parameter) {
    while (n-- > 0)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++)
            if (graph->node[n].p[i] == parameter) return true;
    return false;
}

/* Returns the sum of the leaves of the micro-batches. With several GPUs, each one first adds its leaves, so that only one sum
 * leaves it. If bits must not depend on the machine, all leaves are added in one tree. */
static int add_micros_sum(struct sgrad_builder *builder, int *leaf, const char *name) {
    const struct sgrad__micro *micro = builder->p->micro;
    int *own = sgrad_xcalloc((size_t)builder->micros, sizeof *own);
    for (int gpu = 1; gpu <= builder->o->gpus && micro->gpu && !builder->o->deterministic; gpu++) {
        const int begin = builder->p->instruction_count;
        int count = 0, first = 0;
        for (int m = builder->micros; m-- > 0;)
            if (micro[m].gpu == gpu) first = m;
        for (int m = first; m < builder->micros; m++)
            if (micro[m].gpu == gpu) own[count++] = leaf[m], leaf[m] = -1;
        if (count) leaf[first] = sgrad__add_sum(builder, own, count, name);
        for (int i = begin; i < builder->p->instruction_count; i++) builder->p->instruction[i].gpu = gpu;
    }
    free(own);
    return sgrad__add_sum(builder, leaf, builder->micros, name);
}

/* Returns, for each micro-batch, the parameter's gradient, summed over the nodes that use it. The caller must free the array. */
static int *add_leaves(struct sgrad_builder *builder, int parameter) {
    const char *name = builder->g->parameter[parameter].name;
    int *use = sgrad_xcalloc((size_t)builder->g->node_count * SGRAD_MAX_PARAMETERS, sizeof *use), uses = 0;
    int *leaf = sgrad_xcalloc((size_t)builder->micros, sizeof *leaf);
    for (int n = 0; n < builder->g->node_count; n++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++)
            if (builder->g->node[n].p[i] == parameter) use[uses++] = (n * SGRAD_MAX_PARAMETERS + i) * builder->micros;
    for (int m = 0; m < builder->micros; m++) {
        int of_use[uses];
        for (int i = 0; i < uses; i++) of_use[i] = builder->dparameter[use[i] + m];
        leaf[m] = sgrad__add_sum(builder, of_use, uses, name);
    }
    free(use);
    return leaf;
}

/* Adds the sum and the update of a parameter that only this rank has, in chunks, so that several cores do them. Returns false if
 * it is not divided; then nothing is added. */
static bool add_parts(struct sgrad_builder *builder, int parameter, const int *leaf) {
    const int64_t count = sgrad_shape_count(&builder->g->parameter[parameter].kept_shape);
    const int parts = sgrad__update_parts(builder, parameter);
    int leaves = 0;
    for (int m = 0; m < builder->micros; m++) leaves += leaf[m] >= 0;
    if (parts == 1 || leaves < 2 || builder->g->parameter[parameter].cuts) return false;
    for (int part = 0; part < parts; part++) {
        const int sum = sgrad__add_sum_of(builder, leaf, builder->micros, sgrad_part_first(count, parts, part),
                                          sgrad_part_view(count, parts, part), builder->g->parameter[parameter].name);
        sgrad__add_update_part(builder, parameter, part, parts, sum);
    }
    return true;
}

void sgrad__add_node_updates(struct sgrad_builder *builder, int n, int *summed) {
    for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
        int parameter = builder->g->node[n].p[i];
        const bool here = parameter >= 0 && builder->parameter[parameter] >= 0;
        if (!here || builder->g->parameter[parameter].frozen || used_before(builder->g, n, parameter)) continue;
        const bool shared = sgrad__sharing_of(builder, parameter)->group.count > 1;
        int *leaf = add_leaves(builder, parameter);
        if (shared || !add_parts(builder, parameter, leaf)) {
            const int sum = add_micros_sum(builder, leaf, builder->g->parameter[parameter].name);
            summed[parameter] = sgrad__add_scattered(builder, parameter, sum);
            if (shared) put_gradient(builder, parameter, summed);
            else if (summed[parameter] >= 0 && !sgrad__updates_wait(builder))
                sgrad__add_update(builder, parameter, summed[parameter]);
        }
        free(leaf);
    }
}
