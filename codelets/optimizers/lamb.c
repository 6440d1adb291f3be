/* lamb.c: layer-wise adaptive moments (You et al., 2019, algorithm 2, with φ(z) = z): AdamW, with a step that is scaled, for each
 * parameter, to the norm of the parameter:
 *
 *     g = c·dw      m = beta1·m + (1-beta1)·g      v = beta2·v + (1-beta2)·g²
 *     u = m/(1-beta1^t) / (sqrt(v/(1-beta2^t)) + eps) + decay·w      w = w - rate · ‖w‖/‖u‖ · u
 *
 * rate is the learning rate; t is the step, from 1; c is the clip factor, as in sgd.c. m and v start as zeros. As in the
 * implementations of the paper, the ratio ‖w‖/‖u‖ is 1 if w or u is all zeros, and for vectors (biases, batch norm).
 *
 * u is not stored: it is computed for its norm, in small chunks, and recomputed for the step. */
#include "config.h"
#include "codelets/optimizers/norms.h"

#include <math.h>

void sgrad__lamb_cuda(const struct sgrad_args *a);

/* Values that are the same for all elements. */
struct scales {
    float size, root; /* 1/(1-beta1^t), 1/sqrt(1-beta2^t) */
    float eps, decay;
};

SGRAD_ALWAYS_INLINE float direction(const struct scales *scales, float w, float m, float v) {
    return scales->size * m / (sqrtf(v) * scales->root + scales->eps) + scales->decay * w;
}

/* Operands: w, dw, Σ g² over all parameters (1) or absent, m, v. */
SGRAD_VECTOR(lamb)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t count = sgrad_shape_count(shape);
    float *restrict w = args->data[0], *restrict m = args->data[3], *restrict v = args->data[4];
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), beta1 = h->beta1, beta2 = h->beta2;
    const struct scales s = { (float)(1 / (1 - pow(beta1, args->step->number))),
                              (float)(1 / sqrt(1 - pow(beta2, args->step->number))), h->eps, h->weight_decay };
    double w_lane[SGRAD_LANES] = { 0 }, u_lane[SGRAD_LANES] = { 0 }, ratio = 1;
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        float u[SGRAD_ROW];
        for (int64_t j = i; j < i + n; j++) {
            const float g = c * dw[j];
            m[j] = beta1 * m[j] + (1 - beta1) * g;
            v[j] = beta2 * v[j] + (1 - beta2) * g * g;
            u[j - i] = direction(&s, w[j], m[j], v[j]);
        }
        sgrad__add_products(w + i, w + i, n, w_lane);
        sgrad__add_products(u, u, n, u_lane);
    }
    const double w_norm = sqrt(sgrad__join_lanes(w_lane)), u_norm = sqrt(sgrad__join_lanes(u_lane));
    if (shape->rank > 1 && w_norm > 0 && u_norm > 0) ratio = w_norm / u_norm;
    const float rate = (float)(sgrad_lr(args) * ratio);
    for (int64_t i = 0; i < count; i++) w[i] -= rate * direction(&s, w[i], m[i], v[i]);
}

static size_t workspace(const struct sgrad_args *args) {
    (void)args;
    return 2 * sizeof(double); /* Σ w², Σ u², on CUDA devices */
}

static double flops(const struct sgrad_args *args) { return 26.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_lamb_kernel = {
    .name = "lamb",
    .kind = &sgrad_update_kind,
    .cpu = lamb,
    .cuda = SGRAD_ON_CUDA(sgrad__lamb_cuda),
    .workspace = workspace,
    .flops = flops,
};
