/* broadcast.c: y = the root's value, on all ranks along an axis. Its backward is a reduce (drawn for root 0):
 *
 *     rank    0    1    2                                         0    1    2
 *     x       a    b    c      ->   y   a   a   a                 dy   p    q    r     ->   dx   p+q+r   0   0               */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/broadcast.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_broadcast *is = attrs;
    return sgrad__infer_rooted(signature, is->axis, is->root);
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_broadcast *is = attrs;
    snprintf(text, size, "over %s, from rank %d", is->axis, is->root);
}

const struct sgrad_op sgrad_broadcast_op = {
    .name = "broadcast",
    .summary = "copy of one rank's value, on every rank of a mesh axis",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_broadcast),
    .infer = infer,
    .describe = describe,
    .forward = { SGRAD__MOVE(broadcast, BROADCAST, X, Y, forward) },
    .backward = { SGRAD__MOVE(broadcast, REDUCE, DY, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_broadcast){ .axis = "tensor" } } },
};
