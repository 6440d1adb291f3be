/* moves.c: adds tasks that move values between ranks (codelets.h), as messages, sums and copies.
 *
 *     rank 0   x ─ send ──┐                              ┌── y
 *     rank 1   x ─ send ──┼─ the cheapest plan, in the ──┼── y
 *     rank 2   x ─ send ──┘  group along the axis        └── y
 *
 * The result is a separate buffer, so that adding to a gradient changes no other value. Every rank of the group must add the same
 * moves, in the same order, for micro-batches of the same size. */
#include "graphs/compiler/builder.h"

#include <string.h>

struct place {
    struct sgrad_group group;       /* the ranks along the axis */
    int here, root;                 /* index of this rank, and of the root, in the group */
    const char *name;
};

static int collective(struct sgrad_builder *builder, const struct place *place, enum sgrad_collective_kind kind, int from) {
    return sgrad__add_collective(builder, kind, &place->group, place->group.rank[place->root], from, SGRAD__PRIORITY_CHAIN,
                                 place->name);
}

static void pieces(struct sgrad_builder *builder, const struct place *place, enum sgrad_collective_kind kind, int *piece) {
    sgrad__add_exchange(builder, kind, &place->group, -1, piece, place->group.count, SGRAD__PRIORITY_CHAIN, place->name);
}

/* Returns a new buffer like LIKE, with the content of FROM; with zeros (-0), if FROM is -1. */
static int copy(struct sgrad_builder *builder, const struct place *place, int from, int like) {
    const int to = sgrad__add_buffer(builder, sgrad_format("%s", place->name), builder->p->buffer[like].view);
    sgrad__add_copy(builder, from, to);
    return to;
}

static void add_all(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    *to = collective(builder, place, SGRAD_ALLREDUCE, *from);
}

static void add_pieces(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    int piece[SGRAD_MAX_INPUTS];
    memcpy(piece, from, (size_t)place->group.count * sizeof *piece);
    pieces(builder, place, SGRAD_REDUCE_SCATTER, piece);
    *to = piece[place->here];
}

/* Buffers of the shards of other ranks are not read before these are received, so this rank's buffer stands for them. */
static void gather_pieces(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    for (int i = 0; i < place->group.count; i++) to[i] = *from;
    pieces(builder, place, SGRAD_ALL_GATHER, to);
}

static void take_own(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    (void)builder;
    *to = from[place->here];
}

static void put_own(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    for (int i = 0; i < place->group.count; i++) to[i] = i == place->here ? *from : copy(builder, place, -1, *from);
}

static void add_at_root(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    const int sum = collective(builder, place, SGRAD_REDUCE, *from);
    *to = place->here == place->root ? sum : copy(builder, place, -1, *from);
}

static void copy_root(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    const int value = collective(builder, place, SGRAD_BROADCAST, *from);
    *to = place->here == place->root ? copy(builder, place, value, value) : value;
}

/* Sends FROM to the rank that is BY positions further in the ring of the group, and receives *TO from the opposite side. */
static void shift(struct sgrad_builder *builder, const struct place *place, int from, int *to, int by) {
    const int count = place->group.count, after = (place->here + count + by) % count, before = (place->here + count - by) % count;
    const int64_t tag = sgrad__next_tag(builder);
    sgrad__add_send(builder, from, place->group.rank[after], tag, SGRAD__PRIORITY_CHAIN, place->name);
    *to = sgrad__add_receive(builder, builder->p->buffer[from].view, place->group.rank[before], tag, SGRAD__PRIORITY_CHAIN,
                             place->name);
}

static void to_next(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    shift(builder, place, *from, to, 1);
}

static void to_before(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    shift(builder, place, *from, to, -1);
}

/* Messages between two ranks have the same tag in both directions. Shards are counted, unless they are so large
 * that they are sent in pieces (plans.c). */
static void swap_pieces(struct sgrad_builder *builder, const struct place *place, const int *from, int *to) {
    const int count = place->group.count;
    to[place->here] = from[place->here];
    for (int i = 1; i < count; i++) {
        const int after = (place->here + i) % count, before = (place->here + count - i) % count;
        const int64_t tag = sgrad__next_tag(builder);
        sgrad__add_send(builder, from[after], place->group.rank[after], tag, SGRAD__PRIORITY_CHAIN, place->name);
        to[before] = sgrad__add_receive(builder, builder->p->buffer[from[before]].view, place->group.rank[before], tag,
                                        SGRAD__PRIORITY_CHAIN, place->name);
        if (sgrad__message_pieces(&builder->p->buffer[from[after]].view) > 1) continue;
        builder->p->buffer[from[after]].counted = builder->p->buffer[to[before]].counted = true;
    }
}

static struct place place_of(struct sgrad_builder *builder, int n) {
    const struct sgrad__node *node = &builder->g->node[n];
    const unsigned axis = sgrad_mesh_bit(&builder->g->mesh, node->is.axis);
    struct place p = { .group = sgrad__along(builder, axis), .root = node->is.root, .name = node->name };
    p.here = sgrad_group_index(&p.group, builder->o->rank);
    return p;
}

static void add(struct sgrad_builder *b, int n, enum sgrad_move move, const int *from, int *to) {
    static void (*const moves[])(struct sgrad_builder *b, const struct place *p, const int *from, int *to) = {
        [SGRAD_MOVE_ALL_REDUCE] = add_all,
        [SGRAD_MOVE_REDUCE_SCATTER] = add_pieces,
        [SGRAD_MOVE_ALL_GATHER] = gather_pieces,
        [SGRAD_MOVE_SLICE] = take_own,
        [SGRAD_MOVE_PAD] = put_own,
        [SGRAD_MOVE_REDUCE] = add_at_root,
        [SGRAD_MOVE_BROADCAST] = copy_root,
        [SGRAD_MOVE_ALL_TO_ALL] = swap_pieces,
        [SGRAD_MOVE_SHIFT] = to_next,
        [SGRAD_MOVE_UNSHIFT] = to_before,
    };
    const struct place p = place_of(b, n);
    moves[move](b, &p, from, to);
}

int sgrad__add_shift(struct sgrad_builder *builder, int n, int buffer) {
    const struct place place = place_of(builder, n);
    int received;
    shift(builder, &place, buffer, &received, 1);
    return received;
}

/* Returns the position of the buffers of a move's operand USE for micro-batch M: one, or a shard per rank, MICROS elements
 * apart. */
static int *moved(struct sgrad_builder *builder, const struct sgrad__node *node, struct sgrad_use use, int m) {
    const int value = use.role == SGRAD_X || use.role == SGRAD_DX ? node->input[0] : node->output;
    if (use.role == SGRAD_SHARD) return &builder->piece[m];
    int *of = use.role == SGRAD_X || use.role == SGRAD_Y ? builder->activation[0] : builder->gradient;
    return &of[builder->g->value[value].root * builder->micros + m];
}

void sgrad__add_move(struct sgrad_builder *builder, int n, const struct sgrad_task *task, int m) {
    const struct sgrad__node *node = &builder->g->node[n];
    const bool cut = task->use[0].role == SGRAD_SHARD, joined = task->use[1].role == SGRAD_SHARD;
    const bool swapped = cut && joined;     /* shards are replaced; a gradient that exists is added to */
    int *from = moved(builder, node, task->use[0], m), *to = moved(builder, node, task->use[1], m);
    int before[SGRAD_MAX_INPUTS], after[SGRAD_MAX_INPUTS];
    for (int i = 0; i < (cut ? node->is.axis->ranks : 1); i++) before[i] = from[i * builder->micros];
    add(builder, n, task->move, before, after);
    for (int i = 0; i < (joined ? node->is.axis->ranks : 1); i++) {
        int *slot = &to[i * builder->micros];
        *slot = swapped || *slot < 0 ? after[i] : sgrad__add_sum(builder, (int[]){ *slot, after[i] }, 2, node->name);
    }
}
