/* wide.h: operations on sixteen floats at once, on processors with any vector length: sums along rows, whose order is the same
 * on all processors, and exponentials. For kernels defined with SGRAD_VECTOR. Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_WIDE_H
#define SGRAD_CODELETS_CPU_WIDE_H

#include "codelets/kernels.h"

enum { WIDE = 16 };
typedef float wide __attribute__((vector_size(4 * WIDE)));
typedef int32_t wide_bits __attribute__((vector_size(4 * WIDE)));
typedef float wide_packed __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));     /* in memory, not aligned */

/* Returns X in all lanes. */
SGRAD_ALWAYS_INLINE wide wide_of(float x) { return (wide){ 0 } + x; }

/* wide_load returns the first COUNT floats of X, or sixteen if COUNT is larger, and FILL in the other lanes. wide_store writes as
 * many. */
SGRAD_ALWAYS_INLINE wide wide_load(const float *x, int64_t count, float fill) {
    if (count >= WIDE) return *(const wide_packed *)x;
    wide y = wide_of(fill);
    for (int64_t i = 0; i < count; i++) y[i] = x[i];
    return y;
}
SGRAD_ALWAYS_INLINE void wide_store(float *to, int64_t count, wide x) {
    if (count >= WIDE) *(wide_packed *)to = x;
    else
        for (int64_t i = 0; i < count; i++) to[i] = x[i];
}

/* Returns a mask: all bits of the first COUNT lanes are ones, those of the others zeros. */
SGRAD_ALWAYS_INLINE wide_bits wide_first(int64_t count) {
    const wide_bits lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return (lane - (int32_t)count) >> 31;
}

/* Returns the bits of Y where BITS has ones, those of X where it has zeros. */
SGRAD_ALWAYS_INLINE wide wide_either(wide_bits bits, wide y, wide x) {
    return (wide)(((wide_bits)y & bits) | ((wide_bits)x & ~bits));
}

/* Returns, in each lane, Y if the first argument is less than LIMIT, else X, also if the first argument is NaN. The result is
 * either if both are equal, or if LIMIT is NaN. It uses the sign of the difference, because GCC 12 compares lane by lane if
 * the processor's vectors are shorter than sixteen floats. */
SGRAD_ALWAYS_INLINE wide wide_choose(wide asked, wide limit, wide y, wide x) {
    const wide_bits number = (((wide_bits)asked & 0x7fffffff) - 0x7f800001) >> 31, below = (wide_bits)(asked - limit) >> 31;
    return wide_either(below & number, y, x);
}

/* Returns the sum of the lanes, added in a tree. */
SGRAD_ALWAYS_INLINE float wide_sum(wide x) {
    for (int half = WIDE / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}
/* Returns the largest lane, or NaN if a lane is NaN. */
SGRAD_ALWAYS_INLINE float wide_max(wide x) {
    float max = x[0];
    for (int i = 1; i < WIDE; i++) max = x[i] > max || x[i] != x[i] ? x[i] : max;
    return max;
}

/* Returns eˣ for X from -88 to 88, with an error of at most 2 ulp; 0 if eˣ is less than about 2⁻¹²⁶: for the smallest X, n is
 * -127, and the bits of its power of 2 are zeros. Source: S. Moshier, Cephes, expf. */
SGRAD_ALWAYS_INLINE wide wide_exp_within(wide x) {
    const float log2e = 1.44269504f, to_whole = 12582912.0f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const wide n = (x * log2e + to_whole) - to_whole;
    const wide r = x - n * ln2_high - n * ln2_low;
    wide y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1;
    const wide_bits power = (__builtin_convertvector(n, wide_bits) + 127) << 23;
    return y * (wide)power;
}

/* The same for any X, which is first limited to -88 … 88: the result is less than 2¹²⁷. It is NaN if X is NaN. */
SGRAD_ALWAYS_INLINE wide wide_exp(wide x) {
    const wide lowest = wide_of(-88), at = wide_choose(x, lowest, lowest, x);
    return wide_exp_within(wide_choose(-at, lowest, wide_of(88), at));
}

/* Returns the logistic function 1 / (1 + e⁻ˣ); NaN if X is NaN. */
SGRAD_ALWAYS_INLINE wide wide_sigmoid(wide x) { return 1 / (1 + wide_exp(-x)); }

/* Returns Σ (x - mean), or Σ (x - mean)² (SQUARES), over COUNT elements from element FROM on. */
SGRAD_ALWAYS_INLINE float wide_row_sum(enum sgrad_dtype type, const void *data, int64_t from, int64_t count, float mean,
                                       bool squares) {
    float room[SGRAD_ROW];
    wide sum = wide_of(0);
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, data, from + i, n, room);
        for (int64_t j = 0; j < n; j += WIDE) {
            const wide d = wide_load(x + j, n - j, mean) - mean;
            sum += squares ? d * d : d;
        }
    }
    return wide_sum(sum);
}

#endif
