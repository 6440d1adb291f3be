/* kfac.c: the step of K-FAC: SGD with momentum (sgd.c) on preconditioned gradients V (precondition.c). If the step would change
 * the network's outputs too much, all of these are scaled down by the same factor ν:
 *
 *     ν = min(1, sqrt(κ / |rate²·Σ V·∇|))      g = ν·V + decay·w      b = momentum·b + g      w = w - rate·b
 *
 * rate is the learning rate. The sum is over all preconditioned layers. Other parameters do not have this sum, and their ν is 1.
 * κ is kl_clip; 0: ν is 1.
 *
 * Source, for ν: J. Ba, R. Grosse, J. Martens: Distributed second-order optimization using Kronecker-factored approximations,
 * 2017; for the rest kronecker.h. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/updates.h"

#include <math.h>

void sgrad__kfac_cuda(const struct sgrad_args *a);

SGRAD_ALWAYS_INLINE float scale_of(const struct sgrad_hyper *hyper, const double *product, double rate) {
    if (!product || hyper->kl_clip <= 0) return 1;
    const double change = fabs(rate * rate * *product);
    return change > hyper->kl_clip ? (float)sqrt(hyper->kl_clip / change) : 1;
}

/* Operands: w, V, Σ V·∇ over all layers (1) or absent, b. */
SGRAD_VECTOR(kfac)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    float *restrict w = args->data[0], *restrict b = args->data[3];
    const float *restrict v = args->data[1];
    const float rate = sgrad_lr(args), scale = scale_of(h, args->data[2], rate), decay = h->weight_decay, momentum = h->momentum;
    const bool nesterov = h->nesterov;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        const float g = scale * v[i] + decay * w[i];
        b[i] = momentum * b[i] + g;
        w[i] -= rate * (nesterov ? g + momentum * b[i] : b[i]);
    }
}

static double flops(const struct sgrad_args *args) { return 7.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_kfac_kernel = {
    .name = "kfac",
    .kind = &sgrad_update_kind,
    .cpu = kfac,
    .cuda = SGRAD_ON_CUDA(sgrad__kfac_cuda),
    .flops = flops,
};
