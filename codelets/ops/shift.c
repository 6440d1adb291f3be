/* shift.c: y = the value of the previous rank along an axis; the first rank gets that of the last. Its backward shifts in the
 * opposite direction:
 *
 *     rank    0    1    2                                         0    1    2
 *     x       a    b    c      ->   y   c   a   b                 dy   p    q    r     ->   dx   q   r   p                   */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/shift.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    return sgrad__infer_move(signature, ((const struct sgrad_shift *)attrs)->axis);
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "over %s", ((const struct sgrad_shift *)attrs)->axis);
}

const struct sgrad_op sgrad_shift_op = {
    .name = "shift",
    .summary = "send to the next rank of a mesh axis and receive from the previous one, around a ring",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_shift),
    .infer = infer,
    .describe = describe,
    .forward = { SGRAD__MOVE(shift, SHIFT, X, Y, forward) },
    .backward = { SGRAD__MOVE(shift, UNSHIFT, DY, DX, backward) },
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_shift){ .axis = "tensor" } } },
};
