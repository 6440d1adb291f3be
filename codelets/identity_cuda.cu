/* identity_cuda.cu: identity.c on CUDA devices. */
#include "codelets/cuda.h"

template <typename P> static __global__ void move(uint32_t n, const P *from, P *to, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    float v[P::size];
    sgrad__load(from + i, v);
    sgrad__store(to + i, v, add);
}

static void move_all(const struct sgrad_args *a, bool add) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_pack(a->view[0].dtype, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(move<P>, n / P::size, a->data[0], a->data[1], add);
    });
}

/* x, y of any shape */
extern "C" void sgrad__identity_forward_cuda(const struct sgrad_args *a) { move_all(a, false); }

/* dy, dx of any shape */
extern "C" void sgrad__identity_backward_cuda(const struct sgrad_args *a) { move_all(a, sgrad_adds(a, 1)); }
