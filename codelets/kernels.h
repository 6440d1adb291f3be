/* kernels.h: helpers for writing CPU kernels: access to activations of type F32 or BF16 as floats, by elements or by rows. For
 * operations of the library and of programs outside it (examples/03-own-operation.c):
 *
 *     SGRAD_VECTOR(forward)(const struct sgrad_args *a) {                      // x, y of any shape: y = 2x
 *         const enum sgrad_dtype type = a->view[0].dtype;
 *         const int64_t count = sgrad_shape_count(&a->view[0].shape);
 *         float x_buffer[SGRAD_ROW], y_buffer[SGRAD_ROW];
 *         for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
 *             const float *x = sgrad_row(type, a->data[0], i, n, x_buffer);
 *             float *y = sgrad_row_out(type, a->data[1], i, y_buffer);
 *             for (int64_t j = 0; j < n; j++) y[j] = 2 * x[j];
 *             sgrad_row_done(type, a->data[1], i, n, y);
 *         }
 *     }
 *
 * With GCC a file that includes this header is compiled with -O3 from here on, regardless of the build's flags. This includes
 * the inline functions below: GCC inlines a function only into functions compiled with the same options. The options
 * -fno-math-errno and -fno-trapping-math, which allow square roots and selections to be vectorised, take effect only on the
 * command line, not as pragmas. */
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

/* SGRAD_ON_CUDA(function): the CUDA kernel in a record of the library. It is FUNCTION if the build has CUDA, a stand-in if the
 * build simulates machines, else NULL. A file of the library must include config.h first, which defines these macros. In a
 * program outside the library, which has no config.h, SGRAD_ON_CUDA is undefined unless the program defines one of them. */
#if defined(SGRAD_HAVE_CUDA)
#define SGRAD_ON_CUDA(function) function
#elif defined(SGRAD_SIMULATED) && SGRAD_SIMULATED
void sgrad_simulated_kernel(const struct sgrad_args *args);     /* stand-in for every CUDA kernel of an operation */
#define SGRAD_ON_CUDA(function) sgrad_simulated_kernel
#elif defined(PACKAGE_VERSION)
#define SGRAD_ON_CUDA(function) NULL
#endif
/* The same for struct sgrad_kernel.cuda_fused; NULL if the build simulates machines. */
#if defined(SGRAD_HAVE_CUDA)
#define SGRAD_CUDA_WITH(function) function
#else
#define SGRAD_CUDA_WITH(function) NULL
#endif

#define SGRAD_ALWAYS_INLINE static inline __attribute__((always_inline))

/* SGRAD_VECTOR(name)(const struct sgrad_args *a) { … } defines a static kernel that is compiled three times: for AVX-512, AVX2
 * and the baseline. Each call runs the version for sgrad_isa(). The body is plain C, which the compiler vectorises. Functions
 * that it calls should be SGRAD_ALWAYS_INLINE; others are compiled for the baseline only. Only the baseline exists with other
 * compilers than GCC, on other processors than x86-64, in builds that simulate machines, which run no
 * kernels, and in builds with a sanitizer, which check the plain C. */
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

/* Returns COUNT activations of type F32 or BF16 as floats, from element FROM on. F32 elements are not copied: the result points
 * into DATA. BF16 elements are converted into the caller's buffer, the last argument, which must have COUNT elements. Long rows
 * should be processed in chunks of SGRAD_ROW elements (sgrad_chunk), which fit the first-level cache. */
enum { SGRAD_ROW = 512 };
SGRAD_ALWAYS_INLINE const float *sgrad_row(enum sgrad_dtype dtype, const void *data, int64_t from, int64_t count, float *buffer) {
    if (dtype == SGRAD_F32) return (const float *)data + from;
    const uint16_t *x = (const uint16_t *)data + from;
    for (int64_t i = 0; i < count; i++) buffer[i] = sgrad_bf16_to_f32(x[i]);
    return buffer;
}

/* Converts COUNT floats to bf16 and writes them to TO, or adds them to its content (ADD). Rounds as sgrad_f32_to_bf16. Uses the
 * processor's conversion instruction if there is one; that treats denormals as zeros. */
void sgrad_row_narrow(const float *x, int64_t count, uint16_t *to, bool add);

/* sgrad_row_out returns a buffer of floats for writing a row from element FROM on: the row itself in DATA for F32, else the
 * caller's buffer. After writing, sgrad_row_done must be called with that buffer; for BF16 it converts the row into DATA. */
SGRAD_ALWAYS_INLINE float *sgrad_row_out(enum sgrad_dtype dtype, void *data, int64_t from, float *buffer) {
    return dtype == SGRAD_F32 ? (float *)data + from : buffer;
}
SGRAD_ALWAYS_INLINE void sgrad_row_done(enum sgrad_dtype dtype, void *data, int64_t from, int64_t count, const float *buffer) {
    if (dtype != SGRAD_F32) sgrad_row_narrow(buffer, count, (uint16_t *)data + from, false);
}

/* Like sgrad_row_out, for a row that the caller only adds to: the buffer starts as the row's content (ADD) or as zeros. */
SGRAD_ALWAYS_INLINE float *sgrad_row_sum(enum sgrad_dtype dtype, void *data, int64_t from, int64_t count, bool add,
                                         float *buffer) {
    float *row = sgrad_row_out(dtype, data, from, buffer);
    if (!add) memset(row, 0, (size_t)count * sizeof *row);
    else if (dtype != SGRAD_F32) sgrad_row(dtype, data, from, count, buffer);
    return row;
}

/* Returns the length of the chunk that starts at element I of a row of COUNT: at most SGRAD_ROW; 0 at the end. */
SGRAD_ALWAYS_INLINE int64_t sgrad_chunk(int64_t i, int64_t count) {
    return count - i < SGRAD_ROW ? count - i : (int64_t)SGRAD_ROW;
}

/* Copies COUNT elements of X, from element FROM on, to Y, from element TO on, or adds them there (ADD). X and Y must not overlap.
 * Without ADD, 4-byte types other than F32 may be copied, too. */
SGRAD_ALWAYS_INLINE void sgrad_row_move(enum sgrad_dtype dtype, const void *x, int64_t from, void *y, int64_t to, int64_t count,
                                         bool add) {
    const size_t size = dtype == SGRAD_BF16 ? sizeof(uint16_t) : sizeof(float);
    if (!add) {
        memcpy((char *)y + (size_t)to * size, (const char *)x + (size_t)from * size, (size_t)count * size);
        return;
    }
    float x_buffer[SGRAD_ROW], y_buffer[SGRAD_ROW];
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        const float *terms = sgrad_row(dtype, x, from + i, n, x_buffer);
        float *sums = sgrad_row_sum(dtype, y, to + i, n, true, y_buffer);
        for (int64_t j = 0; j < n; j++) sums[j] += terms[j];
        sgrad_row_done(dtype, y, to + i, n, sums);
    }
}

/* Read and write one element, I, of F32 or BF16 data. */
SGRAD_ALWAYS_INLINE float sgrad_get(enum sgrad_dtype dtype, const void *data, int64_t i) {
    return dtype == SGRAD_F32 ? ((const float *)data)[i] : sgrad_bf16_to_f32(((const uint16_t *)data)[i]);
}
SGRAD_ALWAYS_INLINE void sgrad_put(enum sgrad_dtype dtype, void *data, int64_t i, float value) {
    if (dtype == SGRAD_F32) ((float *)data)[i] = value;
    else ((uint16_t *)data)[i] = sgrad_f32_to_bf16(value);
}

/* Test values (struct sgrad_op.fill) for operations that are not differentiable at 0: F32, absolute values from 0.1 to 1.9. */
void sgrad_fill_nonzero(const struct sgrad_test *test, int input, void *data);

#ifdef __cplusplus
}
#endif
#endif
