/* flatten_cuda.cu: flatten.c on CUDA devices. Every sample is a matrix, pixels by channels, that is transposed. A thread block
 * transposes a tile of 32 by 32 in on-chip memory (__shared__), so that both reads and writes are along rows:
 *
 *     x, one sample      y, one sample
 *     a0 b0 c0           a0 a1 a2 a3
 *     a1 b1 c1    ->     b0 b1 b2 b3
 *     a2 b2 c2           c0 c1 c2 c3
 *     a3 b3 c3
 */
#include "codelets/cuda/cuda.h"

#define SIDE 32

/* Transposes x (N,rows,columns) to y (N,columns,rows). */
template <typename T> static __global__ void transpose(int rows, int columns, const T *x, T *y, bool add) {
    __shared__ float tile[SIDE][SIDE + 1]; /* the extra column avoids bank conflicts */
    const unsigned across = (columns + SIDE - 1) / SIDE;    /* tiles in a row of a sample */
    const int row = blockIdx.y * SIDE, column = blockIdx.x % across * SIDE;
    const int64_t sample = (int64_t)(blockIdx.x / across) * rows * columns;
    for (int i = threadIdx.y; i < SIDE; i += blockDim.y)
        if (row + i < rows && column + threadIdx.x < columns)
            tile[i][threadIdx.x] = x[sample + (int64_t)(row + i) * columns + column + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE; i += blockDim.y)
        if (column + i < columns && row + threadIdx.x < rows) {
            T *to = y + sample + (int64_t)(column + i) * rows + row + threadIdx.x;
            *to = add ? (float)*to + tile[threadIdx.x][i] : tile[threadIdx.x][i];
        }
}

static void submit(const struct sgrad_args *args, int64_t samples, int64_t rows, int64_t columns, bool add) {
    const dim3 grid((unsigned)(samples * sgrad__ceil(columns, SIDE)), (unsigned)sgrad__ceil(rows, SIDE)), block(SIDE, 8);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(transpose<decltype(type)>, grid, block, rows, columns, args->data[0], args->data[1], add);
    });
}

/* Forward: x (N,H,W,C), y (N,C·H·W) */
extern "C" void sgrad__flatten_forward_cuda(const struct sgrad_args *args) {
    const int64_t *dim = args->view[0].shape.dim;
    submit(args, dim[0], dim[1] * dim[2], dim[3], false);
}

/* Backward: dy (N,C·H·W), dx (N,H,W,C) */
extern "C" void sgrad__flatten_backward_cuda(const struct sgrad_args *args) {
    const int64_t *dim = args->view[1].shape.dim;
    submit(args, dim[0], dim[3], dim[1] * dim[2], sgrad_adds(args, 1));
}
