/* take.c: y = a rank's shard of a value that all ranks along an axis have. In backward, the other shards are zeros:
 *
 *     rank    0         1                                     0      1
 *     x       a a b b   a a b b   ->   y   a a    b b         dy   p p    q q    ->   dx   p p 0 0   0 0 q q             */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/take.h"

const struct sgrad_op sgrad_take_op = {
    .name = "take",
    .summary = "the rank's shard of a value that all ranks of a mesh axis have",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_take),
    .infer = sgrad__infer_cut,
    .describe = sgrad__describe_pieces,
    .forward = { SGRAD__CUT(take, X, forward), SGRAD__MOVE(take, SLICE, SHARD, Y, forward) },
    .backward = { SGRAD__MOVE(take, PAD, DY, SHARD, backward), SGRAD__JOIN(take, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_take){ .axis = "tensor" } } },
};
