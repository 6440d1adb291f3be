/* precondition.c: a layer's gradient, divided by its curvature in the eigenvectors of its factors (kronecker.h):
 *
 *     ∇ (k,n) = │ weight │ bias │        V = Q_G ((Q_Gᵀ ∇ Q_A) / (d_G d_Aᵀ + γ)) Q_Aᵀ        and Σ V·∇
 *
 * with groups each of them for itself. Limits: on CPUs alone. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/kronecker.h"

#include <oneapi/dnnl/dnnl.h>

enum { DWEIGHT, DBIAS, A, G, WEIGHT, BIAS, SUM };

/* c (m,n) = a (m,k) b (k,n), of each of which as it lies or TURNED */
static void multiply(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    dnnl_sgemm(a_turned ? 'T' : 'N', b_turned ? 'T' : 'N', m, n, k, 1, a, a_turned ? m : k, b, b_turned ? k : n, 0, c, n);
}

/* Rows of the gradient, in one piece: the weight's and, behind each, the bias's; and back. */
static void join(const float *weight, const float *bias, int64_t k, int64_t n, float *to) {
    const int64_t of_weight = n - (bias != NULL);
    for (int64_t i = 0; i < k; i++) {
        memcpy(to + i * n, weight + i * of_weight, (size_t)of_weight * sizeof *to);
        if (bias) to[i * n + n - 1] = bias[i];
    }
}
static void part(const float *from, int64_t k, int64_t n, float *weight, float *bias) {
    const int64_t of_weight = n - (bias != NULL);
    for (int64_t i = 0; i < k; i++) {
        memcpy(weight + i * of_weight, from + i * n, (size_t)of_weight * sizeof *weight);
        if (bias) bias[i] = from[i * n + n - 1];
    }
}

static double product(const float *x, const float *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * y[i];
    return sum;
}

/* dweight, dbias or absent, A's eigen (groups,1+n,n), G's (groups,1+k,k), V of the weight, of the bias or absent, Σ V·∇ */
static void precondition(const struct sgrad_args *a) {
    const int64_t groups = a->view[A].shape.dim[0], n = a->view[A].shape.dim[2], k = a->view[G].shape.dim[2];
    const int64_t of_weight = k * (n - (a->data[DBIAS] != NULL));
    float *gradient = (float *)sgrad_aligned((size_t)a->workspace), *first = gradient + k * n, *second = first + k * n;
    const float damping = a->step->damping;
    double sum = 0;
    for (int64_t j = 0; j < groups; j++) {
        const float *da = (const float *)a->data[A] + j * (n + 1) * n, *qa = da + n;
        const float *dg = (const float *)a->data[G] + j * (k + 1) * k, *qg = dg + k;
        const float *dbias = a->data[DBIAS];
        float *bias = a->data[BIAS];
        join((const float *)a->data[DWEIGHT] + j * of_weight, dbias ? dbias + j * k : NULL, k, n, gradient);
        multiply(false, true, k, n, n, gradient, qa, first);
        multiply(false, false, k, n, k, qg, first, second);
        for (int64_t i = 0; i < k; i++)
            for (int64_t l = 0; l < n; l++) second[i * n + l] /= dg[i] * da[l] + damping;
        multiply(true, false, k, n, k, qg, second, first);
        multiply(false, false, k, n, n, first, qa, second);
        sum += product(second, gradient, k * n);
        part(second, k, n, (float *)a->data[WEIGHT] + j * of_weight, bias ? bias + j * k : NULL);
    }
    *(double *)a->data[SUM] = sum;
}

static size_t workspace(const struct sgrad_args *a) {
    return SGRAD_LINE + 3 * (size_t)(a->view[A].shape.dim[2] * a->view[G].shape.dim[2]) * sizeof(float);
}

static double flops(const struct sgrad_args *a) {
    const int64_t *dim = a->view[A].shape.dim;
    const double groups = (double)dim[0], n = (double)dim[2], k = (double)a->view[G].shape.dim[2];
    return groups * 4 * k * n * (k + n + 1);
}

const struct sgrad_kernel sgrad_precondition_kernel = {
    .name = "precondition",
    .kind = &sgrad_update_kind,
    .cpu = precondition,
    .workspace = workspace,
    .flops = flops,
};
