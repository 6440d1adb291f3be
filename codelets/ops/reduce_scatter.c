/* reduce_scatter.c: y = a rank's shard of the sum over the ranks along an axis. Its backward is an all_gather:
 *
 *     rank    0         1                                         0      1
 *     x       a a b b   c c d d   ->   y   a+c a+c   b+d b+d      dy   p p    q q    ->   dx   p p q q   p p q q             */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/reduce_scatter.h"

const struct sgrad_op sgrad_reduce_scatter_op = {
    .name = "reduce_scatter",
    .summary = "sum over the ranks of a mesh axis, one shard per rank",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_reduce_scatter),
    .infer = sgrad__infer_cut,
    .describe = sgrad__describe_pieces,
    .forward = { SGRAD__CUT(reduce_scatter, X, forward), SGRAD__MOVE(reduce_scatter, REDUCE_SCATTER, SHARD, Y, forward) },
    .backward = { SGRAD__MOVE(reduce_scatter, ALL_GATHER, DY, SHARD, backward), SGRAD__JOIN(reduce_scatter, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_reduce_scatter){ .axis = "tensor" } } },
};
