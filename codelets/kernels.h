/* kernels.h: what the kernels of this room share. Private to codelets/. */
#ifndef SGRAD_CODELETS_KERNELS_H
#define SGRAD_CODELETS_KERNELS_H

/* Kernels are optimised whatever the build says, and so is every inline function below: GCC joins only what was
 * compiled alike. (-fno-math-errno and -fno-trapping-math, which let square roots and choices become vectors, work on the
 * command line only: Makefile.am.) */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#include "config.h"
#include "codelets/codelets.h"

#include <string.h>

/* A CUDA kernel's entry in a record: the function where CUDA was found, else NULL. */
#ifdef SGRAD_HAVE_CUDA
#define SGRAD_ON_CUDA(function) function
#else
#define SGRAD_ON_CUDA(function) NULL
#endif

/* Compiled for AVX-512, AVX2 and the baseline, chosen when the program is loaded. Plain C inside: the compiler vectorises.
 * Sanitizers cannot run the resolvers, so they get the baseline. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SGRAD_VECTOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define SGRAD_CLONES 1
#else
#define SGRAD_VECTOR
#define SGRAD_CLONES 0
#endif

#define SGRAD_ALWAYS_INLINE static inline __attribute__((always_inline))

/* Rows of activations as floats, whatever their type: element FROM and COUNT more. An F32 row is returned where it lies;
 * a BF16 row is widened into ROOM. Long rows are done in pieces of SGRAD_ROW, which stay in the first-level cache. */
enum { SGRAD_ROW = 512 };
SGRAD_ALWAYS_INLINE const float *sgrad__row(enum sgrad_dtype dtype, const void *data, int64_t from, int64_t count, float *room) {
    if (dtype == SGRAD_F32) return (const float *)data + from;
    const uint16_t *x = (const uint16_t *)data + from;
    for (int64_t i = 0; i < count; i++) room[i] = sgrad_bf16_to_f32(x[i]);
    return room;
}

/* Where to write such a row as floats, and, once written, its way home. */
SGRAD_ALWAYS_INLINE float *sgrad__row_out(enum sgrad_dtype dtype, void *data, int64_t from, float *room) {
    return dtype == SGRAD_F32 ? (float *)data + from : room;
}
SGRAD_ALWAYS_INLINE void sgrad__row_done(enum sgrad_dtype dtype, void *data, int64_t from, int64_t count, const float *room) {
    if (dtype == SGRAD_F32) return;
    uint16_t *y = (uint16_t *)data + from;
    for (int64_t i = 0; i < count; i++) y[i] = sgrad_f32_to_bf16(room[i]);
}

/* The same for a row that will only be added to: it starts as what is there (ADD) or as zeros. */
SGRAD_ALWAYS_INLINE float *sgrad__row_sum(enum sgrad_dtype dtype, void *data, int64_t from, int64_t count, bool add,
                                         float *room) {
    float *row = sgrad__row_out(dtype, data, from, room);
    if (!add) memset(row, 0, (size_t)count * sizeof *row);
    else if (dtype != SGRAD_F32) sgrad__row(dtype, data, from, count, room);
    return row;
}

/* The piece of a long row that begins at I: its length; 0 at the end. */
SGRAD_ALWAYS_INLINE int64_t sgrad__piece(int64_t i, int64_t count) {
    return count - i < SGRAD_ROW ? count - i : SGRAD_ROW;
}

/* Moves COUNT elements of X, from FROM on, to Y, from TO on: adds them there (ADD) or overwrites. */
SGRAD_ALWAYS_INLINE void sgrad__row_move(enum sgrad_dtype dtype, const void *x, int64_t from, void *y, int64_t to, int64_t count,
                                         bool add) {
    const size_t size = dtype == SGRAD_F32 ? sizeof(float) : sizeof(uint16_t);
    if (!add) {
        memcpy((char *)y + (size_t)to * size, (const char *)x + (size_t)from * size, (size_t)count * size);
        return;
    }
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n; (n = sgrad__piece(i, count)); i += n) {
        const float *terms = sgrad__row(dtype, x, from + i, n, x_room);
        float *sums = sgrad__row_sum(dtype, y, to + i, n, true, y_room);
        for (int64_t j = 0; j < n; j++) sums[j] += terms[j];
        sgrad__row_done(dtype, y, to + i, n, sums);
    }
}

/* One element. */
SGRAD_ALWAYS_INLINE float sgrad__get(enum sgrad_dtype dtype, const void *data, int64_t i) {
    return dtype == SGRAD_F32 ? ((const float *)data)[i] : sgrad_bf16_to_f32(((const uint16_t *)data)[i]);
}
SGRAD_ALWAYS_INLINE void sgrad__put(enum sgrad_dtype dtype, void *data, int64_t i, float value) {
    if (dtype == SGRAD_F32) ((float *)data)[i] = value;
    else ((uint16_t *)data)[i] = sgrad_f32_to_bf16(value);
}

/* Is operand I added to? */
SGRAD_ALWAYS_INLINE bool sgrad__adds(const struct sgrad_args *args, int i) {
    return args->accumulate >> i & 1;
}

/* Σ x² in double: thirty-two sums side by side, joined in order at the end, so that the count alone decides the order, whatever
 * the processor; the square of a float is exact as a double. Pieces, all but the last a multiple of 32 long, give what the whole
 * gives. */
enum { SGRAD_LANES = 32 };
SGRAD_ALWAYS_INLINE void sgrad__add_squares(const float *restrict x, int64_t count, double *restrict lane) {
    const int64_t whole = count - count % SGRAD_LANES;
    for (int64_t i = 0; i < whole; i += SGRAD_LANES)
        for (int j = 0; j < SGRAD_LANES; j++) lane[j] += (double)x[i + j] * x[i + j];
    for (int64_t i = whole; i < count; i++) lane[i - whole] += (double)x[i] * x[i];
}
SGRAD_ALWAYS_INLINE double sgrad__join_lanes(const double *lane) {
    double sum = 0;
    for (int j = 0; j < SGRAD_LANES; j++) sum += lane[j];
    return sum;
}

/* What gradients are multiplied by so that their norm is at most HYPER's clip_norm, from the sum of their squares;
 * SQUARES may be NULL. */
float sgrad__clip_factor(const struct sgrad_hyper *hyper, const double *squares);

/* Test values for operations with a kink at 0: from ±0.1 to ±1.9. */
void sgrad__fill_apart(const struct sgrad_test *test, int input, void *data);

#endif
