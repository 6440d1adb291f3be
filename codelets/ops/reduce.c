/* reduce.c: y = the sum over the ranks along an axis, on one of them, the root. Its backward is a broadcast (drawn for root 0):
 *
 *     rank    0    1    2                                         0    1    2
 *     x       a    b    c      ->   y   a+b+c   0   0             dy   p    q    r     ->   dx   p   p   p                   */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/reduce.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_reduce *is = attrs;
    return sgrad__infer_rooted(signature, is->axis, is->root);
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_reduce *is = attrs;
    snprintf(text, size, "over %s, to rank %d", is->axis, is->root);
}

const struct sgrad_op sgrad_reduce_op = {
    .name = "reduce",
    .summary = "sum over the ranks of a mesh axis, on one of them; zeros on the others",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_reduce),
    .infer = infer,
    .describe = describe,
    .forward = { SGRAD__MOVE(reduce, REDUCE, X, Y, forward) },
    .backward = { SGRAD__MOVE(reduce, BROADCAST, DY, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_reduce){ .axis = "tensor" } } },
};
