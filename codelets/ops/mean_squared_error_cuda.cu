/* mean_squared_error_cuda.cu: mean_squared_error.c on CUDA devices. */
#include <cmath>

#include "codelets/cuda/cuda.h"

/* Every element is a row of one column, with three sums: squared differences, absolute differences, number of elements. */
template <typename T> struct error_term {
    static constexpr int values = 3, size = 1;
    const T *y;
    const float *target;
    __device__ void column(int) {}
    __device__ void add(int row, int, double (*sum)[size]) const {
        const double d = (double)(float)y[row] - target[row];
        sum[0][0] += d * d;
        sum[1][0] += fabs(d);
        sum[2][0] += 1;
    }
};

template <typename T>
static __global__ void backward(uint32_t n, const T *y, const float *target, T *dy, float scale, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    dy[i] = (add ? (float)dy[i] : 0) + ((float)y[i] - target[i]) * scale;
}

/* y, target, stat (3) */
extern "C" void sgrad__mean_squared_error_forward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        using T = decltype(type);
        sgrad__sum_rows(error_term<T>{ (const T *)args->data[0], (const float *)args->data[1] }, n, 1, (double *)args->data[2]);
    });
}

/* y, target, dy */
extern "C" void sgrad__mean_squared_error_backward_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape), per_sample = n / args->view[0].shape.dim[0];
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch(backward<decltype(type)>, n, args->data[0], args->data[1], args->data[2],
                      2.0f / (float)(args->batch->averaged * per_sample), sgrad_adds(args, 2));
    });
}
