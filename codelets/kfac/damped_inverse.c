/* damped_inverse.c: (F + γI)⁻¹ of symmetric matrices, in double precision, by Cholesky decomposition (LAPACK's dpotrf, dpotri).
 * Shapes: kronecker.h.
 *
 *     factor    f00 f01 f02 f11 f12 f22             inverse  i00 i01 i02
 *                                                            i01 i11 i12       both triangles
 *                                                            i02 i12 i22
 *
 * γ is the damping of the step that runs this kernel. If a matrix is not finite, or has an eigenvalue of -γ or less, its previous
 * inverse does not change and a warning is logged. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/cpu/lapack.h"
#include "codelets/kfac/kronecker.h"

/* Adds the damping to the diagonal of a column-major matrix and inverts it. Uses and sets only the lower triangle. Returns 0, or
 * the error of LAPACK. */
static int invert(double *matrix, int64_t n, double damping) {
    const int rows = (int)n;
    int info = 0;
    for (int64_t i = 0; i < n; i++) matrix[i * n + i] += damping;
    dpotrf_("L", &rows, matrix, &rows, &info, 1);
    if (!info) dpotri_("L", &rows, matrix, &rows, &info, 1);
    return info;
}

static void put(const double *matrix, int64_t n, float *inverse) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) inverse[i * n + j] = inverse[j * n + i] = (float)matrix[i * n + j];
}

/* Operands: factor (groups,n(n+1)/2), inverse (groups,n,n). */
static void damped_inverse(const struct sgrad_args *args) {
    struct sgrad_factor_health *health = *(struct sgrad_factor_health *const *)args->attrs;
    const int64_t groups = args->view[1].shape.dim[0], n = args->view[1].shape.dim[2];
    const float *factor = args->data[0];
    float *inverse = args->data[1];
    double *matrix = (double *)sgrad_aligned((size_t)args->workspace);
    sgrad__lapack_alone();
    for (int64_t g = 0; g < groups; g++, factor += sgrad__triangle(n), inverse += n * n) {
        const bool finite = sgrad__lapack_take(factor, n, matrix);
        if (finite && !invert(matrix, n, args->step->damping)) put(matrix, n, inverse);
        else
            sgrad__factor_tell(health, finite ? &health->negative : &health->unmade, args->step,
                               finite ? "has an eigenvalue at or below minus the damping; its previous inverse is used"
                                      : "is not finite; its previous inverse is used");
    }
}

static size_t workspace(const struct sgrad_args *args) {
    const int64_t n = args->view[1].shape.dim[2];
    return SGRAD_LINE + (size_t)(n * n) * sizeof(double);
}

/* dpotrf: n³/3; dpotri: 2/3 n³. */
static double flops(const struct sgrad_args *args) {
    const double n = (double)args->view[1].shape.dim[2];
    return (double)args->view[1].shape.dim[0] * n * n * n;
}

const struct sgrad_kernel sgrad_damped_inverse_kernel = {
    .name = "damped_inverse",
    .kind = &sgrad_update_kind,
    .cpu = damped_inverse,
    .workspace = workspace,
    .flops = flops,
};
