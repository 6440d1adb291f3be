/* schedulefree_cuda.cu: schedulefree.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

struct job : sgrad__job {
    struct sgrad_hyper h;
    const double *squares;
    float *w, *d, *v;
    const float *dw;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *step) const {
        const float c = sgrad__clip(h.clip_norm, squares), share = step->lr_share, rest = 1 - share, by = 1 - h.beta1 * rest;
        const float rate = sgrad_lr_of(&h, step) * sqrtf(sgrad__one_less(h.beta2, step->number));
        float wv[P::size], g[P::size], dv[P::size], vv[P::size];
        sgrad__load((const P *)w + i, wv);
        sgrad__load((const P *)dw + i, g);
        sgrad__load((const P *)d + i, dv);
        sgrad__load((const P *)v + i, vv);
        for (int j = 0; j < P::size; j++) {
            g[j] *= c;
            vv[j] = h.beta2 * vv[j] + (1 - h.beta2) * g[j] * g[j];
            const float change = rate * (g[j] / (sqrtf(vv[j]) + h.eps) + h.weight_decay * wv[j]);
            wv[j] += share * dv[j] - by * change;
            dv[j] = rest * (dv[j] - h.beta1 * change);
        }
        sgrad__store((P *)w + i, wv);
        sgrad__store((P *)d + i, dv);
        sgrad__store((P *)v + i, vv);
    }
};

struct average : sgrad__job {
    float beta1;
    const float *w;
    float *x;
    template <typename P> __device__ void at(uint32_t i, const struct sgrad_step *step) const {
        const float share = sgrad_schedulefree_weight(beta1, step);
        float wv[P::size], xv[P::size];
        sgrad__load((const P *)w + i, wv);
        sgrad__load((const P *)x + i, xv);
        for (int j = 0; j < P::size; j++) xv[j] += share * (wv[j] - xv[j]);
        sgrad__store((P *)x + i, xv);
    }
};

/* Operands: w, dw, Σ g² (1) or absent, d, v. */
extern "C" void sgrad__schedulefree_cuda(const struct sgrad_args *args) {
    sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
        return job{ sgrad__job_of(&one->view[0]), *(const struct sgrad_hyper *)one->attrs, (const double *)one->data[2],
                    (float *)one->data[0], (float *)one->data[3], (float *)one->data[4], (const float *)one->data[1] };
    });
}

/* Operands: w, x. */
extern "C" void sgrad__schedulefree_average_cuda(const struct sgrad_args *args) {
    sgrad__launch_jobs(args, [](const struct sgrad_args *one) {
        return average{ sgrad__job_of(&one->view[0]), ((const struct sgrad_hyper *)one->attrs)->beta1,
                        (const float *)one->data[0], (float *)one->data[1] };
    });
}
