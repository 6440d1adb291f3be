/* copy_cuda.cu: copy.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

template <typename T> static __global__ void fill(uint32_t n, T *out) {
    const uint32_t i = sgrad__thread();
    if (i < n) out[i] = (T)-0.0;
}

/* in (any shape, some absent), out (any shape) */
extern "C" void sgrad__copy_cuda(const struct sgrad_args *args) {
    const struct sgrad_copy *attrs = (const struct sgrad_copy *)args->attrs;
    const enum sgrad_dtype dtype = args->view[SGRAD_COPY_INPUTS].dtype;
    const size_t size = sgrad_dtype_size(dtype);
    for (int i = 0; i < SGRAD_COPY_INPUTS; i++) {
        const struct sgrad_copy_block *p = &attrs->block[i];
        void *to = (char *)args->data[SGRAD_COPY_INPUTS] + p->to * size;
        if (p->count == 0) continue;
        if (args->data[i])
            SGRAD_CUDA(cudaMemcpyAsync(to, (const char *)args->data[i] + p->from * size, p->count * size,
                                       cudaMemcpyDeviceToDevice, sgrad_cuda_stream()));
        else if (dtype == SGRAD_F64)
            sgrad__launch(fill<double>, p->count, to);
        else
            sgrad__with_type(dtype, [=](auto element) { sgrad__launch(fill<decltype(element)>, p->count, to); });
    }
}
