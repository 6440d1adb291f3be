/* sum_cuda.cu: sum.c on CUDA devices, with the same tree and therefore the same bits. */
#include "codelets/cuda/cuda.h"

/* Adds elements of type T in type SUM. */
template <typename T, typename Sum> struct job : sgrad__job {
    const T *x[SGRAD_SUM_INPUTS];
    T *out;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *) const {
        using Own = sgrad__pack<T, P::size>;
        sgrad__pack<Sum, P::size> v[SGRAD_SUM_INPUTS];
        Own sum;
#pragma unroll
        for (int k = 0; k < SGRAD_SUM_INPUTS; k++)
            if (x[k]) {
                const Own own = ((const Own *)x[k])[i];
                for (int j = 0; j < P::size; j++) v[k].at[j] = own.at[j];
            }
#pragma unroll
        for (int half = 1; half < SGRAD_SUM_INPUTS; half *= 2)
#pragma unroll
            for (int k = 0; k + half < SGRAD_SUM_INPUTS; k += 2 * half)
                if (x[k + half])
                    for (int j = 0; j < P::size; j++) v[k].at[j] += v[k + half].at[j];
        for (int j = 0; j < P::size; j++) sum.at[j] = v[0].at[j];
        ((Own *)out)[i] = sum;
    }
};

/* Operands: inputs 0 … 7 (any shape), some of them absent; output (same shape, or that of a segment of each input). */
template <typename T, typename Sum> static void add(const struct sgrad_args *args) {
    sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
        job<T, Sum> is = { sgrad__job_of(&one->view[SGRAD_SUM_INPUTS]), {}, (T *)one->data[SGRAD_SUM_INPUTS] };
        is.fours &= sizeof(T) <= sizeof(float);
        for (int k = 0; k < SGRAD_SUM_INPUTS; k++) {
            if (one->data[k]) is.x[k] = (const T *)one->data[k] + sgrad_sum_first(one, k);
            is.fours &= sgrad_sum_first(one, k) % 4 == 0;
        }
        return is;
    });
}

extern "C" void sgrad__sum_cuda(const struct sgrad_args *args) {
    switch (args->view[SGRAD_SUM_INPUTS].dtype) {
    case SGRAD_F64: add<double, double>(args); break;
    case SGRAD_BF16: add<__nv_bfloat16, float>(args); break;
    default: add<float, float>(args);
    }
}
