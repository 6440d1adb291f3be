/* plans.c: adds messages between ranks, and plans of collectives (runtime/collectives.h) as messages and sums.
 *
 * With 2^k ranks that have equal local batches, a plan in the order of the halving tree continues this rank's tree of sums
 * (sums.c), so that one rank with all micro-batches gets the same bits:
 *
 *     four micro-batches on one rank  (0+1) + (2+3)        on two  (0+1) │ (2+3)  →  (0+1) + (2+3) on both */
#include "graphs/compiler/builder.h"
#include "runtime/partitions.h"

#include <stdlib.h>
#include <string.h>

/* Messages are not tasks: the function that submits a program passes them to StarPU-MPI. */
const struct sgrad_kernel sgrad__send_kernel = { .name = "send", .kind = &sgrad_reduction_kind, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__receive_kernel = { .name = "receive", .kind = &sgrad_reduction_kind, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__whole_kernel = { .name = "MPI_Iallreduce",
                                                  .kind = &sgrad_reduction_kind,
                                                  .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__whole_on_gpus_kernel = { .name = "ncclAllReduce",
                                                          .kind = &sgrad_reduction_kind,
                                                          .flops = sgrad_no_flops };

static void add_message(struct sgrad_builder *builder, const struct sgrad_kernel *kernel, enum sgrad_access access, int buffer,
                        int peer, int64_t tag, int priority, const char *name) {
    const struct sgrad_bound_kernel *call = sgrad__shared_call(
        builder, (struct sgrad_bound_kernel){
                     .kernel = kernel, .operands = 1, .view = { builder->p->buffer[buffer].view }, .access = { access } });
    const char *direction = access == SGRAD_R ? "to" : "from";
    char *title = peer < 0 ? sgrad_format("%s %s", name, kernel->name)
                           : sgrad_format("%s %s %s %d", name, kernel->name, direction, peer);
    struct sgrad__instruction *i = sgrad__add_instruction(builder, call, &buffer, 0, priority, title);
    i->peer = peer < 0 ? peer : builder->o->first + peer;
    i->tag = tag;
}

bool sgrad__is_message(const struct sgrad_bound_kernel *call) {
    const struct sgrad_kernel *kernel = call->kernel;
    return kernel == &sgrad__send_kernel || kernel == &sgrad__receive_kernel || kernel == &sgrad__whole_kernel ||
           kernel == &sgrad__whole_on_gpus_kernel;
}

int64_t sgrad__next_tag(struct sgrad_builder *builder) {
    return ((int64_t)builder->o->tags << 44) + ((int64_t)builder->collectives++ << 20);
}

/* Returns the number of elements of each message of a value, except the last; all elements, if it is one message. */
static int64_t piece_size(const struct sgrad_view *view) {
    const int64_t count = sgrad_shape_count(&view->shape), most = sgrad_message_most() / (int64_t)sgrad_dtype_size(view->dtype);
    return sgrad_clamp(most, 1, count);
}

int sgrad__message_pieces(const struct sgrad_view *view) {
    const int64_t size = piece_size(view);
    return (int)((sgrad_shape_count(&view->shape) + size - 1) / size);
}

/* Adds a buffer for message I of a value that exceeds the size limit of messages; sets *FIRST to its first element. */
static int add_piece(struct sgrad_builder *builder, const struct sgrad_view *view, int i, const char *name, int64_t *first) {
    const int64_t size = piece_size(view), count = sgrad_shape_count(&view->shape);
    *first = i * size;
    const struct sgrad_view piece = { view->dtype, { 1, { count - *first < size ? count - *first : size } } };
    return sgrad__add_buffer(builder, sgrad_format("%s piece %d", name, i), piece);
}

void sgrad__add_send(struct sgrad_builder *builder, int buffer, int peer, int64_t tag, int priority, const char *name) {
    const struct sgrad_view view = builder->p->buffer[buffer].view;
    const int pieces = sgrad__message_pieces(&view);
    for (int i = 0; i < pieces; i++) {
        int64_t first;
        const int piece = pieces == 1 ? buffer : add_piece(builder, &view, i, name, &first);
        if (pieces > 1) sgrad__add_slice(builder, buffer, first, piece);
        add_message(builder, &sgrad__send_kernel, SGRAD_R, piece, peer, tag + i, priority, name);
    }
}

void sgrad__add_receive_into(struct sgrad_builder *builder, int buffer, int peer, int64_t tag, int priority, const char *name) {
    const struct sgrad_view view = builder->p->buffer[buffer].view;
    const int pieces = sgrad__message_pieces(&view);
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)pieces, sizeof *piece);
    for (int i = 0; i < pieces; i++) {
        int64_t first = 0;
        const int part = pieces == 1 ? buffer : add_piece(builder, &view, i, name, &first);
        piece[i] = (struct sgrad__piece){ part, { 0, first, sgrad_shape_count(&builder->p->buffer[part].view.shape) } };
        add_message(builder, &sgrad__receive_kernel, SGRAD_W, part, peer, tag + i, priority, name);
    }
    if (pieces > 1) sgrad__add_copies(builder, piece, pieces, buffer, name);
    free(piece);
}

int sgrad__add_receive(struct sgrad_builder *builder, struct sgrad_view view, int peer, int64_t tag, int priority,
                       const char *name) {
    const int buffer = sgrad__add_buffer(builder, sgrad_format("%s from %d", name, peer), view);
    sgrad__add_receive_into(builder, buffer, peer, tag, priority, name);
    return buffer;
}

/* ---- plans ---- */

/* The value of a chunk on this rank: a sum of slices, which is computed when it is sent, or at the end. */
struct value {
    struct sgrad_view view;
    int count;
    struct sgrad__slice slice[SGRAD__CHAIN];
};

static int64_t size_of(const struct value *value) { return sgrad_shape_count(&value->view.shape); }

/* Replaces the slices of VALUE by one: their sum. */
static void add_slices(struct sgrad_builder *builder, struct value *value, const char *name) {
    if (value->count == 1) return;
    value->slice[0] = (struct sgrad__slice){ sgrad__add_chain(builder, value->slice, value->count, value->view, name), 0 };
    value->count = 1;
}

/* Returns the view of the message that consists of COUNT values from VALUE on. */
static struct sgrad_view message_view(const struct value *value, int count) {
    struct sgrad_view view = value->view;
    if (count == 1) return view;
    view.shape = (struct sgrad_shape){ 1, { 0 } };
    for (int i = 0; i < count; i++) view.shape.dim[0] += size_of(&value[i]);
    return view;
}

/* Returns these values as one buffer: the existing one, or a copy. */
static int joined(struct sgrad_builder *builder, struct value *value, int count, const char *name) {
    const struct sgrad_view view = message_view(value, count);
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)count, sizeof *piece);
    bool one = true;
    int64_t at = 0;
    for (int i = 0; i < count; at += size_of(&value[i++])) {
        add_slices(builder, &value[i], name);
        piece[i] = (struct sgrad__piece){ value[i].slice->buffer, { value[i].slice->first, at, size_of(&value[i]) } };
        one &= value[i].slice->buffer == value->slice->buffer && value[i].slice->first == at;
    }
    int buffer = value->slice->buffer;
    if (!one || sgrad_view_bytes(&builder->p->buffer[buffer].view) != sgrad_view_bytes(&view)) {
        buffer = sgrad__add_buffer(builder, sgrad_format("%s", name), view);
        sgrad__add_copies(builder, piece, count, buffer, name);
    }
    free(piece);
    return buffer;
}

/* Adds the received BUFFER to these values, or replaces them by it. */
static void take(struct sgrad_builder *builder, struct value *value, int count, int buffer, bool adds, const char *name) {
    int64_t at = 0;
    for (int i = 0; i < count; at += size_of(&value[i++])) {
        if (value[i].count == SGRAD__CHAIN) add_slices(builder, &value[i], name);
        if (!adds) value[i].count = 0;
        value[i].slice[value[i].count++] = (struct sgrad__slice){ buffer, at };
    }
}

/* The n-th message between two ranks has the same n on both. */
void sgrad__add_plan(struct sgrad_builder *builder, const struct sgrad_plan *plan, int *chunk, int priority, const char *name) {
    const size_t ranks = (size_t)builder->o->network->ranks;
    int *sent = sgrad_xcalloc(ranks, sizeof *sent), *received = sgrad_xcalloc(ranks, sizeof *received);
    struct value *value = sgrad_xcalloc((size_t)plan->chunks, sizeof *value);
    const int64_t tag = sgrad__next_tag(builder);
    for (int c = 0; c < plan->chunks; c++) value[c] = (struct value){ builder->p->buffer[chunk[c]].view, 1, { { chunk[c], 0 } } };
    for (const struct sgrad_action *a = plan->action; a < plan->action + plan->count; a++) {
        struct value *v = &value[a->chunk];
        const int peer = a->peer;
        if (a->kind == SGRAD_WHOLE) {
            const struct sgrad_kernel *whole = plan->on_gpus ? &sgrad__whole_on_gpus_kernel : &sgrad__whole_kernel;
            add_message(builder, whole, SGRAD_RW, *chunk, -1, tag, priority, name);
        } else if (a->kind == SGRAD_SEND) {
            const int from = joined(builder, v, a->count, name);
            sgrad__add_send(builder, from, peer, tag + sent[peer], priority, name);
            sent[peer] += sgrad__message_pieces(&builder->p->buffer[from].view);
        } else {
            const struct sgrad_view view = message_view(v, a->count);
            const int came = sgrad__add_receive(builder, view, peer, tag + received[peer], priority, name);
            received[peer] += sgrad__message_pieces(&view);
            take(builder, v, a->count, came, a->kind == SGRAD_ADD, name);
        }
    }
    for (int c = 0; c < plan->chunks; c++) chunk[c] = joined(builder, &value[c], 1, name);
    free(value);
    free(sent);
    free(received);
}

struct sgrad_group sgrad__peers(const struct sgrad_builder *builder, int first, int count) {
    return (struct sgrad_group){ count, builder->o->peers ? builder->o->peers->rank + first : &builder->o->rank };
}

struct sgrad_group sgrad__along(struct sgrad_builder *builder, unsigned axes) {
    const struct sgrad_mesh *mesh = &builder->g->mesh;
    int *member = sgrad__own(builder->p, sgrad_xcalloc((size_t)sgrad_mesh_ranks(mesh, axes), sizeof *member));
    return sgrad_mesh_group(mesh, axes, builder->o->rank, member);
}

void sgrad__add_exchange(struct sgrad_builder *builder, enum sgrad_collective_kind kind, const struct sgrad_group *group,
                         int root, int *chunk, int chunks, int priority, const char *name) {
    double bytes = 0;
    for (int i = 0; i < chunks; i++) bytes += (double)sgrad_view_bytes(&builder->p->buffer[chunk[i]].view);
    const struct sgrad_exchange what = { .bytes = bytes,
                                         .limit = chunks,
                                         .group = group,
                                         .root = root,
                                         .halving = builder->o->deterministic };
    const struct sgrad_collective *method = sgrad_collective_cheapest(kind, &what, builder->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &what, builder->o->rank, builder->o->network);
    sgrad__add_plan(builder, &plan, chunk, priority, name);
    free(plan.action);
}

int sgrad__add_collective(struct sgrad_builder *builder, enum sgrad_collective_kind kind, const struct sgrad_group *group,
                          int root, int buffer, int priority, const char *name) {
    if (group->count > 1) sgrad__add_exchange(builder, kind, group, root, &buffer, 1, priority, name);
    return buffer;
}

/* Operands of waiting tasks. */
struct waits {
    int count, *buffer;
    enum sgrad_access *access;
};

static void add_to_waits(struct waits *w, int buffer, enum sgrad_access access) {
    w->buffer = sgrad_array_grow(w->buffer, w->count, sizeof *w->buffer);
    w->access = sgrad_array_grow(w->access, w->count, sizeof *w->access);
    w->buffer[w->count] = buffer;
    w->access[w->count++] = access;
}

/* Adds tasks with these operands, one after another: each uses the same token. */
static void add_waits(struct sgrad_builder *builder, const struct waits *w) {
    const int token = sgrad__add_buffer(builder, sgrad_format("wait"), (struct sgrad_view){ SGRAD_F32, sgrad_shape(1, 1) });
    for (int at = 0; at < w->count;) {
        struct sgrad_bound_kernel call = { .kernel = &sgrad_wait_kernel, .operands = 1 };
        int operand[SGRAD_FEW_OPERANDS] = { token };
        call.access[0] = at ? SGRAD_RW : SGRAD_W;
        call.view[0] = builder->p->buffer[token].view;
        for (; at < w->count && call.operands < SGRAD_FEW_OPERANDS; at++) {
            operand[call.operands] = w->buffer[at];
            call.view[call.operands] = builder->p->buffer[w->buffer[at]].view;
            call.access[call.operands++] = w->access[at];
        }
        sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, SGRAD__PRIORITY_UPDATE,
                               sgrad_format("wait"))->workers = SGRAD_CPU_WORKERS;
    }
}

void sgrad__add_wait(struct sgrad_builder *builder, int begin, const int *buffer, int count, enum sgrad_access access) {
    struct sgrad__program *p = builder->p;
    struct waits w = { 0 };
    const int end = p->instruction_count;
    for (int i = 0; i < count; i++) add_to_waits(&w, buffer[i], access);
    for (int i = begin; i < end; i++)
        if (p->instruction[i].call->kernel == &sgrad__receive_kernel) add_to_waits(&w, p->instruction[i].operand[0], SGRAD_W);
    add_waits(builder, &w);
    const size_t more = (size_t)(p->instruction_count - end), size = sizeof *p->instruction;
    struct sgrad__instruction *waits = sgrad_xcalloc(more + 1, size);
    memcpy(waits, &p->instruction[end], more * size);
    memmove(&p->instruction[begin + (int)more], &p->instruction[begin], (size_t)(end - begin) * size);
    memcpy(&p->instruction[begin], waits, more * size);
    free(waits);
    free(w.buffer);
    free(w.access);
}
