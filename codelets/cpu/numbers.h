/* numbers.h: exponentials of numbers, and sums along rows, for kernels defined with SGRAD_VECTOR. A loop that calls the functions
 * of one number for the elements of a row is compiled to instructions for as many elements as the processor's vectors have. The
 * order of a sum is the same on all processors: sixteen sums, of the elements that are sixteen apart, are added in a tree.
 * Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_NUMBERS_H
#define SGRAD_CODELETS_CPU_NUMBERS_H

#include "codelets/kernels.h"

#include <math.h>

/* ---- one number -------------------------------------------------------------------------------------------------- */

union number_bits {
    float number;
    uint32_t bits;
};

/* Returns eˣ for X from -88 to 88, with an error of at most 2 ulp; 0 if eˣ is less than about 2⁻¹²⁶: for the smallest X, n is
 * -127, and the bits of its power of 2 are zeros. Adding 1.5·2²³ rounds to a whole number, and leaves it in the lower bits.
 * Source: S. Moshier, Cephes, expf. */
SGRAD_ALWAYS_INLINE float exp_within(float x) {
    const float log2e = 1.44269504f, to_whole = 12582912.0f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const union number_bits sum = { .number = x * log2e + to_whole };
    const float n = sum.number - to_whole, r = x - n * ln2_high - n * ln2_low;
    float y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1;
    const union number_bits power = { .bits = (sum.bits + 127) << 23 };
    return y * power.number;
}

/* The same for any X, which is first limited to -88 … 88: the result is less than 2¹²⁷. It is NaN if X is NaN. */
SGRAD_ALWAYS_INLINE float exp_of(float x) {
    x = x < -88 ? -88 : x;
    return exp_within(x > 88 ? 88 : x);
}

/* Returns the logistic function 1 / (1 + e⁻ˣ); NaN if X is NaN. */
SGRAD_ALWAYS_INLINE float sigmoid(float x) { return 1 / (1 + exp_of(-x)); }

/* ---- rows -------------------------------------------------------------------------------------------------------- */

enum { LANES = 16 };    /* sums of a row; floats of the longest vectors */

/* Returns the sum of the lanes, added in a tree. */
SGRAD_ALWAYS_INLINE float sum_of_lanes(float lane[LANES]) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* Returns the sum of COUNT numbers. */
SGRAD_ALWAYS_INLINE float sum_of(const float *x, int64_t count) {
    float lane[LANES] = { 0 };
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += x[j + i];
    for (int i = 0; j + i < count; i++) lane[i] += x[j + i];
    return sum_of_lanes(lane);
}

/* Returns Σ a·b over COUNT numbers. */
SGRAD_ALWAYS_INLINE float sum_of_products(const float *a, const float *b, int64_t count) {
    float lane[LANES] = { 0 };
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += a[j + i] * b[j + i];
    for (int i = 0; j + i < count; i++) lane[i] += a[j + i] * b[j + i];
    return sum_of_lanes(lane);
}

/* Returns the largest of COUNT numbers; -∞ if there are none. NaNs are ignored. */
SGRAD_ALWAYS_INLINE float largest(const float *x, int64_t count) {
    float most[LANES], all = -INFINITY;
    int64_t j = 0;
    for (int i = 0; i < LANES; i++) most[i] = -INFINITY;
    for (; j + LANES <= count; j += LANES)
        for (int i = 0; i < LANES; i++) most[i] = x[j + i] > most[i] ? x[j + i] : most[i];
    for (; j < count; j++) most[0] = x[j] > most[0] ? x[j] : most[0];
    for (int i = 0; i < LANES; i++) all = most[i] > all ? most[i] : all;
    return all;
}

/* Returns Σ (x - MEAN), or Σ (x - MEAN)² (SQUARES), over COUNT elements from element FROM on. */
SGRAD_ALWAYS_INLINE float sum_of_row(enum sgrad_dtype type, const void *data, int64_t from, int64_t count, float mean,
                                     bool squares) {
    float room[SGRAD_ROW], d[SGRAD_ROW], sum = 0;
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, data, from + i, n, room);
        for (int64_t j = 0; j < n; j++) d[j] = x[j] - mean;
        sum += squares ? sum_of_products(d, d, n) : sum_of(d, n);
    }
    return sum;
}

#endif
