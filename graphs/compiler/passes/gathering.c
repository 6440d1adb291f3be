/* gathering.c: gathers weights of which each rank stores a share (--shard parameters), before the tasks that use them. The
 * program is complete, except that nothing writes its buffers of whole weights; this pass adds the all_gathers and plans the
 * memory.
 *
 * The weights are divided into buckets, in the order of their first use; backward uses them in reverse order. A bucket is
 * gathered AHEAD buckets ahead of its use. Its weights take over the memory of a bucket that is not needed any more, so that
 * StarPU starts the all_gather only when all tasks that use the old content have ended. Five layers of equal size, a bucket
 * each, with AHEAD = 1:
 *
 *     program    gather a  gather b  a  gather c  b  gather d  c  gather e  d  gather b'  e  e'  d' …         ' in backward
 *     memory 0   a a a a a a a a a a a  c c c c c c c c c c c c c  e e e e e e e e e e e e e e e
 *     memory 1             b b b b b b b b b b b b  d d d d d d d d d d d d d d d d d d d d d d d d
 *
 * A weight that forward used in this or the AHEAD previous buckets is not gathered again (d', e'). A rank sends its share, and
 * receives those of others, in buffers that get memory only then (sgrad__add_wait).
 *
 * Weights in another layout or type (packed, rounded) are made at the same place. If tasks only use these, the gathered weight
 * is freed at once.
 *
 * Limits: a weight that several layers use in forward, as GPT's embedding, stays in memory from the first to the last of them.
 * The memory of whole weights is retained between steps. Weights are sent in f32, also if layers compute in bf16. */
#include "graphs/compiler/builder.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = SGRAD__BUCKETS_AHEAD };

/* A whole weight in forward or backward, or one that is made from it. */
struct weight {
    int parameter, buffer;
    int source;                 /* index of the whole weight that it is made from; -1: it is the whole weight */
    int maker;                  /* instruction that makes it from SOURCE; -1: it is gathered */
    int same;                   /* index of the weight that is used instead of it; its own index: none */
    int bucket, last;           /* the bucket with which it is gathered or made; the last bucket that uses it; -1: not used yet */
    bool direct, sent;          /* a task uses it, other than makers; it is sent in a message */
};

/* Memory that one weight after another uses: that of BUFFER, the first one. */
struct home {
    int buffer, last;           /* last: the last bucket that uses its content */
    size_t bytes;
};

struct gathering {
    struct sgrad_builder *b;
    struct sgrad__program *p;
    int count, *of;             /* number of weights; the weight of each buffer, -1: none */
    struct weight *weight;
    int *newest;                /* by parameter: its weight that was gathered last; -1: none */
    int64_t limit, bytes;       /* of a bucket; of the last bucket so far */
    int buckets, *first;        /* of each bucket: the first instruction that uses it */
    int homes;
    struct home *home;
    int *scattered;             /* by bucket of gradients: the first instruction that uses this rank's share of it */
};

/* ---- weights and buckets ---- */

static void add_weight(struct gathering *g, int parameter, int buffer, int source, int maker) {
    g->weight = sgrad_array_grow(g->weight, g->count, sizeof *g->weight);
    g->weight[g->count] = (struct weight){ .parameter = parameter, .buffer = buffer, .source = source, .maker = maker,
                                           .same = g->count, .bucket = -1, .last = -1 };
    g->of[buffer] = g->count++;
}

static void find_weights(struct gathering *g) {
    const int parameters = g->b->g->parameter_count;
    for (int i = 0; i < 2 * parameters; i++)
        if (g->b->whole[i] >= 0) add_weight(g, i % parameters, g->b->whole[i], -1, -1);
    for (int i = 0; i < g->p->instruction_count; i++) {
        const struct sgrad__instruction *in = &g->p->instruction[i];
        const bool makes = in->call->kernel == &sgrad_pack_kernel || in->call->kernel == &sgrad_round_kernel;
        const int source = makes ? g->of[in->operand[0]] : -1;
        if (source >= 0) add_weight(g, g->weight[source].parameter, in->operand[1], source, i);
    }
}

static bool is_maker(const struct gathering *g, int i) {
    const int made = g->p->instruction[i].operand[1], w = made < 0 ? -1 : g->of[made];
    return w >= 0 && g->weight[w].maker == i;
}

/* Adds the whole weight W, which instruction I uses first, to the last bucket or to a new one. */
static void put(struct gathering *g, int w, int i) {
    const int64_t bytes = (int64_t)sgrad_view_bytes(&g->p->buffer[g->weight[w].buffer].view);
    if (!g->buckets || (g->bytes && g->bytes + bytes > g->limit)) {
        g->first = sgrad_array_grow(g->first, g->buckets, sizeof *g->first);
        g->first[g->buckets++] = i;
        g->bytes = 0;
    }
    g->bytes += bytes;
    g->weight[w].bucket = g->buckets - 1;
    g->newest[g->weight[w].parameter] = w;
}

/* Returns the whole weight that W is, or is made from, in an instruction I of the program. It is put in a bucket, if it is in
 * none, and if another one that is still in memory cannot be used instead. */
static int whole_of(struct gathering *g, int w, int i) {
    const int whole = g->weight[w].source < 0 ? w : g->weight[w].source, newest = g->newest[g->weight[whole].parameter];
    if (g->weight[whole].same != whole) return g->weight[whole].same;
    if (g->weight[whole].bucket >= 0) return whole;
    if (newest >= 0 && g->weight[newest].last >= g->buckets - 1 - AHEAD) return g->weight[whole].same = newest;
    put(g, whole, i);
    return whole;
}

/* Records that operand J of instruction I, in the last bucket so far, is weight W. */
static void use(struct gathering *g, int w, int i, int j) {
    struct sgrad__instruction *in = &g->p->instruction[i];
    struct weight *whole = &g->weight[whole_of(g, w, i)], *made = g->weight[w].source < 0 ? whole : &g->weight[w];
    if (made->bucket < 0) made->bucket = g->buckets - 1;
    made->direct = true;
    made->sent |= sgrad__is_message(in->call);
    made->last = whole->last = g->buckets - 1;
    in->operand[j] = made->buffer;
}

/* All weights of an instruction are in memory in the bucket of its last one. */
static void find_buckets(struct gathering *g) {
    for (int i = 0; i < g->p->instruction_count; i++) {
        const struct sgrad__instruction *in = &g->p->instruction[i];
        if (is_maker(g, i)) continue;
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] >= 0 && g->of[in->operand[j]] >= 0) whole_of(g, g->of[in->operand[j]], i);
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] >= 0 && g->of[in->operand[j]] >= 0) use(g, g->of[in->operand[j]], i, j);
    }
}

/* ---- memory ---- */

/* Returns the memory, free in bucket K, that suits BYTES best: of the same size, or the nearest up to twice or half of it. */
static struct home *home_for(const struct gathering *g, size_t bytes, int k) {
    struct home *best = NULL;
    for (struct home *h = g->home; h < g->home + g->homes; h++) {
        if (h->last >= k - AHEAD || h->bytes > 2 * bytes || bytes > 2 * h->bytes) continue;
        const bool fits = h->bytes >= bytes, other = best && best->bytes >= bytes;
        if (!best || (fits && !other) || (fits && h->bytes < best->bytes) || (!other && h->bytes > best->bytes)) best = h;
    }
    return best;
}

/* Gives weight W, of bucket K, memory. Returns true if tasks of bucket K - AHEAD - 1 have used it before. */
static bool place(struct gathering *g, const struct weight *w, int k) {
    struct sgrad__buffer *buffer = &g->p->buffer[w->buffer];
    const size_t bytes = sgrad_view_bytes(&buffer->view);
    struct home *home = w->sent ? NULL : home_for(g, bytes, k);
    const bool follows = home && home->last == k - AHEAD - 1;
    buffer->lifetime = SGRAD_PERSISTENT;
    if (home) {
        buffer->follows = home->buffer;
        buffer->copies = 0;
        if (home->bytes < bytes) g->p->buffer[home->buffer].room = home->bytes = bytes;
    } else {
        g->home = sgrad_array_grow(g->home, g->homes, sizeof *g->home);
        home = &g->home[g->homes++];
        *home = (struct home){ .buffer = w->buffer, .bytes = bytes };
    }
    home->last = w->sent ? INT_MAX : w->last;
    return follows;
}

/* ---- instructions ---- */

/* Returns the ranks that share PARAMETER, also in an evaluation, whose program has no peers. */
static struct sgrad_group group_of(struct gathering *g, int parameter) {
    const struct sgrad_graph *graph = g->b->g;
    const struct sgrad__parameter *is = &graph->parameter[parameter];
    const int ranks = g->b->o->shares->sharers;
    int *member = sgrad__own(g->p, sgrad_xcalloc((size_t)ranks, sizeof *member));
    if (graph->mesh.axes) return sgrad__holders(graph, is, g->b->o->rank, member);
    for (int i = 0; i < ranks; i++) member[i] = i;
    return (struct sgrad_group){ ranks, member };
}

static struct sgrad__share share_of(const struct gathering *g, const struct weight *w, int rank) {
    return sgrad__share_of(g->b->o->shares, &g->b->g->parameter[w->parameter], rank);
}

/* Returns a buffer for the shares that RANK stores of the weights LIST[0…count-1]. */
static int add_chunk(struct gathering *g, const int *list, int count, int rank, const char *name) {
    int64_t size = 0;
    for (int i = 0; i < count; i++) size += share_of(g, &g->weight[list[i]], rank).count;
    return sgrad__add_buffer(g->b, sgrad_format("%s", name),
                             (struct sgrad_view){ SGRAD_F32, { 1, { size ? size : 1 } } }); /* a tensor must not be empty */
}

/* Copies the shares that this rank stores of these weights to CHUNK. */
static void add_own(struct gathering *g, const int *list, int count, int chunk, const char *name) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)count, sizeof *piece);
    int pieces = 0;
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const struct weight *w = &g->weight[list[i]];
        const int64_t size = share_of(g, w, g->b->o->rank).count;
        if (size) piece[pieces++] = (struct sgrad__piece){ g->b->parameter[w->parameter], { 0, at, size } };
        at += size;
    }
    if (!pieces) piece[pieces++] = (struct sgrad__piece){ -1, { 0, 0, 1 } };
    sgrad__add_copies(g->b, piece, pieces, chunk, name);
    free(piece);
}

/* Copies the shares of all ranks from their chunks to the whole weights. */
static void add_wholes(struct gathering *g, const int *list, int count, const struct sgrad_group *group, const int *chunk) {
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)group->count, sizeof *piece);
    int64_t *at = sgrad_xcalloc((size_t)group->count, sizeof *at);
    for (int i = 0; i < count; i++) {
        const struct weight *w = &g->weight[list[i]];
        int pieces = 0;
        for (int r = 0; r < group->count; r++) {
            const struct sgrad__share is = share_of(g, w, group->rank[r]);
            if (is.count) piece[pieces++] = (struct sgrad__piece){ chunk[r], { at[r], is.first, is.count } };
            at[r] += is.count;
        }
        sgrad__add_copies(g->b, piece, pieces, w->buffer, g->p->buffer[w->buffer].name);
    }
    free(at);
    free(piece);
}

/* Gathers these weights, which the same ranks share. Returns the buffer with the shares of this rank. */
static int add_gather(struct gathering *g, const int *list, int count, const char *name) {
    const struct sgrad_group group = group_of(g, g->weight[*list].parameter);
    int *chunk = sgrad_xcalloc((size_t)group.count, sizeof *chunk);
    for (int r = 0; r < group.count; r++) chunk[r] = add_chunk(g, list, count, group.rank[r], name);
    const int own = chunk[sgrad_group_index(&group, g->b->o->rank)];
    add_own(g, list, count, own, name);
    sgrad__add_exchange(g->b, SGRAD_ALL_GATHER, &group, -1, chunk, group.count, SGRAD__PRIORITY_CHAIN, name);
    add_wholes(g, list, count, &group, chunk);
    free(chunk);
    return own;
}

/* Returns true if W is a whole weight of bucket K. */
static bool is_of(const struct gathering *g, int w, int k) { return g->weight[w].bucket == k && g->weight[w].source < 0; }

/* Returns true if the same ranks share the parameters of both weights. */
static bool together(const struct gathering *g, int one, int other) {
    const struct sgrad_graph *graph = g->b->g;
    const struct sgrad__parameter *a = &graph->parameter[g->weight[one].parameter],
                                  *b = &graph->parameter[g->weight[other].parameter];
    return a->stages == b->stages && sgrad__part_axes(graph, a) == sgrad__part_axes(graph, b);
}

/* Adds the all_gathers of bucket K, one for each group of ranks. Appends the buffers of this rank's shares to WAITS. */
static void add_gathers(struct gathering *g, int k, int *waits, int *waiting) {
    int *list = sgrad_xcalloc((size_t)g->count, sizeof *list);
    bool *done = sgrad_xcalloc((size_t)g->count, sizeof *done);
    char *name = sgrad_format("weights %d", k);
    for (int i = 0; i < g->count; i++) {
        int count = 0;
        if (done[i] || !is_of(g, i, k)) continue;
        for (int w = i; w < g->count; w++)
            if (is_of(g, w, k) && together(g, i, w)) {
                list[count++] = w;
                done[w] = true;
            }
        waits[(*waiting)++] = add_gather(g, list, count, name);
    }
    free(name);
    free(done);
    free(list);
}

/* Appends the instruction that makes weight W. */
static void add_made(struct gathering *g, const struct weight *w) {
    const int source = g->weight[w->source].same;
    struct sgrad__instruction maker = g->p->instruction[w->maker];
    maker.operand[0] = g->weight[source].buffer;
    g->p->instruction = sgrad_array_grow(g->p->instruction, g->p->instruction_count, sizeof *g->p->instruction);
    g->p->instruction[g->p->instruction_count++] = maker;
}

/* Finds the instructions that use this rank's shares of gradients first. */
static void find_scattered(struct gathering *g) {
    g->scattered = sgrad_xcalloc((size_t)g->b->scatters + 1, sizeof *g->scattered);
    for (int i = 0; i < g->b->scatters; i++) g->scattered[i] = INT_MAX;
    for (int i = 0, next = 0; i < g->p->instruction_count && next < g->b->scatters; i++)
        for (int j = 0; j < g->p->instruction[i].call->operands && next < g->b->scatters; j++) {
            const bool used = g->p->instruction[i].operand[j] == g->b->scattered[next] && g->p->instruction[i].call->kernel->cpu;
            if (used) g->scattered[next++] = i;
        }
}

/* Makes the instructions from BEGIN on, which gather bucket K, wait for gradients: when layers use bucket K - AHEAD, at most
 * AHEAD buckets of gradients may be in memory that are not summed yet. */
static void wait_for_gradients(struct gathering *g, int k, int begin) {
    int before = 0;
    while (k >= AHEAD && before < g->b->scatters && g->scattered[before] < g->first[k - AHEAD]) before++;
    if (before >= AHEAD) sgrad__add_wait(g->b, begin, &g->b->scattered[before - AHEAD], 1, SGRAD_R);
}

/* Appends the instructions that gather bucket K, and make weights from it. If none of its weights takes over memory of bucket
 * K - AHEAD - 1, it waits for the end of that bucket by another memory. */
static void add_bucket(struct gathering *g, int k) {
    int *waits = sgrad_xcalloc(2 * (size_t)g->count + 1, sizeof *waits), waiting = 0;
    const int begin = g->p->instruction_count;
    bool follows = false;
    for (int w = 0; w < g->count; w++)
        if (g->weight[w].bucket == k && g->weight[w].direct) {
            follows |= place(g, &g->weight[w], k);
            waits[waiting++] = g->weight[w].buffer;
        }
    for (int h = 0; h < g->homes && !follows; h++)
        if (g->home[h].last == k - AHEAD - 1) {
            waits[waiting++] = g->home[h].buffer;
            follows = true;
        }
    add_gathers(g, k, waits, &waiting);
    for (int w = 0; w < g->count; w++)
        if (g->weight[w].bucket == k && g->weight[w].source >= 0) add_made(g, &g->weight[w]);
    sgrad__add_wait(g->b, begin, waits, waiting, SGRAD_W);
    wait_for_gradients(g, k, begin);
    free(waits);
}

/* Moves the instructions of each bucket, which are appended, before the first use of the bucket that is AHEAD before. */
static void add_all(struct gathering *g) {
    const int count = g->p->instruction_count;
    int *end = sgrad_xcalloc((size_t)g->buckets + 1, sizeof *end), at = 0, next = 0;
    end[0] = count;
    for (int k = 0; k < g->buckets; k++) {
        add_bucket(g, k);
        end[k + 1] = g->p->instruction_count;
    }
    struct sgrad__instruction *list = sgrad_xcalloc((size_t)g->p->instruction_count, sizeof *list);
    for (int i = 0; i < count; i++) {
        for (; next < g->buckets && (next < AHEAD || g->first[next - AHEAD] <= i); next++) {
            const int length = end[next + 1] - end[next];
            memcpy(&list[at], &g->p->instruction[end[next]], (size_t)length * sizeof *list);
            at += length;
        }
        if (!is_maker(g, i)) list[at++] = g->p->instruction[i];
    }
    memcpy(g->p->instruction, list, (size_t)at * sizeof *list);     /* the array can still grow (sgrad_array_grow) */
    free(list);
    free(end);
    g->p->instruction_count = at;
}

void sgrad__gather_weights(struct sgrad_builder *builder) {
    const size_t buffers = (size_t)builder->p->buffer_count, parameters = (size_t)builder->g->parameter_count;
    struct gathering g = { .b = builder, .p = builder->p };
    g.of = sgrad_xcalloc(buffers + 1, sizeof *g.of);
    g.newest = sgrad_xcalloc(parameters + 1, sizeof *g.newest);
    memset(g.of, 0xff, (buffers + 1) * sizeof *g.of);
    memset(g.newest, 0xff, (parameters + 1) * sizeof *g.newest);
    g.limit = sgrad__weights_bucket_bytes(builder->g, builder->o);
    find_weights(&g);
    if (g.count) {
        find_buckets(&g);
        find_scattered(&g);
        add_all(&g);
    }
    free(g.scattered);
    free(g.home);
    free(g.first);
    free(g.weight);
    free(g.newest);
    free(g.of);
}
