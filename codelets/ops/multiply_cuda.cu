/* multiply_cuda.cu: multiply.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/multiply.h"

/* x1 as ROWS rows of C packs, each of which multiplies PIXELS rows of x0. Inputs of one shape are one long row. */
struct extent {
    uint32_t rows, pixels, C;
};

/* Returns the index in x1 of the pack that multiplies pack I of x0. */
static __device__ inline uint32_t factor_of(const struct extent &is, uint32_t i) {
    return i / is.C / is.pixels * is.C + i % is.C;
}

template <typename P> static __global__ void forward(uint32_t n, bool silu, struct extent is, const P *x0, const P *x1, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float u[P::size], v[P::size];
    sgrad__load(x0 + i, u);
    sgrad__load(x1 + factor_of(is, i), v);
    for (int j = 0; j < P::size; j++) v[j] *= silu ? u[j] * sgrad__sigmoid(u[j]) : u[j];
    sgrad__store(y + i, v);
}

template <typename P>
static __global__ void backward0(uint32_t n, bool silu, struct extent is, const P *x0, const P *x1, const P *dy, P *dx0,
                                 bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float u[P::size], v[P::size], d[P::size];
    sgrad__load(x0 + i, u);
    sgrad__load(x1 + factor_of(is, i), v);
    sgrad__load(dy + i, d);
    for (int j = 0; j < P::size; j++) {
        const float s = silu ? sgrad__sigmoid(u[j]) : 1, slope = silu ? s * (1 + u[j] * (1 - s)) : 1;
        d[j] *= v[j] * slope;
    }
    sgrad__store(dx0 + i, d, add);
}

/* Threads of a block that have the same x index process one pack of x1; each adds every blockDim.y-th pixel. Their sums are added
 * in a tree. */
template <typename P>
static __global__ void backward1(bool silu, struct extent is, const P *x0, const P *dy, P *dx1, bool add) {
    __shared__ float all[P::size][256];
    const uint32_t pack = blockIdx.x * blockDim.x + threadIdx.x, first = pack / is.C * is.pixels * is.C + pack % is.C;
    const bool inside = pack < is.rows * is.C;
    float u[P::size], d[P::size], sum[P::size] = {};
    for (uint32_t pixel = threadIdx.y; inside && pixel < is.pixels; pixel += blockDim.y) {
        sgrad__load(x0 + first + pixel * is.C, u);
        sgrad__load(dy + first + pixel * is.C, d);
        for (int j = 0; j < P::size; j++) sum[j] += d[j] * u[j] * (silu ? sgrad__sigmoid(u[j]) : 1);
    }
    const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
    for (int j = 0; j < P::size; j++) all[j][me] = sum[j];
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            for (int j = 0; j < P::size; j++) all[j][me] += all[j][me + half * blockDim.x];
    }
    if (threadIdx.y > 0 || !inside) return;
    for (int j = 0; j < P::size; j++) sum[j] = all[j][me];
    sgrad__store(dx1 + pack, sum, add);
}

static bool has_silu(const struct sgrad_args *args) { return ((const struct sgrad_multiply *)args->attrs)->silu; }

/* Calls f with a pack, the extent and the number of packs of x0. */
template <typename F> static void with_extent(const struct sgrad_args *args, F f) {
    const struct sgrad_shape *x0 = &args->view[0].shape, *x1 = &args->view[1].shape;
    const int64_t n = sgrad_shape_count(x0), same = sgrad_shape_equal(x0, x1);
    const int64_t rows = same ? 1 : x0->dim[0], C = same ? n : x0->dim[x0->rank - 1], pixels = n / rows / C;
    sgrad__with_wide_pack(args->view[0].dtype, C, [=](auto pack) {
        const int size = decltype(pack)::size;
        f(pack, extent{ (uint32_t)rows, (uint32_t)pixels, (uint32_t)(C / size) }, n / size);
    });
}

/* x0, y of any shape, x1 of that shape, (N,1,…,1,C) or (N,C) */
extern "C" void sgrad__multiply_forward_cuda(const struct sgrad_args *args) {
    with_extent(args, [=](auto pack, struct extent is, int64_t n) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n, has_silu(args), is, args->data[0], args->data[1], args->data[2]);
    });
}

/* x0, dy of any shape, x1 of that shape, (N,1,…,1,C) or (N,C), dx0, dx1 as x0, x1 or absent */
extern "C" void sgrad__multiply_backward_cuda(const struct sgrad_args *args) {
    with_extent(args, [=](auto pack, struct extent is, int64_t n) {
        using P = decltype(pack);
        if (args->data[3])
            sgrad__launch(backward0<P>, n, has_silu(args), is, args->data[0], args->data[1], args->data[2], args->data[3],
                          sgrad_adds(args, 3));
        if (!args->data[4]) return;
        unsigned down = 1;
        while (down < 32 && down < is.pixels) down *= 2;
        const dim3 grid((unsigned)sgrad__ceil((int64_t)is.rows * is.C, 256 / down)), block(256 / down, down);
        sgrad__launch_grid(backward1<P>, grid, block, has_silu(args), is, args->data[0], args->data[2], args->data[4],
                           sgrad_adds(args, 4));
    });
}
