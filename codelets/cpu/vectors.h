/* vectors.h: vectors of LANES floats, and products of vectors. The including file (isa_avx2.c, isa_avx512.c,
 * tiles_registers.h) defines LANES first. All functions are inlined, and so compiled for the instruction set of their caller. */
#ifndef SGRAD_CODELETS_CPU_VECTORS_H
#define SGRAD_CODELETS_CPU_VECTORS_H

#include "codelets/cpu/isa.h"

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float packed __attribute__((vector_size(4 * LANES), aligned(4), may_alias));    /* in memory, not aligned */
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef uint32_t word __attribute__((may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
typedef uint16_t packed_halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));     /* in memory, not aligned */

/* Returns the elements of DATA from element I on, as floats. */
SGRAD_ALWAYS_INLINE vec load(enum sgrad_dtype dtype, const void *data, int64_t i) {
    if (dtype == SGRAD_F32) return *(const packed *)((const float *)data + i);
    return (vec)(__builtin_convertvector(*(const packed_halves *)((const uint16_t *)data + i), bits) << 16);
}

/* Converts X to bf16, with the rounding of sgrad_f32_to_bf16. HAS_BF16: by the processor's instruction, which treats denormals
 * as zeros. It is written in assembly because the compiler inlines its intrinsic only into functions that are compiled for
 * processors with this instruction. */
SGRAD_ALWAYS_INLINE halves narrow(bool has_bf16, vec x) {
#if SGRAD_LEVELS
    if (has_bf16) {
        halves y;
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(y) : "v"(x));
        return y;
    }
#endif
    const bits u = (bits)x, number = (bits)(x == x), rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
    return __builtin_convertvector((rounded & number) | (nan & ~number), halves);
}

/* Writes X to the elements of DATA from element I on. */
SGRAD_ALWAYS_INLINE void store(bool has_bf16, enum sgrad_dtype dtype, void *data, int64_t i, vec x) {
    if (dtype == SGRAD_F32) *(packed *)((float *)data + i) = x;
    else *(packed_halves *)((uint16_t *)data + i) = narrow(has_bf16, x);
}

#ifndef __clang__
typedef int32_t lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
static const int32_t numbers[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
#endif

/* Returns LANES lanes of X followed by Y, from lane FROM on. (Clang does not have __builtin_shuffle.) */
SGRAD_ALWAYS_INLINE vec lanes_from(int64_t from, vec x, vec y) {
#ifdef __clang__
    const vec both[2] = { x, y };
    return *(const packed *)((const float *)both + from);
#else
    return __builtin_shuffle(x, y, *(const lanes *)numbers + (int32_t)from);
#endif
}

/* Like load and store, for the last SOME elements of a row if these are fewer than a vector; load_some sets the other lanes to
 * zeros. The access is a whole vector that ends with the last element. So LANES - SOME elements must exist before element I;
 * store_some rewrites them with their values. */
SGRAD_ALWAYS_INLINE vec load_some(enum sgrad_dtype dtype, const void *data, int64_t i, int64_t some) {
    if (some >= LANES) return load(dtype, data, i);
    return lanes_from(LANES - some, load(dtype, data, i - LANES + some), (vec){ 0 });
}
SGRAD_ALWAYS_INLINE void store_some(bool has_bf16, enum sgrad_dtype dtype, void *data, int64_t i, vec x, int64_t some) {
    if (some >= LANES) {
        store(has_bf16, dtype, data, i, x);
        return;
    }
    const vec there = load(dtype, data, i - LANES + some);
    store(has_bf16, dtype, data, i - LANES + some, lanes_from(some, lanes_from(LANES - some, there, there), x));
}

/* Transposes LANES vectors. Each step exchanges blocks across the diagonal; their size is halved from step to step. */
SGRAD_ALWAYS_INLINE void transpose(vec x[LANES]) {
#pragma GCC unroll 4
    for (int size = LANES / 2; size; size /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            if (i & size) continue;
            const vec one = x[i], other = x[i + size];
#ifdef __clang__
            for (int l = 0; l < LANES; l++) {
                x[i][l] = l & size ? other[l - size] : one[l];
                x[i + size][l] = l & size ? other[l] : one[l + size];
            }
#else
            const lanes number = *(const lanes *)numbers, second = (number & size) != 0;
            const lanes upper = number + (second & (LANES - size)), lower = number + size + (second & (LANES - size));
            x[i] = __builtin_shuffle(one, other, upper);
            x[i + size] = __builtin_shuffle(one, other, lower);
#endif
        }
}

/* Returns words that are pairs of bf16: in each lane, the element of X (lower half) and that of NEXT. */
SGRAD_ALWAYS_INLINE vec paired(vec x, vec next) {
    const bits low = __builtin_convertvector(narrow(true, x), bits), high = __builtin_convertvector(narrow(true, next), bits);
    return (vec)(low | high << 16);
}

/* Returns SUM plus the products of the word *LEFT with the words of RIGHT; of pairs, the sum of both products per word. */
SGRAD_ALWAYS_INLINE vec add_products(enum factors factors, vec sum, const float *left, vec right) {
#if SGRAD_LEVELS
    if (factors != FLOATS) {
        const bits all = (bits){ 0 } + *(const word *)left;
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(all), "v"(right));
        return sum;
    }
#endif
    return sum + *left * right;
}

/* z[i] = Σ_t e[i,t] v[t], or z[i] += … (ADD), for ROWS rows i of one or two vectors, over COUNT words t. …_row and …_step are
 * distances in words: from one row to the next, and from one t to the next. */
SGRAD_ALWAYS_INLINE void outer_sums(enum factors factors, int rows, int vectors, int64_t count, const float *e, int64_t e_row,
                                    int64_t e_step, const float *v, int64_t v_step, float *z, int64_t z_row, bool add) {
    vec sum[LANES][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sum[i][j] = (vec){ 0 };
    for (int64_t t = 0; t < count; t++) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                sum[i][j] =
                    add_products(factors, sum[i][j], e + i * e_row + t * e_step, *(const packed *)(v + t * v_step + j * LANES));
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            packed *to = (packed *)(z + i * z_row + j * LANES);
            if (add) sum[i][j] += *to;
            *to = sum[i][j];
        }
}

#endif
