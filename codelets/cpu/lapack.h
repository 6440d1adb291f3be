/* lapack.h: LAPACK's functions. Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_LAPACK_H
#define SGRAD_CODELETS_CPU_LAPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* LAPACK functions, with Fortran's calling convention; matrices are column-major. *INFO is 0 after success. dsyevd computes
 * all eigenvalues, and the eigenvectors, of a symmetric matrix, as ssyevd does in F32; dpotrf its Cholesky decomposition; dpotri
 * the inverse from that; sgelqf the LQ decomposition of a matrix (m,n), and sorglq its Q. */
void dsyevd_(const char *job, const char *triangle, const int *n, double *matrix, const int *rows, double *values, double *work,
             const int *work_size, int *more_work, const int *more_size, int *info, size_t job_length, size_t triangle_length);
void ssyevd_(const char *job, const char *triangle, const int *n, float *matrix, const int *rows, float *values, float *work,
             const int *work_size, int *more_work, const int *more_size, int *info, size_t job_length, size_t triangle_length);
void sgelqf_(const int *m, const int *n, float *matrix, const int *rows, float *scales, float *work, const int *work_size,
             int *info);
void sorglq_(const int *m, const int *n, const int *reflectors, float *matrix, const int *rows, const float *scales, float *work,
             const int *work_size, int *info);
void dpotrf_(const char *triangle, const int *n, double *matrix, const int *rows, int *info, size_t triangle_length);
void dpotri_(const char *triangle, const int *n, double *matrix, const int *rows, int *info, size_t triangle_length);

/* Makes LAPACK use one thread, since a worker is one core. Must be called before any LAPACK function. */
void sgrad__lapack_alone(void);

/* Copies the factor of one group (kronecker.h), an upper triangle in row-major order, to MATRIX (n,n). Sets only the upper
 * triangle of the row-major matrix, which is the lower triangle of LAPACK's column-major matrix. Returns false if an element
 * is NaN or infinite. */
static inline bool sgrad__lapack_take(const float *factor, int64_t n, double *matrix) {
    double bad = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) {
            matrix[i * n + j] = *factor++;
            bad += 0 * matrix[i * n + j];
        }
    return bad == 0;
}

#endif
