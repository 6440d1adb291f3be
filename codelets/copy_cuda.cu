/* copy_cuda.cu: copy.c on CUDA devices. */
#include "codelets/cuda.h"

template <typename T> static __global__ void fill(uint32_t n, T *out) {
    const uint32_t i = sgrad__thread();
    if (i < n) out[i] = (T)-0.0;
}

/* in (any shape), some of them absent, out (any shape) */
template <typename T> static void copy(const struct sgrad_args *a) {
    const struct sgrad_copy *attrs = (const struct sgrad_copy *)a->attrs;
    for (int i = 0; i < SGRAD_COPY_INPUTS; i++) {
        const struct sgrad_copy_piece *p = &attrs->piece[i];
        T *to = (T *)a->data[SGRAD_COPY_INPUTS] + p->to;
        if (p->count == 0) continue;
        if (a->data[i])
            SGRAD_CUDA(cudaMemcpyAsync(to, (const T *)a->data[i] + p->from, p->count * sizeof(T), cudaMemcpyDeviceToDevice,
                                       sgrad_cuda_stream()));
        else
            sgrad__launch(fill<T>, p->count, to);
    }
}

extern "C" void sgrad__copy_cuda(const struct sgrad_args *a) {
    a->view[SGRAD_COPY_INPUTS].dtype == SGRAD_F64 ? copy<double>(a) : copy<float>(a);
}
