/* hard_swish_cuda.cu: hard_swish.c on CUDA devices. */
#include "codelets/cuda/activation.h"

struct hard_swish {
    __device__ float value(float x) const {
        const float up = x + 3;
        return x * (up < 0 ? 0 : up > 6 ? 6 : up) / 6;
    }
    __device__ float gradient(float x, float dy) const { return x < -3 ? 0 : x > 3 ? dy : dy * (x / 3 + 0.5f); }
};

extern "C" void sgrad__hard_swish_forward_cuda(const struct sgrad_args *args) { activate(args, hard_swish()); }
extern "C" void sgrad__hard_swish_backward_cuda(const struct sgrad_args *args) { activate_backward(args, hard_swish()); }
