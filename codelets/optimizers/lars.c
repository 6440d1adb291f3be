/* lars.c: layer-wise adaptive rate scaling (You, Gitman, Ginsburg, 2017, algorithm 1): the paper's SGD with momentum. For each
 * parameter, the learning rate is scaled so that the norm of a step is about trust times the norm of the parameter:
 *
 *     g = c·dw      s = trust·‖w‖ / (‖g‖ + decay·‖w‖)
 *     b = momentum·b + rate·s·(g + decay·w)      w = w - (nesterov ? momentum·b + rate·s·(g + decay·w) : b)
 *
 * b contains the learning rate, rate, as in the paper; in sgd.c it does not. Only the steps after a change of the learning rate
 * differ. c is the clip factor, as in sgd.c; b starts as zeros. As in the implementations of the paper, s is 1 if w or g is all
 * zeros, and for vectors (biases, batch norm). */
#include "config.h"
#include "codelets/optimizers/norms.h"

#include <math.h>

void sgrad__lars_cuda(const struct sgrad_args *a);

SGRAD_ALWAYS_INLINE double norm(const float *x, int64_t count) {
    double lane[SGRAD_LANES] = { 0 };
    sgrad__add_products(x, x, count, lane);
    return sqrt(sgrad__join_lanes(lane));
}

/* Operands: w, dw, Σ g² over all parameters (1) or absent, b. */
SGRAD_VECTOR(lars)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t n = sgrad_shape_count(shape);
    float *restrict w = args->data[0], *restrict b = args->data[3];
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), decay = h->weight_decay, momentum = h->momentum;
    const bool nesterov = h->nesterov;
    double scale = 1;
    if (shape->rank > 1) {
        const double w_norm = norm(w, n), g_norm = c * norm(dw, n);
        if (w_norm > 0 && g_norm > 0) scale = h->trust * w_norm / (g_norm + decay * w_norm);
    }
    const float rate = (float)(sgrad_lr(args) * scale);
    for (int64_t i = 0; i < n; i++) {
        const float step = rate * (c * dw[i] + decay * w[i]);
        b[i] = momentum * b[i] + step;
        w[i] -= nesterov ? momentum * b[i] + step : b[i];
    }
}

static size_t workspace(const struct sgrad_args *args) {
    (void)args;
    return 2 * sizeof(double); /* Σ w², Σ dw², on CUDA devices */
}

static double flops(const struct sgrad_args *args) { return 11.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_lars_kernel = {
    .name = "lars",
    .kind = &sgrad_update_kind,
    .cpu = lars,
    .cuda = SGRAD_ON_CUDA(sgrad__lars_cuda),
    .workspace = workspace,
    .flops = flops,
};
