/* precondition.c: divides a layer's gradient by its curvature (kronecker.h), either in the basis of its factors' eigenvectors or
 * with their damped inverses:
 *
 *     ∇ (k,n) = │ weight │ bias │        V = Q_G ((Q_Gᵀ ∇ Q_A) / (d_G d_Aᵀ + γ)) Q_Aᵀ        V = (G + γI)⁻¹ ∇ (A + γI)⁻¹
 *
 * With groups, each group is computed separately. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/kfac/kronecker.h"
#include "codelets/cpu/onednn.h"

void sgrad__precondition_cuda(const struct sgrad_args *a);
void sgrad__precondition_by_inverse_cuda(const struct sgrad_args *a);

enum { DWEIGHT, DBIAS, A, G, WEIGHT, BIAS };

/* c (m,n) = a (m,k) b (k,n). A_TURNED, B_TURNED: the factor is stored transposed. */
static void multiply(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    sgrad__onednn_multiply(a_turned, b_turned, m, n, k, 1, a, b, 0, c);
}

/* The first function joins the gradients of the weight and the bias, as rows of N elements of which the last one is the bias's;
 * the second one splits them. */
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

/* Computes V (k,n) from ∇ (k,n) and the eigen, or the inverses, of A and G. The buffer before V is for intermediate results
 * (k,n). */
typedef void by(const float *gradient, const float *a, const float *g, int64_t k, int64_t n, float damping, float *room,
                float *v);

static void by_eigen(const float *gradient, const float *a, const float *g, int64_t k, int64_t n, float damping, float *room,
                     float *v) {
    const float *da = a, *qa = a + n, *dg = g, *qg = g + k;
    multiply(false, true, k, n, n, gradient, qa, room);
    multiply(false, false, k, n, k, qg, room, v);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) v[i * n + j] /= dg[i] * da[j] + damping;
    multiply(true, false, k, n, k, qg, v, room);
    multiply(false, false, k, n, n, room, qa, v);
}

static void by_inverse(const float *gradient, const float *a, const float *g, int64_t k, int64_t n, float damping, float *room,
                       float *v) {
    (void)damping;
    multiply(false, false, k, n, n, gradient, a, room);
    multiply(false, false, k, n, k, g, room, v);
}

/* Operands: dweight, dbias or absent, the eigen or inverse of A (groups,…,n) and of G (groups,…,k), V of the weight, V of the
 * bias or absent. */
static void for_groups(const struct sgrad_args *args, by *how) {
    const struct sgrad_shape *of_a = &args->view[A].shape, *of_g = &args->view[G].shape;
    const int64_t groups = of_a->dim[0], n = of_a->dim[2], k = of_g->dim[2];
    const int64_t of_weight = k * (n - (args->data[DBIAS] != NULL));
    float *gradient = (float *)sgrad_aligned((size_t)args->workspace), *room = gradient + k * n, *v = room + k * n;
    for (int64_t j = 0; j < groups; j++) {
        const float *dbias = args->data[DBIAS];
        float *bias = args->data[BIAS];
        join((const float *)args->data[DWEIGHT] + j * of_weight, dbias ? dbias + j * k : NULL, k, n, gradient);
        how(gradient, (const float *)args->data[A] + j * of_a->dim[1] * n, (const float *)args->data[G] + j * of_g->dim[1] * k, k,
            n, args->step->damping, room, v);
        part(v, k, n, (float *)args->data[WEIGHT] + j * of_weight, bias ? bias + j * k : NULL);
    }
}

static void precondition(const struct sgrad_args *args) { for_groups(args, by_eigen); }
static void precondition_by_inverse(const struct sgrad_args *args) { for_groups(args, by_inverse); }

static size_t workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + 3 * (size_t)(args->view[A].shape.dim[2] * args->view[G].shape.dim[2]) * sizeof(float);
}

static double flops_of_products(const struct sgrad_args *args, double pairs) {
    const int64_t *dim = args->view[A].shape.dim;
    const double groups = (double)dim[0], n = (double)dim[2], k = (double)args->view[G].shape.dim[2];
    return groups * 2 * k * n * pairs * (k + n + 1);
}
static double flops(const struct sgrad_args *args) { return flops_of_products(args, 2); }
static double flops_by_inverse(const struct sgrad_args *args) { return flops_of_products(args, 1); }

const struct sgrad_kernel sgrad_precondition_kernel = {
    .name = "precondition",
    .kind = &sgrad_update_kind,
    .cpu = precondition,
    .cuda = SGRAD_ON_CUDA(sgrad__precondition_cuda),
    .workspace = workspace,
    .flops = flops,
};
const struct sgrad_kernel sgrad_precondition_by_inverse_kernel = {
    .name = "precondition_by_inverse",
    .kind = &sgrad_update_kind,
    .cpu = precondition_by_inverse,
    .cuda = SGRAD_ON_CUDA(sgrad__precondition_by_inverse_cuda),
    .workspace = workspace,
    .flops = flops_by_inverse,
};
