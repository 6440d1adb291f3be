/* adam_cuda.cu: adam.c on CUDA devices. */
#include <cmath>

#include "codelets/cuda.h"
#include "codelets/updates.h"

/* What does not differ from element to element: see adam.c. */
struct scales {
    float coupled, decoupled; /* weight decay added to the gradient, taken from the weight */
    float beta1, beta2, eps, clip_norm;
    float size, root; /* rate/(1-beta1^t), 1/sqrt(1-beta2^t) */
};

template <typename P>
static __global__ void update(uint32_t n, struct scales s, const double *squares, P *w, const P *dw, P *m, P *v) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const float c = sgrad__clip(s.clip_norm, squares);
    float wv[P::size], g[P::size], mv[P::size], vv[P::size];
    sgrad__load(w + i, wv);
    sgrad__load(dw + i, g);
    sgrad__load(m + i, mv);
    sgrad__load(v + i, vv);
    for (int j = 0; j < P::size; j++) {
        g[j] = c * g[j] + s.coupled * wv[j];
        mv[j] = s.beta1 * mv[j] + (1 - s.beta1) * g[j];
        vv[j] = s.beta2 * vv[j] + (1 - s.beta2) * g[j] * g[j];
        wv[j] = wv[j] - s.decoupled * wv[j] - s.size * mv[j] / (sqrtf(vv[j]) * s.root + s.eps);
    }
    sgrad__store(w + i, wv);
    sgrad__store(m + i, mv);
    sgrad__store(v + i, vv);
}

static void submit(const struct sgrad_args *a, float coupled, float decoupled) {
    const struct sgrad_hyper *h = (const struct sgrad_hyper *)a->attrs;
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    const double t = a->step->number;
    const float size = (float)(sgrad_rate(a) / (1 - pow(h->beta1, t))), root = (float)(1 / sqrt(1 - pow(h->beta2, t)));
    const struct scales s = { coupled, decoupled, h->beta1, h->beta2, h->eps, h->clip_norm, size, root };
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(update<P>, n / P::size, s, a->data[2], a->data[0], a->data[1], a->data[3], a->data[4]);
    });
}

/* w, dw, Σ g² (1) or absent, m, v */
extern "C" void sgrad__adam_cuda(const struct sgrad_args *a) {
    submit(a, ((const struct sgrad_hyper *)a->attrs)->weight_decay, 0);
}

extern "C" void sgrad__adamw_cuda(const struct sgrad_args *a) {
    submit(a, 0, sgrad_rate(a) * ((const struct sgrad_hyper *)a->attrs)->weight_decay);
}
