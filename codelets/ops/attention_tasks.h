/* attention_tasks.h: the functions of attention.c that are also those of document_attention.c. Private to these. */
#ifndef SGRAD_CODELETS_OPS_ATTENTION_TASKS_H
#define SGRAD_CODELETS_OPS_ATTENTION_TASKS_H

#include "codelets/ops/attention.h"

/* infer, where OF_K is the index of input k; input v is the next. */
int sgrad__attention_infer(struct sgrad_signature *signature, struct sgrad_attention *attrs, int of_k);
void sgrad__attention_describe(const void *attrs, char *text, size_t size);

void sgrad__attention_forward_cuda(const struct sgrad_args *args);
void sgrad__attention_inference_cuda(const struct sgrad_args *args);
void sgrad__attention_backward_cuda(const struct sgrad_args *args);
void sgrad__attention_forward(const struct sgrad_args *args);
void sgrad__attention_inference(const struct sgrad_args *args);
void sgrad__attention_backward(const struct sgrad_args *args);
size_t sgrad__attention_forward_workspace(const struct sgrad_args *args);
size_t sgrad__attention_inference_workspace(const struct sgrad_args *args);
size_t sgrad__attention_backward_workspace(const struct sgrad_args *args);
size_t sgrad__attention_forward_gpu_workspace(const struct sgrad_args *args);
size_t sgrad__attention_backward_gpu_workspace(const struct sgrad_args *args);
size_t sgrad__attention_workspace_cuda(const struct sgrad_args *args, bool backward);
double sgrad__attention_forward_flops(const struct sgrad_args *args);
double sgrad__attention_backward_flops(const struct sgrad_args *args);

/* The tasks of operation OP. K: index of input k. START: the use of input start, or {0}. */
#define SGRAD__ATTENTION_TASKS(op, k, start)                                                                                     \
    .forward = { { { .name = op " forward", .kind = &sgrad_forward_kind, .cpu = sgrad__attention_forward,                        \
                     .cuda = SGRAD_ON_CUDA(sgrad__attention_forward_cuda), .workspace = sgrad__attention_forward_workspace,      \
                     .gpu_workspace = sgrad__attention_forward_gpu_workspace, .flops = sgrad__attention_forward_flops },         \
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0), SGRAD_IN(X, k), SGRAD_IN(X, k + 1), start } } },      \
    .inference = { { { .name = op " inference", .kind = &sgrad_forward_kind, .cpu = sgrad__attention_inference,                  \
                       .cuda = SGRAD_ON_CUDA(sgrad__attention_inference_cuda), .workspace = sgrad__attention_inference_workspace,\
                       .gpu_workspace = sgrad__attention_forward_gpu_workspace, .flops = sgrad__attention_forward_flops },       \
                     { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0), SGRAD_INOUT(S, 0), SGRAD_IN(X, k),                  \
                       SGRAD_IN(X, k + 1), start } } },                                                                          \
    .backward = { { { .name = op " backward", .kind = &sgrad_backward_kind, .cpu = sgrad__attention_backward,                    \
                      .cuda = SGRAD_ON_CUDA(sgrad__attention_backward_cuda), .workspace = sgrad__attention_backward_workspace,   \
                      .gpu_workspace = sgrad__attention_backward_gpu_workspace, .flops = sgrad__attention_backward_flops },      \
                    { SGRAD_IN(X, 0), SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0), SGRAD_IN(X, k),     \
                      SGRAD_IN(X, k + 1), SGRAD_OUT(DX, k), SGRAD_OUT(DX, k + 1), start } } }

#endif
