/* adam_cuda.cu: adam.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

struct job : sgrad__job {
    bool decoupled; /* weight decay is subtracted from the weight, not added to the gradient */
    struct sgrad_hyper h;
    const double *squares;
    float *w, *m, *v;
    const float *dw;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *step) const {
        const float c = sgrad__clip(h.clip_norm, squares), rate = sgrad_lr_of(&h, step);
        const float coupled = decoupled ? 0 : h.weight_decay, taken = decoupled ? rate * h.weight_decay : 0;
        const float size = rate / sgrad__one_less(h.beta1, step->number);
        const float root = 1 / sqrtf(sgrad__one_less(h.beta2, step->number));
        float wv[P::size], g[P::size], mv[P::size], vv[P::size];
        sgrad__load((const P *)w + i, wv);
        sgrad__load((const P *)dw + i, g);
        sgrad__load((const P *)m + i, mv);
        sgrad__load((const P *)v + i, vv);
        for (int j = 0; j < P::size; j++) {
            g[j] = c * g[j] + coupled * wv[j];
            mv[j] = h.beta1 * mv[j] + (1 - h.beta1) * g[j];
            vv[j] = h.beta2 * vv[j] + (1 - h.beta2) * g[j] * g[j];
            wv[j] = wv[j] - taken * wv[j] - size * mv[j] / (sqrtf(vv[j]) * root + h.eps);
        }
        sgrad__store((P *)w + i, wv);
        sgrad__store((P *)m + i, mv);
        sgrad__store((P *)v + i, vv);
    }
};

/* Operands: w, dw, Σ g² (1) or absent, m, v. */
static void update(const struct sgrad_args *args, bool decoupled) {
    sgrad__launch_jobs(args, [=](const struct sgrad_args *one) {
        return job{ sgrad__job_of(&one->view[0]), decoupled, *(const struct sgrad_hyper *)one->attrs,
                    (const double *)one->data[2], (float *)one->data[0], (float *)one->data[3], (float *)one->data[4],
                    (const float *)one->data[1] };
    });
}

extern "C" void sgrad__adam_cuda(const struct sgrad_args *args) { update(args, false); }
extern "C" void sgrad__adamw_cuda(const struct sgrad_args *args) { update(args, true); }
