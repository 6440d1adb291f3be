/* layer_norm_cuda.cu: layer_norm.c on CUDA devices, a warp per row: rows.h. Backward reads x and dy twice, in two kernels:
 *
 *     x, dy, a warp per row    ──> dx                (absent if it is not needed)
 *     x, dy, down the columns  ──> dweight, dbias    (sums down the columns, cuda.h) */
#include "codelets/cuda/rows.h"
#include "codelets/ops/layer_norm.h"

/* Rows have PACKS packs. */
template <typename P, int N>
static __global__ void forward(uint32_t rows, int packs, float eps, const P *x, const float *weight, const float *bias, P *y,
                               float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const int C = packs * P::size;
    const part<P, N> of_x(x + (int64_t)row * packs, packs);
    float sum = 0, squares = 0;
    each<N>(packs, [&](int k, int) {
        float v[P::size];
        of_x.get(k, v);
        for (float e : v) sum += e;
    });
    const float mean = sgrad__warp_sum(sum) / C;
    each<N>(packs, [&](int k, int) {
        float v[P::size];
        of_x.get(k, v);
        for (float e : v) squares += (e - mean) * (e - mean);
    });
    const float scale = 1 / sqrtf(sgrad__warp_sum(squares) / C + eps);
    each<N>(packs, [&](int k, int i) {
        float v[P::size], w[P::size], b[P::size];
        of_x.get(k, v);
        load_floats<P>(weight, i, w);
        load_floats<P>(bias, i, b);
        for (int j = 0; j < P::size; j++) v[j] = (v[j] - mean) * scale * w[j] + b[j];
        sgrad__store(y + (int64_t)row * packs + i, v);
    });
    if (threadIdx.x == 0) keep[2 * row] = mean, keep[2 * row + 1] = scale;
}

template <typename P, int N>
static __global__ void backward(uint32_t rows, int packs, const P *x, const P *dy, const float *weight, const float *keep, P *dx,
                                bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const int C = packs * P::size;
    const part<P, N> of_x(x + (int64_t)row * packs, packs), of_dy(dy + (int64_t)row * packs, packs);
    const float mean = keep[2 * row], scale = keep[2 * row + 1];
    float sum = 0, product = 0;
    each<N>(packs, [&](int k, int i) {
        float v[P::size], d[P::size], w[P::size];
        of_x.get(k, v), of_dy.get(k, d);
        load_floats<P>(weight, i, w);
        for (int j = 0; j < P::size; j++) sum += w[j] * d[j], product += w[j] * d[j] * (v[j] - mean) * scale;
    });
    const float first = sgrad__warp_sum(sum) / C, second = sgrad__warp_sum(product) / C;
    each<N>(packs, [&](int k, int i) {
        float v[P::size], d[P::size], w[P::size];
        of_x.get(k, v), of_dy.get(k, d);
        load_floats<P>(weight, i, w);
        for (int j = 0; j < P::size; j++) d[j] = scale * (w[j] * d[j] - first - (v[j] - mean) * scale * second);
        sgrad__store(dx + (int64_t)row * packs + i, d, add);
    });
}

/* dweight (C) = Σ dy·(x - mean)·scale, dbias (C) = Σ dy */
template <typename P> struct parameter_term {
    static constexpr int values = 2, size = P::size;
    const P *x, *dy;
    const float *keep;
    int C;
    __device__ void column(int) {}
    __device__ void add(int row, int c, double (*sum)[size]) const {
        float v[size], d[size];
        sgrad__load(x + (int64_t)row * C + c, v);
        sgrad__load(dy + (int64_t)row * C + c, d);
        for (int j = 0; j < size; j++) sum[0][j] += d[j] * (v[j] - keep[2 * row]) * keep[2 * row + 1], sum[1][j] += d[j];
    }
};

static int features_of(const struct sgrad_view *view) { return (int)view->shape.dim[view->shape.rank - 1]; }

/* x (N,…,C), weight, bias (C), y (N,…,C), saved (N,rows,2) */
extern "C" void sgrad__layer_norm_forward_cuda(const struct sgrad_args *args) {
    const int C = features_of(&args->view[0]);
    const float eps = ((const struct sgrad_layer_norm *)args->attrs)->eps;
    const int64_t rows = sgrad_shape_count(&args->view[0].shape) / C;
    with_rows(args->view[0].dtype, C, [=](auto pack, auto held) {
        sgrad__launch_warps(forward<decltype(pack), held.value>, rows, (int)(C / pack.size), eps, args->data[0], args->data[1],
                            args->data[2], args->data[3], args->data[4]);
    });
}

/* x, dy (N,…,C), weight (C), saved (N,rows,2), dx (N,…,C) or absent, dweight, dbias (C) */
extern "C" void sgrad__layer_norm_backward_cuda(const struct sgrad_args *args) {
    const int C = features_of(&args->view[0]);
    const int64_t rows = sgrad_shape_count(&args->view[0].shape) / C;
    if (args->data[4])
        with_rows(args->view[0].dtype, C, [=](auto pack, auto held) {
            sgrad__launch_warps(backward<decltype(pack), held.value>, rows, (int)(C / pack.size), args->data[0], args->data[1],
                                args->data[2], args->data[3], args->data[4], sgrad_adds(args, 4));
        });
    sgrad__with_wide_pack(args->view[0].dtype, C, [=](auto pack) {
        using P = decltype(pack);
        const int columns = C / P::size;
        const parameter_term<P> term = { (const P *)args->data[0], (const P *)args->data[1], (const float *)args->data[3],
                                         columns };
        sgrad__sum_rows(term, rows, columns, sgrad__two_tensors<float>{ (float *)args->data[5], (float *)args->data[6], C });
    });
}
