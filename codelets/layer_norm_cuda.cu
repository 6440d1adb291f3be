/* layer_norm_cuda.cu: layer_norm.c on CUDA devices. A warp looks after a row. */
#include "codelets/cuda.h"
#include "codelets/ops/layer_norm.h"

template <typename T>
static __global__ void forward(uint32_t rows, int C, float eps, const T *x, const float *weight, const float *bias, T *y,
                               float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    x += (int64_t)row * C, y += (int64_t)row * C;
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < C; c += 32) sum += (float)x[c];
    const float mean = sgrad__warp_sum(sum) / C;
    for (int c = threadIdx.x; c < C; c += 32) squares += ((float)x[c] - mean) * ((float)x[c] - mean);
    const float scale = 1 / sqrtf(sgrad__warp_sum(squares) / C + eps);
    for (int c = threadIdx.x; c < C; c += 32) y[c] = ((float)x[c] - mean) * scale * weight[c] + bias[c];
    if (threadIdx.x == 0) keep[2 * row] = mean, keep[2 * row + 1] = scale;
}

template <typename T>
static __global__ void backward(uint32_t rows, int C, const T *x, const T *dy, const float *weight, const float *keep, T *dx,
                                bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    x += (int64_t)row * C, dy += (int64_t)row * C, dx += (int64_t)row * C;
    const float mean = keep[2 * row], scale = keep[2 * row + 1];
    float sum = 0, product = 0;
    for (int c = threadIdx.x; c < C; c += 32) {
        const float g = weight[c] * (float)dy[c];
        sum += g, product += g * ((float)x[c] - mean) * scale;
    }
    const float first = sgrad__warp_sum(sum) / C, second = sgrad__warp_sum(product) / C;
    for (int c = threadIdx.x; c < C; c += 32) {
        const float d = scale * (weight[c] * (float)dy[c] - first - ((float)x[c] - mean) * scale * second);
        dx[c] = (add ? (float)dx[c] : 0) + d;
    }
}

/* dweight (C) = Σ dy·(x - mean)·scale */
template <typename P> struct weight_term {
    static constexpr int values = 1, size = P::size;
    const P *x, *dy;
    const float *keep;
    int C;
    __device__ void column(int) {}
    __device__ void add(int row, int c, double (*sum)[size]) const {
        float v[size], d[size];
        sgrad__load(x + (int64_t)row * C + c, v);
        sgrad__load(dy + (int64_t)row * C + c, d);
        for (int j = 0; j < size; j++) sum[0][j] += d[j] * (v[j] - keep[2 * row]) * keep[2 * row + 1];
    }
};

static int features_of(const struct sgrad_view *x) { return (int)x->shape.dim[x->shape.rank - 1]; }

/* x (N,…,C), weight, bias (C), y (N,…,C), keep (N,rows,2) */
extern "C" void sgrad__layer_norm_forward_cuda(const struct sgrad_args *a) {
    const int C = features_of(&a->view[0]);
    const float eps = ((const struct sgrad_layer_norm *)a->attrs)->eps;
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        sgrad__launch_warps(forward<decltype(type)>, sgrad_shape_count(&a->view[0].shape) / C, C, eps, a->data[0], a->data[1],
                            a->data[2], a->data[3], a->data[4]);
    });
}

/* x, dy (N,…,C), weight (C), keep (N,rows,2), dx (N,…,C) or absent, dweight, dbias (C) */
extern "C" void sgrad__layer_norm_backward_cuda(const struct sgrad_args *a) {
    const int C = features_of(&a->view[0]);
    const int64_t rows = sgrad_shape_count(&a->view[0].shape) / C;
    if (a->data[4])
        sgrad__with_type(a->view[0].dtype, [=](auto type) {
            sgrad__launch_warps(backward<decltype(type)>, rows, C, a->data[0], a->data[1], a->data[2], a->data[3], a->data[4],
                                sgrad_adds(a, 4));
        });
    sgrad__with_pack(a->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        const int columns = C / P::size;
        const weight_term<P> term = { (const P *)a->data[0], (const P *)a->data[1], (const float *)a->data[3], columns };
        sgrad__sum_rows(term, rows, columns, (float *)a->data[5]);
    });
    sgrad__sum_bias(&a->view[1], a->data[1], (float *)a->data[6]);
}
