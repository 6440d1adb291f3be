/* batchnorm_cuda.cu: batchnorm.c on CUDA devices. The passes are bound by memory: each reads each of its tensors once, 16 bytes
 * and four rows at a time. Per-channel values are computed once per thread block. A ReLU's mask is recomputed from x if y is
 * absent. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/normal.h"
#include "codelets/ops/batchnorm.h"

/* Values of one channel: x̂ = (x - mean) · inverse + rest, where mean is rounded to float and rest corrects the rounding error.
 * y = (x - mean) · scale + shift, before the addition of the second input and the ReLU. */
struct channel {
    float mean, inverse, rest, scale, shift;
};
static __device__ inline struct channel channel_of(double mean, double variance, double eps, float weight, float bias) {
    const float rounded = (float)mean;
    const double inverse = 1 / sqrt(fmax(variance, 0.0) + eps);
    const float rest = (float)((rounded - mean) * inverse);
    return { rounded, (float)inverse, rest, (float)inverse * weight, rest * weight + bias };
}
static __device__ inline float normalized(const struct channel &channel, float x) {
    return (x - channel.mean) * channel.inverse + channel.rest;
}
static __device__ inline float scaled(const struct channel &channel, float x) {
    return (x - channel.mean) * channel.scale + channel.shift;
}

/* Parameters of all passes of one batch norm. */
struct shape {
    int rows, columns; /* columns: in packs */
    double count, eps; /* count: elements of a channel in the group */
    bool relu;
};
/* Per-channel inputs: weight and bias, NULL if y is not needed; the sums [Σx, Σx²] (2C), or NULL and the running mean and
 * variance. */
struct known {
    const float *weight, *bias;
    const double *sum;
    const float *mean, *variance;
};
static __device__ inline struct channel channel_of(const struct shape &shape, const struct known &known, int c, int C) {
    const double mean = known.sum ? known.sum[c] / shape.count : known.mean[c];
    const double variance = known.sum ? known.sum[C + c] / shape.count - mean * mean : known.variance[c];
    return channel_of(mean, variance, shape.eps, known.weight ? known.weight[c] : 1, known.bias ? known.bias[c] : 0);
}

/* Computes values of the channels of a thread block. A row has COLUMNS packs of SIZE channels. MAKE(c) is called once for each
 * channel of the block; its result is stored in OF, in __shared__ memory. All threads of the block must call make_channels.
 * own<P>(OF) points to the values of the calling thread's channels. */
enum { MOST_CHANNELS = 8 * 8 };
template <typename Value, typename Make>
static __device__ inline void make_channels(Value *of, int columns, int size, Make make) {
    const int first = blockIdx.x * blockDim.x * size, threads = blockDim.x * blockDim.y;
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < (int)blockDim.x * size; i += threads)
        if (first + i < columns * size) of[i] = make(first + i);
    __syncthreads();
}
template <typename P, typename Value> static __device__ inline const Value *own(const Value *of) {
    return of + threadIdx.x * P::size;
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

/* Sets DZ, which is dy on entry, to 0 where y <= 0. If BY_Y is not set, y is recomputed from x. */
template <typename P>
static __device__ inline void mask(const struct shape &shape, const struct channel *own, const float *x, bool by_y, const P &y,
                                   float *dz) {
    if (!shape.relu) return;
    for (int j = 0; j < P::size; j++)
        if ((by_y ? (float)y.at[j] : scaled(own[j], x[j])) <= 0) dz[j] = 0;
}

template <typename P> struct gradient_term {
    static constexpr int values = 2, size = P::size;
    struct shape shape;
    struct known known;
    const P *x, *dy, *y;
    struct channel channel[size];
    __device__ void column(int) {
        __shared__ struct channel all[MOST_CHANNELS];
        make_channels(all, shape.columns, size, [this](int c) { return channel_of(shape, known, c, shape.columns * size); });
        for (int j = 0; j < size; j++) channel[j] = own<P>(all)[j];
    }
    __device__ void add(int row, int column, double (*sum)[size]) const {
        const int64_t i = (int64_t)row * shape.columns + column;
        float v[size], dz[size];
        sgrad__load(x + i, v);
        sgrad__load(dy + i, dz);
        mask(shape, channel, v, y, shape.relu && y ? y[i] : P(), dz);
        for (int j = 0; j < size; j++) {
            sum[0][j] += dz[j];
            sum[1][j] += (double)dz[j] * normalized(channel[j], v[j]);
        }
    }
};

/* ---- elementwise passes: a thread has the loads of four rows in flight at a time --------------------------------------- */

enum { ROWS = 4 };

/* Calls F(k, i) for each of the thread's next ROWS rows; I is the index of the thread's pack in the k-th. */
template <typename F> static __device__ inline void each_row(const struct shape &shape, int row, F f) {
#pragma unroll
    for (int k = 0; k < ROWS; k++, row += gridDim.y * blockDim.y)
        if (row < shape.rows) f(k, (int64_t)row * shape.columns + sgrad__column());
}
static __device__ inline int first_row(void) { return blockIdx.y * blockDim.y + threadIdx.y; }
static __device__ inline int next_rows(void) { return ROWS * gridDim.y * blockDim.y; }

/* y = relu?(x̂ · weight + bias + r); r may be NULL. */
template <typename P>
static __global__ void apply(struct shape shape, struct known known, const P *x, const P *r, P *y) {
    constexpr int size = P::size;
    __shared__ struct channel all[MOST_CHANNELS];
    make_channels(all, shape.columns, size, [&](int c) { return channel_of(shape, known, c, shape.columns * size); });
    if (sgrad__column() >= shape.columns) return;
    const struct channel *channel = own<P>(all);
    for (int row = first_row(); row < shape.rows; row += next_rows()) {
        P in[ROWS] = {}, other[ROWS] = {};
        each_row(shape, row, [&](int k, int64_t i) {
            in[k] = x[i];
            if (r) other[k] = r[i];
        });
        each_row(shape, row, [&](int k, int64_t i) {
            float v[size], add[size] = {};
            sgrad__load(&in[k], v);
            if (r) sgrad__load(&other[k], add);
            for (int j = 0; j < size; j++) {
                v[j] = scaled(channel[j], v[j]) + add[j];
                if (shape.relu && v[j] < 0) v[j] = 0;
            }
            sgrad__store(y + i, v);
        });
    }
}

/* dx = weight / √(variance + eps) · (dz - Σdz / count - x̂ · Σdz·x̂ / count), dr = dz; dx or dr is NULL if it is not needed */
struct slope {
    struct channel channel;
    float mean_dz, mean_dzx;
};
template <typename P>
static __global__ void data(struct shape shape, struct known known, const P *x, const P *dy, const P *y, const double *sum1,
                            P *dx, P *dr, bool add_x, bool add_r) {
    constexpr int size = P::size;
    __shared__ struct slope all[MOST_CHANNELS];
    make_channels(all, shape.columns, size, [&](int c) {
        const int C = shape.columns * size;
        return slope{ channel_of(shape, known, c, C), (float)(sum1[c] / shape.count), (float)(sum1[C + c] / shape.count) };
    });
    if (sgrad__column() >= shape.columns) return;
    struct channel channel[size];
    const struct slope *slope = own<P>(all);
    for (int j = 0; j < size; j++) channel[j] = slope[j].channel;
    for (int row = first_row(); row < shape.rows; row += next_rows()) {
        P in[ROWS] = {}, from[ROWS] = {}, out[ROWS] = {};
        each_row(shape, row, [&](int k, int64_t i) {
            in[k] = x[i];
            from[k] = dy[i];
            if (shape.relu && y) out[k] = y[i];
        });
        each_row(shape, row, [&](int k, int64_t i) {
            float v[size], dz[size];
            sgrad__load(&in[k], v);
            sgrad__load(&from[k], dz);
            mask(shape, channel, v, y, out[k], dz);
            if (dr) sgrad__store(dr + i, dz, add_r);
            if (!dx) return;
            for (int j = 0; j < size; j++)
                v[j] = channel[j].scale * (dz[j] - slope[j].mean_dz - normalized(channel[j], v[j]) * slope[j].mean_dzx);
            sgrad__store(dx + i, v, add_x);
        });
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

/* Computes the arguments of scaled() for all channels. */
static __global__ void channels_of(uint32_t C, struct shape shape, struct known known, float *mean, float *scale, float *shift) {
    const uint32_t c = sgrad__thread();
    if (c >= C) return;
    const struct channel channel = channel_of(shape, known, (int)c, (int)C);
    mean[c] = channel.mean, scale[c] = channel.scale, shift[c] = channel.shift;
}

/* Σdz = SUM and Σdz·x̂ -> the task's partial sums; PRODUCT is Σdz · (x - mean), with the mean rounded to float */
static __global__ void sums_of(uint32_t C, struct shape shape, struct known known, const float *sum, const float *product,
                               double *part) {
    const uint32_t c = sgrad__thread();
    if (c >= C) return;
    const struct channel channel = channel_of(shape, known, (int)c, (int)C);
    part[c] = sum[c];
    part[C + c] = (double)product[c] * channel.inverse + (double)sum[c] * channel.rest;
}

/* Updates the running statistics of C channels by the mean over the groups. */
struct move : sgrad__job {
    double groups, momentum;
    const double *stat;
    float *mean, *variance;
    int64_t *batches;
    template <typename P> __device__ void at(uint32_t c, const struct sgrad_step *) const {
        mean[c] = (float)((1 - momentum) * mean[c] + momentum * (stat[c] / groups));
        variance[c] = (float)((1 - momentum) * variance[c] + momentum * (stat[n + c] / groups));
        if (c == 0) ++*batches;
    }
};

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static const struct sgrad_batchnorm *attrs_of(const struct sgrad_args *args) {
    return (const struct sgrad_batchnorm *)args->attrs;
}
static struct shape shape_of(const struct sgrad_args *args, int pack) {
    const struct sgrad_shape *x = &args->view[0].shape;
    const int64_t C = x->dim[x->rank - 1];
    return { (int)(sgrad_shape_count(x) / C), (int)(C / pack), (double)args->batch->group * attrs_of(args)->area,
             attrs_of(args)->eps, attrs_of(args)->relu };
}
static int64_t channels(const struct sgrad_args *args) { return args->view[0].shape.dim[args->view[0].shape.rank - 1]; }

/* Partial sums: x (…,C), partial (2C) = [Σx, Σx²] */
extern "C" void sgrad__batchnorm_stats_cuda(const struct sgrad_args *args) {
    sgrad__with_wide_pack(args->view[0].dtype, channels(args), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(args, P::size);
        sgrad__sum_rows(stats_term<P>{ (const P *)args->data[0], s.columns }, s.rows, s.columns, (double *)args->data[1]);
    });
}

/* Moments: sum (2C), stat (2C) */
extern "C" void sgrad__batchnorm_moments_cuda(const struct sgrad_args *args) {
    sgrad__launch(moments, args->view[0].shape.dim[0] / 2, args->batch->group * attrs_of(args)->area, args->data[0],
                  args->data[1]);
}

template <typename P> static void apply_all(const struct sgrad_args *args, const struct known &known, void *y) {
    const struct shape s = shape_of(args, P::size);
    const struct sgrad__sheet sheet = sgrad__sheet_of(s.rows, s.columns, 2 * ROWS);
    sgrad__launch_grid(apply<P>, sheet.grid, sheet.block, s, known, args->data[0], args->data[1], y);
}

/* Forward: x, r or absent, weight (C), bias (C), sum (2C), y */
extern "C" void sgrad__batchnorm_apply_cuda(const struct sgrad_args *args) {
    const struct known known = { (const float *)args->data[2], (const float *)args->data[3], (const double *)args->data[4], NULL,
                                 NULL };
    sgrad__with_wide_pack(args->view[0].dtype, channels(args),
                          [=](auto pack) { apply_all<decltype(pack)>(args, known, args->data[5]); });
}

/* Inference: x, r or absent, weight (C), bias (C), running mean (C), running variance (C), y */
extern "C" void sgrad__batchnorm_inference_cuda(const struct sgrad_args *args) {
    const struct known known = { (const float *)args->data[2], (const float *)args->data[3], NULL, (const float *)args->data[4],
                                 (const float *)args->data[5] };
    sgrad__with_wide_pack(args->view[0].dtype, channels(args),
                          [=](auto pack) { apply_all<decltype(pack)>(args, known, args->data[6]); });
}

/* Sums of backward: x, dy, y or absent (read only with relu), sum (2C), partial (2C) = [Σdz, Σdz·x̂], weight,
 * bias (C; only if y is absent) */
extern "C" void sgrad__batchnorm_sums_cuda(const struct sgrad_args *args) {
    const struct known known = { (const float *)args->data[5], (const float *)args->data[6], (const double *)args->data[3], NULL,
                                 NULL };
    sgrad__with_wide_pack(args->view[0].dtype, channels(args), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(args, P::size);
        const gradient_term<P> term = {
            s, known, (const P *)args->data[0], (const P *)args->data[1], (const P *)args->data[2], {}
        };
        sgrad__sum_rows(term, s.rows, s.columns, (double *)args->data[4]);
    });
}

/* Gradients of the parameters: sum (2C) = [Σdz, Σdz·x̂], dweight (C), dbias (C) */
extern "C" void sgrad__batchnorm_parameters_cuda(const struct sgrad_args *args) {
    sgrad__launch(parameters, args->view[1].shape.dim[0], args->data[0], args->data[1], args->data[2]);
}

/* Backward: x, dy, y or absent (read only with relu), weight (C), sum 0 (2C), sum 1 (2C), dx and dr, which may be absent,
 * bias (C; only if y is absent) */
extern "C" void sgrad__batchnorm_data_cuda(const struct sgrad_args *args) {
    const struct known known = { (const float *)args->data[3], (const float *)args->data[8], (const double *)args->data[4], NULL,
                                 NULL };
    sgrad__with_wide_pack(args->view[0].dtype, channels(args), [=](auto pack) {
        using P = decltype(pack);
        const struct shape s = shape_of(args, P::size);
        const struct sgrad__sheet sheet = sgrad__sheet_of(s.rows, s.columns, 2 * ROWS);
        sgrad__launch_grid(data<P>, sheet.grid, sheet.block, s, known, args->data[0], args->data[1], args->data[2], args->data[5],
                           args->data[6], args->data[7], sgrad_adds(args, 6), sgrad_adds(args, 7));
    });
}

/* stat (2C), running mean (C), running variance (C), batches (1) I64 */
extern "C" void sgrad__batchnorm_finish_cuda(const struct sgrad_args *args) {
    sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
        return move{ { (uint32_t)sgrad_shape_count(&one->view[1].shape), false }, (double)one->batch->samples / one->batch->group,
                     attrs_of(one)->momentum, (const double *)one->data[0], (float *)one->data[1], (float *)one->data[2],
                     (int64_t *)one->data[3] };
    });
}

/* ---- functions for cuDNN graphs -------------------------------------------------------------------------------------- */

void sgrad__batchnorm_channels(const struct sgrad_args *args, int weight, int sum, float *mean, float *scale, float *shift) {
    const struct known known = { (const float *)args->data[weight], (const float *)args->data[weight + 1],
                                 (const double *)args->data[sum], NULL, NULL };
    sgrad__launch(channels_of, channels(args), shape_of(args, 1), known, mean, scale, shift);
}

void sgrad__batchnorm_sums_of(const struct sgrad_args *args, const float *sum, const float *product) {
    const struct known known = { NULL, NULL, (const double *)args->data[3], NULL, NULL };
    sgrad__launch(sums_of, channels(args), shape_of(args, 1), known, sum, product, args->data[4]);
}

bool sgrad__batchnorm_has_relu(const struct sgrad_args *args) { return attrs_of(args)->relu; }
