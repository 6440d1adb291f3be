/* precondition_cuda.cu: precondition.c on CUDA devices, with cuBLAS, whose matrices are column-major. A tensor (rows,columns) is
 * a columns × rows matrix for it, so a product left · right is computed as right · left.
 *
 * The joined gradient and intermediate results are in the workspace. Products are in F32, never in TF32, because small values
 * matter. */
#include "codelets/cuda/cuda.h"

enum { DWEIGHT, DBIAS, A, G, WEIGHT, BIAS };

/* c (m,n) = a (m,k) b (k,n). A_TURNED, B_TURNED: the factor is stored transposed. */
static void multiply(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    const float one = 1, none = 0;
    SGRAD_CUDA(cublasGemmEx(sgrad_cublas(), b_turned ? CUBLAS_OP_T : CUBLAS_OP_N, a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n,
                            (int)m, (int)k, &one, b, CUDA_R_32F, (int)(b_turned ? k : n), a, CUDA_R_32F, (int)(a_turned ? m : k),
                            &none, c, CUDA_R_32F, (int)n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* The first function joins the gradients of the weight and the bias, as rows of N elements of which, with a bias, the last one is
 * the bias's; the second one splits them. */
static __global__ void join(uint32_t count, int n, const float *weight, const float *bias, float *to) {
    const uint32_t i = sgrad__thread();
    if (i >= count) return;
    const int row = i / n, column = i % n, of_weight = n - (bias != NULL);
    to[i] = column < of_weight ? weight[(int64_t)row * of_weight + column] : bias[row];
}
static __global__ void part(uint32_t count, int n, const float *from, float *weight, float *bias) {
    const uint32_t i = sgrad__thread();
    if (i >= count) return;
    const int row = i / n, column = i % n, of_weight = n - (bias != NULL);
    if (column < of_weight) weight[(int64_t)row * of_weight + column] = from[i];
    else bias[row] = from[i];
}

/* v (k,n) / (d_G d_Aᵀ + γ) */
static __global__ void divide(uint32_t count, int n, const float *dg, const float *da, const struct sgrad_step *step, float *v) {
    const uint32_t i = sgrad__thread();
    if (i < count) v[i] /= dg[i / n] * da[i % n] + step->damping;
}

/* Computes V (k,n) from ∇ (k,n) and the eigen, or the inverses, of A and G. The buffer before V is for intermediate results
 * (k,n). */
typedef void by(const float *gradient, const float *a, const float *g, int64_t k, int64_t n,
                const struct sgrad_step *step, float *room, float *v);

static void by_eigen(const float *gradient, const float *a, const float *g, int64_t k, int64_t n,
                     const struct sgrad_step *step, float *room, float *v) {
    const float *qa = a + n, *qg = g + k;
    multiply(false, true, k, n, n, gradient, qa, room);
    multiply(false, false, k, n, k, qg, room, v);
    sgrad__launch(divide, k * n, (int)n, g, a, step, v);
    multiply(true, false, k, n, k, qg, v, room);
    multiply(false, false, k, n, n, room, qa, v);
}

static void by_inverse(const float *gradient, const float *a, const float *g, int64_t k, int64_t n,
                       const struct sgrad_step *, float *room, float *v) {
    multiply(false, false, k, n, n, gradient, a, room);
    multiply(false, false, k, n, k, g, room, v);
}

/* Operands: dweight, dbias or absent, the eigen or inverse of A (groups,…,n) and of G (groups,…,k), V of the weight, V of the
 * bias or absent. */
static void for_groups(const struct sgrad_args *args, by *how) {
    const struct sgrad_shape *of_a = &args->view[A].shape, *of_g = &args->view[G].shape;
    const int64_t groups = of_a->dim[0], n = of_a->dim[2], k = of_g->dim[2], of_weight = k * (n - (args->data[DBIAS] != NULL));
    float *gradient = (float *)sgrad_aligned((size_t)args->workspace), *room = gradient + k * n, *v = room + k * n;
    for (int64_t j = 0; j < groups; j++) {
        float *dweight = (float *)args->data[DWEIGHT] + j * of_weight, *weight = (float *)args->data[WEIGHT] + j * of_weight;
        float *dbias = args->data[DBIAS] ? (float *)args->data[DBIAS] + j * k : NULL;
        float *bias = args->data[BIAS] ? (float *)args->data[BIAS] + j * k : NULL;
        sgrad__launch(join, k * n, (int)n, dweight, dbias, gradient);
        how(gradient, (const float *)args->data[A] + j * of_a->dim[1] * n, (const float *)args->data[G] + j * of_g->dim[1] * k, k,
            n, args->step, room, v);
        sgrad__launch(part, k * n, (int)n, v, weight, bias);
    }
}

extern "C" void sgrad__precondition_cuda(const struct sgrad_args *args) { for_groups(args, by_eigen); }
extern "C" void sgrad__precondition_by_inverse_cuda(const struct sgrad_args *args) { for_groups(args, by_inverse); }
