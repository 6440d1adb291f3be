/* all_reduce.c: y = the sum of the values of the ranks along an axis, on every rank. Its backward is an all_reduce, too:
 *
 *     rank    0    1    2                                         0     1     2
 *     x       a    b    c      ->   y   a+b+c  a+b+c  a+b+c       dy    p     q     r     ->   dx   p+q+r on each            */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/all_reduce.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    return sgrad__infer_move(signature, ((const struct sgrad_all_reduce *)attrs)->axis);
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "over %s", ((const struct sgrad_all_reduce *)attrs)->axis);
}

const struct sgrad_op sgrad_all_reduce_op = {
    .name = "all_reduce",
    .summary = "sum over the ranks of a mesh axis, on every rank",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_all_reduce),
    .infer = infer,
    .describe = describe,
    .forward = { SGRAD__MOVE(all_reduce, ALL_REDUCE, X, Y, forward) },
    .backward = { SGRAD__MOVE(all_reduce, ALL_REDUCE, DY, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_all_reduce){ .axis = "tensor" } } },
};
