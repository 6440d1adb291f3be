/* eigendecomposition.c: F = Q diag(d) Qᵀ of symmetric matrices, in double precision, by divide and conquer (LAPACK's dsyevd:
 * J. J. M. Cuppen, 1981; M. Gu, S. C. Eisenstat, 1995). Shapes: kronecker.h.
 *
 *     factor    f00 f01 f02 f11 f12 f22             eigen    d0  d1  d2        rising; what is at most 1e-10 is 0
 *                                                            q00 q10 q20       the eigenvector of d0, …
 *
 * Of a matrix that is not finite, or that dsyevd cannot do, the eigen stays as it was. Limits: on CPUs alone. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/kronecker.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

/* LAPACK's, as Fortran has it. */
void dsyevd_(const char *job, const char *triangle, const int *n, double *matrix, const int *rows, double *values, double *work,
             const int *work_size, int *more_work, const int *more_size, int *info, size_t job_length, size_t triangle_length);
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
void openblas_set_num_threads(int threads);
/* A worker is a core: what a task does it does alone. */
static void one_thread(void) { openblas_set_num_threads(1); }
#else
static void one_thread(void) {}
#endif

static const double NONE = 1e-10;

static int64_t work_size(int64_t n) { return 1 + 6 * n + 2 * n * n; }
static int64_t more_size(int64_t n) { return 3 + 5 * n; }

/* Both triangles are not needed: what are rows here are columns there. False: it is not finite. */
static bool unpack(const float *factor, int64_t n, double *matrix) {
    double bad = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) {
            matrix[i * n + j] = *factor++;
            bad += 0 * matrix[i * n + j];
        }
    return bad == 0;
}

/* factor (groups,n(n+1)/2), eigen (groups,1+n,n) */
static void eigendecomposition(const struct sgrad_args *a) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_bool told;
    const int64_t groups = a->view[1].shape.dim[0], n = a->view[1].shape.dim[2];
    const int rows = (int)n, size = (int)work_size(n), more = (int)more_size(n);
    const float *factor = a->data[0];
    float *eigen = a->data[1];
    double *matrix = (double *)sgrad_aligned((size_t)a->workspace), *values = matrix + n * n, *work = values + n;
    int *more_work = (int *)(work + size), info = 0;
    pthread_once(&once, one_thread);
    for (int64_t g = 0; g < groups; g++, factor += sgrad__triangle(n), eigen += (n + 1) * n) {
        const bool finite = unpack(factor, n, matrix);
        if (finite) dsyevd_("V", "L", &rows, matrix, &rows, values, work, &size, more_work, &more, &info, 1, 1);
        if (!finite || info) {
            if (!atomic_exchange(&told, true))
                sgrad_warn("step %u: a curvature factor of %dx%d %s: its eigenvectors stay as they were, here and whenever this "
                           "happens again", a->step->number, rows, rows, finite ? "has no decomposition" : "is not finite");
            continue;
        }
        for (int64_t i = 0; i < n; i++) eigen[i] = values[i] > NONE ? (float)values[i] : 0;
        for (int64_t i = 0; i < n * n; i++) eigen[n + i] = (float)matrix[i];
    }
}

static size_t workspace(const struct sgrad_args *a) {
    const int64_t n = a->view[1].shape.dim[2];
    return SGRAD_LINE + (size_t)(n * n + n + work_size(n)) * sizeof(double) + (size_t)more_size(n) * sizeof(int);
}

/* Reduction to three diagonals, these decomposed, and the way back: 4/3 n³, up to 8/3 n³, and 2 n³, with all vectors. */
static double flops(const struct sgrad_args *a) {
    const double n = (double)a->view[1].shape.dim[2];
    return 6 * (double)a->view[1].shape.dim[0] * n * n * n;
}

const struct sgrad_kernel sgrad_eigendecomposition_kernel = {
    .name = "eigendecomposition",
    .kind = &sgrad_update_kind,
    .cpu = eigendecomposition,
    .workspace = workspace,
    .flops = flops,
};
