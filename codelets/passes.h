/* passes.h: the three passes of layers with filters (layer.h) and of linear.c as kernels of CPUs, and their workspaces.
 * Private to codelets/. A kernel's functions are not told which pass they serve, so each has its own. */
#ifndef SGRAD_CODELETS_PASSES_H
#define SGRAD_CODELETS_PASSES_H

#include "codelets/kernels.h"

/* x, weight, bias or absent, y */
void sgrad__pass_forward(const struct sgrad_args *args);
int sgrad__pass_forward_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_forward_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_forward_workspace(const struct sgrad_args *args);
double sgrad__pass_forward_flops(const struct sgrad_args *args);

/* The same outside training: exact (layer.h). */
void sgrad__pass_inference(const struct sgrad_args *args);
int sgrad__pass_inference_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_inference_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_inference_workspace(const struct sgrad_args *args);
double sgrad__pass_inference_flops(const struct sgrad_args *args);

/* dy, weight, dx; outside training: conv_transpose's forward. */
void sgrad__pass_transposed_inference(const struct sgrad_args *args);
int sgrad__pass_transposed_inference_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_transposed_inference_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_transposed_inference_workspace(const struct sgrad_args *args);
double sgrad__pass_transposed_inference_flops(const struct sgrad_args *args);

/* dy, weight, dx */
void sgrad__pass_backward_data(const struct sgrad_args *args);
int sgrad__pass_backward_data_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_backward_data_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_backward_data_workspace(const struct sgrad_args *args);
double sgrad__pass_backward_data_flops(const struct sgrad_args *args);

/* x, dy, dweight, dbias or absent */
void sgrad__pass_backward_weight(const struct sgrad_args *args);
size_t sgrad__pass_backward_weight_workspace(const struct sgrad_args *args);
double sgrad__pass_backward_weight_flops(const struct sgrad_args *args);

size_t sgrad__pass_gpu_workspace(const struct sgrad_args *args);    /* of any pass; 0 without CUDA */

/* The fields of a kernel called TITLE, OF a kind, which PASS computes, ON_CUDA there. */
#define SGRAD__PASS(title, of, pass, on_cuda)                                                                                    \
    .name = title, .kind = &sgrad_##of##_kind, .cpu = sgrad__pass_##pass, .cuda = SGRAD_ON_CUDA(on_cuda),                       \
    .workspace = sgrad__pass_##pass##_workspace, .gpu_workspace = sgrad__pass_gpu_workspace, .flops = sgrad__pass_##pass##_flops

/* Of those that may take the weight packed, too. */
#define SGRAD__PACKS(pass) .factor = 1, .packing = sgrad__pass_##pass##_packing, .pack = sgrad__pass_##pass##_pack

/* The same for layers with filters on CUDA devices (conv2d_graph_cuda.cu). */
void sgrad__conv2d_forward_cuda(const struct sgrad_args *args);
int sgrad__conv2d_forward_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count);
void sgrad__conv2d_backward_data_cuda(const struct sgrad_args *args);
int sgrad__conv2d_backward_data_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count);
void sgrad__conv2d_backward_weight_cuda(const struct sgrad_args *args);
size_t sgrad__conv2d_workspace_cuda(const struct sgrad_args *args);

#endif
