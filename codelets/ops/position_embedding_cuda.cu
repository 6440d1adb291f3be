/* position_embedding_cuda.cu: position_embedding.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/position_embedding.h"

/* One thread for each pack of y (N,T,C); C in packs. The first row of x has the position of the step's number minus 1, or 0 if
 * STEP is NULL. */
template <typename P>
static __global__ void forward(uint32_t n, int T, int C, struct sgrad_zigzag rows, const struct sgrad_step *step, const P *x,
                               const float *weight, P *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int t = i / C % T, place = (step ? (int)step->number - 1 : 0) + t + (t < rows.half ? rows.early : rows.late);
    float v[P::size];
    sgrad__load(x + i, v);
    for (int j = 0; j < P::size; j++) v[j] += weight[((int64_t)place * C + i % C) * P::size + j];
    sgrad__store(y + i, v);
}

/* Returns the row whose position is PLACE; T or more: there is none. */
static __device__ int row_at(struct sgrad_zigzag rows, int T, int place) {
    const int early = place - rows.early, late = place - rows.late;
    if (early >= 0 && early < rows.half) return early;
    return late >= rows.half ? late : T;
}

/* One thread for each pack of dweight (context,C). */
template <typename P>
static __global__ void backward(uint32_t n, int N, int T, int C, struct sgrad_zigzag rows, const P *dy, float *dweight) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int t = row_at(rows, T, (int)(i / C));
    float v[P::size], sum[P::size] = {};
    for (int s = 0; s < N && t < T; s++) {
        sgrad__load(dy + ((int64_t)s * T + t) * C + i % C, v);
        for (int j = 0; j < P::size; j++) sum[j] += v[j];
    }
    for (int j = 0; j < P::size; j++) dweight[(int64_t)i * P::size + j] = sum[j];
}

/* x (N,T,C), weight (context,C), y (N,T,C) */
extern "C" void sgrad__position_embedding_forward_cuda(const struct sgrad_args *args) {
    const struct sgrad_position_embedding *attrs = (const struct sgrad_position_embedding *)args->attrs;
    const int64_t *dim = args->view[0].shape.dim, n = sgrad_shape_count(&args->view[0].shape);
    const struct sgrad_step *step = attrs->cached ? args->step : NULL;
    sgrad__with_pack(args->view[0].dtype, dim[2], [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(forward<P>, n / P::size, (int)dim[1], (int)(dim[2] / P::size), attrs->rows, step, args->data[0],
                      args->data[1], args->data[2]);
    });
}

/* dy (N,T,C), dx (N,T,C) or absent, dweight (context,C) */
extern "C" void sgrad__position_embedding_backward_cuda(const struct sgrad_args *args) {
    const struct sgrad_position_embedding *attrs = (const struct sgrad_position_embedding *)args->attrs;
    const int64_t *dim = args->view[0].shape.dim, weights = sgrad_shape_count(&args->view[2].shape);
    if (args->data[1]) sgrad__move(&args->view[0], args->data[0], args->data[1], sgrad_adds(args, 1));
    sgrad__with_pack(args->view[0].dtype, dim[2], [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(backward<P>, weights / P::size, (int)dim[0], (int)dim[1], (int)(dim[2] / P::size), attrs->rows,
                      args->data[0], args->data[2]);
    });
}
