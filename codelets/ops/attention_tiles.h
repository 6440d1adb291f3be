/* attention_tiles.h: attention on CUDA devices, block by block on tensor cores; scores are never stored.
 *
 *     forward             a block has 64 queries and iterates over the keys     s = q kᵀ, p = exp(s - max), y = y·shrink + p v
 *     backward, queries   likewise                                              ds = p (dy vᵀ - y·dy), dq += ds k
 *     backward, keys      a block has 64 keys and iterates over the queries     dv += pᵀ dy, dk += dsᵀ q
 *
 * A warp has 16 rows of its block in registers, as left factors and as sums. The rows of the other side are loaded as tiles into
 * the block's on-chip memory (__shared__). Backward computes p twice, so that no two blocks add to the same number. Therefore
 * results are bitwise reproducible.
 *
 * In document_attention, blocks of queries and keys that have no document in common are left out. Private to attention_cuda.cu.
 *
 * Source: T. Dao, FlashAttention-2: faster attention with better parallelism and work partitioning, 2023. */
#ifndef SGRAD_CODELETS_OPS_ATTENTION_TILES_H
#define SGRAD_CODELETS_OPS_ATTENTION_TILES_H

#include "codelets/cuda/tensor_cores.h"
#include "codelets/ops/attention_rows.h"

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

#define WARPS 4
#define ROWS  (16 * WARPS) /* of a block; two blocks fit a multiprocessor with 255 registers per thread */
#define LOG2E 1.44269504f

/* Sizes of tiles for arithmetic A and heads of at most DIM numbers. Numbers beyond the size of a head, and rows beyond the last,
 * are 0. The number of rows of a tile is chosen so that registers suffice for the factors and for SUMS sums of 16 × DIM
 * numbers. */
template <typename A, int DIM, int SUMS> struct tiling {
    typedef typename A::type type;
    static constexpr int bytes = DIM * sizeof(type) * (SUMS > 1 ? 2 : 1);
    static constexpr bool half = A::depth == 16;
    static constexpr int few_rows = bytes <= (half ? 384 : 384 - 128 * SUMS) ? 32 : 16,
                         rows = bytes <= 128 && half ? 64 : few_rows;
    static constexpr int steps = DIM / A::depth, columns = DIM / 8, scores = rows / 8, wide = DIM + A::spare;
    static constexpr int stages = 4 * rows * wide * sizeof(type) <= 48 << 10 ? 2 : 1; /* 2: double buffering of tiles */
    typedef type pair[2][rows * wide];
};

/* 16 rows as left factors. If HELD they stay in registers; else they are loaded at each use, to save registers. */
template <typename A, int DIM, bool HELD> struct left_rows {
    typedef typename A::type type;
    static constexpr int unrolled = HELD ? DIM / A::depth : 2; /* turns of a loop over the factors */
    struct matrix<type> from;
    int first, count, size;
    sgrad__left held[HELD ? DIM / A::depth : 1];

    __device__ left_rows(struct matrix<type> m, int row, const struct sizes &s) : from(m), first(row), count(s.T), size(s.size) {
        if constexpr (HELD)
            for (int j = 0; j < DIM / A::depth; j++) held[j] = load(j);
    }
    __device__ sgrad__left load(int j) const {
        const int row = first + threadIdx.x / 4;
        const type *low = from.at + (int64_t)row * from.stride, *high = low + 8 * from.stride;
        if (size % 2 == 0 && (j + 1) * A::depth <= size && first + 16 <= count) return A::left_at(low, high, j * A::depth);
        return A::left_from(row, j * A::depth,
                            [=](int r, int c) { return r < count && c < size ? (float)from.at[r * from.stride + c] : 0.0f; });
    }
    __device__ sgrad__left operator[](int j) const {
        if constexpr (HELD)
            return held[j];
        else
            return load(j);
    }
};

/* Loads rows from FROM on of M into a tile; all threads of the block must call it. */
template <typename A, int DIM, typename t>
static __device__ void load_tile(typename A::type *tile, struct matrix<typename A::type> m, int from, const struct sizes &sizes) {
    constexpr int most = 16 / sizeof(typename A::type);
    typedef sgrad__pack<typename A::type, most> pack;
    for (int i = threadIdx.y * 32 + threadIdx.x; i < t::rows * DIM / most; i += 32 * WARPS) {
        const int row = i / (DIM / most), column = i % (DIM / most) * most;
        const typename A::type *x = m.at + (int64_t)(from + row) * m.stride + column;
        typename A::type *to = tile + row * t::wide + column;
        if (from + row < sizes.T && column + most <= sizes.size && sizes.size % most == 0) {
            copy_later(to, x);
            continue;
        }
        pack p = {};
        for (int j = 0; j < most && from + row < sizes.T; j++)
            if (column + j < sizes.size) p.at[j] = x[j];
        *(pack *)to = p;
    }
}

/* Iterates over rows BEGIN … END - 1 of A and B, tile by tile, and calls WORK(from, stage, tile of a, tile of b). The
 * other callback, called with (from, stage), must load the further data that WORK needs. */
template <typename A, int DIM, typename t, typename Beside, typename Work>
static __device__ void pass(typename t::pair *tile, struct matrix<typename A::type> a, struct matrix<typename A::type> b,
                            int begin, int end, const struct sizes &sizes, Beside beside, Work work) {
    const auto load = [&](int from, int stage) {
        load_tile<A, DIM, t>(tile[stage][0], a, from, sizes);
        load_tile<A, DIM, t>(tile[stage][1], b, from, sizes);
        beside(from, stage);
        end_copies();
    };
    load(begin, 0);
    for (int from = begin, stage = 0; from < end; from += t::rows) {
        const int next = from + t::rows;
        if (t::stages == 2 && next < end) {
            load(next, 1 - stage);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        work(from, stage, tile[stage][0], tile[stage][1]);
        __syncthreads();
        if (t::stages == 2)
            stage = 1 - stage;
        else if (next < end)
            load(next, 0);
    }
}

/* sum (16 × rows of the tile) = left · tileᵀ */
template <typename A, typename t, typename Left>
static __device__ void multiply_along(sgrad__tile_sum *sum, const Left &left, const typename A::type *tile) {
    [[maybe_unused]] constexpr int unrolled = Left::unrolled;
    for (int n = 0; n < t::scores; n++) sum[n] = {};
#pragma unroll unrolled
    for (int j = 0; j < t::steps; j++) {
        const sgrad__left l = left[j];
        _Pragma("unroll") for (int n = 0; n < t::scores; n += 2) {
            sgrad__right r[2];
            A::right_along(r, tile, t::wide, 8 * n, j * A::depth);
            A::multiply(&sum[n], l, r[0]), A::multiply(&sum[n + 1], l, r[1]);
        }
    }
}

/* sum (16 × DIM) += p · tile, p (16 × rows of the tile) */
template <typename A, typename t>
static __device__ void multiply_across(sgrad__tile_sum *sum, const sgrad__tile_sum *p, const typename A::type *tile) {
    _Pragma("unroll") for (int j = 0; j < t::rows / A::depth; j++) {
        const sgrad__left l = A::left_of(p, j);
        _Pragma("unroll") for (int n = 0; n < t::columns; n += 2) {
            sgrad__right r[2];
            A::right_across(r, tile, t::wide, 8 * n, j * A::depth);
            A::multiply(&sum[n], l, r[0]), A::multiply(&sum[n + 1], l, r[1]);
        }
    }
}

/* Sum and maximum over the four threads that process a row together. */
static __device__ inline float sum_of_four(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
static __device__ inline float most_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/* Writes a warp's rows of sums, times FACTOR, to a head's gradient, which begins at element AT, or adds to it; rows after the
 * last are skipped. FACTOR has two elements, for rows g and g+8 of a thread. Two neighbours are written at once if heads have an
 * even number of columns. */
template <typename A, int DIM>
static __device__ void store_rows(const sgrad__tile_sum *sum, const float *factor, const struct operand<typename A::type> &to,
                                  int64_t at, int first, const struct sizes &sizes) {
    if (!to.slope) return;
    _Pragma("unroll") for (int n = 0; n < DIM / 8; n++) for (int i = 0; i < 2; i++) {
        const int row = first + threadIdx.x / 4 + 8 * i, c = 8 * n + 2 * (threadIdx.x % 4);
        const float v[2] = { sum[n].at[2 * i] * factor[i], sum[n].at[2 * i + 1] * factor[i] };
        typename A::type *y = to.slope + at + row * to.stride + c;
        if (row >= sizes.T || c >= sizes.size) continue;
        if (sizes.size % 2 == 0)
            sgrad__store((sgrad__pack<typename A::type, 2> *)y, v, to.add);
        else
            for (int e = 0; e < 2 && c + e < sizes.size; e++) y[e] = (to.add ? (float)y[e] : 0) + v[e];
    }
}

/* Head and rows of this thread block. In causal attention the blocks with the most keys start first. */
struct part {
    int64_t number;
    int first;
    __device__ part(const struct sizes &s, bool backwards) {
        const uint32_t blocks = (uint32_t)sgrad__ceil(s.T, ROWS), block = blockIdx.x % blocks;
        number = blockIdx.x / blocks;
        first = (int)(backwards ? blocks - 1 - block : block) * ROWS;
    }
    __device__ int of_warp() const { return first + 16 * threadIdx.y; }
};

/* Returns whether query ROW attends to key COLUMN. START: as of first_key. */
static __device__ inline bool sees(const struct sizes &sizes, const int32_t *start, int row, int column) {
    return row < sizes.T && column < sizes.T && (!sizes.causal || column <= row) && column >= first_key(start, row);
}

/* Returns the first query, of those after key LAST, that does not attend to it nor to any key before it; they are sorted. */
static __device__ inline int after(const struct sizes &sizes, const int32_t *start, int last) {
    int low = min(last + 1, sizes.T), high = sizes.T;
    while (start && low < high) {
        const int middle = (low + high) / 2;
        if (start[middle] > last)
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

/* q, k, v, y (N,T,C), saved (N,heads,T): log Σ exp of each row of scores */
template <typename A, int DIM>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    forward(struct sizes sizes, struct operands<typename A::type> in, typename A::type *y, float *keep) {
    using t = tiling<A, DIM, 1>;
    alignas(16) __shared__ typename t::pair tile[t::stages];
    const struct part part(sizes, sizes.causal);
    const struct head<typename A::type> h(sizes, part.number, in);
    const left_rows<A, DIM, (t::bytes <= 256)> q(h.q, part.of_warp(), sizes);
    const float scale = 1 / sqrtf((float)sizes.size);
    sgrad__tile_sum sum[t::columns], p[t::scores];
    float most[2] = { -INFINITY, -INFINITY }, total[2] = {};
    const int begin = first_key(h.start, part.first) / t::rows * t::rows;
    const int latest = first_key(h.start, min(part.of_warp() + 15, sizes.T - 1)); /* of the rows of this warp */
    const int end = sizes.causal ? min(sizes.T, part.first + ROWS) : sizes.T;
    const auto turn = [&](int from, int, const typename A::type *keys, const typename A::type *values) {
        const bool all = part.of_warp() + 16 <= sizes.T && from + t::rows <= sizes.T &&
                         (!sizes.causal || from + t::rows <= part.of_warp() + 1) && from >= latest;
        multiply_along<A, t>(p, q, keys);
        _Pragma("unroll") for (int i = 0; i < 2; i++) { /* unrolled, so that indices of registers are constants */
            const int row = part.of_warp() + threadIdx.x / 4 + 8 * i;
            float here = most[i], added = 0;
            _Pragma("unroll") for (int n = 0; n < t::scores; n++) for (int e = 2 * i; e < 2 * i + 2; e++) {
                const int column = from + 8 * n + 2 * (threadIdx.x % 4) + e % 2;
                if (!all && !sees(sizes, h.start, row, column)) p[n].at[e] = -INFINITY;
                here = fmaxf(here, p[n].at[e]);
            }
            here = most_of_four(here);
            const float zero = here == -INFINITY ? 0 : here * scale * LOG2E, shrink = power_of_2(most[i] * scale * LOG2E - zero);
            _Pragma("unroll") for (int n = 0; n < t::scores; n++) for (int e = 2 * i; e < 2 * i + 2; e++) {
                p[n].at[e] = power_of_2(p[n].at[e] * scale * LOG2E - zero);
                added += p[n].at[e];
            }
            total[i] = total[i] * shrink + added;
            most[i] = here;
            _Pragma("unroll") for (int n = 0; n < t::columns; n++) sum[n].at[2 * i] *= shrink, sum[n].at[2 * i + 1] *= shrink;
        }
        multiply_across<A, t>(sum, p, values);
    };
    pass<A, DIM, t>(
        tile, h.k, h.v, begin, end, sizes, [](int, int) {}, turn);
    float factor[2];
    for (int i = 0; i < 2; i++) {
        const int row = part.of_warp() + threadIdx.x / 4 + 8 * i;
        total[i] = sum_of_four(total[i]);
        factor[i] = 1 / total[i];
        if (row < sizes.T && threadIdx.x % 4 == 0) keep[part.number * sizes.T + row] = most[i] * scale + logf(total[i]);
    }
    const struct operand<typename A::type> to = { nullptr, y, sizes.width, false };
    store_rows<A, DIM>(sum, factor, to, h.out, part.of_warp(), sizes);
}

/* Computes dq, and own (N,heads,T): y·dy of each row. Inputs: q, k, v, y, dy (N,T,C), saved (N,heads,T). */
template <typename A, int DIM>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    backward_queries(struct sizes sizes, struct operands<typename A::type> in, const typename A::type *y,
                     const typename A::type *dy, const float *keep, float *own) {
    using t = tiling<A, DIM, 1>;
    alignas(16) __shared__ typename t::pair tile[t::stages];
    const struct part part(sizes, sizes.causal);
    const struct head<typename A::type> h(sizes, part.number, in);
    const left_rows<A, DIM, (t::bytes <= 8 * A::depth)> q(h.q, part.of_warp(), sizes),
        d({ dy + h.out, sizes.width }, part.of_warp(), sizes);
    const left_rows<A, DIM, false> of_y({ y + h.out, sizes.width }, part.of_warp(), sizes);
    const float scale = 1 / sqrtf((float)sizes.size);
    float log_sum[2], product[2] = {};
    [[maybe_unused]] constexpr int unrolled = decltype(d)::unrolled;
#pragma unroll unrolled
    for (int j = 0; j < t::steps; j++) A::dot(product, of_y[j], d[j]);
    for (int i = 0; i < 2; i++) {
        const int row = part.of_warp() + threadIdx.x / 4 + 8 * i;
        product[i] = sum_of_four(product[i]);
        log_sum[i] = row < sizes.T ? keep[part.number * sizes.T + row] * LOG2E : 0;
        if (row < sizes.T && threadIdx.x % 4 == 0) own[part.number * sizes.T + row] = product[i];
    }
    sgrad__tile_sum dq[t::columns], p[t::scores], ds[t::scores];
    const int begin = first_key(h.start, part.first) / t::rows * t::rows;
    const int latest = first_key(h.start, min(part.of_warp() + 15, sizes.T - 1)); /* of the rows of this warp */
    const int end = sizes.causal ? min(sizes.T, part.first + ROWS) : sizes.T;
    const auto turn = [&](int from, int, const typename A::type *keys, const typename A::type *values) {
        const bool all = part.of_warp() + 16 <= sizes.T && from + t::rows <= sizes.T &&
                         (!sizes.causal || from + t::rows <= part.of_warp() + 1) && from >= latest;
        multiply_along<A, t>(p, q, keys);
        multiply_along<A, t>(ds, d, values);
        _Pragma("unroll") for (int n = 0; n < t::scores; n++) for (int e = 0; e < 4; e++) {
            const int row = part.of_warp() + threadIdx.x / 4 + 8 * (e / 2);
            const int column = from + 8 * n + 2 * (threadIdx.x % 4) + e % 2;
            const bool seen = all || sees(sizes, h.start, row, column);
            const float share = seen ? power_of_2(p[n].at[e] * scale * LOG2E - log_sum[e / 2]) : 0;
            ds[n].at[e] = share * (ds[n].at[e] - product[e / 2]);
        }
        multiply_across<A, t>(dq, ds, keys);
    };
    pass<A, DIM, t>(
        tile, h.k, h.v, begin, end, sizes, [](int, int) {}, turn);
    const float factor[2] = { scale, scale };
    store_rows<A, DIM>(dq, factor, in.q, h.of_q, part.of_warp(), sizes);
}

/* Computes dk, dv or both (DK, DV), summed over the heads of queries that use a head of keys. */
template <typename A, int DIM, bool DK, bool DV>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    backward_keys(struct sizes sizes, struct operands<typename A::type> in, const typename A::type *dy, const float *keep,
                  const float *own) {
    using t = tiling<A, DIM, DK + DV>;
    alignas(16) __shared__ typename t::pair tile[t::stages];
    __shared__ float log_sum[t::stages][t::rows], product[t::stages][t::rows];
    const struct part part(sizes, false);
    int64_t number = first_head(sizes, part.number);
    const struct head<typename A::type> shared(sizes, number, in);
    const left_rows<A, DIM, (t::bytes <= 16 * A::depth)> k(shared.k, part.of_warp(), sizes), v(shared.v, part.of_warp(), sizes);
    const float scale = 1 / sqrtf((float)sizes.size);
    const int end = after(sizes, shared.start, part.first + ROWS - 1);
    sgrad__tile_sum dk[DK ? t::columns : 1], dv[DV ? t::columns : 1], p[t::scores], ds[DK ? t::scores : 1];
    const auto beside = [&](int from, int stage) {
        for (int i = threadIdx.y * 32 + threadIdx.x; i < t::rows; i += 32 * WARPS) {
            const int64_t row = number * sizes.T + from + i;
            log_sum[stage][i] = from + i < sizes.T ? keep[row] * LOG2E : 0, product[stage][i] = from + i < sizes.T ? own[row] : 0;
        }
    };
    const auto turn = [&](int from, int stage, const typename A::type *queries, const typename A::type *slopes) {
        const bool all =
            part.of_warp() + 16 <= sizes.T && from + t::rows <= sizes.T && (!sizes.causal || from >= part.of_warp() + 15) &&
            first_key(shared.start, from + t::rows - 1) <= part.of_warp();
        multiply_along<A, t>(p, k, queries);
        if constexpr (DK) multiply_along<A, t>(ds, v, slopes);
        _Pragma("unroll") for (int n = 0; n < t::scores; n++) for (int e = 0; e < 4; e++) {
            const int row = part.of_warp() + threadIdx.x / 4 + 8 * (e / 2), i = 8 * n + 2 * (threadIdx.x % 4) + e % 2;
            const bool seen = all || sees(sizes, shared.start, from + i, row);
            p[n].at[e] = seen ? power_of_2(p[n].at[e] * scale * LOG2E - log_sum[stage][i]) : 0;
            if constexpr (DK) ds[n].at[e] = p[n].at[e] * (ds[n].at[e] - product[stage][i]);
        }
        if constexpr (DV) multiply_across<A, t>(dv, p, slopes);
        if constexpr (DK) multiply_across<A, t>(dk, ds, queries);
    };
    for (int g = 0; g < sizes.heads / sizes.kv; g++, number++) {
        const struct head<typename A::type> h(sizes, number, in);
        const struct matrix<typename A::type> of_dy = { dy + h.out, sizes.width };
        pass<A, DIM, t>(tile, h.q, of_dy, sizes.causal ? part.first : 0, end, sizes, beside, turn);
    }
    const float factor[2] = { scale, scale }, one[2] = { 1, 1 };
    if constexpr (DK) store_rows<A, DIM>(dk, factor, in.k, shared.of_k, part.of_warp(), sizes);
    if constexpr (DV) store_rows<A, DIM>(dv, one, in.v, shared.of_v, part.of_warp(), sizes);
}

#endif
