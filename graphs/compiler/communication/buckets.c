/* buckets.c: exchanges several values between ranks together, so that few messages are sent. The values are copied to a bucket,
 * which is summed or sent, and the results are copied back.
 *
 * A bucket is exchanged in chunks, each of which is a tensor:
 *
 *     conv.weight     bn.weight   bn.bias      sums over this rank's micro-batches
 *     └──────┬──────────┘─────────┘
 *     │ chunk 0       │ chunk 1       │        copied, then sent and summed by the plan
 *            └──────────┐─────────┐
 *     conv.weight     bn.weight   bn.bias      copied back: sums over all ranks
 *
 * A rank without a value for an entry puts -0 in its bucket: x + -0 is x, to the bit. */
#include "graphs/compiler/builder.h"
#include "runtime/partitions.h"

#include <stdlib.h>

struct entry {
    int buffer, *done, parameter;
    int64_t first;              /* index in the bucket of its first element */
    struct sgrad_view view;
    const char *name;
};
struct sgrad_bucket {
    char *name;                 /* of a bucket that waits for the gradient norm */
    int number;                 /* of its next collective, if it waits */
    enum sgrad_dtype dtype;
    struct sgrad_group group;
    int count;
    int64_t size;               /* elements */
    int64_t *edge;              /* first element of each chunk, then the end; NULL: chunks are nearly equal */
    struct entry *entry;
};

struct sgrad_bucket *sgrad__bucket_open(enum sgrad_dtype dtype, struct sgrad_group group) {
    struct sgrad_bucket *bucket = sgrad_xcalloc(1, sizeof *bucket);
    bucket->dtype = dtype;
    bucket->group = group;
    return bucket;
}

void sgrad__bucket_put(struct sgrad_bucket *bucket, int buffer, struct sgrad_view view, int *done, int parameter,
                       const char *name) {
    bucket->entry = sgrad_array_grow(bucket->entry, bucket->count, sizeof *bucket->entry);
    bucket->entry[bucket->count++] = (struct entry){ buffer, done, parameter, bucket->size, view, name };
    bucket->size += sgrad_shape_count(&view.shape);
}

int64_t sgrad__bucket_bytes(const struct sgrad_bucket *bucket) {
    return bucket->size * (int64_t)sgrad_dtype_size(bucket->dtype);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Returns the first element of chunk C of the bucket. */
static int64_t chunk_first(const struct sgrad_bucket *bucket, int chunks, int c) {
    return bucket->edge ? bucket->edge[c] : bucket->size * c / chunks;
}

int64_t sgrad__bucket_chunk(const struct sgrad_bucket *bucket, int chunks, int c) {
    return chunk_first(bucket, chunks, c + 1) - chunk_first(bucket, chunks, c);
}

/* Returns a buffer with the elements FROM to TO of the bucket, copied from its entries; -0 after the last entry. */
static int gather_chunk(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int64_t from, int64_t to,
                        const char *name) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)bucket->count + 1, sizeof *piece);
    const int64_t end_of_all = most(from, bucket->size);
    int count = 0;
    for (int i = 0; i < bucket->count; i++) {
        const struct entry *p = &bucket->entry[i];
        int64_t first = most(from, p->first), end = least(to, p->first + sgrad_shape_count(&p->view.shape));
        if (first < end) piece[count++] = (struct sgrad__piece){ p->buffer, { first - p->first, first - from, end - first } };
    }
    if (to > end_of_all) piece[count++] = (struct sgrad__piece){ -1, { 0, end_of_all - from, to - end_of_all } };
    int chunk = sgrad__add_buffer(builder, sgrad_format("%s", name), (struct sgrad_view){ bucket->dtype, { 1, { to - from } } });
    sgrad__add_copies(builder, piece, count, chunk, name);
    free(piece);
    return chunk;
}

/* Copies the elements of the bucket from START on, which are in the chunks, to the buffer TO. */
static void gather_entry(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int64_t start, const int *chunk,
                         int chunks, int to) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)chunks, sizeof *piece);
    const int64_t last = start + sgrad_shape_count(&builder->p->buffer[to].view.shape);
    int count = 0;
    for (int c = 0; c < chunks; c++) {
        int64_t from = chunk_first(bucket, chunks, c), first = most(from, start),
                end = least(chunk_first(bucket, chunks, c + 1), last);
        if (first < end) piece[count++] = (struct sgrad__piece){ chunk[c], { first - from, first - start, end - first } };
    }
    sgrad__add_copies(builder, piece, count, to, builder->p->buffer[to].name);
    free(piece);
}

/* Copies the gradient and updates the parameter in PARTS chunks, so that several cores do this. */
static void update_parts(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, const struct entry *entry,
                         const int *chunk, int chunks, int parts) {
    const int64_t count = sgrad_shape_count(&entry->view.shape);
    for (int i = 0; i < parts; i++) {
        const int part = sgrad__add_buffer(builder, sgrad_format("%s reduced", entry->name), sgrad_part_view(count, parts, i));
        gather_entry(builder, bucket, entry->first + sgrad_part_first(count, parts, i), chunk, chunks, part);
        sgrad__add_update_part(builder, entry->parameter, i, parts, part);
    }
}

/* An update directly follows the copy of its gradient, so that both, and those of the next parameter, become one task. */
void sgrad__bucket_spread(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const int *chunk, int chunks) {
    for (const struct entry *p = bucket->entry; p < bucket->entry + bucket->count; p++) {
        const int parts = p->parameter < 0 ? 1 : sgrad__update_parts(builder, p->parameter);
        if (parts > 1) {
            update_parts(builder, bucket, p, chunk, chunks, parts);
            continue;
        }
        *p->done = sgrad__add_buffer(builder, sgrad_format("%s reduced", p->name), p->view);
        gather_entry(builder, bucket, p->first, chunk, chunks, *p->done);
        if (p->parameter >= 0 && !sgrad__updates_wait(builder)) sgrad__add_update(builder, p->parameter, *p->done);
    }
}

/* Returns the number of plans or messages in which a bucket is exchanged. A bucket that is larger than the target size, because
 * of one large parameter, has several: more urgent messages may be sent between them, and MPI counts bytes in 31 bits. */
int sgrad__bucket_cuts(const struct sgrad_builder *builder, const struct sgrad_bucket *bucket) {
    enum { CUTS = 64 };
    const int64_t most_bytes = sgrad_message_most() / 2 + 1;
    const int64_t wanted = most(builder->p->bucket_bytes, sgrad__bucket_bytes(bucket) / CUTS + 1),
                  bytes = sgrad__bucket_bytes(bucket);
    const int64_t limit = builder->p->bucket_bytes && wanted < most_bytes ? wanted : most_bytes;
    return bytes > limit ? (int)((bytes + limit - 1) / limit) : 1;
}

void sgrad__bucket_gather(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int *chunk, int chunks,
                          const char *name) {
    for (int c = 0; c < chunks; c++)
        chunk[c] = gather_chunk(builder, bucket, chunk_first(bucket, chunks, c), chunk_first(bucket, chunks, c + 1), name);
}

/* Returns the maximum number of chunks of one of CUTS plans: no chunk is empty, and the plan is not longer than is useful. */
static int most_chunks(const struct sgrad_bucket *bucket, int cuts) { return (int)least(bucket->size / cuts, 1 << 16); }

/* Divides the bucket into chunks for CUTS times PLAN, as few as the plan needs, and returns their number. If there are several,
 * they consist of units of equal size that begin at multiples of ALIGNED elements; after the last entry, the bucket is padded
 * with -0. */
static int cut_for(struct sgrad_bucket *bucket, struct sgrad_plan *plan, int cuts) {
    enum { ALIGNED = 16 };
    const int each = plan->chunks, chunks = cuts * each;
    const int64_t unit = chunks > 1 ? ALIGNED : 1, size = (bucket->size + chunks * unit - 1) / (chunks * unit) * unit;
    int *first = sgrad_xcalloc((size_t)each + 1, sizeof *first);
    sgrad_plan_join(plan, first);
    free(bucket->edge);
    bucket->edge = sgrad_xcalloc((size_t)(cuts * plan->chunks) + 1, sizeof *bucket->edge);
    for (int c = 0; c <= cuts * plan->chunks; c++) bucket->edge[c] = size * (c / plan->chunks * each + first[c % plan->chunks]);
    free(first);
    return cuts * plan->chunks;
}

void sgrad__bucket_sum(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const struct sgrad_collective *method,
                       int priority, const char *name) {
    const int cuts = sgrad__bucket_cuts(builder, bucket);
    const struct sgrad_exchange each = { .bytes = (double)sgrad__bucket_bytes(bucket) / cuts,
                                         .limit = most_chunks(bucket, cuts),
                                         .group = &bucket->group,
                                         .halving = builder->o->deterministic };
    if (!method) method = sgrad_collective_cheapest(SGRAD_ALLREDUCE, &each, builder->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &each, builder->o->rank, builder->o->network);
    const int chunks = cut_for(bucket, &plan, cuts);
    int *chunk = sgrad_xcalloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(builder, bucket, chunk, chunks, name);
    for (int i = 0; i < cuts; i++) sgrad__add_plan(builder, &plan, &chunk[i * plan.chunks], priority, name);
    sgrad__bucket_spread(builder, bucket, chunk, chunks);
    free(chunk);
    free(plan.action);
}

void sgrad__bucket_weights(struct sgrad_builder *builder, struct sgrad_bucket *bucket) {
    for (int i = 0; i < bucket->count; i++) bucket->entry[i].buffer = builder->parameter[bucket->entry[i].parameter];
}

void sgrad__bucket_take(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, const int *chunk, int chunks) {
    for (int i = 0; i < bucket->count; i++)
        gather_entry(builder, bucket, bucket->entry[i].first, chunk, chunks, bucket->entry[i].buffer);
}

/* Creates the chunks of a rank that only receives: buffers without content. */
static void add_places(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int *chunk, int chunks,
                       const char *name) {
    for (int c = 0; c < chunks; c++) {
        const struct sgrad_view view = { bucket->dtype, { 1, { sgrad__bucket_chunk(bucket, chunks, c) } } };
        chunk[c] = sgrad__add_buffer(builder, sgrad_format("%s", name), view);
    }
}

void sgrad__bucket_broadcast(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int root, int priority,
                             const char *name) {
    const int cuts = sgrad__bucket_cuts(builder, bucket);
    const struct sgrad_exchange each = { .bytes = (double)sgrad__bucket_bytes(bucket) / cuts, .limit = most_chunks(bucket, cuts),
                                         .group = &bucket->group, .root = root, .halving = builder->o->deterministic };
    const struct sgrad_collective *method = sgrad_collective_cheapest(SGRAD_BROADCAST, &each, builder->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &each, builder->o->rank, builder->o->network);
    const int chunks = cut_for(bucket, &plan, cuts);
    int *chunk = sgrad_xcalloc((size_t)chunks, sizeof *chunk);
    if (root == builder->o->rank) sgrad__bucket_gather(builder, bucket, chunk, chunks, name);
    else add_places(builder, bucket, chunk, chunks, name);
    for (int i = 0; i < cuts; i++) sgrad__add_plan(builder, &plan, &chunk[i * plan.chunks], priority, name);
    if (root != builder->o->rank) sgrad__bucket_take(builder, bucket, chunk, chunks);
    free(chunk);
    free(plan.action);
}

int *sgrad__bucket_parameters(const struct sgrad_bucket *bucket, int *count) {
    int *parameter = sgrad_xcalloc((size_t)bucket->count, sizeof *parameter);
    for (int i = 0; i < bucket->count; i++) parameter[i] = bucket->entry[i].parameter;
    *count = bucket->count;
    return parameter;
}

/* ---- shards ---- */

/* Returns the elements of entry ENTRY that are in shard SHARE; there are as many shards as the group has ranks
 * (sgrad__share_of). A parameter that every rank updates is in no shard. */
static struct sgrad_copy_block share_of(const struct sgrad_builder *builder, const struct sgrad_bucket *bucket,
                                        const struct entry *entry, int share) {
    const struct sgrad__update *update = &builder->o->training->update[entry->parameter];
    const int64_t count = sgrad_shape_count(&entry->view.shape), first = count * share / bucket->group.count;
    if (update->ranks) return (struct sgrad_copy_block){ 0, 0, bucket->group.rank[share] == update->owner ? count : 0 };
    if (!builder->o->strategy->shards_optimizer) return (struct sgrad_copy_block){ 0 };
    return (struct sgrad_copy_block){ first, 0, count * (share + 1) / bucket->group.count - first };
}

/* Returns true if each rank stores only its shard of the entry's parameter, so that updated weights are not sent. */
static bool stays(const struct sgrad_builder *builder, const struct entry *entry) {
    return builder->g->parameter[entry->parameter].share.ranks > 0;
}

/* Returns the same elements of the gradient or, if UPDATED, of the updated weights that are sent. */
static struct sgrad_copy_block sent_of(const struct sgrad_builder *builder, const struct sgrad_bucket *bucket,
                                       const struct entry *entry, int share, bool updated) {
    return updated && stays(builder, entry) ? (struct sgrad_copy_block){ 0 } : share_of(builder, bucket, entry, share);
}

static int add_chunk(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int share, bool updated,
                     const char *name) {
    int64_t size = 0;
    for (int i = 0; i < bucket->count; i++) size += sent_of(builder, bucket, &bucket->entry[i], share, updated).count;
    return sgrad__add_buffer(builder, sgrad_format("%s", name),
                             (struct sgrad_view){ bucket->dtype, { 1, { size ? size : 1 } } }); /* a tensor must not be empty */
}

/* Returns a chunk with shard SHARE of all entries: of their gradients or, if UPDATED, of the weights that this rank has
 * updated. */
static int gather_share(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int share, bool updated,
                        const char *name) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)bucket->count, sizeof *piece);
    const int chunk = add_chunk(builder, bucket, share, updated, name);
    int64_t at = 0;
    int count = 0;
    for (const struct entry *e = bucket->entry; e < bucket->entry + bucket->count; e++) {
        struct sgrad__piece p = { updated ? builder->updated[e->parameter] : e->buffer,
                                  sent_of(builder, bucket, e, share, updated) };
        if (!p.is.count) continue;
        if (updated) p.is.from = 0;
        p.is.to = at;
        at += p.is.count;
        piece[count++] = p;
    }
    if (!count) piece[count++] = (struct sgrad__piece){ -1, { 0, 0, 1 } };
    sgrad__add_copies(builder, piece, count, chunk, name);
    free(piece);
    return chunk;
}

/* Copies the elements of each entry from CHUNK, the summed shard HERE, and updates the same shard of its parameter. */
static void spread_share(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int here, int chunk) {
    int64_t at = 0;
    for (struct entry *e = bucket->entry; e < bucket->entry + bucket->count; e++) {
        const struct sgrad_copy_block is = share_of(builder, bucket, e, here);
        const struct sgrad_view part = { bucket->dtype, { 1, { is.count } } };
        *e->done = -1;
        if (!is.count) continue;
        const bool all = builder->o->training->update[e->parameter].ranks;
        *e->done = sgrad__add_buffer(builder, sgrad_format("%s share", e->name), all ? e->view : part);
        sgrad__add_copies(builder, &(struct sgrad__piece){ chunk, { at, 0, is.count } }, 1, *e->done,
                          builder->p->buffer[*e->done].name);
        at += is.count;
        if (!sgrad__updates_wait(builder)) sgrad__add_update(builder, e->parameter, *e->done);
    }
}

/* Sends the weights that this rank has updated to all ranks of the group, and receives those that the others have updated. A
 * parameter that one rank updates is already up to date on that rank. */
static void join_shares(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, const char *name) {
    const int ranks = bucket->group.count, here = sgrad_group_index(&bucket->group, builder->o->rank);
    int *chunk = sgrad_xcalloc((size_t)ranks, sizeof *chunk);
    int64_t *at = sgrad_xcalloc((size_t)ranks, sizeof *at);
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)ranks, sizeof *piece);
    for (int i = 0; i < ranks; i++)
        chunk[i] = i == here ? gather_share(builder, bucket, i, true, name) : add_chunk(builder, bucket, i, true, name);
    sgrad__add_exchange(builder, SGRAD_ALL_GATHER, &bucket->group, -1, chunk, ranks, SGRAD__PRIORITY_UPDATE, name);
    for (const struct entry *e = bucket->entry; e < bucket->entry + bucket->count; e++) {
        int count = 0;
        for (int i = 0; i < ranks; i++) {
            const struct sgrad_copy_block is = sent_of(builder, bucket, e, i, true);
            if (is.count) piece[count++] = (struct sgrad__piece){ chunk[i], { at[i], is.from, is.count } };
            at[i] += is.count;
        }
        const struct sgrad__update *update = &builder->o->training->update[e->parameter];
        if (count && !(update->ranks && update->owner == builder->o->rank))
            sgrad__add_copies(builder, piece, count, builder->parameter[e->parameter], e->name);
    }
    free(piece);
    free(at);
    free(chunk);
}

/* Gathers the updated weights now or, if updates wait for the norm of all gradients, once it is known. */
static void join_or_hold(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const char *name) {
    bool sent = false;
    for (int i = 0; i < bucket->count; i++) sent |= !stays(builder, &bucket->entry[i]);
    if (!sent) return;
    if (!sgrad__updates_wait(builder)) {
        join_shares(builder, bucket, name);
        return;
    }
    bucket->name = sgrad_format("%s", name);
    bucket->number = builder->collectives;
    builder->held = sgrad_array_grow(builder->held, builder->held_count, sizeof *builder->held);
    builder->held[builder->held_count++] = bucket;
}

void sgrad__bucket_share(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int priority, const char *name) {
    const int ranks = bucket->group.count, here = sgrad_group_index(&bucket->group, builder->o->rank);
    int *chunk = sgrad_xcalloc((size_t)ranks, sizeof *chunk);
    for (int i = 0; i < ranks; i++) chunk[i] = gather_share(builder, bucket, i, false, name);
    const int begin = builder->p->instruction_count, own = chunk[here];
    sgrad__add_exchange(builder, SGRAD_REDUCE_SCATTER, &bucket->group, -1, chunk, ranks, priority, name);
    if (builder->o->shares) {       /* so that gradients of few layers are in memory */
        sgrad__add_wait(builder, begin, &own, 1, SGRAD_R);
        builder->scattered = sgrad_array_grow(builder->scattered, builder->scatters, sizeof *builder->scattered);
        builder->scattered[builder->scatters++] = chunk[here];
    }
    spread_share(builder, bucket, here, chunk[here]);
    free(chunk);
    join_or_hold(builder, bucket, name);
}

void sgrad__bucket_join(struct sgrad_builder *builder, struct sgrad_bucket *bucket, const char *name) {
    for (int i = 0; i < bucket->count; i++)
        if (builder->o->training->update[bucket->entry[i].parameter].ranks) {
            join_or_hold(builder, bucket, name);
            return;
        }
}

bool sgrad__bucket_is_held(const struct sgrad_builder *builder, const struct sgrad_bucket *bucket) {
    return builder->held_count && builder->held[builder->held_count - 1] == bucket;
}

void sgrad__close_shares(struct sgrad_builder *builder) {
    for (int i = 0; i < builder->held_count; i++) {
        const bool common = sgrad__is_common(builder->held[i]->number);
        const int before = common ? sgrad__number_from(builder, builder->held[i]->number) : 0;
        join_shares(builder, builder->held[i], builder->held[i]->name);
        if (common) sgrad__number_from(builder, before);
        sgrad__bucket_free(builder->held[i]);
    }
    free(builder->held);
}

void sgrad__bucket_free(struct sgrad_bucket *bucket) {
    free(bucket->name);
    free(bucket->edge);
    free(bucket->entry);
    free(bucket);
}

enum { LEAST_BUCKET = 1 << 14 };                /* bytes: below it, tasks cost more than the transfer */
static const double LEAST_SECONDS = 3e-3; /* transfer time: a busy rank may take this long to start the next bucket */

/* Returns the size for the largest number of buckets, a power of two, for which all buckets together take at most a quarter
 * longer than one, because of latency, and no bucket is so short that the network would wait for the next one. */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad_program_options *options) {
    const struct sgrad_network *net = options->network;
    const double shortest = LEAST_SECONDS * net->bandwidth;
    int64_t best = bytes;
    double once = 0;
    for (int n = 1; n == 1 || (bytes / n >= LEAST_BUCKET && (double)bytes / n >= shortest); n *= 2) {
        const double size = (double)bytes / n;
        const struct sgrad_exchange each = { .bytes = size, .group = options->peers, .halving = options->deterministic };
        const struct sgrad_collective *method =
            options->allreduce ? options->allreduce : sgrad_collective_cheapest(SGRAD_ALLREDUCE, &each, net);
        const double cost = n * sgrad_collective_cost(method, &each, net);
        if (n == 1) once = cost;
        if (cost <= 1.25 * once) best = (int64_t)size;
    }
    return best;
}

/* Returns the bucket size for the bytes of all gradients; frozen parameters have none. With pipeline stages, these are divided by
 * the number of stages, so that all stages use the same size, because some buckets belong to several stages. */
int64_t sgrad__bucket_bytes_of(const struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    int64_t bytes = 0;
    for (const struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++)
        if (!p->state && !p->frozen) bytes += sgrad_shape_count(&p->kept_shape) * (int64_t)sizeof(float);
    bytes /= graph->stages;
    if (!options->peers || !options->training) return 0;
    if (options->bucket) return options->bucket;
    const int64_t size = sgrad__bucket_size(bytes, options);
    return options->shares ? least(size, sgrad__weights_bucket_bytes(graph, options)) : size;
}

int64_t sgrad__weights_bucket_bytes(const struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    enum { PARTS = 24, LEAST = 4 * LEAST_BUCKET };
    int64_t bytes = 0;
    for (const struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++)
        if (p->share.ranks) bytes += sgrad_shape_count(&p->kept_shape) * (int64_t)sizeof(float);
    return options->bucket ? options->bucket : most(bytes / graph->stages / PARTS, LEAST);
}
