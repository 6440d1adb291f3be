/* kfac_cuda.cu: kfac.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

static __device__ inline float scale_of(const struct sgrad_hyper &hyper, const double *product, float rate) {
    if (!product || hyper.kl_clip <= 0) return 1;
    const double change = fabs((double)rate * rate * *product);
    return change > hyper.kl_clip ? (float)sqrt(hyper.kl_clip / change) : 1;
}

template <typename P>
static __global__ void kfac(uint32_t n, struct sgrad_hyper hyper, const struct sgrad_step *step, const double *product, P *w,
                            const P *v, P *b) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const float rate = sgrad_lr_of(&hyper, step), scale = scale_of(hyper, product, rate);
    float wv[P::size], g[P::size], bv[P::size];
    sgrad__load(w + i, wv);
    sgrad__load(v + i, g);
    sgrad__load(b + i, bv);
    for (int j = 0; j < P::size; j++) {
        g[j] = scale * g[j] + hyper.weight_decay * wv[j];
        bv[j] = hyper.momentum * bv[j] + g[j];
        wv[j] -= rate * (hyper.nesterov ? g[j] + hyper.momentum * bv[j] : bv[j]);
    }
    sgrad__store(w + i, wv);
    sgrad__store(b + i, bv);
}

/* Operands: w, V, Σ V·∇ over all layers (1) or absent, b. */
extern "C" void sgrad__kfac_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(kfac<P>, n / P::size, *(const struct sgrad_hyper *)args->attrs, args->step, args->data[2], args->data[0],
                      args->data[1], args->data[3]);
    });
}
