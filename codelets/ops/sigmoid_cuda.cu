/* sigmoid_cuda.cu: sigmoid.c on CUDA devices. */
#include "codelets/cuda/activation.h"

struct sigmoid {
    __device__ float value(float x) const { return sgrad__sigmoid(x); }
    __device__ float gradient(float y, float dy) const { return dy * y * (1 - y); }
};

extern "C" void sgrad__sigmoid_forward_cuda(const struct sgrad_args *args) { activate(args, sigmoid()); }
extern "C" void sgrad__sigmoid_backward_cuda(const struct sgrad_args *args) { activate_backward(args, sigmoid()); }
