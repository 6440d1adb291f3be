/* gpu_workspace.c: the workspace that convolutions and linear layers need on a GPU. */
#include "config.h"
#include "codelets/cpu/passes.h"

size_t sgrad__linear_workspace_cuda(const struct sgrad_args *args);

size_t sgrad__pass_gpu_workspace(const struct sgrad_args *args) {
#ifdef SGRAD_HAVE_CUDA
    const bool matrix = args->view[1].shape.rank == 2 || args->view[2].shape.rank == 2;      /* a weight or its gradient */
    return matrix ? sgrad__linear_workspace_cuda(args) : sgrad__conv2d_workspace_cuda(args);
#else
    return (void)args, 0;
#endif
}
