/* sum_cuda.cu: sum.c on CUDA devices: the same tree, so the same bits. */
#include "codelets/cuda.h"

template <typename T> struct inputs {
    const T *x[SGRAD_SUM_INPUTS];
};

template <typename T, int N> static __global__ void sum(uint32_t n, inputs<sgrad__pack<T, N>> in, sgrad__pack<T, N> *out) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    sgrad__pack<T, N> v[SGRAD_SUM_INPUTS];
#pragma unroll
    for (int k = 0; k < SGRAD_SUM_INPUTS; k++)
        if (in.x[k]) v[k] = in.x[k][i];
#pragma unroll
    for (int half = 1; half < SGRAD_SUM_INPUTS; half *= 2)
#pragma unroll
        for (int k = 0; k + half < SGRAD_SUM_INPUTS; k += 2 * half)
            if (in.x[k + half])
                for (int j = 0; j < N; j++) v[k].at[j] += v[k + half].at[j];
    out[i] = v[0];
}

/* in (any shape) 0 … 7, some of them absent, out (the same, or a run of each) */
template <typename T, int N> static void launch(const struct sgrad_args *a) {
    inputs<sgrad__pack<T, N>> in = {};
    for (int k = 0; k < SGRAD_SUM_INPUTS; k++)
        if (a->data[k]) in.x[k] = (const sgrad__pack<T, N> *)((const T *)a->data[k] + sgrad_sum_first(a, k));
    sgrad__launch(sum<T, N>, sgrad_shape_count(&a->view[SGRAD_SUM_INPUTS].shape) / N, in,
                  (sgrad__pack<T, N> *)a->data[SGRAD_SUM_INPUTS]);
}

/* Packs of four: so many elements, and every input begins with one. */
static bool in_fours(const struct sgrad_args *a) {
    bool fours = sgrad_shape_count(&a->view[SGRAD_SUM_INPUTS].shape) % 4 == 0;
    for (int k = 0; k < SGRAD_SUM_INPUTS; k++) fours &= sgrad_sum_first(a, k) % 4 == 0;
    return fours;
}

extern "C" void sgrad__sum_cuda(const struct sgrad_args *a) {
    if (a->view[SGRAD_SUM_INPUTS].dtype == SGRAD_F64)
        launch<double, 1>(a);
    else if (in_fours(a))
        launch<float, 4>(a);
    else
        launch<float, 1>(a);
}
