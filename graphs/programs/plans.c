/* plans.c: messages between ranks, and plans of collectives (runtime/collectives.h) as messages and sums.
 *
 * With 2^k ranks of equal shares, a plan that keeps to the tree made by halving goes on where this rank's tree ends (sums.c), so
 * that one rank with all the micro-batches gets the same bits:
 *
 *     four micro-batches on one rank  (0+1) + (2+3)        on two  (0+1) │ (2+3)  →  (0+1) + (2+3) on both              */
#include "graphs/programs/builder.h"

#include <stdlib.h>

/* Messages are no tasks: whoever submits a program hands them to StarPU-MPI. */
const struct sgrad_kernel sgrad__send_kernel = { .name = "send", .kind = &sgrad_reduction_kind, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__receive_kernel = { .name = "receive", .kind = &sgrad_reduction_kind, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__whole_kernel = { .name = "MPI_Iallreduce",
                                                  .kind = &sgrad_reduction_kind,
                                                  .flops = sgrad_no_flops };

static void add_message(struct sgrad__builder *b, const struct sgrad_kernel *kernel, enum sgrad_access access, int buffer,
                        int peer, int64_t tag, int priority, const char *name) {
    const struct sgrad_call *call = sgrad__shared_call(
        b, (struct sgrad_call){ .kernel = kernel, .operands = 1, .view = { b->p->buffer[buffer].view }, .access = { access } });
    char *title = peer < 0 ? sgrad_format("%s %s", name, kernel->name)
                           : sgrad_format("%s %s %s %d", name, kernel->name, access == SGRAD_R ? "to" : "from", peer);
    struct sgrad__instruction *i = sgrad__add_instruction(b, call, &buffer, 0, priority, title);
    i->peer = peer < 0 ? peer : b->o->first + peer;
    i->tag = tag;
}

bool sgrad__is_message(const struct sgrad_call *call) {
    const struct sgrad_kernel *kernel = call->kernel;
    return kernel == &sgrad__send_kernel || kernel == &sgrad__receive_kernel || kernel == &sgrad__whole_kernel;
}

int64_t sgrad__next_tag(struct sgrad__builder *b) { return ((int64_t)b->o->tags << 44) + ((int64_t)b->collectives++ << 20); }

void sgrad__add_send(struct sgrad__builder *b, int buffer, int peer, int64_t tag, int priority, const char *name) {
    add_message(b, &sgrad__send_kernel, SGRAD_R, buffer, peer, tag, priority, name);
}

int sgrad__add_receive(struct sgrad__builder *b, struct sgrad_view view, int peer, int64_t tag, int priority, const char *name) {
    int buffer = sgrad__add_buffer(b, sgrad_format("%s from %d", name, peer), view);
    add_message(b, &sgrad__receive_kernel, SGRAD_W, buffer, peer, tag, priority, name);
    return buffer;
}

/* The n-th message between two ranks has the same n on both. */
void sgrad__add_plan(struct sgrad__builder *b, const struct sgrad_plan *plan, int *chunk, int priority, const char *name) {
    const size_t ranks = (size_t)b->o->network->ranks;
    int *sent = sgrad_alloc(ranks, sizeof *sent), *received = sgrad_alloc(ranks, sizeof *received);
    const int64_t tag = sgrad__next_tag(b);
    for (const struct sgrad_action *a = plan->action; a < plan->action + plan->count; a++) {
        int peer = a->peer, *value = &chunk[a->chunk], pair[2] = { *value };
        struct sgrad_view view = b->p->buffer[*value].view;
        switch (a->kind) {
        case SGRAD_WHOLE: add_message(b, &sgrad__whole_kernel, SGRAD_RW, *value, -1, tag, priority, name); break;
        case SGRAD_SEND: sgrad__add_send(b, *value, peer, tag + sent[peer]++, priority, name); break;
        case SGRAD_COPY: *value = sgrad__add_receive(b, view, peer, tag + received[peer]++, priority, name); break;
        case SGRAD_ADD:
            pair[1] = sgrad__add_receive(b, view, peer, tag + received[peer]++, priority, name);
            *value = sgrad__add_sum(b, pair, 2, name);
            break;
        }
    }
    free(sent);
    free(received);
}

struct sgrad_group sgrad__peers(const struct sgrad__builder *b, int first, int count) {
    return (struct sgrad_group){ count, b->o->peers ? b->o->peers->rank + first : &b->o->rank };
}

struct sgrad_group sgrad__along(struct sgrad__builder *b, unsigned axes) {
    const struct sgrad_mesh *mesh = &b->g->mesh;
    int *member = sgrad__own(b->p, sgrad_alloc((size_t)sgrad_mesh_ranks(mesh, axes), sizeof *member));
    return sgrad_mesh_group(mesh, axes, b->o->rank, member);
}

void sgrad__add_exchange(struct sgrad__builder *b, enum sgrad_collective_kind kind, const struct sgrad_group *group, int root,
                         int *chunk, int chunks, int priority, const char *name) {
    const struct sgrad_exchange what = { .bytes = (double)chunks * (double)sgrad_view_bytes(&b->p->buffer[*chunk].view),
                                         .limit = chunks,
                                         .group = group,
                                         .root = root,
                                         .halving = b->o->deterministic };
    const struct sgrad_collective *method = sgrad_collective_cheapest(kind, &what, b->o->network);
    struct sgrad_plan plan = sgrad_plan_make(method, &what, b->o->rank, b->o->network);
    sgrad__add_plan(b, &plan, chunk, priority, name);
    free(plan.action);
}

int sgrad__add_collective(struct sgrad__builder *b, enum sgrad_collective_kind kind, const struct sgrad_group *group, int root,
                          int buffer, int priority, const char *name) {
    if (group->count > 1) sgrad__add_exchange(b, kind, group, root, &buffer, 1, priority, name);
    return buffer;
}
