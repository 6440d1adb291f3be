/* sgd.c: stochastic gradient descent with momentum, like torch.optim.SGD with dampening 0:
 *
 *     g = c·dw + decay·w      b = momentum·b + g      w = w - rate·(nesterov ? g + momentum·b : b)
 *
 * rate is the learning rate. c is the clip factor: it scales all gradients down together if their norm is above clip_norm
 * (torch.nn.utils.clip_grad_norm_). b starts as zeros, so that it is g after the first step. */
#include "config.h"
#include "codelets/optimizers/norms.h"

void sgrad__sgd_cuda(const struct sgrad_args *a);

/* Operands: w, dw, Σ g² (1) or absent, b. */
SGRAD_VECTOR(sgd)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    float *restrict w = args->data[0], *restrict b = args->data[3];
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), rate = sgrad_lr(args), decay = h->weight_decay, momentum = h->momentum;
    const bool nesterov = h->nesterov;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        float g = c * dw[i] + decay * w[i];
        b[i] = momentum * b[i] + g;
        w[i] -= rate * (nesterov ? g + momentum * b[i] : b[i]);
    }
}

static double flops(const struct sgrad_args *args) { return 7.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_sgd_kernel = {
    .name = "sgd",
    .kind = &sgrad_update_kind,
    .cpu = sgd,
    .cuda = SGRAD_ON_CUDA(sgrad__sgd_cuda),
    .batched = true,
    .flops = flops,
};
