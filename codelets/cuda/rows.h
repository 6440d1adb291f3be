/* rows.h: normalization of rows. A warp processes a row; its packs are distributed cyclically over the threads:
 *
 *     packs of the row    0  1 … 31 │ 32 33 … 63 │ …
 *     thread              0  1 … 31 │  0  1 … 31 │ …
 *
 * A row of at most 2,048 features, whose number is a multiple of 4, is read once and stays in registers. Longer rows and others
 * are read at every use. Private to layer_norm_cuda.cu and rms_norm_cuda.cu. */
#ifndef SGRAD_CODELETS_CUDA_ROWS_H
#define SGRAD_CODELETS_CUDA_ROWS_H

#include "codelets/cuda/cuda.h"

/* The packs of a row that a thread processes: threadIdx.x + 32·k. N is the maximum number of packs in registers; with N 0 packs
 * are read at every use. */
template <typename P, int N> struct part {
    const P *row;
    float held[N ? N : 1][P::size];

    __device__ part(const P *x, int packs) : row(x) {
        _Pragma("unroll") for (int k = 0; k < N; k++) if ((int)threadIdx.x + 32 * k < packs)
            sgrad__load(row + threadIdx.x + 32 * k, held[k]);
    }
    __device__ void get(int k, float *v) const {
        if constexpr (N == 0)
            sgrad__load(row + threadIdx.x + 32 * k, v);
        else
            for (int j = 0; j < P::size; j++) v[j] = held[k][j];
    }
};

/* Calls f(k, i) for each pack of the thread; I is its index in the row. */
template <int N, typename F> static __device__ inline void each(int packs, F f) {
    if constexpr (N == 0) {
        for (int k = 0, i = threadIdx.x; i < packs; k++, i += 32) f(k, i);
    } else {
        _Pragma("unroll") for (int k = 0; k < N; k++) if ((int)threadIdx.x + 32 * k < packs) f(k, (int)threadIdx.x + 32 * k);
    }
}

/* Loads as many floats as pack I has elements. */
template <typename P> static __device__ inline void load_floats(const float *from, int i, float *v) {
    if constexpr (P::size % 4 == 0)
        for (int j = 0; j < P::size / 4; j++) sgrad__load((const sgrad__pack<float, 4> *)from + i * (P::size / 4) + j, v + 4 * j);
    else
        for (int j = 0; j < P::size; j++) v[j] = from[i * P::size + j];
}

/* Calls f with a pack and with the maximum number of packs that a thread has of a row of C features; that number is 0 if
 * registers do not suffice. */
template <typename F> static inline void with_rows(enum sgrad_dtype dtype, int C, F f) {
    sgrad__with_wide_pack(dtype, C, [=](auto pack) {
        const int64_t each = sgrad__ceil(C / pack.size, 32);
        constexpr int most = 64 / decltype(pack)::size; /* more than 64 floats of two rows do not fit */
        if constexpr (decltype(pack)::size == 1)
            f(pack, std::integral_constant<int, 0>());
        else if (each > most)
            f(pack, std::integral_constant<int, 0>());
        else if (each > 8)
            f(pack, std::integral_constant<int, most>());
        else if (each > 4)
            f(pack, std::integral_constant<int, 8>());
        else if (each > 2)
            f(pack, std::integral_constant<int, 4>());
        else
            f(pack, std::integral_constant<int, 2>());
    });
}

#endif
