/* libraries.cc: the functions of cuDNN and cuBLAS that Stargrad calls, on the CPU: simple loops and OpenBLAS, with sums in
 * float.
 *
 * The functions make mistakes of a caller visible. If TF32 is allowed, F32 operands lose more bits than on a GPU, so that
 * every test shape shows it. An algorithm overwrites its workspace, and a search for an algorithm overwrites its output. An
 * algorithm that is reported as not deterministic is not deterministic.
 *
 * Some convolutions are not supported, so that the caller's own kernels run: those of volumes; those of one channel a group;
 * those in bf16 with a dilation, which fail only at execution; those with a stride that add to the output. No algorithm for
 * the weight gradient of groups has a small enough workspace. */
#include "tests/gpu/emulator/libraries.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include <cblas.h>
#include <cublas_v2.h>

using namespace emulator;

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static std::mutex &handles_mutex = *new std::mutex();
static std::set<const struct handle *> &handles = *new std::set<const struct handle *>();

handle::handle() {
    cudaGetDevice(&device);
    std::lock_guard<std::mutex> lock(handles_mutex);
    handles.insert(this);
}
handle::~handle() {
    std::lock_guard<std::mutex> lock(handles_mutex);
    handles.erase(this);
}
void handle::exists() const {
    {
        std::lock_guard<std::mutex> lock(handles_mutex);
        if (!handles.count(this)) fail("%p is no handle, or one that was destroyed", (const void *)this);
    }
    int current;
    cudaGetDevice(&current);
    if (current != device) fail("a handle of device %d is used while device %d is current", device, current);
}
void handle::check() const {
    exists();
    const int other = device_of_stream(stream);
    if (other != device) fail("a handle of device %d has a stream of device %d", device, other);
    if (disturbs_by_default_stream(stream)) fail("a handle has the default stream while another is captured");
}

/* y += a · x */
static inline void axpy(int n, float a, const float *x, float *y) {
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}

/* ---- arrays of either type, as floats ---------------------------------------------------------------------------- */

static std::vector<float> load(const struct array &a, bool tf32) {
    std::vector<float> v(a.count);
    for (size_t i = 0; i < a.count; i++) v[i] = tf32 ? to_tf32(a.at(i)) : a.at(i);
    return v;
}

/* to = alpha · v + beta · to; without beta, what was there is not read */
static void store(const struct array &to, const std::vector<float> &v, float alpha, float beta) {
    for (size_t i = 0; i < to.count; i++) to.set(i, alpha * v[i] + (beta == 0 ? 0 : beta * to.at(i)));
}

/* ---- cuDNN: descriptors ------------------------------------------------------------------------------------------ */

struct cudnnTensorStruct {
    bool half;
    int n, c, h, w;
    bool volumes; /* which no convolution here supports */
};
struct cudnnFilterStruct {
    bool half;
    int k, c, h, w;
};
struct cudnnConvolutionStruct {
    int padding, stride, dilation, groups;
    cudnnMathType_t math;
};

static bool half_of(cudnnDataType_t type) {
    if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16) fail("cuDNN's type %d is not emulated", (int)type);
    return type == CUDNN_DATA_BFLOAT16;
}

template <typename Handle> static cudnnStatus_t create(Handle *handle) {
    *handle = new typename std::remove_pointer<Handle>::type();
    return CUDNN_STATUS_SUCCESS;
}
template <typename Handle> static cudnnStatus_t destroy(Handle handle) {
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t *h) { return create(h); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { return h->exists(), destroy(h); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream) {
    return h->stream = stream, h->check(), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *d) { return create(d); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *d) { return create(d); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *d) { return create(d); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) { return destroy(d); }

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                         int c, int h, int w) {
    if (format != CUDNN_TENSOR_NHWC || n < 1 || c < 1 || h < 1 || w < 1) return CUDNN_STATUS_BAD_PARAM;
    *d = { half_of(type), n, c, h, w, false };
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format, int k,
                                         int c, int h, int w) {
    if (format != CUDNN_TENSOR_NHWC || k < 1 || c < 1 || h < 1 || w < 1) return CUDNN_STATUS_BAD_PARAM;
    *d = { half_of(type), k, c, h, w };
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t d, cudnnTensorFormat_t, cudnnDataType_t type, int,
                                           const int *dim) {
    return *d = { half_of(type), dim[0], dim[1], dim[3], dim[4], true }, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t, int,
                                         const int *dim) {
    return *d = { half_of(type), dim[0], dim[1], dim[3], dim[4] }, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int stride_h, int stride_w,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t sums) {
    if (pad_h != pad_w || stride_h != stride_w || dilation_h != dilation_w || mode != CUDNN_CROSS_CORRELATION ||
        sums != CUDNN_DATA_FLOAT)
        return CUDNN_STATUS_NOT_SUPPORTED;
    *d = { pad_h, stride_h, dilation_h, 1, CUDNN_DEFAULT_MATH };
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int, const int *padding, const int *stride,
                                              const int *dilation, cudnnConvolutionMode_t mode, cudnnDataType_t sums) {
    return cudnnSetConvolution2dDescriptor(d, padding[1], padding[2], stride[1], stride[2], dilation[1], dilation[2], mode, sums);
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
    return d->groups = groups, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
    return d->math = math, CUDNN_STATUS_SUCCESS;
}
} // extern "C"

/* ---- cuDNN: a convolution's three passes ------------------------------------------------------------------------- */

enum pass { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

/* x (N,H,W,C), w (K,R,S,c), y (N,P,Q,K); c = C/groups, k = K/groups */
struct convolution {
    enum pass pass;
    cudnnConvolutionStruct how;
    bool half, tf32;
    int N, H, W, C, K, R, S, P, Q, c, k;
    struct array x, w, y;
};

static int positions(int size, int taps, const cudnnConvolutionStruct &how) {
    return (size + 2 * how.padding - how.dilation * (taps - 1) - 1) / how.stride + 1;
}

static cudnnStatus_t describe(struct convolution *v, enum pass pass, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                              cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t y) {
    if (x->volumes) return CUDNN_STATUS_NOT_SUPPORTED;
    *v = { pass,
           *how,
           x->half,
           !x->half && how->math != CUDNN_FMA_MATH,
           x->n,
           x->h,
           x->w,
           x->c,
           w->k,
           w->h,
           w->w,
           y->h,
           y->w,
           w->c,
           w->k / how->groups,
           {},
           {},
           {} };
    if (x->half != w->half || x->half != y->half || v->c * how->groups != v->C || v->k * how->groups != v->K || y->n != v->N ||
        y->c != v->K || v->P != positions(v->H, v->R, *how) || v->Q != positions(v->W, v->S, *how))
        return CUDNN_STATUS_BAD_PARAM;
    v->x = { NULL, v->half, (size_t)v->N * v->H * v->W * v->C };
    v->w = { NULL, v->half, (size_t)v->K * v->R * v->S * v->c };
    v->y = { NULL, v->half, (size_t)v->N * v->P * v->Q * v->K };
    return how->groups > 1 && v->c == 1 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

/* The products are OpenBLAS's, on one thread, sample by sample: of rows of pixels, each with all that its taps meet. */
typedef convolution_of_floats floats;
extern "C" void sgrad__lapack_alone(void);
static const bool alone = (sgrad__lapack_alone(), true);

/* Calls f(pixel of the sample, place among the columns) for all that meet. */
template <typename F> static void each(const floats &v, F f) {
    for (int p = 0; p < v.P; p++)
        for (int q = 0; q < v.Q; q++)
            for (int tap = 0; tap < v.R * v.S; tap++) {
                const int h = p * v.stride[0] + tap / v.S * v.dilation[0] - v.padding[0],
                          w = q * v.stride[1] + tap % v.S * v.dilation[1] - v.padding[1];
                if (h >= 0 && h < v.H && w >= 0 && w < v.W) f(h * v.W + w, (p * v.Q + q) * v.R * v.S + tap);
            }
}

static std::vector<float> columns_of(const floats &v, const float *x) {
    const int c = v.C / v.groups;
    std::vector<float> columns((size_t)v.P * v.Q * v.R * v.S * c);
    each(v, [&](int pixel, int place) { std::copy_n(x + (size_t)pixel * v.C, c, &columns[(size_t)place * c]); });
    return columns;
}

void floats::forward(const float *x, const float *w, float *y) const {
    const int c = C / groups, k = K / groups, row = R * S * c;
    for (int i = 0; i < N * groups; i++) {
        const int n = i / groups, g = i % groups;
        const std::vector<float> columns = columns_of(*this, x + (size_t)n * H * W * C + g * c);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, P * Q, k, row, 1, columns.data(), row, w + (size_t)g * k * row, row,
                    0, y + (size_t)n * P * Q * K + g * k, K);
    }
}

void floats::backward_data(const float *dy, const float *w, float *dx) const {
    const int c = C / groups, k = K / groups, row = R * S * c;
    std::vector<float> columns((size_t)P * Q * row);
    std::fill_n(dx, (size_t)N * H * W * C, 0.0f);
    for (int i = 0; i < N * groups; i++) {
        const int n = i / groups, g = i % groups;
        float *to = dx + (size_t)n * H * W * C + g * c;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, P * Q, row, k, 1, dy + (size_t)n * P * Q * K + g * k, K,
                    w + (size_t)g * k * row, row, 0, columns.data(), row);
        each(*this, [&](int pixel, int place) { axpy(c, 1, &columns[(size_t)place * c], to + (size_t)pixel * C); });
    }
}

void floats::backward_filter(const float *x, const float *dy, unsigned turn, float *dw) const {
    const int c = C / groups, k = K / groups, row = R * S * c;
    std::fill_n(dw, (size_t)K * row, 0.0f);
    for (int i = 0; i < N * groups; i++) {
        const size_t n = (i / groups + turn) % N, g = i % groups;
        const std::vector<float> columns = columns_of(*this, x + n * H * W * C + g * c);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, row, P * Q, 1, dy + n * P * Q * K + g * k, K, columns.data(), row,
                    1, dw + g * k * row, row);
    }
}

static floats floats_of(const struct convolution &v) {
    const cudnnConvolutionStruct &how = v.how;
    return { v.N, v.H, v.W, v.C, v.K, v.R, v.S, v.P, v.Q, how.groups, { how.stride, how.stride },
             { how.padding, how.padding }, { how.dilation, how.dilation } };
}

static void forward(const struct convolution &v, float alpha, float beta) {
    std::vector<float> y(v.y.count);
    floats_of(v).forward(load(v.x, v.tf32).data(), load(v.w, v.tf32).data(), y.data());
    store(v.y, y, alpha, beta);
}

static void backward_data(const struct convolution &v, float alpha, float beta) {
    std::vector<float> dx(v.x.count);
    floats_of(v).backward_data(load(v.y, v.tf32).data(), load(v.w, v.tf32).data(), dx.data());
    store(v.x, dx, alpha, beta);
}

static void backward_filter(const struct convolution &v, unsigned turn, float alpha, float beta) {
    std::vector<float> dw(v.w.count);
    floats_of(v).backward_filter(load(v.x, v.tf32).data(), load(v.y, v.tf32).data(), turn, dw.data());
    store(v.w, dw, alpha, beta);
}

/* ---- cuDNN: algorithms ------------------------------------------------------------------------------------------- */

struct algorithm {
    int number;
    bool tensor_cores, deterministic;
    size_t memory;
};
enum { ALGORITHMS = 4 };
static const size_t TOO_MUCH = (size_t)1 << 40;

/* The fastest first. Backward, number 0 is not deterministic. */
static struct algorithm algorithm_of(const struct convolution &v, int i) {
    static const struct algorithm all[ALGORITHMS] = {
        { 3, true, true, 1 << 20 }, { 2, false, true, TOO_MUCH }, { 0, false, true, 0 }, { 1, false, true, 100000 }
    };
    struct algorithm a = all[i];
    if (v.half) a.tensor_cores = true;
    if (v.pass != FORWARD && a.number == 0) a.deterministic = false;
    if (v.pass == BACKWARD_FILTER && v.how.groups > 1) a.memory = TOO_MUCH;
    return a;
}

template <typename Found> static cudnnStatus_t list(const struct convolution &v, int wanted, int *count, Found *found) {
    for (*count = 0; *count < wanted && *count < ALGORITHMS; ++*count) {
        const struct algorithm a = algorithm_of(v, *count);
        Found *f = &found[*count];
        *f = {};
        f->algo = (decltype(f->algo))a.number;
        f->time = 1 + *count;
        f->memory = a.memory;
        f->determinism = a.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
        f->mathType = a.tensor_cores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* V, with its operands where they lie in memory. */
static struct convolution in_memory(cudaStream_t stream, struct convolution v, const char *what) {
    for (struct array *a : { &v.x, &v.w, &v.y }) a->data = memory_of(stream, a->data, a->bytes(), what);
    return v;
}

/* Fills what the search writes into, and says of algorithms whether they had room. */
template <typename Found>
static cudnnStatus_t find(cudnnHandle_t h, const struct convolution &given, int wanted, int *count, Found *found, void *room,
                          size_t room_size) {
    h->check();
    if (disturbs()) return CUDNN_STATUS_EXECUTION_FAILED;
    const struct convolution v = in_memory(h->stream, given, "cuDNN's search");
    const struct array out = v.pass == FORWARD ? v.y : v.pass == BACKWARD_DATA ? v.x : v.w;
    if (room_size) room = memory_of(h->stream, room, room_size, "cuDNN's search");
    enqueue(h->stream, [=] { memset(out.data, 0xff, out.bytes()), memset(room, 0xff, room_size < 4096 ? room_size : 4096); });
    wait_for(h->stream);
    list(v, wanted, count, found);
    for (int i = 0; i < *count; i++)
        if (found[i].memory > room_size) found[i].status = CUDNN_STATUS_ALLOC_FAILED, found[i].time = -1;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t run(cudnnHandle_t h, const struct convolution &given, int number, void *room, size_t room_size,
                         const void *alpha, const void *beta) {
    static std::atomic<unsigned> turns;
    const float a = *(const float *)alpha, b = *(const float *)beta;
    h->check();
    for (int i = 0; i < ALGORITHMS; i++) {
        const struct algorithm own = algorithm_of(given, i);
        if (own.number != number || own.tensor_cores != (given.half || given.tf32)) continue;
        if (own.memory > room_size) return CUDNN_STATUS_BAD_PARAM;
        if (refuses() || (given.half && given.how.dilation > 1)) return CUDNN_STATUS_NOT_SUPPORTED;
        if (b != 0 && given.how.stride > 1) return CUDNN_STATUS_NOT_SUPPORTED;
        const auto submit = [=] {
            void *own_room = own.memory ? memory_of(h->stream, room, own.memory, "cuDNN") : NULL;
            const struct convolution v = in_memory(h->stream, given, "cuDNN");
            const unsigned turn = own.deterministic ? 0 : turns++;
            count_work(LIBRARY_CALLS);
            enqueue(h->stream, [=] {
                if (own.memory) memset(own_room, 0xff, own.memory);
                if (v.pass == FORWARD) forward(v, a, b);
                if (v.pass == BACKWARD_DATA) backward_data(v, a, b);
                if (v.pass == BACKWARD_FILTER) backward_filter(v, turn, a, b);
            });
        };
        if (!captures(h->stream, submit)) submit();
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t room_of(const struct convolution &v, int number, size_t *size) {
    for (int i = 0; i < ALGORITHMS; i++) {
        const struct algorithm own = algorithm_of(v, i);
        if (own.number == number && own.tensor_cores == (v.half || v.tf32)) return *size = own.memory, CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

/* What heuristics answer. */
template <typename Found> static cudnnStatus_t guess(const struct convolution &v, int wanted, int *count, Found *found) {
    return heuristics_fail() ? CUDNN_STATUS_INTERNAL_ERROR : list(v, wanted, count, found);
}

/* V with its operands. */
static struct convolution with(struct convolution v, const void *x, const void *w, const void *y) {
    v.x.data = (void *)x, v.w.data = (void *)w, v.y.data = (void *)y;
    return v;
}

/* What ANSWER says of the convolution that the descriptors describe, unless they describe none. */
template <typename Answer>
static cudnnStatus_t described(enum pass pass, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                               cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t y, Answer answer) {
    struct convolution v;
    const cudnnStatus_t status = describe(&v, pass, x, w, how, y);
    return status ? status : answer(v);
}

extern "C" {
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t y, int wanted,
                                                     int *count, cudnnConvolutionFwdAlgoPerf_t *found) {
    return described(FORWARD, x, w, how, y, [&](const struct convolution &v) { return guess(v, wanted, count, found); });
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
                                                          cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t x, int wanted,
                                                          int *count, cudnnConvolutionBwdDataAlgoPerf_t *found) {
    return described(BACKWARD_DATA, x, w, how, y, [&](const struct convolution &v) { return guess(v, wanted, count, found); });
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                                                            cudnnConvolutionDescriptor_t how, cudnnFilterDescriptor_t w,
                                                            int wanted, int *count, cudnnConvolutionBwdFilterAlgoPerf_t *found) {
    return described(BACKWARD_FILTER, x, w, how, y, [&](const struct convolution &v) { return guess(v, wanted, count, found); });
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t *size) {
    return described(FORWARD, x, w, how, y, [&](const struct convolution &v) { return room_of(v, algorithm, size); });
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
                                                           cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t x,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t *size) {
    return described(BACKWARD_DATA, x, w, how, y, [&](const struct convolution &v) { return room_of(v, algorithm, size); });
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                                                             cudnnConvolutionDescriptor_t how, cudnnFilterDescriptor_t w,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *size) {
    return described(BACKWARD_FILTER, x, w, how, y, [&](const struct convolution &v) { return room_of(v, algorithm, size); });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t h, cudnnTensorDescriptor_t xd, const void *x,
                                                     cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t how,
                                                     cudnnTensorDescriptor_t yd, void *y, int wanted, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *found, void *room, size_t room_size) {
    return described(FORWARD, xd, wd, how, yd, [&](const struct convolution &v) {
        return find(h, with(v, x, w, y), wanted, count, found, room, room_size);
    });
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t h, cudnnFilterDescriptor_t wd, const void *w,
                                                          cudnnTensorDescriptor_t yd, const void *y,
                                                          cudnnConvolutionDescriptor_t how, cudnnTensorDescriptor_t xd, void *x,
                                                          int wanted, int *count, cudnnConvolutionBwdDataAlgoPerf_t *found,
                                                          void *room, size_t room_size) {
    return described(BACKWARD_DATA, xd, wd, how, yd, [&](const struct convolution &v) {
        return find(h, with(v, x, w, y), wanted, count, found, room, room_size);
    });
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t h, cudnnTensorDescriptor_t xd, const void *x,
                                                            cudnnTensorDescriptor_t yd, const void *y,
                                                            cudnnConvolutionDescriptor_t how, cudnnFilterDescriptor_t wd, void *w,
                                                            int wanted, int *count, cudnnConvolutionBwdFilterAlgoPerf_t *found,
                                                            void *room, size_t room_size) {
    return described(BACKWARD_FILTER, xd, wd, how, yd, [&](const struct convolution &v) {
        return find(h, with(v, x, w, y), wanted, count, found, room, room_size);
    });
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
                                      cudnnFilterDescriptor_t wd, const void *w, cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t algorithm, void *room, size_t room_size, const void *beta,
                                      cudnnTensorDescriptor_t yd, void *y) {
    return described(FORWARD, xd, wd, how, yd, [&](const struct convolution &v) {
        return run(h, with(v, x, w, y), algorithm, room, room_size, alpha, beta);
    });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha, cudnnFilterDescriptor_t wd, const void *w,
                                           cudnnTensorDescriptor_t yd, const void *y, cudnnConvolutionDescriptor_t how,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *room, size_t room_size,
                                           const void *beta, cudnnTensorDescriptor_t xd, void *x) {
    return described(BACKWARD_DATA, xd, wd, how, yd, [&](const struct convolution &v) {
        return run(h, with(v, x, w, y), algorithm, room, room_size, alpha, beta);
    });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd, const void *x,
                                             cudnnTensorDescriptor_t yd, const void *y, cudnnConvolutionDescriptor_t how,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *room, size_t room_size,
                                             const void *beta, cudnnFilterDescriptor_t wd, void *w) {
    return described(BACKWARD_FILTER, xd, wd, how, yd, [&](const struct convolution &v) {
        return run(h, with(v, x, w, y), algorithm, room, room_size, alpha, beta);
    });
}
} // extern "C"

/* ---- cuBLAS: matrices are columns first, the next column LEADING elements on ------------------------------------- */

struct cublasContext : handle {
    void *room = NULL; /* the caller's; its own would be allocated in the midst of a capture */
};

struct matrix {
    struct array array;
    int rows, columns, leading;
};
static struct matrix matrix_of(cudaStream_t stream, const void *data, cudaDataType_t type, cublasOperation_t turn, int rows,
                               int columns, int leading) {
    if (type != CUDA_R_32F && type != CUDA_R_16BF) fail("cuBLAS's type %d is not emulated", (int)type);
    if (turn != CUBLAS_OP_N) std::swap(rows, columns);
    struct array array = { NULL, type == CUDA_R_16BF, (size_t)leading * (columns - 1) + rows };
    if (leading < rows) fail("cuBLAS is given a matrix of %d rows whose columns are %d apart", rows, leading);
    array.data = memory_of(stream, data, array.bytes(), "cuBLAS");
    return { array, rows, columns, leading };
}

/* The elements, dense; those of its transpose where it is TURNed. */
static std::vector<float> dense(const struct matrix &m, bool turn) {
    std::vector<float> v((size_t)m.rows * m.columns);
    for (int j = 0; j < m.columns; j++)
        for (int i = 0; i < m.rows; i++)
            v[turn ? (size_t)i * m.columns + j : (size_t)j * m.rows + i] = m.array.at((size_t)j * m.leading + i);
    return v;
}

/* to (M × N) = a · x (M × K) · y (K × N) + b · to */
static void multiply(std::vector<float> &x, std::vector<float> &y, int K, bool tf32, float a, float b, const struct matrix &to) {
    const int M = to.rows, N = to.columns;
    for (std::vector<float> *factor : { &x, &y })
        for (float &value : *factor)
            if (tf32) value = to_tf32(value);
    std::vector<float> product((size_t)M * N);
    cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1, x.data(), M, y.data(), K, 0, product.data(), M);
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            const size_t at = (size_t)j * to.leading + i;
            to.array.set(at, a * product[(size_t)j * M + i] + (b == 0 ? 0 : b * to.array.at(at)));
        }
}

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *h) { return *h = new struct cublasContext(), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) { return h->exists(), delete h, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
    return h->stream = stream, h->room = NULL, h->check(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *room, size_t) { return h->room = room, CUBLAS_STATUS_SUCCESS; }

/* c (M × N) = alpha · left (M × K) · right (K × N) + beta · c */
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t turn_left, cublasOperation_t turn_right, int M, int N, int K,
                            const void *alpha, const void *left, cudaDataType left_type, int left_leading, const void *right,
                            cudaDataType right_type, int right_leading, const void *beta, void *c, cudaDataType c_type,
                            int c_leading, cublasComputeType_t compute, cublasGemmAlgo_t) {
    h->check();
    if (!h->room && disturbs()) return CUBLAS_STATUS_ALLOC_FAILED;
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32 && left_type == CUDA_R_32F;
    if ((compute != CUBLAS_COMPUTE_32F && !tf32) || left_type != right_type || (left_type == CUDA_R_32F && c_type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const float a = *(const float *)alpha, b = *(const float *)beta;
    const auto submit = [=] {
        const struct matrix l = matrix_of(h->stream, left, left_type, turn_left, M, K, left_leading),
                            r = matrix_of(h->stream, right, right_type, turn_right, K, N, right_leading),
                            to = matrix_of(h->stream, c, c_type, CUBLAS_OP_N, M, N, c_leading);
        count_work(LIBRARY_CALLS);
        enqueue(h->stream, [=] {
            std::vector<float> x = dense(l, turn_left != CUBLAS_OP_N), y = dense(r, turn_right != CUBLAS_OP_N);
            multiply(x, y, K, tf32, a, b, to);
        });
    };
    if (!captures(h->stream, submit)) submit();
    return CUBLAS_STATUS_SUCCESS;
}
} // extern "C"
