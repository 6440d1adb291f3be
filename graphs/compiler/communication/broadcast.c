/* broadcast.c: programs that consist of messages only. One sends tensors of one rank to all ranks, for example those of a
 * checkpoint when a run begins, or those of a server; the other sends them to one rank.
 *
 *     root     from ─> chunks ─> plan
 *     others                     plan ─> chunks ─> to */
#include "graphs/compiler/builder.h"

static void add(struct sgrad_builder *builder, const struct sgrad__broadcast *is) {
    const bool gives = is->root == builder->o->rank;
    struct sgrad_tensor *mine = gives ? is->from : is->to;
    struct sgrad_bucket *bucket = sgrad__bucket_open(mine->view.dtype, *builder->o->peers);
    sgrad__bucket_put(bucket, sgrad__lend_buffer(builder, mine), mine->view, NULL, -1, mine->name);
    sgrad__bucket_broadcast(builder, bucket, is->root, SGRAD__PRIORITY_UPDATE, mine->name);
    if (gives && is->from != is->to)
        sgrad__add_copy(builder, sgrad__lend_buffer(builder, is->from), sgrad__lend_buffer(builder, is->to));
    sgrad__bucket_free(bucket);
}

struct sgrad__program *sgrad__broadcast_build(const struct sgrad_program_options *options, const struct sgrad__broadcast *list,
                                              int count) {
    struct sgrad__program *p = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .o = options, .norm = -1 };
    for (int i = 0; i < count; i++) add(&b, &list[i]);
    sgrad__mark_last_uses(p);
    return p;
}

struct sgrad__program *sgrad__transfer_build(const struct sgrad_program_options *options, const struct sgrad__transfer *is) {
    struct sgrad__program *p = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .o = options, .norm = -1, .collectives = is->number };
    int64_t tag = sgrad__next_tag(&b);
    for (int i = 0; i < is->count; i++) {
        struct sgrad_tensor *tensor = is->tensor[i];
        const int buffer = sgrad__lend_buffer(&b, tensor);
        if (is->receives) sgrad__add_receive_into(&b, buffer, is->peer, tag, 0, tensor->name);
        else sgrad__add_send(&b, buffer, is->peer, tag, 0, tensor->name);
        tag += sgrad__message_pieces(&tensor->view);
    }
    sgrad__mark_last_uses(p);
    return p;
}
