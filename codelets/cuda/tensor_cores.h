/* tensor_cores.h: products of small matrices by a warp of a CUDA device. Private to codelets/, only for *_cuda.cu.
 *
 * sum (16×8) += left (16×depth) · right (depth×8). The elements of each matrix are distributed over the registers of the 32
 * threads. Thread 4·g + t has these:
 *
 *     sum      rows g, g+8      columns 2t, 2t+1          at[0] at[1]  of row g, at[2] at[3]  of row g+8
 *     left     rows g, g+8      columns k(t)              at[0] at[2]  of row g, at[1] at[3]  of row g+8
 *     right    column g         rows k(t)                 at[0] at[1]
 *
 * In a bf16 product the depth is 16, a register has two numbers, and k(t) is 2t, 2t+1, 2t+8, 2t+9. In a float product the depth
 * is 8, and k(t) is 2t, 2t+1. (The hardware uses t, t+4 for floats. Both factors are renumbered equally, so the sum is the same,
 * and neighbours in memory stay neighbours.) With these indices a sum can be used as a left factor without an exchange between
 * threads.
 *
 * Three kinds of arithmetic, all with float sums:
 *
 *     sgrad__bf16    bf16 factors
 *     sgrad__tf32    float factors rounded to TF32, 10 bits after the point
 *     sgrad__f32     float factors as sums of two TF32 numbers each: three products, an error of about 2^-21
 *
 * Sources: PTX ISA, instructions mma, ldmatrix and cp.async; NVIDIA CUTLASS's documentation for the three products. The emulator
 * of the tests (tests/gpu/emulator/emulator.h) implements these instructions. */
#ifndef SGRAD_CODELETS_CUDA_TENSOR_CORES_H
#define SGRAD_CODELETS_CUDA_TENSOR_CORES_H

#include <cstring>

#include "codelets/cuda/cuda.h"

struct sgrad__left {
    uint32_t at[4];
};
struct sgrad__right {
    uint32_t at[2];
};
struct sgrad__tile_sum {
    float at[4] = {};
};

/* ---- instructions ---------------------------------------------------------------------------------------------- */

#ifdef SGRAD_EMULATOR_H
using emulator::copy_later;
using emulator::end_copies;
using emulator::load_matrices;
using emulator::load_turned_matrices;
using emulator::multiply_bf16;
using emulator::multiply_tf32;
using emulator::round_to_tf32;
using emulator::wait_for_copies;
static inline float power_of_2(float x) { return exp2f(x); }
#else
static __device__ inline void multiply_bf16(float *sum, const uint32_t *left, const uint32_t *right) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
static __device__ inline void multiply_tf32(float *sum, const uint32_t *left, const uint32_t *right) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
static __device__ inline uint32_t round_to_tf32(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
/* Load four matrices of 8×8 bf16 from shared memory. Thread 8·i + r passes the address of row r, of 16 bytes, of matrix i. In
 * to[i], thread 4·g + t gets the elements 2t, 2t+1 of row g of matrix i; with the second function those of column g. */
static __device__ inline void load_matrices(uint32_t *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}
static __device__ inline void load_turned_matrices(uint32_t *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}
/* copy_later starts an asynchronous copy of 16 bytes to shared memory. end_copies ends a group: all copies that the thread
 * started since the previous group. wait_for_copies waits until the thread's groups, except the last LEFT ones, are complete.
 * Copies of other threads are visible after all threads have waited and the block has synchronised. */
static __device__ inline void copy_later(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}
static __device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> static __device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Returns 2^x with a relative error of 2^-22; denormals are treated as zeros. */
static __device__ inline float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* ---- arithmetic: type, depth and loads of each kind ------------------------------------------------------------------- */

/* The bits of a float, the float with these bits, and the bits of two floats that are rounded to bf16. */
static __device__ inline uint32_t sgrad__bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static __device__ inline float sgrad__float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static __device__ inline uint32_t sgrad__pair(float low, float high) {
    const __nv_bfloat16 pair[2] = { low, high };
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/* The functions of sgrad__bf16, which sgrad__tf32 and sgrad__f32 have as well. */
struct sgrad__bf16 {
    typedef __nv_bfloat16 type;
    static constexpr int depth = 16, spare = 8; /* unused elements after a row of a tile: rows start in different banks */

    static __device__ void multiply(sgrad__tile_sum *sum, const sgrad__left &left, const sgrad__right &right) {
        multiply_bf16(sum->at, left.at, right.at);
    }
    /* Returns the J-th left factor along the depth from the sums of 16 rows. */
    static __device__ sgrad__left left_of(const sgrad__tile_sum *sums, int j) {
        const float *a = sums[2 * j].at, *b = sums[2 * j + 1].at;
        return { { sgrad__pair(a[0], a[1]), sgrad__pair(a[2], a[3]), sgrad__pair(b[0], b[1]), sgrad__pair(b[2], b[3]) } };
    }
    /* Returns the left factor that starts at column COLUMN of a matrix with elements get(r, c). The thread's rows are ROW and
     * ROW + 8. */
    template <typename Get> static __device__ sgrad__left left_from(int row, int column, Get get) {
        sgrad__left to;
        for (int i = 0; i < 4; i++) {
            const int r = row + 8 * (i % 2), c = column + 2 * (threadIdx.x % 4) + 8 * (i / 2);
            to.at[i] = sgrad__pair(get(r, c), get(r, c + 1));
        }
        return to;
    }
    /* The same for a matrix in memory. The thread's rows start at LOW (row g) and HIGH (row g+8). */
    static __device__ sgrad__left left_at(const type *low, const type *high, int column) {
        const int c = column + 2 * (threadIdx.x % 4);
        SGRAD_ALIGNED((const uint32_t *)(low + c));
        SGRAD_ALIGNED((const uint32_t *)(high + c));
        return { { *(const uint32_t *)(low + c), *(const uint32_t *)(high + c), *(const uint32_t *)(low + c + 8),
                   *(const uint32_t *)(high + c + 8) } };
    }
    /* Read two adjacent right factors, for columns FIRST … FIRST + 15 of the product, from a tile in shared memory whose rows
     * are WIDE elements apart. FROM is the first index along the depth. right_along: the tile's rows are the product's
     * columns. right_across: the tile's rows are the indices along the depth. */
    static __device__ void right_along(sgrad__right *to, const type *tile, int wide, int first, int from) {
        const int lane = threadIdx.x, matrix = lane / 8;
        uint32_t word[4];
        load_matrices(word, tile + (first + lane % 8 + 8 * (matrix / 2)) * wide + from + 8 * (matrix % 2));
        to[0] = { { word[0], word[1] } }, to[1] = { { word[2], word[3] } };
    }
    static __device__ void right_across(sgrad__right *to, const type *tile, int wide, int first, int from) {
        const int lane = threadIdx.x, matrix = lane / 8;
        uint32_t word[4];
        load_turned_matrices(word, tile + (from + lane % 8 + 8 * (matrix % 2)) * wide + first + 8 * (matrix / 2));
        to[0] = { { word[0], word[1] } }, to[1] = { { word[2], word[3] } };
    }
    /* Adds the thread's terms of the dot product of row g of A and row g of B to sum[0], those of row g+8 to sum[1]. */
    static __device__ void dot(float *sum, const sgrad__left &a, const sgrad__left &b) {
        for (int i = 0; i < 4; i++) {
            sum[i % 2] += sgrad__float(a.at[i] << 16) * sgrad__float(b.at[i] << 16);
            sum[i % 2] += sgrad__float(a.at[i] & 0xffff0000) * sgrad__float(b.at[i] & 0xffff0000);
        }
    }
};

struct sgrad__tf32 {
    typedef float type;
    static constexpr int depth = 8, spare = 4;

    static __device__ void multiply(sgrad__tile_sum *sum, const sgrad__left &left, const sgrad__right &right) {
        uint32_t a[4], b[2];
        for (int i = 0; i < 4; i++) a[i] = round_to_tf32(sgrad__float(left.at[i]));
        for (int i = 0; i < 2; i++) b[i] = round_to_tf32(sgrad__float(right.at[i]));
        multiply_tf32(sum->at, a, b);
    }
    static __device__ sgrad__left left_of(const sgrad__tile_sum *sums, int j) {
        const float *a = sums[j].at;
        return { { sgrad__bits(a[0]), sgrad__bits(a[2]), sgrad__bits(a[1]), sgrad__bits(a[3]) } };
    }
    template <typename Get> static __device__ sgrad__left left_from(int row, int column, Get get) {
        sgrad__left to;
        for (int i = 0; i < 4; i++) to.at[i] = sgrad__bits(get(row + 8 * (i % 2), column + 2 * (threadIdx.x % 4) + i / 2));
        return to;
    }
    static __device__ sgrad__left left_at(const type *low, const type *high, int column) {
        const int c = column + 2 * (threadIdx.x % 4);
        SGRAD_ALIGNED((const float2 *)(low + c));
        SGRAD_ALIGNED((const float2 *)(high + c));
        const float2 a = *(const float2 *)(low + c), b = *(const float2 *)(high + c);
        return { { sgrad__bits(a.x), sgrad__bits(b.x), sgrad__bits(a.y), sgrad__bits(b.y) } };
    }
    static __device__ void right_along(sgrad__right *to, const type *tile, int wide, int first, int from) {
        for (int k = 0; k < 2; k++) {
            const type *at = tile + (first + 8 * k + threadIdx.x / 4) * wide + from + 2 * (threadIdx.x % 4);
            SGRAD_ALIGNED((const float2 *)at);
            const float2 pair = *(const float2 *)at;
            to[k] = { { sgrad__bits(pair.x), sgrad__bits(pair.y) } };
        }
    }
    static __device__ void right_across(sgrad__right *to, const type *tile, int wide, int first, int from) {
        const type *row = tile + (from + 2 * (threadIdx.x % 4)) * wide + first + threadIdx.x / 4;
        for (int k = 0; k < 2; k++) to[k] = { { sgrad__bits(row[8 * k]), sgrad__bits(row[wide + 8 * k]) } };
    }
    static __device__ void dot(float *sum, const sgrad__left &a, const sgrad__left &b) {
        for (int i = 0; i < 4; i++) sum[i % 2] += sgrad__float(a.at[i]) * sgrad__float(b.at[i]);
    }
};

struct sgrad__f32 : sgrad__tf32 {
    /* Returns the difference between X and its rounded value, in TF32. */
    static __device__ uint32_t rest(uint32_t x, uint32_t rounded) {
        return round_to_tf32(sgrad__float(x) - sgrad__float(rounded));
    }
    static __device__ void multiply(sgrad__tile_sum *sum, const sgrad__left &left, const sgrad__right &right) {
        uint32_t a[4], b[2], a_rest[4], b_rest[2];
        for (int i = 0; i < 4; i++) a[i] = round_to_tf32(sgrad__float(left.at[i])), a_rest[i] = rest(left.at[i], a[i]);
        for (int i = 0; i < 2; i++) b[i] = round_to_tf32(sgrad__float(right.at[i])), b_rest[i] = rest(right.at[i], b[i]);
        multiply_tf32(sum->at, a_rest, b);
        multiply_tf32(sum->at, a, b_rest);
        multiply_tf32(sum->at, a, b);
    }
};

/* Calls f with the arithmetic for activations of DTYPE; the second argument allows TF32 for F32. */
template <typename F> static inline void sgrad__with_arithmetic(enum sgrad_dtype dtype, bool tf32, F f) {
    if (dtype == SGRAD_BF16)
        f(sgrad__bf16());
    else if (tf32)
        f(sgrad__tf32());
    else
        f(sgrad__f32());
}

#endif
