/* clip_cuda.cu: clip.c on CUDA devices. */
#include "codelets/cuda/activation.h"
#include "codelets/ops/clip.h"

struct clip {
    float low, high;
    __device__ float value(float x) const { return x < low ? low : x > high ? high : x; }
    __device__ float gradient(float y, float dy) const { return y <= low || y >= high ? 0 : dy; }
};

/* The bounds are rounded as y is, so that backward recognises them. */
static float as_y(const struct sgrad_args *args, float bound) {
    return args->view[0].dtype == SGRAD_BF16 ? sgrad_bf16_to_f32(sgrad_f32_to_bf16(bound)) : bound;
}

static struct clip of(const struct sgrad_args *args) {
    const struct sgrad_clip *attrs = (const struct sgrad_clip *)args->attrs;
    return { as_y(args, attrs->low), as_y(args, attrs->high) };
}

extern "C" void sgrad__clip_forward_cuda(const struct sgrad_args *args) { activate(args, of(args)); }
extern "C" void sgrad__clip_backward_cuda(const struct sgrad_args *args) { activate_backward(args, of(args)); }
