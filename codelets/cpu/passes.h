/* passes.h: the CPU functions of the kernels of convolutions (layer.h) and of linear.c, for the three passes. Private to
 * codelets/. A kernel's functions do not receive the pass as an argument, so each pass has separate ones. The end of a name is
 * the field of struct sgrad_kernel (runtime.h) that the function implements: …_packing, …_pack, …_workspace, …_flops, or none
 * for .cpu. */
#ifndef SGRAD_CODELETS_CPU_PASSES_H
#define SGRAD_CODELETS_CPU_PASSES_H

#include "codelets/kernels.h"

/* Forward in training. Operands: x, weight, bias or absent, y. */
void sgrad__pass_forward(const struct sgrad_args *args);
int sgrad__pass_forward_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_forward_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_forward_workspace(const struct sgrad_args *args);
double sgrad__pass_forward_flops(const struct sgrad_args *args);

/* The same outside training: bf16 layers are exact (layer.h). */
void sgrad__pass_inference(const struct sgrad_args *args);
int sgrad__pass_inference_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_inference_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_inference_workspace(const struct sgrad_args *args);
double sgrad__pass_inference_flops(const struct sgrad_args *args);

/* Backward-data of exact layers: forward of conv_transpose outside training. Operands: dy, weight, dx. */
void sgrad__pass_transposed_inference(const struct sgrad_args *args);
int sgrad__pass_transposed_inference_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_transposed_inference_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_transposed_inference_workspace(const struct sgrad_args *args);
double sgrad__pass_transposed_inference_flops(const struct sgrad_args *args);

/* Backward-data; also forward of conv_transpose in training. Operands: dy, weight, dx. */
void sgrad__pass_backward_data(const struct sgrad_args *args);
int sgrad__pass_backward_data_packing(const struct sgrad_args *args, size_t *bytes);
void sgrad__pass_backward_data_pack(const struct sgrad_args *args, const void *weight, void *to);
size_t sgrad__pass_backward_data_workspace(const struct sgrad_args *args);
double sgrad__pass_backward_data_flops(const struct sgrad_args *args);

/* Backward-weight. Operands: x, dy, dweight, dbias or absent. */
void sgrad__pass_backward_weight(const struct sgrad_args *args);
size_t sgrad__pass_backward_weight_workspace(const struct sgrad_args *args);
double sgrad__pass_backward_weight_flops(const struct sgrad_args *args);

size_t sgrad__pass_gpu_workspace(const struct sgrad_args *args);    /* any pass; bytes; 0 in builds without CUDA */

/* Fields of a struct sgrad_kernel: its name, kind (sgrad_…_kind), pass (one of the names above) and CUDA function. */
#define SGRAD__PASS(title, of, pass, on_cuda)                                                                                    \
    .name = title, .kind = &sgrad_##of##_kind, .cpu = sgrad__pass_##pass, .cuda = SGRAD_ON_CUDA(on_cuda),                       \
    .workspace = sgrad__pass_##pass##_workspace, .gpu_workspace = sgrad__pass_gpu_workspace, .flops = sgrad__pass_##pass##_flops

/* Additional fields of a kernel that accepts a packed weight. */
#define SGRAD__PACKS(pass) .weight_operand = 1, .pack_layout = sgrad__pass_##pass##_packing, .pack = sgrad__pass_##pass##_pack

/* The CUDA functions of convolutions, for .cuda, .cuda_fused (…_with_cuda) and .gpu_workspace of struct sgrad_kernel. See
 * conv2d_graph_cuda.cu and, for the workspace, conv2d_cuda.cu. */
void sgrad__conv2d_forward_cuda(const struct sgrad_args *args);
int sgrad__conv2d_forward_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count);
void sgrad__conv2d_backward_data_cuda(const struct sgrad_args *args);
int sgrad__conv2d_backward_data_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count);
void sgrad__conv2d_backward_weight_cuda(const struct sgrad_args *args);
size_t sgrad__conv2d_workspace_cuda(const struct sgrad_args *args);

#endif
