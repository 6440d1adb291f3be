/* bias_cuda.cu: bias.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

template <typename P> static __global__ void forward(uint32_t n, int C, const P *x, const float *bias, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(x + i, v);
    for (int j = 0; j < P::size; j++) v[j] += bias[i % C * P::size + j];
    sgrad__store(y + i, v);
}

/* x (N,…,C), bias (C), y (N,…,C) */
extern "C" void sgrad__bias_forward_cuda(const struct sgrad_args *args) {
    const int64_t C = args->view[1].shape.dim[0], n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(args->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, (int)(C / P::size), args->data[0], args->data[1], args->data[2]);
    });
}

/* dy (N,…,C), dx (N,…,C) or absent, dbias (C) */
extern "C" void sgrad__bias_backward_cuda(const struct sgrad_args *args) {
    if (args->data[1]) sgrad__move(&args->view[0], args->data[0], args->data[1], sgrad_adds(args, 1));
    sgrad__sum_bias(&args->view[0], args->data[0], (float *)args->data[2]);
}
