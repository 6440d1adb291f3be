/* silu_cuda.cu: silu.c on CUDA devices. */
#include "codelets/cuda/activation.h"

struct silu {
    __device__ float value(float x) const { return x * sgrad__sigmoid(x); }
    __device__ float gradient(float x, float dy) const {
        const float s = sgrad__sigmoid(x);
        return dy * s * (1 + x * (1 - s));
    }
};

extern "C" void sgrad__silu_forward_cuda(const struct sgrad_args *args) { activate(args, silu()); }
extern "C" void sgrad__silu_backward_cuda(const struct sgrad_args *args) { activate_backward(args, silu()); }
