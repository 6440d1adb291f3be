/* schedulefree.c: schedule-free AdamW (A. Defazio and others, The road less scheduled, 2024, algorithm 1). Three sequences:
 * gradients are taken at y, the weights; steps change z; x is the average of z, which is evaluated and saved. With
 * γ = rate·√(1 - beta2^t):
 *
 *     v = beta2·v + (1-beta2)·g²      z = z - γ·(g / (√v + eps) + decay·y)
 *     x = (1-s)·x + s·z               y = (1-beta1)·z + beta1·x              s = γ² / (sum of γ² of all steps so far)
 *
 * Here d = z - y is stored instead of z, so that all states start as zeros. The same steps, with the change δ of z:
 *
 *     δ = γ·(g / (√v + eps) + decay·y)      y = y + s·d - (1 - beta1·(1-s))·δ      d = (1-s)·(d - beta1·δ)
 *
 * x follows from the y of all steps (it is z where beta1 is 0):
 *
 *     x = x + s / (1 - beta1·(1-s)) · (y - x)          in the first step, s is 1 and x = y
 *
 * so any rank that has the weights can compute it. g = c·dw; c is the clip factor, as in sgd.c; rate is the learning rate; t is
 * the step, from 1; s comes with the step, because it depends on the learning rates of all earlier steps. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/updates.h"

#include <math.h>

void sgrad__schedulefree_cuda(const struct sgrad_args *args);
void sgrad__schedulefree_average_cuda(const struct sgrad_args *args);

/* Operands: w (y above), dw, Σ g² (1) or absent, d, v. */
SGRAD_VECTOR(schedulefree)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    float *restrict w = args->data[0], *restrict d = args->data[3], *restrict v = args->data[4];
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), beta1 = h->beta1, beta2 = h->beta2, eps = h->eps;
    const float rate = (float)(sgrad_lr(args) * sqrt(1 - pow(beta2, args->step->number))), decay = h->weight_decay;
    const float share = args->step->lr_share, rest = 1 - share, by = 1 - beta1 * rest;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        const float g = c * dw[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        const float step = rate * (g / (sqrtf(v[i]) + eps) + decay * w[i]);
        w[i] += share * d[i] - by * step;
        d[i] = rest * (d[i] - beta1 * step);
    }
}

/* Operands: w, x. */
SGRAD_VECTOR(average)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const float *restrict w = args->data[0];
    float *restrict x = args->data[1];
    const float share = sgrad_schedulefree_weight(h->beta1, args->step);
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) x[i] += share * (w[i] - x[i]);
}

static double flops(const struct sgrad_args *args) { return 18.0 * (double)sgrad_shape_count(&args->view[0].shape); }
static double flops_of_average(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_schedulefree_kernel = {
    .name = "schedulefree",
    .kind = &sgrad_update_kind,
    .cpu = schedulefree,
    .cuda = SGRAD_ON_CUDA(sgrad__schedulefree_cuda),
    .batched = true,
    .flops = flops,
};
const struct sgrad_kernel sgrad_schedulefree_average_kernel = {
    .name = "schedulefree_average",
    .kind = &sgrad_update_kind,
    .cpu = average,
    .cuda = SGRAD_ON_CUDA(sgrad__schedulefree_average_cuda),
    .batched = true,
    .flops = flops_of_average,
};
