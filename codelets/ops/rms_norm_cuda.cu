/* rms_norm_cuda.cu: rms_norm.c on CUDA devices, a warp per head of a row: rows.h. Backward reads x and dy twice, in two kernels:
 *
 *     x, dy, a warp per head   ──> dx         (absent if it is not needed)
 *     x, dy, down the columns  ──> dweight    (sums down the columns, cuda.h) */
#include "codelets/cuda/rows.h"
#include "codelets/ops/rms_norm.h"

/* Rows have PACKS packs. */
template <typename P, int N>
static __global__ void forward(uint32_t rows, int packs, float eps, const P *x, const float *weight, P *y, float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const part<P, N> of_x(x + (int64_t)row * packs, packs);
    float squares = 0;
    each<N>(packs, [&](int k, int) {
        float v[P::size];
        of_x.get(k, v);
        for (float e : v) squares += e * e;
    });
    const float scale = 1 / sqrtf(sgrad__warp_sum(squares) / (packs * P::size) + eps);
    each<N>(packs, [&](int k, int i) {
        float v[P::size], w[P::size];
        of_x.get(k, v);
        load_floats<P>(weight, i, w);
        for (int j = 0; j < P::size; j++) v[j] *= scale * w[j];
        sgrad__store(y + (int64_t)row * packs + i, v);
    });
    if (threadIdx.x == 0) keep[row] = scale;
}

template <typename P, int N>
static __global__ void backward(uint32_t rows, int packs, const P *x, const P *dy, const float *weight, const float *keep, P *dx,
                                bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const part<P, N> of_x(x + (int64_t)row * packs, packs), of_dy(dy + (int64_t)row * packs, packs);
    const float scale = keep[row];
    float product = 0;
    each<N>(packs, [&](int k, int i) {
        float v[P::size], d[P::size], w[P::size];
        of_x.get(k, v), of_dy.get(k, d);
        load_floats<P>(weight, i, w);
        for (int j = 0; j < P::size; j++) product += w[j] * d[j] * v[j] * scale;
    });
    const float slope = sgrad__warp_sum(product) / (packs * P::size) * scale;
    each<N>(packs, [&](int k, int i) {
        float v[P::size], d[P::size], w[P::size];
        of_x.get(k, v), of_dy.get(k, d);
        load_floats<P>(weight, i, w);
        for (int j = 0; j < P::size; j++) d[j] = scale * (w[j] * d[j] - v[j] * slope);
        sgrad__store(dx + (int64_t)row * packs + i, d, add);
    });
}

/* dweight (D) = Σ dy·x·scale */
template <typename P> struct weight_term {
    static constexpr int values = 1, size = P::size;
    const P *x, *dy;
    const float *keep;
    int columns;
    __device__ void column(int) {}
    __device__ void add(int row, int c, double (*sum)[size]) const {
        float v[size], d[size];
        sgrad__load(x + (int64_t)row * columns + c, v);
        sgrad__load(dy + (int64_t)row * columns + c, d);
        for (int j = 0; j < size; j++) sum[0][j] += d[j] * v[j] * keep[row];
    }
};

static const struct sgrad_rms_norm *attrs_of(const struct sgrad_args *args) { return (const struct sgrad_rms_norm *)args->attrs; }
static int features_of(const struct sgrad_args *args) {
    const struct sgrad_shape &x = args->view[0].shape;
    return (int)x.dim[x.rank - 1] / attrs_of(args)->heads;
}

/* x (N,…,C), weight (D), y (N,…,C), saved (N,rows·heads) */
extern "C" void sgrad__rms_norm_forward_cuda(const struct sgrad_args *args) {
    const int D = features_of(args);
    const float eps = attrs_of(args)->eps;
    const int64_t rows = sgrad_shape_count(&args->view[0].shape) / D;
    with_rows(args->view[0].dtype, D, [=](auto pack, auto held) {
        sgrad__launch_warps(forward<decltype(pack), held.value>, rows, (int)(D / pack.size), eps, args->data[0], args->data[1],
                            args->data[2], args->data[3]);
    });
}

/* x, dy (N,…,C), weight (D), saved (N,rows·heads), dx (N,…,C) or absent, dweight (D) */
extern "C" void sgrad__rms_norm_backward_cuda(const struct sgrad_args *args) {
    const int D = features_of(args);
    const int64_t rows = sgrad_shape_count(&args->view[0].shape) / D;
    if (args->data[4])
        with_rows(args->view[0].dtype, D, [=](auto pack, auto held) {
            sgrad__launch_warps(backward<decltype(pack), held.value>, rows, (int)(D / pack.size), args->data[0], args->data[1],
                                args->data[2], args->data[3], args->data[4], sgrad_adds(args, 4));
        });
    sgrad__with_wide_pack(args->view[0].dtype, D, [=](auto pack) {
        using P = decltype(pack);
        const int columns = D / P::size;
        const weight_term<P> term = { (const P *)args->data[0], (const P *)args->data[1], (const float *)args->data[3], columns };
        sgrad__sum_rows(term, rows, columns, (float *)args->data[5]);
    });
}
