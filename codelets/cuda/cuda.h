/* cuda.h: definitions common to the CUDA kernels of the library. Private to codelets/, only for *_cuda.cu.
 *
 * All functions enqueue on the worker's stream and do not wait. Activations are channels-last, so memory is a matrix of rows
 * (pixels, samples) and columns (channels). A thread reads or writes one *pack*, 4 consecutive elements, in one instruction. If
 * the number of channels is not a multiple of 4, a pack is one element:
 *
 *               c0 c1 c2 c3   c4 c5 c6 c7
 *     pixel 0   ── pack 0 ──  ── pack 1 ──
 *     pixel 1   ── pack 2 ──  ── pack 3 ──
 *
 * Packs are numbered in memory order. Arithmetic is in float for all types of elements; long sums are in double.
 *
 * Limits: 2^32 packs and 2^31 rows per operand. Operands must be aligned to 16 bytes; all device memory is. */
#ifndef SGRAD_CODELETS_CUDA_CUDA_H
#define SGRAD_CODELETS_CUDA_CUDA_H

#include <cstdlib>

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include "codelets/codelets.h"
#include "runtime/handles.h"

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/* SGRAD_CUDA checks the status that CALL, a function of CUDA, cuDNN or cuBLAS, returns. A task cannot return an error, and
 * results after a failed launch are undefined. So an error ends the program (sgrad_cuda_fail). Exception: while the task is
 * recorded as a CUDA graph, it ends only the recording (sgrad_cuda_excuses). */
#define SGRAD_CUDA(call) sgrad__cuda_check(call, #call)

static inline void sgrad__cuda_failed(const char *why, const char *where) {
    if (!sgrad_cuda_excuses(why, where)) sgrad_cuda_fail(why, where);
}
static inline void sgrad__cuda_check(cudaError_t status, const char *what) {
    if (status != cudaSuccess) sgrad__cuda_failed(cudaGetErrorString(status), what);
}
static inline void sgrad__cuda_check(cudnnStatus_t status, const char *what) {
    if (status != CUDNN_STATUS_SUCCESS) sgrad__cuda_failed(cudnnGetErrorString(status), what);
}
static inline void sgrad__cuda_check(cublasStatus_t status, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS) sgrad__cuda_failed(cublasGetStatusString(status), what);
}

/* ---- packs ----------------------------------------------------------------------------------------------------- */

/* N elements that are read or written in one instruction. */
template <typename T, int N> struct alignas(sizeof(T) * N) sgrad__pack {
    static constexpr int size = N;
    T at[N];
};

/* Calls f with an element of the given type. */
template <typename F> static inline void sgrad__with_type(enum sgrad_dtype dtype, F f) {
    dtype == SGRAD_BF16 ? f(__nv_bfloat16()) : f(float());
}

/* Calls f with a pack of the given type: of 4 elements if COUNT (channels, or all elements) is a multiple of 4, else of one. */
template <typename F> static inline void sgrad__with_pack(enum sgrad_dtype dtype, int64_t count, F f) {
    const bool four = count % 4 == 0;
    if (dtype == SGRAD_BF16)
        four ? f(sgrad__pack<__nv_bfloat16, 4>()) : f(sgrad__pack<__nv_bfloat16, 1>());
    else
        four ? f(sgrad__pack<float, 4>()) : f(sgrad__pack<float, 1>());
}

/* The same with packs of 16 bytes, the most efficient size, if COUNT is a multiple of their number of elements. */
template <typename F> static inline void sgrad__with_wide_pack(enum sgrad_dtype dtype, int64_t count, F f) {
    dtype == SGRAD_BF16 && count % 8 == 0 ? f(sgrad__pack<__nv_bfloat16, 8>()) : sgrad__with_pack(dtype, count, f);
}

/* Access to a pack faults if its address is not a multiple of its size. The emulator of the tests checks this. */
#ifdef SGRAD_EMULATOR_H
#define SGRAD_ALIGNED(pack) emulator::aligned(pack)
#else
#define SGRAD_ALIGNED(pack)
#endif

/* Reads a pack into V. */
template <typename P> static __device__ inline void sgrad__load(const P *from, float *v) {
    SGRAD_ALIGNED(from);
    const P p = *from;
    for (int j = 0; j < P::size; j++) v[j] = p.at[j];
}

/* Writes V to a pack, or adds it (ADD). */
template <typename P> static __device__ inline void sgrad__store(P *to, const float *v, bool add = false) {
    P p;
    SGRAD_ALIGNED(to);
    if (add) p = *to;
    for (int j = 0; j < P::size; j++) p.at[j] = add ? (float)p.at[j] + v[j] : v[j];
    *to = p;
}

/* Returns the logistic function 1 / (1 + e⁻ˣ). */
static __device__ inline float sgrad__sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* ---- launches -------------------------------------------------------------------------------------------------- */

/* Returns a / b, rounded up. */
static inline __host__ __device__ int64_t sgrad__ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Convert an argument to the type of the kernel's parameter; operands are passed as void *. */
template <typename To> static inline To sgrad__as(void *x) { return static_cast<To>(x); }
template <typename To, typename From> static inline To sgrad__as(const From &x) { return x; }

/* Enqueues KERNEL on the worker's stream. */
template <typename... Parameter, typename... Argument>
static inline void sgrad__launch_grid(void (*kernel)(Parameter...), dim3 grid, dim3 block, Argument... argument) {
    const cudaLaunchConfig_t config = { grid, block, 0, sgrad_cuda_stream(), NULL, 0 };
    SGRAD_CUDA(cudaLaunchKernelEx(&config, kernel, sgrad__as<Parameter>(argument)...));
}

/* Enqueues KERNEL with one thread for each of COUNT items (usually packs); COUNT is its first argument. The program is aborted
 * if COUNT is 2^32 or more. sgrad__thread returns the index of the calling thread's item. */
template <typename... Parameter, typename... Argument>
static inline void sgrad__launch(void (*kernel)(uint32_t, Parameter...), int64_t count, Argument... argument) {
    if (count < 0 || count > UINT32_MAX) sgrad_cuda_fail("an operand has too many elements", "a kernel launch");
    if (count > 0) sgrad__launch_grid(kernel, dim3((unsigned)sgrad__ceil(count, 256)), dim3(256), (uint32_t)count, argument...);
}
static __device__ inline uint32_t sgrad__thread(void) { return blockIdx.x * blockDim.x + threadIdx.x; }

/* The launch configuration of kernels on a matrix of packs. A block has 8 columns (128 bytes) and 32 rows; with fewer columns
 * it has more rows. Each thread processes rows of one column, sgrad__column(), so values that depend only on the channel are
 * computed once per thread. */
struct sgrad__sheet {
    dim3 grid, block;
};
static inline struct sgrad__sheet sgrad__sheet_of(int64_t rows, int64_t columns, int rows_a_thread) {
    unsigned across = 1;
    while (across < 8 && across < columns) across *= 2;
    const unsigned down = 256 / across, wide = (unsigned)sgrad__ceil(columns, across);
    const int64_t most = wide < 1024 ? 1024 / wide : 1, high = sgrad__ceil(rows, (int64_t)down * rows_a_thread);
    return { dim3(wide, (unsigned)(high < most ? high : most)), dim3(across, down) };
}
static __device__ inline int sgrad__column(void) { return blockIdx.x * blockDim.x + threadIdx.x; }

/* ---- warps: butterfly reductions over 32 threads; the order, and so the result, is the same in all of them ----------- */

/* Returns the values MINE of all threads of the warp, combined by the function MEET. */
template <typename T, typename F> static __device__ inline T sgrad__across_warp(T mine, F meet) {
    for (int lane = 16; lane > 0; lane /= 2) mine = meet(mine, __shfl_xor_sync(~0u, mine, lane));
    return mine;
}
template <typename T> static __device__ inline T sgrad__warp_sum(T mine) {
    return sgrad__across_warp(mine, [](T a, T b) { return a + b; });
}
static __device__ inline float sgrad__warp_max(float mine) {
    return sgrad__across_warp(mine, [](float a, float b) { return fmaxf(a, b); });
}
/* Enqueues KERNEL with one warp for each of COUNT rows, eight warps per block; COUNT is its first argument. The program is
 * aborted if COUNT is 2^31 or more. sgrad__warp returns the row of the calling thread's warp. */
template <typename... Parameter, typename... Argument>
static inline void sgrad__launch_warps(void (*kernel)(uint32_t, Parameter...), int64_t count, Argument... argument) {
    if (count < 0 || count > INT32_MAX) sgrad_cuda_fail("an operand has too many elements", "a kernel launch");
    if (count > 0)
        sgrad__launch_grid(kernel, dim3((unsigned)sgrad__ceil(count, 8)), dim3(32, 8), (uint32_t)count, argument...);
}
static __device__ inline uint32_t sgrad__warp(void) { return blockIdx.x * blockDim.y + threadIdx.y; }

/* ---- pixels ---------------------------------------------------------------------------------------------------- */

/* The coordinates of pack I of images (N,H,W,C), and the pack's index from its coordinates. C is in packs. */
struct sgrad__pixel {
    int n, h, w, c;
};
static __device__ inline struct sgrad__pixel sgrad__pixel_of(uint32_t i, int H, int W, int C) {
    const uint32_t pixel = i / C, row = pixel / W;
    return { (int)(row / H), (int)(row % H), (int)(pixel % W), (int)(i % C) };
}
static __device__ inline uint32_t sgrad__index_of(int n, int h, int w, int c, int H, int W, int C) {
    return (((uint32_t)n * H + h) * W + w) * C + c;
}

/* Returns the last four dimensions: (N,H,W,C) of images; (D,H,W,C) of volumes (N,D,H,W,C), whose slices are treated as images. */
static inline const int64_t *sgrad__image_dims(const struct sgrad_shape *shape) { return shape->dim + shape->rank - 4; }

/* The sizes of x (N,H,W,C) and of y (N,P,Q,C). C is in packs of PACK elements. */
struct sgrad__sizes {
    int H, W, P, Q, C;
};
static inline struct sgrad__sizes sgrad__sizes_of(const struct sgrad_shape *x, const struct sgrad_shape *y, int pack) {
    const int64_t *in = sgrad__image_dims(x), *out = sgrad__image_dims(y);
    return { (int)in[1], (int)in[2], (int)out[1], (int)out[2], (int)in[3] / pack };
}

/* The parameters of a pooling from x to y. */
struct sgrad__windows : sgrad__sizes {
    int kernel, stride, padding;
};
static inline struct sgrad__windows sgrad__windows_of(const struct sgrad_shape *x, const struct sgrad_shape *y, int pack,
                                                      int kernel, int stride, int padding) {
    return { sgrad__sizes_of(x, y, pack), kernel, stride, padding };
}
/* Return the first and the last window, of P, that cover coordinate H of the image. */
static __device__ inline int sgrad__first_window(const struct sgrad__windows &s, int h) {
    const int past = h + s.padding - s.kernel;
    return past < 0 ? 0 : past / s.stride + 1;
}
static __device__ inline int sgrad__last_window(const struct sgrad__windows &s, int h, int P) {
    return min((h + s.padding) / s.stride, P - 1);
}

/* ---- sums down the columns -------------------------------------------------------------------------------------
 * Sums are in double, in an order that depends only on the shape: the same input gives the same bits. There are two launches, or
 * one if there are few rows:
 *
 *     rows       each thread adds every 32nd     the block's sums         partial      2nd launch: the same, as one chunk
 *     0 … 255    row of its chunk            ─>  are added in a tree ─>   row 0   ┐
 *     256 … 511                              ─>                      ─>   row 1   ┴──> out
 *
 * A *term* computes the values to add. term.column(c) is called once by every thread of a block, also with c beyond the last
 * column; then term.add(row, c, sum) is called for each row. A column consists of SIZE channels, each with VALUES sums. The
 * result is (VALUES, columns · SIZE). */

#define SGRAD_PARTIALS (1024 * 128) /* partial sums, in doubles: 1024 chunks, 8 columns, 16 sums */

/* Two tensors of COUNT elements each, as the output of two sums per channel. Other outputs are pointers. */
template <typename T> struct sgrad__two_tensors {
    T *first, *second;
    int count;
    __device__ T &operator[](int64_t i) const { return i < count ? first[i] : second[i - count]; }
};

template <typename Term, typename Out>
static __global__ void sgrad__sum_chunks(Term term, int rows, int columns, int chunk, Out out) {
    constexpr int values = Term::values, size = Term::size;
    __shared__ double all[values * size][256];
    double sum[values][size] = {};
    const int c = sgrad__column(), first = blockIdx.y * chunk, end = min(rows, first + chunk);
    term.column(c);
    if (c < columns) {
        _Pragma("unroll 4") /* so that the loads of the rows overlap */
        for (int row = first + threadIdx.y; row < end; row += blockDim.y) term.add(row, c, sum);
    }
    const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
    for (int s = 0; s < values * size; s++) all[s][me] = sum[s / size][s % size];
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            for (int s = 0; s < values * size; s++) all[s][me] += all[s][me + half * blockDim.x];
    }
    if (threadIdx.y > 0 || c >= columns) return;
    for (int s = 0; s < values * size; s++)
        out[((int64_t)blockIdx.y * values + s / size) * columns * size + c * size + s % size] = all[s][me];
}

/* Returns an empty cache (runtime.h). */
static inline struct sgrad_cache sgrad__cuda_cache(size_t key_size, size_t value_size, void (*destroy)(void *)) {
    struct sgrad_cache cache = {};
    cache.key_size = key_size, cache.value_size = value_size, cache.destroy = destroy;
    return cache;
}

/* The term of the second launch. */
struct sgrad__partial_term {
    static constexpr int values = 1, size = 1;
    const double *x;
    int columns;
    __device__ void column(int) {}
    __device__ void add(int row, int c, double (*sum)[size]) const { sum[0][0] += x[(int64_t)row * columns + c]; }
};

static inline void sgrad__partials_free(void *value) { cudaFree(*(double **)value); }
/* Returns the worker's buffer of SGRAD_PARTIALS doubles, which is freed when the context closes. All tasks of a worker can use
 * it because they run one after another on one stream. */
static inline double *sgrad__partials(void) {
    static struct sgrad_cache cache = sgrad__cuda_cache(1, sizeof(double *), sgrad__partials_free);
    bool created;
    double **room = (double **)sgrad_cache_get(&cache, "", &created);
    if (created) SGRAD_CUDA(cudaMalloc(room, SGRAD_PARTIALS * sizeof(double)));
    return *room;
}

/* Enqueues the sums of TERM over all rows to OUT. */
template <typename Term, typename Out> static inline void sgrad__sum_rows(Term term, int64_t rows, int columns, Out out) {
    struct sgrad__sheet sheet = sgrad__sheet_of(rows, columns, 8);
    const int chunk = (int)sgrad__ceil(rows, sheet.grid.y);
    sheet.grid.y = (unsigned)sgrad__ceil(rows, chunk);
    if (sheet.grid.y == 1) {
        sgrad__launch_grid(sgrad__sum_chunks<Term, Out>, sheet.grid, sheet.block, term, (int)rows, columns, chunk, out);
        return;
    }
    double *partial = sgrad__partials();
    const int sums = Term::values * Term::size * columns;
    sgrad__launch_grid(sgrad__sum_chunks<Term, double *>, sheet.grid, sheet.block, term, (int)rows, columns, chunk, partial);
    const int chunks = (int)sheet.grid.y;
    sheet = sgrad__sheet_of(1, sums, 1);
    sgrad__launch_grid(sgrad__sum_chunks<sgrad__partial_term, Out>, sheet.grid, sheet.block, sgrad__partial_term{ partial, sums },
                       chunks, sums, chunks, out);
}

/* ---- many small tensors in one launch ----------------------------------------------------------------------------
 *
 * A *job* is the work on one tensor of n elements. A block processes 1024 of them. Blocks are assigned to the jobs in order:
 *
 *     blocks   0 1 2 │ 3 │ 4 5 │ …
 *     jobs       0   │ 1 │  2  │ …
 *
 * job.template at<P>(i, step) processes pack i, of 4 elements or of one. */

struct sgrad__job {
    uint32_t n;
    bool fours; /* packs have 4 elements */
};
static inline struct sgrad__job sgrad__job_of(const struct sgrad_view *view) {
    const int64_t n = sgrad_shape_count(&view->shape);
    if (n > UINT32_MAX) sgrad_cuda_fail("an operand has too many elements", "a kernel launch");
    return { (uint32_t)n, n % 4 == 0 };
}

/* The jobs of one launch, at most as many as fit in the parameters of a kernel. */
template <typename Job> struct sgrad__jobs {
    static constexpr int fit = (int)(3500 / (sizeof(Job) + sizeof(uint32_t))), most = fit < 32 ? fit : 32;
    int count;
    uint32_t first[most + 1]; /* first block of each job */
    Job job[most];
};

/* A kernel's parameter that all threads read from constant memory, without a copy per thread. */
#ifdef SGRAD_EMULATOR_H
#define SGRAD_SHARED_PARAMETER(type) const type &
#else
#define SGRAD_SHARED_PARAMETER(type) const __grid_constant__ type
#endif

static __device__ inline int sgrad__job_of_block(const uint32_t *first, int count) {
    int j = 0;
    while (j + 1 < count && blockIdx.x >= first[j + 1]) j++;
    return j;
}

template <typename Job>
static __global__ void sgrad__do_jobs(SGRAD_SHARED_PARAMETER(struct sgrad__jobs<Job>) jobs, const struct sgrad_step *step) {
    const int j = sgrad__job_of_block(jobs.first, jobs.count);
    const Job &job = jobs.job[j];
    const uint32_t block = blockIdx.x - jobs.first[j];
    if (job.fours) {
        const uint32_t i = block * 256 + threadIdx.x;
        if (i < job.n / 4) job.template at<sgrad__pack<float, 4>>(i, step);
    } else {
        for (uint32_t i = block * 1024 + threadIdx.x; i < job.n && i < (block + 1) * 1024; i += 256)
            job.template at<sgrad__pack<float, 1>>(i, step);
    }
}

/* Creates a job, MAKE(args), for ARGS and for each of the calls linked by its .next, and calls LAUNCH(jobs, blocks) for each set
 * of jobs that fits in a launch. The number of elements per block is the second argument. */
template <typename Make, typename Launch>
static inline void sgrad__each_jobs(const struct sgrad_args *args, uint32_t elements_a_block, Make make, Launch launch) {
    using Job = decltype(make(args));
    struct sgrad__jobs<Job> jobs = {};
    for (; args; args = args->next) {
        jobs.job[jobs.count] = make(args);
        const uint32_t blocks = (uint32_t)sgrad__ceil(jobs.job[jobs.count].n, elements_a_block);
        jobs.first[jobs.count + 1] = jobs.first[jobs.count] + blocks;
        if (++jobs.count < jobs.most && args->next) continue;
        launch(jobs, jobs.first[jobs.count]);
        jobs.count = 0;
    }
}
/* Enqueues the jobs, MAKE(args), of ARGS and of the calls linked by its .next. */
template <typename Make> static inline void sgrad__launch_jobs(const struct sgrad_args *args, Make make) {
    sgrad__each_jobs(args, 1024, make, [=](const auto &jobs, uint32_t blocks) {
        using Job = decltype(make(args));
        sgrad__launch_grid(sgrad__do_jobs<Job>, dim3(blocks), dim3(256), jobs, args->step);
    });
}

/* Returns 1 - beta^t for beta near 1. It is also accurate if beta^t is near 1. */
static __device__ inline float sgrad__one_less(float beta, uint32_t t) { return -expm1f((float)t * log1pf(beta - 1)); }

/* Returns the factor, at most 1, that reduces the norm of all gradients to LIMIT, as sgrad_clip_factor (updates.h). SQUARES:
 * the sum of the squares of all gradients. Returns 1 if SQUARES is NULL or LIMIT is 0. */
static __device__ inline float sgrad__clip(float limit, const double *squares) {
    if (!squares || limit <= 0) return 1;
    const double factor = limit / (sqrt(*squares) + 1e-6);
    return factor < 1 ? (float)factor : 1;
}

/* ---- parameters and their gradients are F32; activations are F32 or BF16 -------------------------------------------- */

template <typename To, typename From> static __global__ void sgrad__convert_kernel(uint32_t n, const From *from, To *to) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[From::size];
    sgrad__load(from + i, v);
    sgrad__store(to + i, v);
}
/* Enqueues the conversion of N elements from FROM to TO. */
template <typename To, typename From> static inline void sgrad__convert(int64_t n, const From *from, To *to) {
    if (n % 4 == 0)
        sgrad__launch(sgrad__convert_kernel<sgrad__pack<To, 4>, sgrad__pack<From, 4>>, n / 4, (const sgrad__pack<From, 4> *)from,
                      (sgrad__pack<To, 4> *)to);
    else
        sgrad__launch(sgrad__convert_kernel<sgrad__pack<To, 1>, sgrad__pack<From, 1>>, n, (const sgrad__pack<From, 1> *)from,
                      (sgrad__pack<To, 1> *)to);
}

template <typename P> static __global__ void sgrad__move_kernel(uint32_t n, const P *from, P *to, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(from + i, v);
    sgrad__store(to + i, v, add);
}
/* Enqueues a copy of data of VIEW's type and size from FROM to TO, or its addition to TO (ADD). */
static inline void sgrad__move(const struct sgrad_view *view, void *from, void *to, bool add) {
    const int64_t n = sgrad_shape_count(&view->shape);
    sgrad__with_pack(view->dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(sgrad__move_kernel<P>, n / P::size, from, to, add);
    });
}

template <typename P, typename B> static __global__ void sgrad__add_bias_kernel(uint32_t n, int K, const B *bias, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    sgrad__store(y + i, bias + i % K * P::size, true);
}
/* Enqueues y (…,K) += bias (K). VIEW describes the data. */
template <typename B> static inline void sgrad__add_bias(const struct sgrad_view *view, const B *bias, void *data) {
    const int64_t K = view->shape.dim[view->shape.rank - 1], n = sgrad_shape_count(&view->shape);
    sgrad__with_pack(view->dtype, K, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(sgrad__add_bias_kernel<P, B>, n / P::size, K / P::size, bias, data);
    });
}

template <typename P> struct sgrad__bias_term {
    static constexpr int values = 1, size = P::size;
    const P *dy;
    int K;
    __device__ void column(int) {}
    __device__ void add(int row, int c, double (*sum)[size]) const {
        float v[size];
        sgrad__load(dy + (int64_t)row * K + c, v);
        for (int j = 0; j < size; j++) sum[0][j] += v[j];
    }
};
/* Enqueues dbias (K) = Σ dy (…,K). DY describes the data. */
template <typename B> static inline void sgrad__sum_bias(const struct sgrad_view *dy, const void *data, B *dbias) {
    const int64_t K = dy->shape.dim[dy->shape.rank - 1], rows = sgrad_shape_count(&dy->shape) / K;
    sgrad__with_pack(dy->dtype, K, [=](auto pack) {
        using P = decltype(pack);
        const int columns = (int)(K / P::size);
        sgrad__sum_rows(sgrad__bias_term<P>{ (const P *)data, columns }, rows, columns, dbias);
    });
}

#endif
