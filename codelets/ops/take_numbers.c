/* take_numbers.c: a rank's shard of integers (tokens or labels) that all ranks along an axis have: take.c for I32. */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/take_numbers.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    signature->y.dtype = SGRAD_I32;
    return sgrad__infer_cut(signature, attrs);
}

static void fill(const struct sgrad_test *test, int input, void *data) {
    for (int64_t i = 0; i < sgrad_shape_count(&test->x[input]); i++) ((int32_t *)data)[i] = (int32_t)i;
}

const struct sgrad_op sgrad_take_numbers_op = {
    .name = "take_numbers",
    .summary = "the rank's shard of integers that all ranks of a mesh axis have",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_take_numbers),
    .no_gradient = 1u << 0,
    .input_dtype = { SGRAD_I32 },
    .infer = infer,
    .describe = sgrad__describe_pieces,
    .forward = { SGRAD__CUT(take_numbers, X, forward), SGRAD__MOVE(take_numbers, SLICE, SHARD, Y, forward) },
    .fill = fill,
    .not_differentiable = true,
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_take_numbers){ .axis = "tensor" } } },
};
