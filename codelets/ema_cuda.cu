/* ema_cuda.cu: ema.c on CUDA devices. */
#include "codelets/cuda.h"
#include "codelets/updates.h"

template <typename P>
static __global__ void ema(uint32_t n, float share, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float xv[P::size], yv[P::size];
    sgrad__load(x + i, xv);
    sgrad__load(y + i, yv);
    for (int j = 0; j < P::size; j++) yv[j] += share * (xv[j] - yv[j]);
    sgrad__store(y + i, yv);
}

/* x, y (any shape) */
extern "C" void sgrad__ema_cuda(const struct sgrad_args *a) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(ema<P>, n / P::size, sgrad_ema_share(a), a->data[0], a->data[1]);
    });
}
