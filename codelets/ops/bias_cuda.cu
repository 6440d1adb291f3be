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
extern "C" void sgrad__bias_forward_cuda(const struct sgrad_args *a) {
    const int64_t C = a->view[1].shape.dim[0], n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_pack(a->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, (int)(C / P::size), a->data[0], a->data[1], a->data[2]);
    });
}

/* dy (N,…,C), dx (N,…,C) or absent, dbias (C) */
extern "C" void sgrad__bias_backward_cuda(const struct sgrad_args *a) {
    if (a->data[1]) sgrad__move(&a->view[0], a->data[0], a->data[1], sgrad_adds(a, 1));
    sgrad__sum_bias(&a->view[0], a->data[0], (float *)a->data[2]);
}
