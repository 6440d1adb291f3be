/* lapack.h: what kernels of symmetric matrices are written with. Private to codelets/. */
#ifndef SGRAD_CODELETS_LAPACK_H
#define SGRAD_CODELETS_LAPACK_H

#include "codelets/kronecker.h"

/* LAPACK's, as Fortran has them: matrices lie by columns. */
void dsyevd_(const char *job, const char *triangle, const int *n, double *matrix, const int *rows, double *values, double *work,
             const int *work_size, int *more_work, const int *more_size, int *info, size_t job_length, size_t triangle_length);
void dpotrf_(const char *triangle, const int *n, double *matrix, const int *rows, int *info, size_t triangle_length);
void dpotri_(const char *triangle, const int *n, double *matrix, const int *rows, int *info, size_t triangle_length);

/* A worker is a core: what a task does it does alone. Before any of them is called. */
void sgrad__lapack_alone(void);

/* A group's factor as a MATRIX (n,n) of which the upper triangle by rows, the lower one by columns, is set. False: it is not
 * finite. */
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
