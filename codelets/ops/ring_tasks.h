/* ring_tasks.h: the functions of ring_attention.c that are also those of ring_document_attention.c. Private to these. */
#ifndef SGRAD_CODELETS_OPS_RING_TASKS_H
#define SGRAD_CODELETS_OPS_RING_TASKS_H

#include "codelets/ops/ring_attention.h"

/* infer, where OF_K is the index of input k; input v is the next. */
int sgrad__ring_infer(struct sgrad_signature *signature, struct sgrad_ring_attention *attrs, int of_k);
void sgrad__ring_set_rank(const struct sgrad_signature *signature, int rank, void *attrs);
void sgrad__ring_set_shard(int place, void *attrs);
void sgrad__ring_describe(const void *attrs, char *text, size_t size);

void sgrad__ring_join(const struct sgrad_args *args);
void sgrad__ring_forward(const struct sgrad_args *args);
void sgrad__ring_backward(const struct sgrad_args *args);
void sgrad__ring_cut(const struct sgrad_args *args);
size_t sgrad__ring_forward_workspace(const struct sgrad_args *args);
size_t sgrad__ring_backward_workspace(const struct sgrad_args *args);
double sgrad__ring_forward_flops(const struct sgrad_args *args);
double sgrad__ring_backward_flops(const struct sgrad_args *args);

/* The tasks of operation OP. K: index of input k. START: the use of input start, or {0}. */
#define SGRAD__RING_JOIN(op, k, what)                                                                                            \
    { { .name = op " join", .kind = &sgrad_##what##_kind, .cpu = sgrad__ring_join, .flops = sgrad_no_flops },                    \
      { SGRAD_IN(X, 0), SGRAD_OUT(SHARD, 0), SGRAD_IN(X, k), SGRAD_IN(X, k + 1) } }
#define SGRAD__RING_TASKS(op, k, start)                                                                                          \
    .forward = { SGRAD__RING_JOIN(op, k, forward),                                                                               \
                 { { .name = op " forward", .kind = &sgrad_forward_kind, .cpu = sgrad__ring_forward,                             \
                     .workspace = sgrad__ring_forward_workspace, .flops = sgrad__ring_forward_flops },                           \
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0), SGRAD_IN(SHARD, 0), start }, .ring = true } },        \
    .backward = { SGRAD__RING_JOIN(op, k, backward),                                                                             \
                  { { .name = op " backward", .kind = &sgrad_backward_kind, .cpu = sgrad__ring_backward,                         \
                      .workspace = sgrad__ring_backward_workspace, .flops = sgrad__ring_backward_flops },                        \
                    { SGRAD_IN(X, 0), SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0),                     \
                      SGRAD_IN(SHARD, 0), SGRAD_OUT(DSHARD, 0), start }, .ring = true },                                         \
                  { { .name = op " cut", .kind = &sgrad_backward_kind, .cpu = sgrad__ring_cut, .flops = sgrad_no_flops },        \
                    { SGRAD_IN(DSHARD, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DX, k), SGRAD_OUT(DX, k + 1) } } }

#endif
