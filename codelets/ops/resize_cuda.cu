/* resize_cuda.cu: resize.c on CUDA devices, with one thread for each pack that is written. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/resize_weights.h"

template <typename P>
static __global__ void forward(uint32_t n, struct sgrad__sizes s, struct sgrad_resize attrs, const P *x, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.P, s.Q, s.C);
    const struct sgrad__taps rows = sgrad__resize_taps(&attrs, at.h, s.H, s.P);
    const struct sgrad__taps columns = sgrad__resize_taps(&attrs, at.w, s.W, s.Q);
    float v[P::size], sum[P::size] = {};
    for (int h = rows.begin; h < rows.end; h++)
        for (int w = columns.begin; w < columns.end; w++) {
            const float weight = sgrad__resize_weight(&attrs, rows, h) * sgrad__resize_weight(&attrs, columns, w);
            sgrad__load(x + sgrad__index_of(at.n, h, w, at.c, s.H, s.W, s.C), v);
            for (int j = 0; j < P::size; j++) sum[j] += weight * v[j];
        }
    sgrad__store(y + i, sum);
}

template <typename P>
static __global__ void backward(uint32_t n, struct sgrad__sizes s, struct sgrad_resize attrs, const P *dy, P *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.H, s.W, s.C);
    const struct sgrad__taps rows = sgrad__resize_outputs(at.h, s.H, s.P), columns = sgrad__resize_outputs(at.w, s.W, s.Q);
    float v[P::size], sum[P::size] = {};
    for (int p = rows.begin; p < rows.end; p++) {
        const float row = sgrad__resize_weight(&attrs, sgrad__resize_taps(&attrs, p, s.H, s.P), at.h);
        for (int q = columns.begin; row != 0 && q < columns.end; q++) {
            const float weight = row * sgrad__resize_weight(&attrs, sgrad__resize_taps(&attrs, q, s.W, s.Q), at.w);
            if (weight == 0) continue;
            sgrad__load(dy + sgrad__index_of(at.n, p, q, at.c, s.P, s.Q, s.C), v);
            for (int j = 0; j < P::size; j++) sum[j] += weight * v[j];
        }
    }
    sgrad__store(dx + i, sum, add);
}

/* x (N,H,W,C), y (N,P,Q,C) */
extern "C" void sgrad__resize_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape, *y = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, x->dim[x->rank - 1], [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, sgrad_shape_count(y) / P::size, sgrad__sizes_of(x, y, P::size),
                      *(const struct sgrad_resize *)args->attrs, args->data[0], args->data[1]);
    });
}

/* dy (N,P,Q,C), dx (N,H,W,C) */
extern "C" void sgrad__resize_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *y = &args->view[0].shape, *x = &args->view[1].shape;
    sgrad__with_pack(args->view[0].dtype, x->dim[x->rank - 1], [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, sgrad_shape_count(x) / P::size, sgrad__sizes_of(x, y, P::size),
                      *(const struct sgrad_resize *)args->attrs, args->data[0], args->data[1], sgrad_adds(args, 1));
    });
}
