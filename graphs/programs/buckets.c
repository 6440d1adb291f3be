/* buckets.c: what travels together between ranks, so that few messages are sent: put in, summed or handed over, taken out again.
 *
 * A bucket goes in chunks, which are tensors of their own:
 *
 *     conv.weight     bn.weight   bn.bias      sums over this rank's micro-batches
 *     └──────┬──────────┘─────────┘
 *     │ chunk 0       │ chunk 1       │        gathered, sent and summed as the plan says
 *            └──────────┐─────────┐
 *     conv.weight     bn.weight   bn.bias      gathered again: sums over all
 *
 * What a rank has no share in is -0 in its bucket: x + -0 is x, to the bit. */
#include "graphs/programs/builder.h"
#include "runtime/parts.h"

#include <stdlib.h>

struct entry {
    int buffer, *done, parameter;
    int64_t first;              /* element of the bucket */
    struct sgrad_view view;
    const char *name;
};
struct sgrad__bucket {
    char *name;                 /* of one that is held */
    int number;                 /* of its next collective then */
    enum sgrad_dtype dtype;
    struct sgrad_group group;
    int count;
    int64_t size;               /* elements */
    int64_t *edge;              /* of chunks: where each begins, and the end; NULL: they are nearly equal */
    struct entry *entry;
};

struct sgrad__bucket *sgrad__bucket_open(enum sgrad_dtype dtype, struct sgrad_group group) {
    struct sgrad__bucket *bucket = sgrad_alloc(1, sizeof *bucket);
    bucket->dtype = dtype;
    bucket->group = group;
    return bucket;
}

void sgrad__bucket_put(struct sgrad__bucket *bucket, int buffer, struct sgrad_view view, int *done, int parameter,
                       const char *name) {
    bucket->entry = sgrad_grow(bucket->entry, bucket->count, sizeof *bucket->entry);
    bucket->entry[bucket->count++] = (struct entry){ buffer, done, parameter, bucket->size, view, name };
    bucket->size += sgrad_shape_count(&view.shape);
}

int64_t sgrad__bucket_bytes(const struct sgrad__bucket *bucket) {
    return bucket->size * (int64_t)sgrad_dtype_size(bucket->dtype);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Where chunk C of the bucket begins. */
static int64_t chunk_first(const struct sgrad__bucket *k, int chunks, int c) {
    return k->edge ? k->edge[c] : k->size * c / chunks;
}

int64_t sgrad__bucket_chunk(const struct sgrad__bucket *k, int chunks, int c) {
    return chunk_first(k, chunks, c + 1) - chunk_first(k, chunks, c);
}

/* The bucket's elements FROM to TO, out of its entries. */
static int gather_chunk(struct sgrad__builder *b, const struct sgrad__bucket *k, int64_t from, int64_t to, const char *name) {
    struct sgrad__piece *piece = sgrad_alloc((size_t)k->count + 1, sizeof *piece);
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

/* The bucket's elements from START on, out of the chunks, into the buffer TO. */
static void gather_entry(struct sgrad__builder *b, const struct sgrad__bucket *k, int64_t start, const int *chunk, int chunks,
                         int to) {
    struct sgrad__piece *piece = sgrad_alloc((size_t)chunks, sizeof *piece);
    const int64_t last = start + sgrad_shape_count(&b->p->buffer[to].view.shape);
    int count = 0;
    for (int c = 0; c < chunks; c++) {
        int64_t from = chunk_first(k, chunks, c), first = most(from, start), end = least(chunk_first(k, chunks, c + 1), last);
        if (first < end) piece[count++] = (struct sgrad__piece){ chunk[c], { first - from, first - start, end - first } };
    }
    sgrad__add_copies(b, piece, count, to, b->p->buffer[to].name);
    free(piece);
}

/* By parts of both, which cores share. */
static void update_parts(struct sgrad__builder *b, const struct sgrad__bucket *k, const struct entry *p, const int *chunk,
                         int chunks, int parts) {
    const int64_t count = sgrad_shape_count(&p->view.shape);
    for (int i = 0; i < parts; i++) {
        const int part = sgrad__add_buffer(b, sgrad_format("%s reduced", p->name), sgrad_part_view(count, parts, i));
        gather_entry(b, k, p->first + sgrad_part_first(count, parts, i), chunk, chunks, part);
        sgrad__add_update_part(b, p->parameter, i, parts, part);
    }
}

/* An update follows its gradient at once, so that these, and the next parameter's, become one task. */
void sgrad__bucket_spread(struct sgrad__builder *b, struct sgrad__bucket *k, const int *chunk, int chunks) {
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

/* A bucket larger than the size that buckets are to have, because of one large parameter, goes in several plans or messages: what
 * is more urgent may pass between them, and MPI counts bytes in 31 bits. */
int sgrad__bucket_cuts(const struct sgrad__builder *b, const struct sgrad__bucket *k) {
    enum { CUTS = 64 };
    const int64_t most_bytes = sgrad_message_most() / 2 + 1;
    const int64_t wanted = most(b->p->bucket_bytes, sgrad__bucket_bytes(k) / CUTS + 1), bytes = sgrad__bucket_bytes(k);
    const int64_t limit = b->p->bucket_bytes && wanted < most_bytes ? wanted : most_bytes;
    return bytes > limit ? (int)((bytes + limit - 1) / limit) : 1;
}

void sgrad__bucket_gather(struct sgrad__builder *b, const struct sgrad__bucket *k, int *chunk, int chunks, const char *name) {
    for (int c = 0; c < chunks; c++)
        chunk[c] = gather_chunk(b, k, chunk_first(k, chunks, c), chunk_first(k, chunks, c + 1), name);
}

/* Of one of its CUTS: none is empty, and no plan is longer than pays. */
static int most_chunks(const struct sgrad__bucket *k, int cuts) { return (int)least(k->size / cuts, 1 << 16); }

/* CUTS times PLAN, on as few chunks as that takes: how many these are in all. Several of the plan's own have one size, and begin
 * at multiples of ALIGNED elements: there is room behind the last entry, which is -0. */
static int cut_for(struct sgrad__bucket *k, struct sgrad_plan *plan, int cuts) {
    enum { ALIGNED = 16 };
    const int each = plan->chunks, chunks = cuts * each;
    const int64_t unit = chunks > 1 ? ALIGNED : 1, size = (k->size + chunks * unit - 1) / (chunks * unit) * unit;
    int *first = sgrad_alloc((size_t)each + 1, sizeof *first);
    sgrad_plan_join(plan, first);
    free(k->edge);
    k->edge = sgrad_alloc((size_t)(cuts * plan->chunks) + 1, sizeof *k->edge);
    for (int c = 0; c <= cuts * plan->chunks; c++) k->edge[c] = size * (c / plan->chunks * each + first[c % plan->chunks]);
    free(first);
    return cuts * plan->chunks;
}

void sgrad__bucket_sum(struct sgrad__builder *b, struct sgrad__bucket *k, const struct sgrad_collective *method, int priority,
                       const char *name) {
    const int cuts = sgrad__bucket_cuts(b, k);
    const struct sgrad_exchange each = { .bytes = (double)sgrad__bucket_bytes(k) / cuts,
                                         .limit = most_chunks(k, cuts),
                                         .group = &k->group,
                                         .halving = b->o->deterministic };
    if (!method) method = sgrad_collective_cheapest(SGRAD_ALLREDUCE, &each, b->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &each, b->o->rank, b->o->network);
    const int chunks = cut_for(k, &plan, cuts);
    int *chunk = sgrad_alloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(b, k, chunk, chunks, name);
    for (int i = 0; i < cuts; i++) sgrad__add_plan(b, &plan, &chunk[i * plan.chunks], priority, name);
    sgrad__bucket_spread(b, k, chunk, chunks);
    free(chunk);
    free(plan.action);
}

void sgrad__bucket_weights(struct sgrad__builder *b, struct sgrad__bucket *k) {
    for (int i = 0; i < k->count; i++) k->entry[i].buffer = b->parameter[k->entry[i].parameter];
}

void sgrad__bucket_take(struct sgrad__builder *b, const struct sgrad__bucket *k, const int *chunk, int chunks) {
    for (int i = 0; i < k->count; i++) gather_entry(b, k, k->entry[i].first, chunk, chunks, k->entry[i].buffer);
}

/* Where a rank has nothing to give yet, a buffer without content stands for what it will receive. */
static void add_places(struct sgrad__builder *b, const struct sgrad__bucket *k, int *chunk, int chunks, const char *name) {
    for (int c = 0; c < chunks; c++) {
        const struct sgrad_view view = { k->dtype, { 1, { sgrad__bucket_chunk(k, chunks, c) } } };
        chunk[c] = sgrad__add_buffer(b, sgrad_format("%s", name), view);
    }
}

void sgrad__bucket_broadcast(struct sgrad__builder *b, struct sgrad__bucket *k, int root, int priority, const char *name) {
    const int cuts = sgrad__bucket_cuts(b, k);
    const struct sgrad_exchange each = { .bytes = (double)sgrad__bucket_bytes(k) / cuts, .limit = most_chunks(k, cuts),
                                         .group = &k->group, .root = root, .halving = b->o->deterministic };
    const struct sgrad_collective *method = sgrad_collective_cheapest(SGRAD_BROADCAST, &each, b->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &each, b->o->rank, b->o->network);
    const int chunks = cut_for(k, &plan, cuts);
    int *chunk = sgrad_alloc((size_t)chunks, sizeof *chunk);
    if (root == b->o->rank) sgrad__bucket_gather(b, k, chunk, chunks, name);
    else add_places(b, k, chunk, chunks, name);
    for (int i = 0; i < cuts; i++) sgrad__add_plan(b, &plan, &chunk[i * plan.chunks], priority, name);
    if (root != b->o->rank) sgrad__bucket_take(b, k, chunk, chunks);
    free(chunk);
    free(plan.action);
}

int *sgrad__bucket_parameters(const struct sgrad__bucket *k, int *count) {
    int *parameter = sgrad_alloc((size_t)k->count, sizeof *parameter);
    for (int i = 0; i < k->count; i++) parameter[i] = k->entry[i].parameter;
    *count = k->count;
    return parameter;
}

/* ---- shares ---- */

/* Of an entry, the elements of share SHARE of as many as its group has ranks: as sgrad__share_of has them. What every rank
 * updates is no one's share. */
static struct sgrad_copy_piece share_of(const struct sgrad__builder *b, const struct sgrad__bucket *k, const struct entry *e,
                                        int share) {
    const struct sgrad__parameter *p = &b->g->parameter[e->parameter];
    const int64_t count = sgrad_shape_count(&e->view.shape), first = count * share / k->group.count;
    if (p->dealt) return (struct sgrad_copy_piece){ 0, 0, k->group.rank[share] == p->owner ? count : 0 };
    if (!b->o->strategy->shares) return (struct sgrad_copy_piece){ 0 };
    return (struct sgrad_copy_piece){ first, 0, count * (share + 1) / k->group.count - first };
}

static int64_t share_size(const struct sgrad__builder *b, const struct sgrad__bucket *k, int share) {
    int64_t size = 0;
    for (int i = 0; i < k->count; i++) size += share_of(b, k, &k->entry[i], share).count;
    return size ? size : 1;     /* no tensor is empty */
}

static int add_chunk(struct sgrad__builder *b, const struct sgrad__bucket *k, int share, const char *name) {
    return sgrad__add_buffer(b, sgrad_format("%s", name), (struct sgrad_view){ k->dtype, { 1, { share_size(b, k, share) } } });
}

/* Share SHARE of all entries as one chunk: of their gradients, or, UPDATED, of what this rank has made of their weights. */
static int gather_share(struct sgrad__builder *b, const struct sgrad__bucket *k, int share, bool updated, const char *name) {
    struct sgrad__piece *piece = sgrad_alloc((size_t)k->count, sizeof *piece);
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

/* Of what came of share HERE, each entry's part, of which its parameter's share is updated. */
static void spread_share(struct sgrad__builder *b, struct sgrad__bucket *k, int here, int chunk) {
    int64_t at = 0;
    for (struct entry *e = k->entry; e < k->entry + k->count; e++) {
        const struct sgrad_copy_piece is = share_of(b, k, e, here);
        const struct sgrad_view part = { k->dtype, { 1, { is.count } } };
        *e->done = -1;
        if (!is.count) continue;
        *e->done = sgrad__add_buffer(b, sgrad_format("%s share", e->name), b->g->parameter[e->parameter].dealt ? e->view : part);
        sgrad__add_copies(b, &(struct sgrad__piece){ chunk, { at, 0, is.count } }, 1, *e->done, b->p->buffer[*e->done].name);
        at += is.count;
        if (!sgrad__updates_wait(b)) sgrad__add_update(b, e->parameter, *e->done);
    }
}

/* The weights that were updated here go to all, and theirs come. A parameter that is dealt out was updated in its place. */
static void join_shares(struct sgrad__builder *b, const struct sgrad__bucket *k, const char *name) {
    const int ranks = k->group.count, here = sgrad_group_place(&k->group, b->o->rank);
    int *chunk = sgrad_alloc((size_t)ranks, sizeof *chunk);
    int64_t *at = sgrad_alloc((size_t)ranks, sizeof *at);
    struct sgrad__piece *piece = sgrad_alloc((size_t)ranks, sizeof *piece);
    for (int i = 0; i < ranks; i++) chunk[i] = i == here ? gather_share(b, k, i, true, name) : add_chunk(b, k, i, name);
    sgrad__add_exchange(b, SGRAD_ALL_GATHER, &k->group, -1, chunk, ranks, SGRAD__PRIORITY_UPDATE, name);
    for (const struct entry *e = k->entry; e < k->entry + k->count; e++) {
        int count = 0;
        for (int i = 0; i < ranks; i++) {
            const struct sgrad_copy_piece is = share_of(b, k, e, i);
            if (is.count) piece[count++] = (struct sgrad__piece){ chunk[i], { at[i], is.from, is.count } };
            at[i] += is.count;
        }
        const struct sgrad__parameter *p = &b->g->parameter[e->parameter];
        if (count && !(p->dealt && p->owner == b->o->rank))
            sgrad__add_copies(b, piece, count, b->parameter[e->parameter], e->name);
    }
    free(piece);
    free(at);
    free(chunk);
}

/* At once, or once the norm of all gradients is known, and updates with it. */
static void join_or_hold(struct sgrad__builder *b, struct sgrad__bucket *k, const char *name) {
    if (!sgrad__updates_wait(b)) {
        join_shares(b, k, name);
        return;
    }
    k->name = sgrad_format("%s", name);
    k->number = b->collectives;
    b->held = sgrad_grow(b->held, b->held_count, sizeof *b->held);
    b->held[b->held_count++] = k;
}

void sgrad__bucket_share(struct sgrad__builder *b, struct sgrad__bucket *k, int priority, const char *name) {
    const int ranks = k->group.count, here = sgrad_group_place(&k->group, b->o->rank);
    int *chunk = sgrad_alloc((size_t)ranks, sizeof *chunk);
    for (int i = 0; i < ranks; i++) chunk[i] = gather_share(b, k, i, false, name);
    sgrad__add_exchange(b, SGRAD_REDUCE_SCATTER, &k->group, -1, chunk, ranks, priority, name);
    spread_share(b, k, here, chunk[here]);
    free(chunk);
    join_or_hold(b, k, name);
}

void sgrad__bucket_join(struct sgrad__builder *b, struct sgrad__bucket *k, const char *name) {
    for (int i = 0; i < k->count; i++)
        if (b->g->parameter[k->entry[i].parameter].dealt) {
            join_or_hold(b, k, name);
            return;
        }
}

bool sgrad__bucket_is_held(const struct sgrad__builder *b, const struct sgrad__bucket *k) {
    return b->held_count && b->held[b->held_count - 1] == k;
}

void sgrad__close_shares(struct sgrad__builder *b) {
    for (int i = 0; i < b->held_count; i++) {
        const bool common = sgrad__is_common(b->held[i]->number);
        const int before = common ? sgrad__number_from(b, b->held[i]->number) : 0;
        join_shares(b, b->held[i], b->held[i]->name);
        if (common) sgrad__number_from(b, before);
        sgrad__bucket_free(b->held[i]);
    }
    free(b->held);
}

void sgrad__bucket_free(struct sgrad__bucket *k) {
    free(k->name);
    free(k->edge);
    free(k->entry);
    free(k);
}

enum { LEAST_BUCKET = 1 << 14 };                /* bytes: below, tasks cost more than the wire */
static const double LEAST_SECONDS = 3e-3; /* on the wire: so long it may take a rank, busy with a task, to look for the next */

/* The largest number of buckets, a power of two, whose latencies make all of them together at most a quarter slower than one, and
 * of which none is so short that the wire would wait for the next. */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad__program_options *o) {
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

/* Bytes of all gradients: what the buckets are cut from; of a stage's, as much for each, since some buckets are several's. */
int64_t sgrad__bucket_bytes_of(const struct sgrad_graph *g, const struct sgrad__program_options *o) {
    int64_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (!g->parameter[i].state) bytes += sgrad_shape_count(&g->parameter[i].kept_shape) * (int64_t)sizeof(float);
    bytes /= g->stages;
    if (!o->peers || !o->training) return 0;
    return o->bucket ? o->bucket : sgrad__bucket_size(bytes, o);
}
