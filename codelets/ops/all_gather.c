/* all_gather.c: y = the concatenation of the values of the ranks along an axis, on every rank. Its backward is a reduce_scatter:
 *
 *     rank    0      1                                            0        1
 *     x       a a    b b    ->   y   a a b b   a a b b            dy   p p q q   r r s s   ->   dx   p+r p+r    q+s q+s      */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/all_gather.h"

const struct sgrad_op sgrad_all_gather_op = {
    .name = "all_gather",
    .summary = "concatenation of the values of all ranks of a mesh axis, on every rank",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_all_gather),
    .infer = sgrad__infer_join,
    .describe = sgrad__describe_pieces,
    .forward = { SGRAD__MOVE(all_gather, ALL_GATHER, X, SHARD, forward), SGRAD__JOIN(all_gather, Y, forward) },
    .backward = { SGRAD__CUT(all_gather, DY, backward), SGRAD__MOVE(all_gather, REDUCE_SCATTER, SHARD, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_all_gather){ .axis = "tensor" } } },
};
