/* convert_cuda.cu: convert.c on CUDA devices. */
#include "codelets/cuda.h"

/* x F32, y of any shape */
extern "C" void sgrad__convert_cuda(const struct sgrad_args *a) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_type(a->view[1].dtype, [=](auto type) {
        sgrad__convert(n, (const float *)a->data[0], (decltype(type) *)a->data[1]);
    });
}
