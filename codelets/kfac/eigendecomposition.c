/* eigendecomposition.c: F = Q diag(d) Qᵀ of symmetric matrices, in double precision, by divide and conquer (LAPACK's dsyevd: J.
 * J. M. Cuppen, 1981; M. Gu, S. C. Eisenstat, 1995). Shapes: kronecker.h.
 *
 *     factor    f00 f01 f02 f11 f12 f22             eigen    d0  d1  d2        ascending; at most 1e-10: replaced by 0
 *                                                            q00 q10 q20       the eigenvector of d0, …
 *
 * If a matrix is not finite, or dsyevd fails, its previous eigen does not change and a warning is logged. Curvature is not
 * negative: if eigenvalues are negative by more than rounding, a warning is logged, too. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/cpu/lapack.h"
#include "codelets/kfac/kronecker.h"

static const double NONE = 1e-10, ROUNDING = 1e-5;     /* ROUNDING: relative to the largest eigenvalue; factors are sums of
                                                        * floats */

static int64_t work_size(int64_t n) { return 1 + 6 * n + 2 * n * n; }
static int64_t more_size(int64_t n) { return 3 + 5 * n; }

static void put(const double *values, const double *vectors, int64_t n, float *eigen) {
    for (int64_t i = 0; i < n; i++) eigen[i] = values[i] > NONE ? (float)values[i] : 0;
    for (int64_t i = 0; i < n * n; i++) eigen[n + i] = (float)vectors[i];
}

/* Operands: factor (groups,n(n+1)/2), eigen (groups,1+n,n). */
static void eigendecomposition(const struct sgrad_args *args) {
    struct sgrad_factor_health *health = *(struct sgrad_factor_health *const *)args->attrs;
    const int64_t groups = args->view[1].shape.dim[0], n = args->view[1].shape.dim[2];
    const int rows = (int)n, size = (int)work_size(n), more = (int)more_size(n);
    const float *factor = args->data[0];
    float *eigen = args->data[1];
    double *matrix = (double *)sgrad_aligned((size_t)args->workspace), *values = matrix + n * n, *work = values + n;
    int *more_work = (int *)(work + size), info = 0;
    sgrad__lapack_alone();
    for (int64_t g = 0; g < groups; g++, factor += sgrad__triangle(n), eigen += (n + 1) * n) {
        const bool finite = sgrad__lapack_take(factor, n, matrix);
        if (finite) dsyevd_("V", "L", &rows, matrix, &rows, values, work, &size, more_work, &more, &info, 1, 1);
        if (!finite || info) {
            sgrad__factor_tell(health, &health->unmade, args->step,
                               finite ? "has no eigendecomposition; its previous one is used"
                                      : "is not finite; its previous eigendecomposition is used");
            continue;
        }
        if (values[0] < -ROUNDING * values[n - 1] && values[0] < -NONE)
            sgrad__factor_tell(health, &health->negative, args->step, "has negative eigenvalues; they are replaced by 0");
        put(values, matrix, n, eigen);
    }
}

static size_t workspace(const struct sgrad_args *args) {
    const int64_t n = args->view[1].shape.dim[2];
    return SGRAD_LINE + (size_t)(n * n + n + work_size(n)) * sizeof(double) + (size_t)more_size(n) * sizeof(int);
}

/* With all eigenvectors. Reduction to tridiagonal form: 4/3 n³; its decomposition: up to 8/3 n³; back-transformation: 2 n³. */
static double flops(const struct sgrad_args *args) {
    const double n = (double)args->view[1].shape.dim[2];
    return 6 * (double)args->view[1].shape.dim[0] * n * n * n;
}

const struct sgrad_kernel sgrad_eigendecomposition_kernel = {
    .name = "eigendecomposition",
    .kind = &sgrad_update_kind,
    .cpu = eigendecomposition,
    .workspace = workspace,
    .flops = flops,
};
