/* kernels.h: what CPU kernels are written with: activations of either type as floats, by elements or by rows. For operations of
 * the library, and of programs outside it (examples/03-own-operation.c):
 *
 *     SGRAD_VECTOR(forward)(const struct sgrad_args *a) {                      // x, y of any shape: y = 2x
 *         const enum sgrad_dtype type = a->view[0].dtype;
 *         const int64_t count = sgrad_shape_count(&a->view[0].shape);
 *         float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
 *         for (int64_t i = 0, n; (n = sgrad_piece(i, count)); i += n) {
 *             const float *x = sgrad_row(type, a->data[0], i, n, x_room);
 *             float *y = sgrad_row_out(type, a->data[1], i, y_room);
 *             for (int64_t j = 0; j < n; j++) y[j] = 2 * x[j];
 *             sgrad_row_done(type, a->data[1], i, n, y);
 *         }
 *     }
 *
 * What includes this is optimised whatever the build says, and so is every inline function below: GCC joins only what was
 * compiled alike. (-fno-math-errno and -fno-trapping-math, which let square roots and choices become vectors, work on the
 * command line only.) */
#ifndef SGRAD_CODELETS_KERNELS_H
#define SGRAD_CODELETS_KERNELS_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SGRAD_SANITIZED 1
#else
#define SGRAD_SANITIZED 0
#endif
#if defined(__GNUC__) && !defined(__clang__) && !SGRAD_SANITIZED
#pragma GCC optimize("O3")
#endif

#include "codelets/codelets.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUDA kernel's entry in a record of the library: the function where CUDA was found, else NULL. There config.h, which knows, is
 * the first thing that a file includes; a program outside knows by itself. */
#if defined(SGRAD_HAVE_CUDA)
#define SGRAD_ON_CUDA(function) function
#elif defined(SGRAD_SIMULATED) && SGRAD_SIMULATED
void sgrad_simulated_kernel(const struct sgrad_args *args);     /* stands for those of the operations that have one */
#define SGRAD_ON_CUDA(function) sgrad_simulated_kernel
#elif defined(PACKAGE_VERSION)
#define SGRAD_ON_CUDA(function) NULL
#endif
#if defined(SGRAD_HAVE_CUDA)
#define SGRAD_CUDA_WITH(function) function /* likewise */
#else
#define SGRAD_CUDA_WITH(function) NULL
#endif

#define SGRAD_ALWAYS_INLINE static inline __attribute__((always_inline))

/* A kernel that begins with SGRAD_VECTOR is compiled for AVX-512, AVX2 and the baseline; each call runs the one for sgrad_isa().
 * Its body is plain C, which the compiler vectorises. Functions that it calls should be SGRAD_ALWAYS_INLINE: others are compiled
 * for the baseline. Simulated machines run no kernels, and sanitizers check the plain C: for both there is only the baseline. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SGRAD_FOR_AVX2 __attribute__((target("arch=x86-64-v3")))
#define SGRAD_FOR_AVX512 __attribute__((target("arch=x86-64-v4")))
#if !SGRAD_SIMULATED
#define SGRAD_LEVELS 1
#endif
#else
#define SGRAD_FOR_AVX2
#define SGRAD_FOR_AVX512
#endif
#ifndef SGRAD_LEVELS
#define SGRAD_LEVELS 0
#endif
#if SGRAD_LEVELS && !SGRAD_SANITIZED
#define SGRAD_VECTOR(name)                                                                                                       \
    SGRAD_ALWAYS_INLINE void name##_at_any_level(const struct sgrad_args *);                                                     \
    SGRAD_FOR_AVX512 static void name##_avx512(const struct sgrad_args *a) { name##_at_any_level(a); }                           \
    SGRAD_FOR_AVX2 static void name##_avx2(const struct sgrad_args *a) { name##_at_any_level(a); }                               \
    static void name##_baseline(const struct sgrad_args *a) { name##_at_any_level(a); }                                          \
    static void name(const struct sgrad_args *a) {                                                                               \
        const enum sgrad_isa isa = sgrad_isa();                                                                                  \
        if (isa >= SGRAD_AVX512) name##_avx512(a);                                                                               \
        else if (isa >= SGRAD_AVX2) name##_avx2(a);                                                                              \
        else name##_baseline(a);                                                                                                 \
    }                                                                                                                            \
    SGRAD_ALWAYS_INLINE void name##_at_any_level
#else
#define SGRAD_VECTOR(name) static void name
#endif

/* Rows of activations as floats, whatever their type: element FROM and COUNT more. An F32 row is returned where it lies;
 * a BF16 row is widened into ROOM. Long rows are done in pieces of SGRAD_ROW, which stay in the first-level cache. */
enum { SGRAD_ROW = 512 };
SGRAD_ALWAYS_INLINE const float *sgrad_row(enum sgrad_dtype dtype, const void *data, int64_t from, int64_t count, float *room) {
    if (dtype == SGRAD_F32) return (const float *)data + from;
    const uint16_t *x = (const uint16_t *)data + from;
    for (int64_t i = 0; i < count; i++) room[i] = sgrad_bf16_to_f32(x[i]);
    return room;
}

/* COUNT floats as bf16, rounded as sgrad_f32_to_bf16 does; ADD: to what is there. Where the processor has an instruction for
 * that, by it, which takes denormals for zeros. */
void sgrad_row_narrow(const float *x, int64_t count, uint16_t *to, bool add);

/* Where to write such a row as floats, and, once written, its way home. */
SGRAD_ALWAYS_INLINE float *sgrad_row_out(enum sgrad_dtype dtype, void *data, int64_t from, float *room) {
    return dtype == SGRAD_F32 ? (float *)data + from : room;
}
SGRAD_ALWAYS_INLINE void sgrad_row_done(enum sgrad_dtype dtype, void *data, int64_t from, int64_t count, const float *room) {
    if (dtype != SGRAD_F32) sgrad_row_narrow(room, count, (uint16_t *)data + from, false);
}

/* The same for a row that will only be added to: it starts as what is there (ADD) or as zeros. */
SGRAD_ALWAYS_INLINE float *sgrad_row_sum(enum sgrad_dtype dtype, void *data, int64_t from, int64_t count, bool add,
                                         float *room) {
    float *row = sgrad_row_out(dtype, data, from, room);
    if (!add) memset(row, 0, (size_t)count * sizeof *row);
    else if (dtype != SGRAD_F32) sgrad_row(dtype, data, from, count, room);
    return row;
}

/* The piece of a long row that begins at I: its length; 0 at the end. */
SGRAD_ALWAYS_INLINE int64_t sgrad_piece(int64_t i, int64_t count) {
    return count - i < SGRAD_ROW ? count - i : (int64_t)SGRAD_ROW;
}

/* Moves COUNT elements of X, from FROM on, to Y, from TO on: adds them there (ADD) or overwrites. */
SGRAD_ALWAYS_INLINE void sgrad_row_move(enum sgrad_dtype dtype, const void *x, int64_t from, void *y, int64_t to, int64_t count,
                                         bool add) {
    const size_t size = dtype == SGRAD_BF16 ? sizeof(uint16_t) : sizeof(float);
    if (!add) {
        memcpy((char *)y + (size_t)to * size, (const char *)x + (size_t)from * size, (size_t)count * size);
        return;
    }
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n; (n = sgrad_piece(i, count)); i += n) {
        const float *terms = sgrad_row(dtype, x, from + i, n, x_room);
        float *sums = sgrad_row_sum(dtype, y, to + i, n, true, y_room);
        for (int64_t j = 0; j < n; j++) sums[j] += terms[j];
        sgrad_row_done(dtype, y, to + i, n, sums);
    }
}

/* One element. */
SGRAD_ALWAYS_INLINE float sgrad_get(enum sgrad_dtype dtype, const void *data, int64_t i) {
    return dtype == SGRAD_F32 ? ((const float *)data)[i] : sgrad_bf16_to_f32(((const uint16_t *)data)[i]);
}
SGRAD_ALWAYS_INLINE void sgrad_put(enum sgrad_dtype dtype, void *data, int64_t i, float value) {
    if (dtype == SGRAD_F32) ((float *)data)[i] = value;
    else ((uint16_t *)data)[i] = sgrad_f32_to_bf16(value);
}

/* Test values for operations with a kink at 0: from ±0.1 to ±1.9. */
void sgrad_fill_apart(const struct sgrad_test *test, int input, void *data);

#ifdef __cplusplus
}
#endif
#endif
