/* adam.c: Adam (Kingma, Ba, 2014), like torch.optim.Adam, and AdamW (Loshchilov, Hutter, 2019), like torch.optim.AdamW:
 *
 *     g = c·dw + decay·w  (Adam)      or      g = c·dw,  w = w - rate·decay·w  (AdamW)
 *     m = beta1·m + (1-beta1)·g       v = beta2·v + (1-beta2)·g²
 *     w = w - rate · m/(1-beta1^t) / (sqrt(v/(1-beta2^t)) + eps)
 *
 * rate is the learning rate; t is the step, from 1; c is the clip factor, as in sgd.c. m and v start as zeros. */
#include "config.h"
#include "codelets/optimizers/norms.h"

#include <math.h>

void sgrad__adam_cuda(const struct sgrad_args *a);
void sgrad__adamw_cuda(const struct sgrad_args *a);

/* Operands: w, dw, Σ g² (1) or absent, m, v. COUPLED·w is added to the gradient, DECOUPLED·w is subtracted from the weight. */
SGRAD_ALWAYS_INLINE void update(const struct sgrad_args *args, float coupled, float decoupled) {
    const struct sgrad_hyper *h = args->attrs;
    float *restrict w = args->data[0], *restrict m = args->data[3], *restrict v = args->data[4];
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), beta1 = h->beta1, beta2 = h->beta2, eps = h->eps;
    const float size = (float)(sgrad_lr(args) / (1 - pow(beta1, args->step->number)));
    const float root = (float)(1 / sqrt(1 - pow(beta2, args->step->number)));
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        float g = c * dw[i] + coupled * w[i];
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        w[i] = w[i] - decoupled * w[i] - size * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

SGRAD_VECTOR(adam)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    update(args, h->weight_decay, 0);
}

SGRAD_VECTOR(adamw)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    update(args, 0, sgrad_lr(args) * h->weight_decay);
}

static double flops(const struct sgrad_args *args) { return 16.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_adam_kernel = {
    .name = "adam",
    .kind = &sgrad_update_kind,
    .cpu = adam,
    .cuda = SGRAD_ON_CUDA(sgrad__adam_cuda),
    .batched = true,
    .flops = flops,
};
const struct sgrad_kernel sgrad_adamw_kernel = {
    .name = "adamw",
    .kind = &sgrad_update_kind,
    .cpu = adamw,
    .cuda = SGRAD_ON_CUDA(sgrad__adamw_cuda),
    .batched = true,
    .flops = flops,
};
