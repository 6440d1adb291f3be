/* moves.h: functions common to the operations that move values between the ranks along an axis of the mesh (enum sgrad_move in
 * codelets.h). Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_MOVES_H
#define SGRAD_CODELETS_OPS_MOVES_H

#include "codelets/kernels.h"

/* Shape rule: y has the shape of x. Sets s->axis to the axis of this name; s->view_of_input if the mesh has no such axis, or
 * has one rank along it. Returns SGRAD_EINVAL, and logs it, if AXIS is empty or its number of ranks is unknown. */
int sgrad__infer_move(struct sgrad_signature *signature, const char *axis);
/* The same for moves with a root, the index of a rank on the axis. Also SGRAD_EINVAL if there is no such rank. */
int sgrad__infer_rooted(struct sgrad_signature *signature, const char *axis, int root);
/* The same for values that are split along a dimension: y is one rank's shard of x (cut), or all ranks' shards (join). ATTRS
 * are those of take and all_gather in codelets.def; defaults of attributes that are 0 are set. Sets the shard's view in
 * *SIGNATURE. Also SGRAD_EINVAL if x has no such dimension after its samples, or for more than SGRAD_MAX_INPUTS ranks;
 * SGRAD_ESHAPE if the dimension is not divisible. */
int sgrad__infer_cut(struct sgrad_signature *signature, void *attrs);
int sgrad__infer_join(struct sgrad_signature *signature, void *attrs);
void sgrad__describe_pieces(const void *attrs, char *text, size_t size);    /* writes "over tensor, dimension 1" */

/* CPU kernels that split a value into shards (cut) and concatenate them (join), along the dimension in which the shards are
 * shorter. If the value consists of several sections along this dimension, each section is split (attributes as in codelets.def;
 * NULL: one section). There are no CUDA kernels, because shards are sent or received as messages, which are in main memory.
 *
 *     y  a a b b c c     cut ──>   p0  a a   p1  b b   p2  c c
 *        a a b b c c     <── join      a a       b b       c c                                                     */
void sgrad__cut(const struct sgrad_args *args);     /* Operands: y, p0 … p7 (absent after the last shard) */
void sgrad__join(const struct sgrad_args *args);    /* Operands: p0 … p7 (absent after the last shard), y */
/* Tasks (struct sgrad_task) of operation OP with these kernels. ROLE: of the value. The last argument: the kind, e.g. forward. */
#define SGRAD__CUT(op, role, what)                                                                                               \
    { .kernel = { .name = #op " cut", .kind = &sgrad_##what##_kind, .cpu = sgrad__cut, .flops = sgrad_no_flops },                \
      .use = { SGRAD_IN(role, 0), SGRAD_OUT(SHARD, 0), SGRAD_OUT(SHARD, 1), SGRAD_OUT(SHARD, 2), SGRAD_OUT(SHARD, 3),            \
               SGRAD_OUT(SHARD, 4), SGRAD_OUT(SHARD, 5), SGRAD_OUT(SHARD, 6), SGRAD_OUT(SHARD, 7) } }
#define SGRAD__JOIN(op, role, what)                                                                                              \
    { .kernel = { .name = #op " join", .kind = &sgrad_##what##_kind, .cpu = sgrad__join, .flops = sgrad_no_flops },              \
      .use = { SGRAD_IN(SHARD, 0), SGRAD_IN(SHARD, 1), SGRAD_IN(SHARD, 2), SGRAD_IN(SHARD, 3), SGRAD_IN(SHARD, 4),               \
               SGRAD_IN(SHARD, 5), SGRAD_IN(SHARD, 6), SGRAD_IN(SHARD, 7), SGRAD_OUT(role, 0) } }
/* A task that moves role FROM to role TO; IS: SGRAD_MOVE_IS. */
#define SGRAD__MOVE(op, is, from, to, what)                                                                                      \
    { .kernel = { .name = #op " move", .kind = &sgrad_##what##_kind, .flops = sgrad_no_flops },                                  \
      .move = SGRAD_MOVE_##is, .use = { SGRAD_IN(from, 0), SGRAD_OUT(to, 0) } }

#endif
