/* embedding_cuda.cu: embedding.c on CUDA devices. In backward, the thread block of the first row with a number adds all rows with
 * that number, in order. No two blocks write the same element, so results are bitwise reproducible. */
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/embedding.h"

#define THREADS 256
#define LIST    1024 /* rows with one number that are added at a time */

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

/* Writes to WHERE the indices in x of occurrences FIRST … FIRST + LIST - 1 of NUMBER, in order. Each thread scans its range of x,
 * BEGIN … END - 1; BEFORE is the number of occurrences before that range. */
static __device__ void find(const int *x, int number, int begin, int end, int before, int first, int *where) {
    for (int i = begin, n = before - first; i < end && n < LIST; i++)
        if (x[i] == number && n++ >= 0) where[n - 1] = i;
}

/* One block for each row of dy (rows,C); C in packs. The block of the first row with a number adds all rows with that number; the
 * others do nothing. */
template <typename P> static __global__ void backward(int rows, int C, int count, const int *x, const P *dy, float *dweight) {
    __shared__ int before[THREADS + 1], where[LIST];
    __shared__ bool any;
    const int row = blockIdx.x, number = x[row], me = threadIdx.x;
    if (number < 0 || number >= count) return;
    if (me == 0) any = false;
    __syncthreads();
    for (int i = me; i < row; i += THREADS)
        if (x[i] == number) any = true;
    __syncthreads();
    if (any) return;
    const int stretch = (int)sgrad__ceil(rows - row, THREADS), begin = min(rows, row + me * stretch),
              end = min(rows, begin + stretch);
    int own = 0;
    for (int i = begin; i < end; i++) own += x[i] == number;
    before[me + 1] = own;
    if (me == 0) before[0] = 0;
    for (int from = 1; from <= THREADS; from *= 2) {
        __syncthreads();
        const int more = me + 1 > from ? before[me + 1 - from] : 0;
        __syncthreads();
        before[me + 1] += more;
    }
    __syncthreads();
    const int all = before[THREADS];
    for (int first = 0; first < all; first += LIST) {
        const int there = min(LIST, all - first);
        __syncthreads();
        find(x, number, begin, end, before[me], first, where);
        __syncthreads();
        for (int c = me; c < C; c += THREADS) {
            float *to = dweight + ((int64_t)number * C + c) * P::size, v[P::size], sum[P::size] = {};
            _Pragma("unroll 4") for (int i = 0; i < there; i++) {
                sgrad__load(dy + (int64_t)where[i] * C + c, v);
                for (int j = 0; j < P::size; j++) sum[j] += v[j];
            }
            for (int j = 0; j < P::size; j++) to[j] = first ? to[j] + sum[j] : sum[j];
        }
    }
}

/* x (N,…), weight (V,C), y (N,…,C) */
extern "C" void sgrad__embedding_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_embedding *attrs = (const struct sgrad_embedding *)args->attrs;
    const int64_t n = sgrad_shape_count(&args->view[2].shape);
    sgrad__with_pack(args->view[2].dtype, attrs->features, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, attrs->features / P::size, attrs->count, args->data[0], args->data[1],
                      args->data[2]);
    });
}

/* x (N,…), dy (N,…,C), dweight (V,C) */
extern "C" void sgrad__embedding_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_embedding *attrs = (const struct sgrad_embedding *)args->attrs;
    const int64_t rows = sgrad_shape_count(&args->view[0].shape);
    sgrad__launch(clear, sgrad_shape_count(&args->view[2].shape), args->data[2]);
    sgrad__with_pack(args->view[1].dtype, attrs->features, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch_grid(backward<P>, dim3((unsigned)rows), dim3(THREADS), (int)rows, attrs->features / P::size, attrs->count,
                           args->data[0], args->data[1], args->data[2]);
    });
}
