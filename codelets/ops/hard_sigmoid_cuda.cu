/* hard_sigmoid_cuda.cu: hard_sigmoid.c on CUDA devices. */
#include "codelets/cuda/activation.h"

struct hard_sigmoid {
    __device__ float value(float x) const {
        const float up = x + 3;
        return (up < 0 ? 0 : up > 6 ? 6 : up) / 6;
    }
    __device__ float gradient(float y, float dy) const { return y <= 0 || y >= 1 ? 0 : dy / 6; }
};

extern "C" void sgrad__hard_sigmoid_forward_cuda(const struct sgrad_args *args) { activate(args, hard_sigmoid()); }
extern "C" void sgrad__hard_sigmoid_backward_cuda(const struct sgrad_args *args) { activate_backward(args, hard_sigmoid()); }
