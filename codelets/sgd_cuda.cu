/* sgd_cuda.cu: sgd.c on CUDA devices. */
#include "codelets/cuda.h"
#include "codelets/updates.h"

template <typename P>
static __global__ void sgd(uint32_t n, struct sgrad_hyper h, float rate, const double *squares, P *w, const P *dw, P *b) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const float c = sgrad__clip(h.clip_norm, squares);
    float wv[P::size], g[P::size], bv[P::size];
    sgrad__load(w + i, wv);
    sgrad__load(dw + i, g);
    sgrad__load(b + i, bv);
    for (int j = 0; j < P::size; j++) {
        g[j] = c * g[j] + h.weight_decay * wv[j];
        bv[j] = h.momentum * bv[j] + g[j];
        wv[j] -= rate * (h.nesterov ? g[j] + h.momentum * bv[j] : bv[j]);
    }
    sgrad__store(w + i, wv);
    sgrad__store(b + i, bv);
}

/* w, dw, Σ g² (1) or absent, b */
extern "C" void sgrad__sgd_cuda(const struct sgrad_args *a) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(sgd<P>, n / P::size, *(const struct sgrad_hyper *)a->attrs, sgrad_rate(a), a->data[2], a->data[0],
                      a->data[1], a->data[3]);
    });
}
