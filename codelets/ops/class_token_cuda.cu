/* class_token_cuda.cu: class_token.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

/* One thread for each pack of y (N,1+T,C); ROW and SAMPLE are the packs of a row of y and of a sample. */
template <typename P>
static __global__ void forward(uint32_t n, uint32_t row, uint32_t sample, const P *x, const float *weight, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const uint32_t s = i / sample, at = i % sample;
    float v[P::size];
    if (at >= row) sgrad__load(x + (int64_t)s * (sample - row) + at - row, v);
    for (int j = 0; j < P::size && at < row; j++) v[j] = weight[at * P::size + j];
    sgrad__store(y + i, v);
}

/* One thread for each pack of dx (N,T,C). */
template <typename P>
static __global__ void backward_data(uint32_t n, uint32_t row, uint32_t sample, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread(), rest = sample - row;
    if (i >= n) return;
    float v[P::size];
    sgrad__load(dy + (int64_t)(i / rest) * sample + row + i % rest, v);
    sgrad__store(dx + i, v, add);
}

/* One thread for each pack of dweight (C). */
template <typename P>
static __global__ void backward_weight(uint32_t n, int samples, uint32_t sample, const P *dy, float *dweight) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size], sum[P::size] = {};
    for (int s = 0; s < samples; s++) {
        sgrad__load(dy + (int64_t)s * sample + i, v);
        for (int j = 0; j < P::size; j++) sum[j] += v[j];
    }
    for (int j = 0; j < P::size; j++) dweight[i * P::size + j] = sum[j];
}

/* x (N,T,C), weight (1,1,C), y (N,1+T,C) */
extern "C" void sgrad__class_token_forward_cuda(const struct sgrad_args *args) {
    const int64_t *dim = args->view[2].shape.dim;
    sgrad__with_pack(args->view[0].dtype, dim[2], [=](auto pack) {
        using P = decltype(pack);
        const uint32_t row = (uint32_t)(dim[2] / P::size), sample = (uint32_t)dim[1] * row;
        sgrad__launch(forward<P>, dim[0] * sample, row, sample, args->data[0], args->data[1], args->data[2]);
    });
}

/* dy (N,1+T,C), dx (N,T,C) or absent, dweight (1,1,C) */
extern "C" void sgrad__class_token_backward_cuda(const struct sgrad_args *args) {
    const int64_t *dim = args->view[0].shape.dim;
    sgrad__with_pack(args->view[0].dtype, dim[2], [=](auto pack) {
        using P = decltype(pack);
        const uint32_t row = (uint32_t)(dim[2] / P::size), sample = (uint32_t)dim[1] * row;
        if (args->data[1])
            sgrad__launch(backward_data<P>, dim[0] * (sample - row), row, sample, args->data[0], args->data[1],
                          sgrad_adds(args, 1));
        sgrad__launch(backward_weight<P>, row, (int)dim[0], sample, args->data[0], args->data[2]);
    });
}
