/* reduce.c: sums: over this rank's micro-batches in one tree, then over the ranks by a plan (runtime/collectives.h).
 *
 * With 2^k ranks of equal shares, a plan that keeps to the tree made by halving goes on where this rank's tree ends, so that
 * one rank with all the micro-batches gets the same bits:
 *
 *     four micro-batches on one rank  (0+1) + (2+3)        on two  (0+1) │ (2+3)  →  (0+1) + (2+3) on both
 *
 * Over ranks, gradients go in buckets, a bucket in chunks, which are tensors of their own:
 *
 *     conv.weight     bn.weight   bn.bias      sums over this rank's micro-batches
 *     └──────┬──────────┘─────────┘
 *     │ chunk 0       │ chunk 1       │        gathered, sent and summed as the plan says
 *            └──────────┐─────────┐
 *     conv.weight     bn.weight   bn.bias      gathered again: sums over all
 *
 * What a rank has no part in is -0 in its bucket: x + -0 is x, to the bit. */
#include "graphs/programs/builder.h"

#include <stdlib.h>
#include <string.h>

/* ---- over micro-batches ---------------------------------------------------------------------------------------- */

/* The call of this kernel on these views, made when it is first asked for. */
static const struct sgrad_call *shared_call(struct sgrad__builder *b, struct sgrad_call call) {
    const uint64_t hash = sgrad_hash(call.view, sizeof call.view) ^ sgrad_hash(call.kernel->name, strlen(call.kernel->name));
    int *place = &b->shared[hash % (sizeof b->shared / sizeof *b->shared)];
    const struct sgrad_call *last = *place ? b->p->call[*place - 1] : NULL;
    if (last && last->kernel == call.kernel && memcmp(last->view, call.view, sizeof call.view) == 0) return last;
    const struct sgrad_call *made = sgrad__add_call(b, call);
    *place = b->p->call_count;
    return made;
}

static const struct sgrad_call *sum_call(struct sgrad__builder *b, struct sgrad_view view, const int *operand) {
    struct sgrad_call call = { .kernel = &sgrad_sum_kernel, .operands = SGRAD_SUM_INPUTS + 1 };
    for (int i = 0; i <= SGRAD_SUM_INPUTS; i++) {
        call.view[i] = view;
        call.access[i] = i < SGRAD_SUM_INPUTS ? SGRAD_R : SGRAD_W;
        if (operand[i] < 0) call.view[i].shape.rank = -1;
    }
    return shared_call(b, call);
}

static int add_tree(struct sgrad__builder *b, const int *list, int count, const char *name);

/* The leaves of LIST, halved LEVELS times, take their places among the WIDTH operands at SLOT. */
static void place(struct sgrad__builder *b, const int *list, int count, int levels, int *slot, int width, const char *name) {
    if (levels == 0 || count == 1) {
        *slot = add_tree(b, list, count, name);
        return;
    }
    place(b, list, count - count / 2, levels - 1, slot, width / 2, name);
    place(b, list + count - count / 2, count / 2, levels - 1, slot + width / 2, width / 2, name);
}

/* A task adds eight, three levels of the tree; the topmost one what is left of the levels. */
static int add_tree(struct sgrad__builder *b, const int *list, int count, const char *name) {
    struct sgrad_view view = b->p->buffer[list[0]].view;
    int operand[SGRAD_SUM_INPUTS + 1], above = 0;
    if (count == 1) return list[0];
    for (int rest = count; rest > SGRAD_SUM_INPUTS; rest -= rest / 2) above++;
    memset(operand, 0xff, sizeof operand);
    place(b, list, count, above ? (above - 1) % 3 + 1 : 3, operand, SGRAD_SUM_INPUTS, name);
    int sum = operand[SGRAD_SUM_INPUTS] = sgrad__add_buffer(b, sgrad_format("%s sum", name), view);
    sgrad__add_instruction(b, sum_call(b, view, operand), operand, 0, SGRAD__PRIORITY_UPDATE, sgrad_format("%s sum", name));
    return sum;
}

int sgrad__add_sum(struct sgrad__builder *b, const int *buffer, int count, const char *name) {
    int *list = sgrad_alloc((size_t)count, sizeof *list), n = 0;
    for (int i = 0; i < count; i++)
        if (buffer[i] >= 0) list[n++] = buffer[i];
    int result = n ? add_tree(b, list, n, name) : -1;
    free(list);
    return result;
}

/* ---- over ranks: a plan becomes messages and sums ---------------------------------------------------------------- */

/* Messages are no tasks: whoever submits a program hands them to StarPU-MPI. */
const struct sgrad_kernel sgrad__send_kernel = { .name = "send", .kind = SGRAD_REDUCTION, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__receive_kernel = { .name = "receive", .kind = SGRAD_REDUCTION, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__whole_kernel = { .name = "MPI_Iallreduce", .kind = SGRAD_REDUCTION, .flops = sgrad_no_flops };

static void add_message(struct sgrad__builder *b, const struct sgrad_kernel *kernel, enum sgrad_access access, int buffer, int peer,
                        int64_t tag, int priority, const char *name) {
    const struct sgrad_call *call = shared_call(b, (struct sgrad_call){ .kernel = kernel, .operands = 1, .view = { b->p->buffer[buffer].view }, .access = { access } });
    char *title = peer < 0 ? sgrad_format("%s %s", name, kernel->name)
                           : sgrad_format("%s %s %s %d", name, kernel->name, access == SGRAD_R ? "to" : "from", peer);
    struct sgrad__instruction *i = sgrad__add_instruction(b, call, &buffer, 0, priority, title);
    i->peer = peer;
    i->tag = tag;
}

int64_t sgrad__next_tag(struct sgrad__builder *b) { return (int64_t)b->collectives++ << 20; }

void sgrad__add_send(struct sgrad__builder *b, int buffer, int peer, int64_t tag, int priority, const char *name) {
    add_message(b, &sgrad__send_kernel, SGRAD_R, buffer, peer, tag, priority, name);
}

int sgrad__add_receive(struct sgrad__builder *b, struct sgrad_view view, int peer, int64_t tag, int priority, const char *name) {
    int buffer = sgrad__add_buffer(b, sgrad_format("%s from %d", name, peer), view);
    add_message(b, &sgrad__receive_kernel, SGRAD_W, buffer, peer, tag, priority, name);
    return buffer;
}

/* The plan in terms of ranks FIRST, FIRST + 1, …; CHUNK holds this rank's values and takes the sums. The n-th message between
 * two ranks has the same n on both. */
static void add_plan(struct sgrad__builder *b, const struct sgrad_plan *plan, int first, int *chunk, int priority, const char *name) {
    int ranks = b->o->ranks, *sent = sgrad_alloc((size_t)ranks, sizeof *sent), *received = sgrad_alloc((size_t)ranks, sizeof *received);
    const int64_t tag = sgrad__next_tag(b);
    for (int i = 0; i < plan->count; i++) {
        const struct sgrad_action *a = &plan->action[i];
        int peer = first + a->peer, *value = &chunk[a->chunk], two[SGRAD_SUM_INPUTS + 1] = { *value, -1, -1, -1, -1, -1, -1, -1, -1 };
        struct sgrad_view view = b->p->buffer[*value].view;
        if (a->kind == SGRAD_WHOLE) {
            add_message(b, &sgrad__whole_kernel, SGRAD_RW, *value, -1, tag, priority, name);
            continue;
        }
        if (a->kind == SGRAD_SEND) {
            sgrad__add_send(b, *value, peer, tag + sent[peer]++, priority, name);
            continue;
        }
        *value = sgrad__add_receive(b, view, peer, tag + received[peer]++, priority, name);
        if (a->kind == SGRAD_COPY) continue;
        two[1] = *value;
        *value = two[SGRAD_SUM_INPUTS] = sgrad__add_buffer(b, sgrad_format("%s reduced", name), view);
        sgrad__add_instruction(b, sum_call(b, view, two), two, 0, SGRAD__PRIORITY_UPDATE, sgrad_format("%s sum", name));
    }
    free(sent);
    free(received);
}

/* The network as the RANKS ranks from FIRST on see it. */
static struct sgrad_network part_of(const struct sgrad_network *network, int first, int ranks) {
    struct sgrad_network part = *network;
    part.ranks = ranks;
    if (part.host) part.host += first;
    return part;
}

int sgrad__add_rank_sum(struct sgrad__builder *b, int buffer, int first, int ranks, const char *name) {
    const double bytes = (double)sgrad_view_bytes(&b->p->buffer[buffer].view);
    struct sgrad_network net = part_of(b->o->network, first, ranks);
    const struct sgrad_allreduce *method = sgrad_allreduce_cheapest(bytes, &net, b->o->deterministic);
    struct sgrad_plan plan = sgrad_plan_make(method, bytes, 1, b->o->rank - first, &net);
    add_plan(b, &plan, first, &buffer, SGRAD__PRIORITY_CHAIN, name);
    free(plan.action);
    return buffer;
}

/* ---- buckets ---------------------------------------------------------------------------------------------------- */

struct part {
    int buffer, *done, parameter;
    int64_t first;              /* element of the bucket */
    struct sgrad_view view;
    const char *name;
};
struct sgrad__bucket {
    enum sgrad_dtype dtype;
    int count;
    int64_t size;               /* elements */
    struct part *part;
};

struct sgrad__bucket *sgrad__bucket_open(enum sgrad_dtype dtype) {
    struct sgrad__bucket *bucket = sgrad_alloc(1, sizeof *bucket);
    bucket->dtype = dtype;
    return bucket;
}

void sgrad__bucket_put(struct sgrad__bucket *bucket, int buffer, struct sgrad_view view, int *done, int parameter, const char *name) {
    bucket->part = sgrad_grow(bucket->part, bucket->count, sizeof *bucket->part);
    bucket->part[bucket->count++] = (struct part){ buffer, done, parameter, bucket->size, view, name };
    bucket->size += sgrad_shape_count(&view.shape);
}

int64_t sgrad__bucket_bytes(const struct sgrad__bucket *bucket) { return bucket->size * (int64_t)sgrad_dtype_size(bucket->dtype); }

/* A run of elements on their way from one buffer to another. */
struct piece {
    int from;
    struct sgrad_copy_piece is;
};

/* TO is put together from the COUNT pieces: as many tasks as the number of operands asks for. */
static void add_gather(struct sgrad__builder *b, const struct piece *piece, int count, int to, const char *name) {
    for (int at = 0; at < count; at += SGRAD_COPY_INPUTS) {
        struct sgrad_copy *copy = sgrad__own(b->p, sgrad_alloc(1, sizeof *copy));
        struct sgrad_call call = { .kernel = &sgrad_copy_kernel, .attrs = copy, .operands = SGRAD_COPY_INPUTS + 1 };
        int operand[SGRAD_COPY_INPUTS + 1];
        for (int i = 0; i < SGRAD_COPY_INPUTS; i++) {
            operand[i] = at + i < count ? piece[at + i].from : -1;
            call.access[i] = SGRAD_R;
            call.view[i].shape.rank = -1;
            if (operand[i] >= 0) call.view[i] = b->p->buffer[operand[i]].view;
            if (at + i < count) copy->piece[i] = piece[at + i].is;
        }
        operand[SGRAD_COPY_INPUTS] = to;
        call.view[SGRAD_COPY_INPUTS] = b->p->buffer[to].view;
        call.access[SGRAD_COPY_INPUTS] = at ? SGRAD_RW : SGRAD_W;
        sgrad__add_instruction(b, sgrad__add_call(b, call), operand, 0, SGRAD__PRIORITY_UPDATE, sgrad_format("%s", name));
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Where chunk C of the bucket begins. */
static int64_t chunk_first(const struct sgrad__bucket *k, int chunks, int c) { return k->size * c / chunks; }

/* The bucket's elements FROM to TO, out of its parts. */
static int gather_chunk(struct sgrad__builder *b, const struct sgrad__bucket *k, int64_t from, int64_t to, const char *name) {
    struct piece *piece = sgrad_alloc((size_t)k->count, sizeof *piece);
    int count = 0;
    for (int i = 0; i < k->count; i++) {
        const struct part *p = &k->part[i];
        int64_t first = most(from, p->first), end = least(to, p->first + sgrad_shape_count(&p->view.shape));
        if (first < end) piece[count++] = (struct piece){ p->buffer, { first - p->first, first - from, end - first } };
    }
    int chunk = sgrad__add_buffer(b, sgrad_format("%s", name), (struct sgrad_view){ k->dtype, { 1, { to - from } } });
    add_gather(b, piece, count, chunk, name);
    free(piece);
    return chunk;
}

/* Part P, out of the chunks, into the buffer TO. */
static void gather_part(struct sgrad__builder *b, const struct sgrad__bucket *k, const struct part *p, const int *chunk, int chunks, int to) {
    struct piece *piece = sgrad_alloc((size_t)chunks, sizeof *piece);
    int64_t last = p->first + sgrad_shape_count(&p->view.shape);
    int count = 0;
    for (int c = 0; c < chunks; c++) {
        int64_t from = chunk_first(k, chunks, c), first = most(from, p->first), end = least(chunk_first(k, chunks, c + 1), last);
        if (first < end) piece[count++] = (struct piece){ chunk[c], { first - from, first - p->first, end - first } };
    }
    add_gather(b, piece, count, to, b->p->buffer[to].name);
    free(piece);
}

/* And updates the parameters; each follows its part at once, so that these, and the next parameter's, become one task. */
static void spread(struct sgrad__builder *b, struct sgrad__bucket *k, const int *chunk, int chunks) {
    for (const struct part *p = k->part; p < k->part + k->count; p++) {
        *p->done = sgrad__add_buffer(b, sgrad_format("%s reduced", p->name), p->view);
        gather_part(b, k, p, chunk, chunks, *p->done);
        if (p->parameter >= 0 && b->o->clip_norm <= 0) sgrad__add_update(b, p->parameter, *p->done);
    }
}

/* A bucket larger than the size that buckets are to have, because of one large parameter, goes in pieces: each has its plan, and
 * what is more urgent may pass between them. */
void sgrad__bucket_sum(struct sgrad__builder *b, struct sgrad__bucket *k, const struct sgrad_allreduce *method, int priority, const char *name) {
    const int64_t bytes = sgrad__bucket_bytes(k), most_bytes = b->p->bucket_bytes;
    const int pieces = most_bytes && bytes > most_bytes ? (int)((bytes + most_bytes - 1) / most_bytes) : 1;
    const double each = (double)bytes / pieces;
    if (!method) method = sgrad_allreduce_cheapest(each, b->o->network, b->o->deterministic);
    struct sgrad_plan plan = sgrad_plan_make(method, each, (int)least(k->size / pieces, 1 << 16), b->o->rank, b->o->network);
    const int chunks = pieces * plan.chunks;
    int *chunk = sgrad_alloc((size_t)chunks, sizeof *chunk);
    for (int c = 0; c < chunks; c++)
        chunk[c] = gather_chunk(b, k, chunk_first(k, chunks, c), chunk_first(k, chunks, c + 1), name);
    for (int i = 0; i < pieces; i++) add_plan(b, &plan, 0, &chunk[i * plan.chunks], priority, name);
    spread(b, k, chunk, chunks);
    free(chunk);
    free(plan.action);
}

int sgrad__bucket_gather(struct sgrad__builder *b, const struct sgrad__bucket *k, const char *name) {
    return gather_chunk(b, k, 0, k->size, name);
}

void sgrad__bucket_spread(struct sgrad__builder *b, struct sgrad__bucket *k, int buffer) { spread(b, k, &buffer, 1); }

int sgrad__bucket_weights(struct sgrad__builder *b, struct sgrad__bucket *k, const char *name) {
    for (int i = 0; i < k->count; i++) k->part[i].buffer = b->parameter[k->part[i].parameter];
    return gather_chunk(b, k, 0, k->size, name);
}

void sgrad__bucket_take(struct sgrad__builder *b, const struct sgrad__bucket *k, int weights) {
    for (int i = 0; i < k->count; i++) gather_part(b, k, &k->part[i], &weights, 1, b->parameter[k->part[i].parameter]);
}

int *sgrad__bucket_parameters(const struct sgrad__bucket *k, int *count) {
    int *parameter = sgrad_alloc((size_t)k->count, sizeof *parameter);
    for (int i = 0; i < k->count; i++) parameter[i] = k->part[i].parameter;
    *count = k->count;
    return parameter;
}

void sgrad__bucket_free(struct sgrad__bucket *k) {
    free(k->part);
    free(k);
}

enum { LEAST_BUCKET = 1 << 14 };                /* bytes: below, tasks cost more than the wire */
static const double LEAST_SECONDS = 3e-3;       /* on the wire: so long it may take a rank, busy with a task, to look for the next */

/* The largest number of buckets, a power of two, whose latencies make all of them together at most a quarter slower than one, and
 * of which none is so short that the wire would wait for the next. */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad_allreduce *method, const struct sgrad_network *net, bool halving) {
    const double shortest = LEAST_SECONDS * net->bandwidth;
    int64_t best = bytes;
    double once = 0;
    for (int n = 1; n == 1 || (bytes / n >= LEAST_BUCKET && (double)bytes / n >= shortest); n *= 2) {
        const double size = (double)bytes / n;
        const double cost = n * (method ? method : sgrad_allreduce_cheapest(size, net, halving))->cost(size, net);
        if (n == 1) once = cost;
        if (cost <= 1.25 * once) best = (int64_t)size;
    }
    return best;
}
