/* relu_cuda.cu: relu.c on CUDA devices. */
#include "codelets/cuda/activation.h"

struct relu {
    __device__ float value(float x) const { return x < 0 ? 0 : x; } /* a NaN remains a NaN */
    __device__ float gradient(float y, float dy) const { return y <= 0 ? 0 : dy; }
};

extern "C" void sgrad__relu_forward_cuda(const struct sgrad_args *args) { activate(args, relu()); }
extern "C" void sgrad__relu_backward_cuda(const struct sgrad_args *args) { activate_backward(args, relu()); }
