/* ema_cuda.cu: ema.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

struct job : sgrad__job {
    double decay;
    const float *x;
    float *y;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *step) const {
        const float share = sgrad_ema_weight(decay, step);
        float xv[P::size], yv[P::size];
        sgrad__load((const P *)x + i, xv);
        sgrad__load((const P *)y + i, yv);
        for (int j = 0; j < P::size; j++) yv[j] += share * (xv[j] - yv[j]);
        sgrad__store((P *)y + i, yv);
    }
};

/* Operands: x, y (any shape). */
extern "C" void sgrad__ema_cuda(const struct sgrad_args *args) {
    sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
        return job{ sgrad__job_of(&one->view[0]), *(const double *)one->attrs, (const float *)one->data[0],
                    (float *)one->data[1] };
    });
}
