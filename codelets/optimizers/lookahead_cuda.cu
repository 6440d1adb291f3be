/* lookahead_cuda.cu: lookahead.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

template <typename P>
static __global__ void lookahead(uint32_t n, struct sgrad_lookahead is, const struct sgrad_step *step, P *w, P *slow) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const float share = sgrad_lookahead_weight(&is, step);
    float wv[P::size], sv[P::size];
    sgrad__load(w + i, wv);
    sgrad__load(slow + i, sv);
    for (int j = 0; j < P::size; j++) sv[j] += share * (wv[j] - sv[j]);
    sgrad__store(slow + i, sv);
    sgrad__store(w + i, sv);
}

/* Operands: w, slow (any shape). */
extern "C" void sgrad__lookahead_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(lookahead<P>, n / P::size, *(const struct sgrad_lookahead *)args->attrs, args->step, args->data[0],
                      args->data[1]);
    });
}
