/* group_norm_cuda.cu: group_norm.c on CUDA devices. One thread block processes one group of one sample. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/group_norm.h"

enum { THREADS = 256 };

/* The data of a thread block: ROWS of C channels, of which WIDTH belong to its group. */
struct extent {
    int rows, C, width, groups;
    __device__ int64_t first(void) const {
        return (int64_t)(blockIdx.x / groups) * rows * C + (int64_t)(blockIdx.x % groups) * width;
    }
    __device__ int64_t count(void) const { return (int64_t)rows * width; }
    __device__ int64_t at(int64_t i) const { return i / width * C + i % width; }
    __device__ int channel(int64_t i) const { return (int)(blockIdx.x % groups) * width + (int)(i % width); }
};

/* Returns the sum over all threads of the block, computed in a fixed order, to every thread. All of them must call it. */
static __device__ inline double block_sum(double mine) {
    __shared__ double all[THREADS];
    const unsigned me = threadIdx.x;
    __syncthreads();
    all[me] = mine;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) all[me] += all[me + half];
    }
    __syncthreads();
    return all[0];
}

template <typename T>
static __global__ void forward(struct extent extent, float eps, bool relu, const T *x, const float *weight, const float *bias,
                               T *y, float *keep) {
    const int64_t first = extent.first(), count = extent.count();
    double sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) sum += (float)x[first + extent.at(i)];
    const float mean = (float)(block_sum(sum) / count);
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        const float d = (float)x[first + extent.at(i)] - mean;
        squares += d * d;
    }
    const float scale = (float)(1 / sqrt(block_sum(squares) / count + eps));
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        const int c = extent.channel(i);
        const float v = ((float)x[first + extent.at(i)] - mean) * (scale * weight[c]) + bias[c];
        y[first + extent.at(i)] = relu && v < 0 ? 0.0f : v;
    }
    if (threadIdx.x == 0) keep[2 * blockIdx.x] = mean, keep[2 * blockIdx.x + 1] = scale;
}

/* Returns dz: dy, or 0 where the ReLU is inactive. */
static __device__ inline float passed(float h, float dy, float weight, float bias, bool relu) {
    return !relu || h * weight + bias > 0 ? dy : 0;
}

template <typename T>
static __global__ void backward(struct extent extent, bool relu, const T *x, const T *dy, const float *weight, const float *bias,
                                const float *keep, T *dx, bool add) {
    const int64_t first = extent.first(), count = extent.count();
    const float mean = keep[2 * blockIdx.x], scale = keep[2 * blockIdx.x + 1];
    double sum = 0, product = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        const int c = extent.channel(i);
        const float h = ((float)x[first + extent.at(i)] - mean) * scale;
        const float g = weight[c] * passed(h, (float)dy[first + extent.at(i)], weight[c], bias[c], relu);
        sum += g, product += g * h;
    }
    const float mean_g = (float)(block_sum(sum) / count), mean_gh = (float)(block_sum(product) / count);
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        const int c = extent.channel(i);
        const float h = ((float)x[first + extent.at(i)] - mean) * scale;
        const float g = weight[c] * passed(h, (float)dy[first + extent.at(i)], weight[c], bias[c], relu);
        T *to = dx + first + extent.at(i);
        *to = (add ? (float)*to : 0) + scale * (g - mean_g - h * mean_gh);
    }
}

/* dbias (C) = Σ dz; with WEIGHTS dweight (C) = Σ dz·h */
template <typename P> struct parameter_term {
    static constexpr int values = 1, size = P::size;
    const P *x, *dy;
    const float *weight, *bias, *keep;
    int rows, C, width, groups;
    bool relu, weights;
    __device__ void column(int) {}
    __device__ void add(int row, int column, double (*sum)[size]) const {
        float v[size], d[size];
        sgrad__load(x + (int64_t)row * C + column, v);
        sgrad__load(dy + (int64_t)row * C + column, d);
        for (int j = 0; j < size; j++) {
            const int c = column * size + j;
            const float *own = keep + 2 * ((int64_t)(row / rows) * groups + c / width);
            const float h = (v[j] - own[0]) * own[1], dz = passed(h, d[j], weight[c], bias[c], relu);
            sum[0][j] += weights ? dz * h : dz;
        }
    }
};

static struct extent extent_of(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape;
    const int C = (int)x->dim[x->rank - 1], groups = ((const struct sgrad_group_norm *)args->attrs)->groups;
    return { (int)(sgrad_shape_count(x) / x->dim[0] / C), C, C / groups, groups };
}

/* Forward: x (N,…,C), weight, bias (C), y (N,…,C), saved (N,groups,2) */
extern "C" void sgrad__group_norm_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_group_norm *attrs = (const struct sgrad_group_norm *)args->attrs;
    const struct extent e = extent_of(args);
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        sgrad__launch_grid(forward<decltype(type)>, dim3((unsigned)(args->view[0].shape.dim[0] * e.groups)), dim3(THREADS), e,
                           attrs->eps, attrs->relu, args->data[0], args->data[1], args->data[2], args->data[3], args->data[4]);
    });
}

/* Backward: x, dy (N,…,C), weight, bias (C), saved (N,groups,2), dx (N,…,C) or absent, dweight, dbias (C) */
extern "C" void sgrad__group_norm_backward_cuda(const struct sgrad_args *args) {
    const bool relu = ((const struct sgrad_group_norm *)args->attrs)->relu;
    const struct extent e = extent_of(args);
    if (args->data[5])
        sgrad__with_type(args->view[0].dtype, [=](auto type) {
            sgrad__launch_grid(backward<decltype(type)>, dim3((unsigned)(args->view[0].shape.dim[0] * e.groups)), dim3(THREADS),
                               e, relu, args->data[0], args->data[1], args->data[2], args->data[3], args->data[4], args->data[5],
                               sgrad_adds(args, 5));
        });
    sgrad__with_pack(args->view[0].dtype, e.C, [=](auto pack) {
        using P = decltype(pack);
        const int columns = e.C / P::size;
        const int64_t rows = args->view[0].shape.dim[0] * e.rows;
        parameter_term<P> term = { (const P *)args->data[0], (const P *)args->data[1], (const float *)args->data[2],
                                   (const float *)args->data[3], (const float *)args->data[4], e.rows, columns, e.width, e.groups,
                                   relu, true };
        sgrad__sum_rows(term, rows, columns, (float *)args->data[6]);
        term.weights = false;
        sgrad__sum_rows(term, rows, columns, (float *)args->data[7]);
    });
}
