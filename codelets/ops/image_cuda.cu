/* image_cuda.cu: image.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/image.h"

/* One thread for each of n elements of y: x (N,H,W,C) or (N,D,H,W,C), y as x. */
template <typename X, typename T>
static __global__ void image(uint32_t n, int C, struct sgrad_image attrs, const X *x, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int c = i % C;
    y[i] = ((float)x[i] / attrs.full_scale - attrs.mean[c]) / attrs.deviation[c];
}

extern "C" void sgrad__image_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t C = shape->dim[shape->rank - 1], count = sgrad_shape_count(shape);
    sgrad__with_type(args->view[1].dtype, [&](auto type) {
        using T = decltype(type);
        const struct sgrad_image &attrs = *(const struct sgrad_image *)args->attrs;
        if (args->view[0].dtype == SGRAD_U16) sgrad__launch(image<uint16_t, T>, count, C, attrs, args->data[0], args->data[1]);
        else sgrad__launch(image<uint8_t, T>, count, C, attrs, args->data[0], args->data[1]);
    });
}
