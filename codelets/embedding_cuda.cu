/* embedding_cuda.cu: embedding.c on CUDA devices. Backward, the block of a number's first row adds all rows of that number, in
 * order: no two write the same, and the bits are the same each time. */
#include <cmath>

#include "codelets/cuda.h"
#include "codelets/ops/embedding.h"

#define THREADS 256

/* One thread for each pack of y (rows,C); C in packs. */
template <typename P> static __global__ void forward(uint32_t n, int C, int count, const int *x, const float *weight, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int number = x[i / C];
    float v[P::size];
    for (int j = 0; j < P::size; j++)
        v[j] = number >= 0 && number < count ? weight[((int64_t)number * C + i % C) * P::size + j] : NAN;
    sgrad__store(y + i, v);
}

static __global__ void clear(uint32_t n, float *dweight) {
    const uint32_t i = sgrad__thread();
    if (i < n) dweight[i] = 0;
}

/* A block for each row of dy (rows,C). */
template <typename T> static __global__ void backward(int rows, int C, int count, const int *x, const T *dy, float *dweight) {
    __shared__ bool is[THREADS];
    __shared__ bool any;
    const int row = blockIdx.x, number = x[row], me = threadIdx.x;
    if (me == 0) any = false;
    __syncthreads();
    for (int i = me; i < row; i += THREADS)
        if (x[i] == number) any = true;
    __syncthreads();
    if (any || number < 0 || number >= count) return;
    for (int first = 0; first < C; first += THREADS) {
        float sum = 0;
        for (int from = row / THREADS * THREADS; from < rows; from += THREADS) {
            __syncthreads();
            if (me == 0) any = false;
            is[me] = from + me >= row && from + me < rows && x[from + me] == number;
            __syncthreads();
            if (is[me]) any = true;
            __syncthreads();
            for (int i = 0; any && i < THREADS; i++)
                if (is[i] && first + me < C) sum += (float)dy[(int64_t)(from + i) * C + first + me];
        }
        if (first + me < C) dweight[(int64_t)number * C + first + me] = sum;
    }
}

/* x (N,…), weight (V,C), y (N,…,C) */
extern "C" void sgrad__embedding_forward_cuda(const struct sgrad_args *a) {
    const struct sgrad_embedding *attrs = (const struct sgrad_embedding *)a->attrs;
    const int64_t n = sgrad_shape_count(&a->view[2].shape);
    sgrad__with_pack(a->view[2].dtype, attrs->features, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, attrs->features / P::size, attrs->count, a->data[0], a->data[1], a->data[2]);
    });
}

/* x (N,…), dy (N,…,C), dweight (V,C) */
extern "C" void sgrad__embedding_backward_cuda(const struct sgrad_args *a) {
    const struct sgrad_embedding *attrs = (const struct sgrad_embedding *)a->attrs;
    const int64_t rows = sgrad_shape_count(&a->view[0].shape);
    sgrad__launch(clear, sgrad_shape_count(&a->view[2].shape), a->data[2]);
    sgrad__with_type(a->view[1].dtype, [=](auto type) {
        sgrad__launch_grid(backward<decltype(type)>, dim3((unsigned)rows), dim3(THREADS), (int)rows, attrs->features,
                           attrs->count, a->data[0], a->data[1], a->data[2]);
    });
}
