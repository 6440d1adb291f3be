/* leaky_relu_cuda.cu: leaky_relu.c on CUDA devices. */
#include "codelets/cuda/activation.h"
#include "codelets/ops/leaky_relu.h"

struct leaky_relu {
    float slope;
    __device__ float value(float x) const { return x > 0 ? x : slope * x; }
    __device__ float gradient(float y, float dy) const { return y > 0 ? dy : slope * dy; }
};

static struct leaky_relu of(const struct sgrad_args *args) { return { ((const struct sgrad_leaky_relu *)args->attrs)->slope }; }

extern "C" void sgrad__leaky_relu_forward_cuda(const struct sgrad_args *args) { activate(args, of(args)); }
extern "C" void sgrad__leaky_relu_backward_cuda(const struct sgrad_args *args) { activate_backward(args, of(args)); }
