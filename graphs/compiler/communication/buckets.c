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
static int64_t chunk_first(const struct sgrad_bucket *k, int chunks, int c) {
    return k->edge ? k->edge[c] : k->size * c / chunks;
}

int64_t sgrad__bucket_chunk(const struct sgrad_bucket *k, int chunks, int c) {
    return chunk_first(k, chunks, c + 1) - chunk_first(k, chunks, c);
}

/* Returns a buffer with the elements FROM to TO of the bucket, copied from its entries; -0 after the last entry. */
static int gather_chunk(struct sgrad_builder *b, const struct sgrad_bucket *k, int64_t from, int64_t to, const char *name) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)k->count + 1, sizeof *piece);
    const int64_t end_of_all = most(from, k->size);
    int count = 0;
    for (int i = 0; i < k->count; i++) {
        const struct entry *p = &k->entry[i];
        int64_t first = most(from, p->first), end = least(to, p->first + sgrad_shape_count(&p->view.shape));
        if (first < end) piece[count++] = (struct sgrad__piece){ p->buffer, { first - p->first, first - from, end - first } };
    }
    if (to > end_of_all) piece[count++] = (struct sgrad__piece){ -1, { 0, end_of_all - from, to - end_of_all } };
    int chunk = sgrad__add_buffer(b, sgrad_format("%s", name), (struct sgrad_view){ k->dtype, { 1, { to - from } } });
    sgrad__add_copies(b, piece, count, chunk, name);
    free(piece);
    return chunk;
}

/* Copies the elements of the bucket from START on, which are in the chunks, to the buffer TO. */
static void gather_entry(struct sgrad_builder *b, const struct sgrad_bucket *k, int64_t start, const int *chunk, int chunks,
                         int to) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)chunks, sizeof *piece);
    const int64_t last = start + sgrad_shape_count(&b->p->buffer[to].view.shape);
    int count = 0;
    for (int c = 0; c < chunks; c++) {
        int64_t from = chunk_first(k, chunks, c), first = most(from, start), end = least(chunk_first(k, chunks, c + 1), last);
        if (first < end) piece[count++] = (struct sgrad__piece){ chunk[c], { first - from, first - start, end - first } };
    }
    sgrad__add_copies(b, piece, count, to, b->p->buffer[to].name);
    free(piece);
}

/* Copies the gradient and updates the parameter in PARTS chunks, so that several cores do this. */
static void update_parts(struct sgrad_builder *b, const struct sgrad_bucket *k, const struct entry *p, const int *chunk,
                         int chunks, int parts) {
    const int64_t count = sgrad_shape_count(&p->view.shape);
    for (int i = 0; i < parts; i++) {
        const int part = sgrad__add_buffer(b, sgrad_format("%s reduced", p->name), sgrad_part_view(count, parts, i));
        gather_entry(b, k, p->first + sgrad_part_first(count, parts, i), chunk, chunks, part);
        sgrad__add_update_part(b, p->parameter, i, parts, part);
    }
}

/* An update directly follows the copy of its gradient, so that both, and those of the next parameter, become one task. */
void sgrad__bucket_spread(struct sgrad_builder *b, struct sgrad_bucket *k, const int *chunk, int chunks) {
    for (const struct entry *p = k->entry; p < k->entry + k->count; p++) {
        const int parts = p->parameter < 0 ? 1 : sgrad__update_parts(b, p->parameter);
        if (parts > 1) {
            update_parts(b, k, p, chunk, chunks, parts);
            continue;
        }
        *p->done = sgrad__add_buffer(b, sgrad_format("%s reduced", p->name), p->view);
        gather_entry(b, k, p->first, chunk, chunks, *p->done);
        if (p->parameter >= 0 && !sgrad__updates_wait(b)) sgrad__add_update(b, p->parameter, *p->done);
    }
}

/* Returns the number of plans or messages in which a bucket is exchanged. A bucket that is larger than the target size, because
 * of one large parameter, has several: more urgent messages may be sent between them, and MPI counts bytes in 31 bits. */
int sgrad__bucket_cuts(const struct sgrad_builder *b, const struct sgrad_bucket *k) {
    enum { CUTS = 64 };
    const int64_t most_bytes = sgrad_message_most() / 2 + 1;
    const int64_t wanted = most(b->p->bucket_bytes, sgrad__bucket_bytes(k) / CUTS + 1), bytes = sgrad__bucket_bytes(k);
    const int64_t limit = b->p->bucket_bytes && wanted < most_bytes ? wanted : most_bytes;
    return bytes > limit ? (int)((bytes + limit - 1) / limit) : 1;
}

void sgrad__bucket_gather(struct sgrad_builder *b, const struct sgrad_bucket *k, int *chunk, int chunks, const char *name) {
    for (int c = 0; c < chunks; c++)
        chunk[c] = gather_chunk(b, k, chunk_first(k, chunks, c), chunk_first(k, chunks, c + 1), name);
}

/* Returns the maximum number of chunks of one of CUTS plans: no chunk is empty, and the plan is not longer than is useful. */
static int most_chunks(const struct sgrad_bucket *k, int cuts) { return (int)least(k->size / cuts, 1 << 16); }

/* Divides the bucket into chunks for CUTS times PLAN, as few as the plan needs, and returns their number. If there are several,
 * they consist of units of equal size that begin at multiples of ALIGNED elements; after the last entry, the bucket is padded
 * with -0. */
static int cut_for(struct sgrad_bucket *k, struct sgrad_plan *plan, int cuts) {
    enum { ALIGNED = 16 };
    const int each = plan->chunks, chunks = cuts * each;
    const int64_t unit = chunks > 1 ? ALIGNED : 1, size = (k->size + chunks * unit - 1) / (chunks * unit) * unit;
    int *first = sgrad_xcalloc((size_t)each + 1, sizeof *first);
    sgrad_plan_join(plan, first);
    free(k->edge);
    k->edge = sgrad_xcalloc((size_t)(cuts * plan->chunks) + 1, sizeof *k->edge);
    for (int c = 0; c <= cuts * plan->chunks; c++) k->edge[c] = size * (c / plan->chunks * each + first[c % plan->chunks]);
    free(first);
    return cuts * plan->chunks;
}

void sgrad__bucket_sum(struct sgrad_builder *b, struct sgrad_bucket *k, const struct sgrad_collective *method, int priority,
                       const char *name) {
    const int cuts = sgrad__bucket_cuts(b, k);
    const struct sgrad_exchange each = { .bytes = (double)sgrad__bucket_bytes(k) / cuts,
                                         .limit = most_chunks(k, cuts),
                                         .group = &k->group,
                                         .halving = b->o->deterministic };
    if (!method) method = sgrad_collective_cheapest(SGRAD_ALLREDUCE, &each, b->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &each, b->o->rank, b->o->network);
    const int chunks = cut_for(k, &plan, cuts);
    int *chunk = sgrad_xcalloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(b, k, chunk, chunks, name);
    for (int i = 0; i < cuts; i++) sgrad__add_plan(b, &plan, &chunk[i * plan.chunks], priority, name);
    sgrad__bucket_spread(b, k, chunk, chunks);
    free(chunk);
    free(plan.action);
}

void sgrad__bucket_weights(struct sgrad_builder *b, struct sgrad_bucket *k) {
    for (int i = 0; i < k->count; i++) k->entry[i].buffer = b->parameter[k->entry[i].parameter];
}

void sgrad__bucket_take(struct sgrad_builder *b, const struct sgrad_bucket *k, const int *chunk, int chunks) {
    for (int i = 0; i < k->count; i++) gather_entry(b, k, k->entry[i].first, chunk, chunks, k->entry[i].buffer);
}

/* Creates the chunks of a rank that only receives: buffers without content. */
static void add_places(struct sgrad_builder *b, const struct sgrad_bucket *k, int *chunk, int chunks, const char *name) {
    for (int c = 0; c < chunks; c++) {
        const struct sgrad_view view = { k->dtype, { 1, { sgrad__bucket_chunk(k, chunks, c) } } };
        chunk[c] = sgrad__add_buffer(b, sgrad_format("%s", name), view);
    }
}

void sgrad__bucket_broadcast(struct sgrad_builder *b, struct sgrad_bucket *k, int root, int priority, const char *name) {
    const int cuts = sgrad__bucket_cuts(b, k);
    const struct sgrad_exchange each = { .bytes = (double)sgrad__bucket_bytes(k) / cuts, .limit = most_chunks(k, cuts),
                                         .group = &k->group, .root = root, .halving = b->o->deterministic };
    const struct sgrad_collective *method = sgrad_collective_cheapest(SGRAD_BROADCAST, &each, b->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &each, b->o->rank, b->o->network);
    const int chunks = cut_for(k, &plan, cuts);
    int *chunk = sgrad_xcalloc((size_t)chunks, sizeof *chunk);
    if (root == b->o->rank) sgrad__bucket_gather(b, k, chunk, chunks, name);
    else add_places(b, k, chunk, chunks, name);
    for (int i = 0; i < cuts; i++) sgrad__add_plan(b, &plan, &chunk[i * plan.chunks], priority, name);
    if (root != b->o->rank) sgrad__bucket_take(b, k, chunk, chunks);
    free(chunk);
    free(plan.action);
}

int *sgrad__bucket_parameters(const struct sgrad_bucket *k, int *count) {
    int *parameter = sgrad_xcalloc((size_t)k->count, sizeof *parameter);
    for (int i = 0; i < k->count; i++) parameter[i] = k->entry[i].parameter;
    *count = k->count;
    return parameter;
}

/* ---- shards ---- */

/* Returns the elements of entry E that are in shard SHARE; there are as many shards as the group has ranks (sgrad__share_of). A
 * parameter that every rank updates is in no shard. */
static struct sgrad_copy_piece share_of(const struct sgrad_builder *b, const struct sgrad_bucket *k, const struct entry *e,
                                        int share) {
    const struct sgrad__update *update = &b->o->training->update[e->parameter];
    const int64_t count = sgrad_shape_count(&e->view.shape), first = count * share / k->group.count;
    if (update->ranks) return (struct sgrad_copy_piece){ 0, 0, k->group.rank[share] == update->owner ? count : 0 };
    if (!b->o->strategy->shards_optimizer) return (struct sgrad_copy_piece){ 0 };
    return (struct sgrad_copy_piece){ first, 0, count * (share + 1) / k->group.count - first };
}

static int64_t share_size(const struct sgrad_builder *b, const struct sgrad_bucket *k, int share) {
    int64_t size = 0;
    for (int i = 0; i < k->count; i++) size += share_of(b, k, &k->entry[i], share).count;
    return size ? size : 1;     /* a tensor must not be empty */
}

static int add_chunk(struct sgrad_builder *b, const struct sgrad_bucket *k, int share, const char *name) {
    return sgrad__add_buffer(b, sgrad_format("%s", name), (struct sgrad_view){ k->dtype, { 1, { share_size(b, k, share) } } });
}

/* Returns a chunk with shard SHARE of all entries: of their gradients or, if UPDATED, of the weights that this rank has
 * updated. */
static int gather_share(struct sgrad_builder *b, const struct sgrad_bucket *k, int share, bool updated, const char *name) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)k->count, sizeof *piece);
    const int chunk = add_chunk(b, k, share, name);
    int64_t at = 0;
    int count = 0;
    for (const struct entry *e = k->entry; e < k->entry + k->count; e++) {
        struct sgrad__piece p = { updated ? b->updated[e->parameter] : e->buffer, share_of(b, k, e, share) };
        if (!p.is.count) continue;
        if (updated) p.is.from = 0;
        p.is.to = at;
        at += p.is.count;
        piece[count++] = p;
    }
    if (!count) piece[count++] = (struct sgrad__piece){ -1, { 0, 0, 1 } };
    sgrad__add_copies(b, piece, count, chunk, name);
    free(piece);
    return chunk;
}

/* Copies the elements of each entry from CHUNK, the summed shard HERE, and updates the same shard of its parameter. */
static void spread_share(struct sgrad_builder *b, struct sgrad_bucket *k, int here, int chunk) {
    int64_t at = 0;
    for (struct entry *e = k->entry; e < k->entry + k->count; e++) {
        const struct sgrad_copy_piece is = share_of(b, k, e, here);
        const struct sgrad_view part = { k->dtype, { 1, { is.count } } };
        *e->done = -1;
        if (!is.count) continue;
        const bool all = b->o->training->update[e->parameter].ranks;
        *e->done = sgrad__add_buffer(b, sgrad_format("%s share", e->name), all ? e->view : part);
        sgrad__add_copies(b, &(struct sgrad__piece){ chunk, { at, 0, is.count } }, 1, *e->done, b->p->buffer[*e->done].name);
        at += is.count;
        if (!sgrad__updates_wait(b)) sgrad__add_update(b, e->parameter, *e->done);
    }
}

/* Sends the weights that this rank has updated to all ranks of the group, and receives those that the others have updated. A
 * parameter that one rank updates is already up to date on that rank. */
static void join_shares(struct sgrad_builder *b, const struct sgrad_bucket *k, const char *name) {
    const int ranks = k->group.count, here = sgrad_group_place(&k->group, b->o->rank);
    int *chunk = sgrad_xcalloc((size_t)ranks, sizeof *chunk);
    int64_t *at = sgrad_xcalloc((size_t)ranks, sizeof *at);
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)ranks, sizeof *piece);
    for (int i = 0; i < ranks; i++) chunk[i] = i == here ? gather_share(b, k, i, true, name) : add_chunk(b, k, i, name);
    sgrad__add_exchange(b, SGRAD_ALL_GATHER, &k->group, -1, chunk, ranks, SGRAD__PRIORITY_UPDATE, name);
    for (const struct entry *e = k->entry; e < k->entry + k->count; e++) {
        int count = 0;
        for (int i = 0; i < ranks; i++) {
            const struct sgrad_copy_piece is = share_of(b, k, e, i);
            if (is.count) piece[count++] = (struct sgrad__piece){ chunk[i], { at[i], is.from, is.count } };
            at[i] += is.count;
        }
        const struct sgrad__update *update = &b->o->training->update[e->parameter];
        if (count && !(update->ranks && update->owner == b->o->rank))
            sgrad__add_copies(b, piece, count, b->parameter[e->parameter], e->name);
    }
    free(piece);
    free(at);
    free(chunk);
}

/* Gathers the updated weights now or, if updates wait for the norm of all gradients, once it is known. */
static void join_or_hold(struct sgrad_builder *b, struct sgrad_bucket *k, const char *name) {
    if (!sgrad__updates_wait(b)) {
        join_shares(b, k, name);
        return;
    }
    k->name = sgrad_format("%s", name);
    k->number = b->collectives;
    b->held = sgrad_array_grow(b->held, b->held_count, sizeof *b->held);
    b->held[b->held_count++] = k;
}

void sgrad__bucket_share(struct sgrad_builder *b, struct sgrad_bucket *k, int priority, const char *name) {
    const int ranks = k->group.count, here = sgrad_group_place(&k->group, b->o->rank);
    int *chunk = sgrad_xcalloc((size_t)ranks, sizeof *chunk);
    for (int i = 0; i < ranks; i++) chunk[i] = gather_share(b, k, i, false, name);
    sgrad__add_exchange(b, SGRAD_REDUCE_SCATTER, &k->group, -1, chunk, ranks, priority, name);
    spread_share(b, k, here, chunk[here]);
    free(chunk);
    join_or_hold(b, k, name);
}

void sgrad__bucket_join(struct sgrad_builder *b, struct sgrad_bucket *k, const char *name) {
    for (int i = 0; i < k->count; i++)
        if (b->o->training->update[k->entry[i].parameter].ranks) {
            join_or_hold(b, k, name);
            return;
        }
}

bool sgrad__bucket_is_held(const struct sgrad_builder *b, const struct sgrad_bucket *k) {
    return b->held_count && b->held[b->held_count - 1] == k;
}

void sgrad__close_shares(struct sgrad_builder *b) {
    for (int i = 0; i < b->held_count; i++) {
        const bool common = sgrad__is_common(b->held[i]->number);
        const int before = common ? sgrad__number_from(b, b->held[i]->number) : 0;
        join_shares(b, b->held[i], b->held[i]->name);
        if (common) sgrad__number_from(b, before);
        sgrad__bucket_free(b->held[i]);
    }
    free(b->held);
}

void sgrad__bucket_free(struct sgrad_bucket *k) {
    free(k->name);
    free(k->edge);
    free(k->entry);
    free(k);
}

enum { LEAST_BUCKET = 1 << 14 };                /* bytes: below it, tasks cost more than the transfer */
static const double LEAST_SECONDS = 3e-3; /* transfer time: a busy rank may take this long to start the next bucket */

/* Returns the size for the largest number of buckets, a power of two, for which all buckets together take at most a quarter
 * longer than one, because of latency, and no bucket is so short that the network would wait for the next one. */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad_program_options *o) {
    const struct sgrad_network *net = o->network;
    const double shortest = LEAST_SECONDS * net->bandwidth;
    int64_t best = bytes;
    double once = 0;
    for (int n = 1; n == 1 || (bytes / n >= LEAST_BUCKET && (double)bytes / n >= shortest); n *= 2) {
        const double size = (double)bytes / n;
        const struct sgrad_exchange each = { .bytes = size, .group = o->peers, .halving = o->deterministic };
        const struct sgrad_collective *method =
            o->allreduce ? o->allreduce : sgrad_collective_cheapest(SGRAD_ALLREDUCE, &each, net);
        const double cost = n * sgrad_collective_cost(method, &each, net);
        if (n == 1) once = cost;
        if (cost <= 1.25 * once) best = (int64_t)size;
    }
    return best;
}

/* Returns the bucket size for the bytes of all gradients. With pipeline stages, these are divided by the number of stages, so
 * that all stages use the same size, because some buckets belong to several stages. */
int64_t sgrad__bucket_bytes_of(const struct sgrad_graph *g, const struct sgrad_program_options *o) {
    int64_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (!g->parameter[i].state) bytes += sgrad_shape_count(&g->parameter[i].kept_shape) * (int64_t)sizeof(float);
    bytes /= g->stages;
    if (!o->peers || !o->training) return 0;
    return o->bucket ? o->bucket : sgrad__bucket_size(bytes, o);
}
