/* convert_cuda.cu: convert.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

template <typename To> struct job : sgrad__job {
    const float *from;
    To *to;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *) const {
        float v[P::size];
        sgrad__load((const P *)from + i, v);
        sgrad__store((sgrad__pack<To, P::size> *)to + i, v);
    }
};

/* x F32, y of any shape; all y are of one type */
extern "C" void sgrad__convert_cuda(const struct sgrad_args *args) {
    sgrad__with_type(args->view[1].dtype, [=](auto type) {
        using To = decltype(type);
        sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
            return job<To>{ sgrad__job_of(&one->view[0]), (const float *)one->data[0], (To *)one->data[1] };
        });
    });
}
