/* layer_scale_cuda.cu: layer_scale.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

/* y = weight·x; ADD: y += weight·x */
template <typename P> static __global__ void scale(uint32_t n, int C, const P *x, const float *weight, P *y, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(x + i, v);
    for (int j = 0; j < P::size; j++) v[j] *= weight[i % C * P::size + j];
    sgrad__store(y + i, v, add);
}

/* dweight (C) = Σ x·dy */
template <typename P> struct weight_term {
    static constexpr int values = 1, size = P::size;
    const P *x, *dy;
    int C;
    __device__ void column(int) {}
    __device__ void add(int row, int c, double (*sum)[size]) const {
        float v[size], d[size];
        sgrad__load(x + (int64_t)row * C + c, v);
        sgrad__load(dy + (int64_t)row * C + c, d);
        for (int j = 0; j < size; j++) sum[0][j] += v[j] * d[j];
    }
};

/* x (N,…,C), weight (C), y (N,…,C) */
extern "C" void sgrad__layer_scale_forward_cuda(const struct sgrad_args *args) {
    const int64_t C = args->view[1].shape.dim[0], n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(args->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(scale<P>, n / P::size, (int)(C / P::size), args->data[0], args->data[1], args->data[2], false);
    });
}

/* x, dy (N,…,C), weight (C), dx (N,…,C) or absent, dweight (C) */
extern "C" void sgrad__layer_scale_backward_cuda(const struct sgrad_args *args) {
    const int64_t C = args->view[2].shape.dim[0], n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(args->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        const int columns = (int)(C / P::size);
        if (args->data[3])
            sgrad__launch(scale<P>, n / P::size, columns, args->data[1], args->data[2], args->data[3], sgrad_adds(args, 3));
        const weight_term<P> term = { (const P *)args->data[0], (const P *)args->data[1], columns };
        sgrad__sum_rows(term, n / C, columns, (float *)args->data[4]);
    });
}
