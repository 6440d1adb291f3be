/* batchnorm_cuda.cu: batchnorm.c on CUDA devices. The passes are bound by memory: each reads each of its tensors once, and what
 * depends on the channel alone is computed once a thread. */
#include "codelets/cuda.h"
#include "codelets/ops/batchnorm.h"

/* x̂ = (x - mean) · inverse + rest of one channel: the mean in float, and what rounding took from it. */
struct channel {
    float mean, inverse, rest;
};
static __device__ inline struct channel channel_of(double mean, double variance, double eps) {
    const float rounded = (float)mean;
    const double inverse = 1 / sqrt(fmax(variance, 0.0) + eps);
    return { rounded, (float)inverse, (float)((rounded - mean) * inverse) };
}
static __device__ inline float normalized(const struct channel &s, float x) { return (x - s.mean) * s.inverse + s.rest; }

/* What every pass of one batch norm is told. */
struct shape {
    int rows, columns; /* of packs */
    double count, eps; /* elements of a channel in the group */
    bool relu;
};
/* From [Σx, Σx²] (2C). */
static __device__ inline struct channel channel_of_sums(const struct shape &s, const double *sum, int c, int C) {
    const double mean = sum[c] / s.count;
    return channel_of(mean, sum[C + c] / s.count - mean * mean, s.eps);
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

template <typename P> struct stats_term {
    static constexpr int values = 2, size = P::size;
    const P *x;
    int columns;
    __device__ void column(int) {}
    __device__ void add(int row, int column, double (*sum)[size]) const {
        float v[size];
        sgrad__load(x + (int64_t)row * columns + column, v);
        for (int j = 0; j < size; j++) {
            sum[0][j] += v[j];
            sum[1][j] += (double)v[j] * v[j];
        }
    }
};

/* dz = dy behind the mask y > 0 */
template <typename P>
static __device__ inline void load_dz(const struct shape &s, const P *dy, const P *y, int64_t i, float *dz) {
    float v[P::size];
    sgrad__load(dy + i, dz);
    if (!s.relu) return;
    sgrad__load(y + i, v);
    for (int j = 0; j < P::size; j++) dz[j] = v[j] <= 0 ? 0 : dz[j];
}

template <typename P> struct gradient_term {
    static constexpr int values = 2, size = P::size;
    struct shape shape;
    const P *x, *dy, *y;
    const double *sum0;
    struct channel own[size];
    __device__ void column(int column) {
        for (int j = 0; j < size; j++) own[j] = channel_of_sums(shape, sum0, column * size + j, shape.columns * size);
    }
    __device__ void add(int row, int column, double (*sum)[size]) const {
        const int64_t i = (int64_t)row * shape.columns + column;
        float v[size], dz[size];
        sgrad__load(x + i, v);
        load_dz(shape, dy, y, i, dz);
        for (int j = 0; j < size; j++) {
            sum[0][j] += dz[j];
            sum[1][j] += (double)dz[j] * normalized(own[j], v[j]);
        }
    }
};

/* ---- passes over the elements ------------------------------------------------------------------------------------ */

/* Statistics from SUM (training), or from MEAN and VARIANCE, the running ones; r may be NULL. */
template <typename P>
static __global__ void apply(struct shape s, const double *sum, const float *mean, const float *variance, const P *x, const P *r,
                             const float *weight, const float *bias, P *y) {
    constexpr int size = P::size;
    const int column = sgrad__column(), C = s.columns * size;
    if (column >= s.columns) return;
    struct channel own[size];
    float scale[size], shift[size];
    for (int j = 0; j < size; j++) {
        const int c = column * size + j;
        own[j] = sum ? channel_of_sums(s, sum, c, C) : channel_of(mean[c], variance[c], s.eps);
        scale[j] = own[j].inverse * weight[c];
        shift[j] = own[j].rest * weight[c] + bias[c];
    }
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < s.rows; row += gridDim.y * blockDim.y) {
        const int64_t i = (int64_t)row * s.columns + column;
        float v[size], add[size] = {};
        sgrad__load(x + i, v);
        if (r) sgrad__load(r + i, add);
        for (int j = 0; j < size; j++) {
            v[j] = (v[j] - own[j].mean) * scale[j] + shift[j] + add[j];
            if (s.relu && v[j] < 0) v[j] = 0;
        }
        sgrad__store(y + i, v);
    }
}

/* dx = weight / deviation · (dz - Σdz / count - x̂ · Σdz·x̂ / count), dr = dz; dx or dr is NULL where nobody wants it */
template <typename P>
static __global__ void data(struct shape s, const P *x, const P *dy, const P *y, const float *weight, const double *sum0,
                            const double *sum1, P *dx, P *dr, bool add_x, bool add_r) {
    constexpr int size = P::size;
    const int column = sgrad__column(), C = s.columns * size;
    if (column >= s.columns) return;
    struct channel own[size];
    float scale[size], mean_dz[size], mean_dzx[size];
    for (int j = 0; j < size; j++) {
        const int c = column * size + j;
        own[j] = channel_of_sums(s, sum0, c, C);
        scale[j] = own[j].inverse * weight[c];
        mean_dz[j] = (float)(sum1[c] / s.count);
        mean_dzx[j] = (float)(sum1[C + c] / s.count);
    }
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < s.rows; row += gridDim.y * blockDim.y) {
        const int64_t i = (int64_t)row * s.columns + column;
        float v[size], dz[size];
        load_dz(s, dy, y, i, dz);
        if (dr) sgrad__store(dr + i, dz, add_r);
        if (!dx) continue;
        sgrad__load(x + i, v);
        for (int j = 0; j < size; j++) v[j] = scale[j] * (dz[j] - mean_dz[j] - normalized(own[j], v[j]) * mean_dzx[j]);
        sgrad__store(dx + i, v, add_x);
    }
}

/* ---- passes over the channels ------------------------------------------------------------------------------------ */

/* stat = [mean, unbiased variance] of sum = [Σx, Σx²] */
static __global__ void moments(uint32_t C, double count, const double *sum, double *stat) {
    const uint32_t c = sgrad__thread();
    if (c >= C) return;
    const double mean = sum[c] / count, variance = fmax(sum[C + c] / count - mean * mean, 0.0);
    stat[c] = mean;
    stat[C + c] = variance * count / (count > 1 ? count - 1 : 1);
}

static __global__ void parameters(uint32_t C, const double *sum, float *dweight, float *dbias) {
    const uint32_t c = sgrad__thread();
    if (c >= C) return;
    dbias[c] = (float)sum[c];
    dweight[c] = (float)sum[C + c];
}

/* The running statistics move towards the mean over the groups. */
static __global__ void finish(uint32_t C, double groups, double momentum, const double *stat, float *mean, float *variance,
                              int64_t *batches) {
    const uint32_t c = sgrad__thread();
    if (c >= C) return;
    mean[c] = (float)((1 - momentum) * mean[c] + momentum * (stat[c] / groups));
    variance[c] = (float)((1 - momentum) * variance[c] + momentum * (stat[C + c] / groups));
    if (c == 0) ++*batches;
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static const struct sgrad_batchnorm *attrs_of(const struct sgrad_args *a) { return (const struct sgrad_batchnorm *)a->attrs; }
static struct shape shape_of(const struct sgrad_args *a, int pack) {
    const struct sgrad_shape *x = &a->view[0].shape;
    const int64_t C = x->dim[x->rank - 1];
    return { (int)(sgrad_shape_count(x) / C), (int)(C / pack), (double)a->batch->group * attrs_of(a)->area, attrs_of(a)->eps,
             attrs_of(a)->relu };
}
static int64_t channels(const struct sgrad_args *a) { return a->view[0].shape.dim[a->view[0].shape.rank - 1]; }

/* x (…,C), part (2C) = [Σx, Σx²] */
extern "C" void sgrad__batchnorm_stats_cuda(const struct sgrad_args *a) {
    sgrad__with_pack(a->view[0].dtype, channels(a), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(a, P::size);
        sgrad__sum_rows(stats_term<P>{ (const P *)a->data[0], s.columns }, s.rows, s.columns, (double *)a->data[1]);
    });
}

/* sum (2C), stat (2C) */
extern "C" void sgrad__batchnorm_moments_cuda(const struct sgrad_args *a) {
    sgrad__launch(moments, a->view[0].shape.dim[0] / 2, a->batch->group * attrs_of(a)->area, a->data[0], a->data[1]);
}

/* x, r?, weight (C), bias (C), sum (2C), y */
extern "C" void sgrad__batchnorm_apply_cuda(const struct sgrad_args *a) {
    sgrad__with_pack(a->view[0].dtype, channels(a), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(a, P::size);
        const struct sgrad__sheet sheet = sgrad__sheet_of(s.rows, s.columns, 8);
        sgrad__launch_grid(apply<P>, sheet.grid, sheet.block, s, a->data[4], nullptr, nullptr, a->data[0], a->data[1], a->data[2],
                           a->data[3], a->data[5]);
    });
}

/* x, r?, weight (C), bias (C), running mean (C), running variance (C), y */
extern "C" void sgrad__batchnorm_inference_cuda(const struct sgrad_args *a) {
    sgrad__with_pack(a->view[0].dtype, channels(a), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(a, P::size);
        const struct sgrad__sheet sheet = sgrad__sheet_of(s.rows, s.columns, 8);
        sgrad__launch_grid(apply<P>, sheet.grid, sheet.block, s, nullptr, a->data[4], a->data[5], a->data[0], a->data[1],
                           a->data[2], a->data[3], a->data[6]);
    });
}

/* x, dy, y (read with relu only), sum (2C), part (2C) = [Σdz, Σdz·x̂] */
extern "C" void sgrad__batchnorm_sums_cuda(const struct sgrad_args *a) {
    sgrad__with_pack(a->view[0].dtype, channels(a), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(a, P::size);
        const gradient_term<P> term = {
            s, (const P *)a->data[0], (const P *)a->data[1], (const P *)a->data[2], (const double *)a->data[3], {}
        };
        sgrad__sum_rows(term, s.rows, s.columns, (double *)a->data[4]);
    });
}

/* sum (2C) = [Σdz, Σdz·x̂], dweight (C), dbias (C) */
extern "C" void sgrad__batchnorm_parameters_cuda(const struct sgrad_args *a) {
    sgrad__launch(parameters, a->view[1].shape.dim[0], a->data[0], a->data[1], a->data[2]);
}

/* x, dy, y (read with relu only), weight (C), sum 0 (2C), sum 1 (2C), dx, dr? */
extern "C" void sgrad__batchnorm_data_cuda(const struct sgrad_args *a) {
    sgrad__with_pack(a->view[0].dtype, channels(a), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(a, P::size);
        const struct sgrad__sheet sheet = sgrad__sheet_of(s.rows, s.columns, 8);
        sgrad__launch_grid(data<P>, sheet.grid, sheet.block, s, a->data[0], a->data[1], a->data[2], a->data[3], a->data[4],
                           a->data[5], a->data[6], a->data[7], sgrad_adds(a, 6), sgrad_adds(a, 7));
    });
}

/* stat (2C), running mean (C), running variance (C), batches (1) I64 */
extern "C" void sgrad__batchnorm_finish_cuda(const struct sgrad_args *a) {
    sgrad__launch(finish, a->view[1].shape.dim[0], (double)a->batch->samples / (double)a->batch->group, attrs_of(a)->momentum,
                  a->data[0], a->data[1], a->data[2], a->data[3]);
}
