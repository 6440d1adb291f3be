/* sgd_cuda.cu: sgd.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

struct job : sgrad__job {
    struct sgrad_hyper h;
    const double *squares;
    float *w, *b;
    const float *dw;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *step) const {
        const float c = sgrad__clip(h.clip_norm, squares), rate = sgrad_lr_of(&h, step);
        float wv[P::size], g[P::size], bv[P::size];
        sgrad__load((const P *)w + i, wv);
        sgrad__load((const P *)dw + i, g);
        sgrad__load((const P *)b + i, bv);
        for (int j = 0; j < P::size; j++) {
            g[j] = c * g[j] + h.weight_decay * wv[j];
            bv[j] = h.momentum * bv[j] + g[j];
            wv[j] -= rate * (h.nesterov ? g[j] + h.momentum * bv[j] : bv[j]);
        }
        sgrad__store((P *)w + i, wv);
        sgrad__store((P *)b + i, bv);
    }
};

/* Operands: w, dw, Σ g² (1) or absent, b. */
extern "C" void sgrad__sgd_cuda(const struct sgrad_args *args) {
    sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
        return job{ sgrad__job_of(&one->view[0]), *(const struct sgrad_hyper *)one->attrs,
                    (const double *)one->data[2], (float *)one->data[0], (float *)one->data[3], (const float *)one->data[1] };
    });
}
