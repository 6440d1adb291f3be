/* moves.h: what the operations share by which values move between the ranks along an axis of the mesh. */
#ifndef SGRAD_CODELETS_MOVES_H
#define SGRAD_CODELETS_MOVES_H

#include "codelets/kernels.h"

/* Y is as x; S->axis is AXIS, or, where no other rank stands along it, Y is x itself: S->view_of_input. */
int sgrad__infer_move(struct sgrad_signature *s, const char *axis);
/* The same, with a place on it. */
int sgrad__infer_rooted(struct sgrad_signature *s, const char *axis, int root);
/* The same, where values are split along a dimension: y has one place's part of it, or all of them. ATTRS as in codelets.def. */
int sgrad__infer_cut(struct sgrad_signature *s, void *attrs);
int sgrad__infer_join(struct sgrad_signature *s, void *attrs);
void sgrad__describe_pieces(const void *attrs, char *text, size_t size);    /* "over tensor, dimension 1" */

/* The tasks between a value and its pieces, along the dimension in which these are shorter; of what is several sections side by
 * side along it a piece has its part of each (attributes as in codelets.def, or NULL: one). They have no CUDA kernel: pieces come
 * from, or go to, messages, which are in main memory.
 *
 *     y  a a b b c c     cut ──>   p0  a a   p1  b b   p2  c c
 *        a a b b c c     <── join      a a       b b       c c                                                     */
void sgrad__cut(const struct sgrad_args *args);     /* y, p0 … p7, those after the last absent */
void sgrad__join(const struct sgrad_args *args);    /* p0 … p7, those after the last absent, y */
#define SGRAD__CUT(op, role, what)                                                                                               \
    { .kernel = { .name = #op " cut", .kind = &sgrad_##what##_kind, .cpu = sgrad__cut, .flops = sgrad_no_flops },                \
      .use = { SGRAD_IN(role, 0), SGRAD_OUT(PIECE, 0), SGRAD_OUT(PIECE, 1), SGRAD_OUT(PIECE, 2), SGRAD_OUT(PIECE, 3),            \
               SGRAD_OUT(PIECE, 4), SGRAD_OUT(PIECE, 5), SGRAD_OUT(PIECE, 6), SGRAD_OUT(PIECE, 7) } }
#define SGRAD__JOIN(op, role, what)                                                                                              \
    { .kernel = { .name = #op " join", .kind = &sgrad_##what##_kind, .cpu = sgrad__join, .flops = sgrad_no_flops },              \
      .use = { SGRAD_IN(PIECE, 0), SGRAD_IN(PIECE, 1), SGRAD_IN(PIECE, 2), SGRAD_IN(PIECE, 3), SGRAD_IN(PIECE, 4),               \
               SGRAD_IN(PIECE, 5), SGRAD_IN(PIECE, 6), SGRAD_IN(PIECE, 7), SGRAD_OUT(role, 0) } }
/* A move of FROM to TO. */
#define SGRAD__MOVE(op, is, from, to, what)                                                                                      \
    { .kernel = { .name = #op " move", .kind = &sgrad_##what##_kind, .flops = sgrad_no_flops },                                  \
      .move = SGRAD_##is, .use = { SGRAD_IN(from, 0), SGRAD_OUT(to, 0) } }

#endif
