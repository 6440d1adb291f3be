/* lars_cuda.cu: lars.c on CUDA devices: one pass for the norms, one for the step. */
#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

/* Terms for sgrad__sum_rows: each pack is a row with one column. The two sums are Σ w² and Σ dw². */
template <typename P> struct norms_term {
    static constexpr int values = 2, size = 1;
    const P *w, *dw;
    __device__ void column(int) {}
    __device__ void add(int row, int, double (*sum)[size]) const {
        float wv[P::size], g[P::size];
        sgrad__load(w + row, wv);
        sgrad__load(dw + row, g);
        for (int j = 0; j < P::size; j++) {
            sum[0][0] += (double)wv[j] * wv[j];
            sum[1][0] += (double)g[j] * g[j];
        }
    }
};

/* Returns trust·‖w‖ / (‖g‖ + decay·‖w‖). C is the clip factor. SUMS must be NULL for vectors: the result is 1. */
static __device__ double scale_of(const struct sgrad_hyper &hyper, float c, const double *sums) {
    if (!sums) return 1;
    const double w_norm = sqrt(sums[0]), g_norm = c * sqrt(sums[1]);
    return w_norm > 0 && g_norm > 0 ? hyper.trust * w_norm / (g_norm + hyper.weight_decay * w_norm) : 1;
}

template <typename P>
static __global__ void lars(uint32_t n, struct sgrad_hyper hyper, const struct sgrad_step *now, const double *squares,
                            const double *sums, P *w, const P *dw, P *b) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const float c = sgrad__clip(hyper.clip_norm, squares), scaled = (float)(sgrad_lr_of(&hyper, now) * scale_of(hyper, c, sums));
    float wv[P::size], g[P::size], bv[P::size];
    sgrad__load(w + i, wv);
    sgrad__load(dw + i, g);
    sgrad__load(b + i, bv);
    for (int j = 0; j < P::size; j++) {
        const float step = scaled * (c * g[j] + hyper.weight_decay * wv[j]);
        bv[j] = hyper.momentum * bv[j] + step;
        wv[j] -= hyper.nesterov ? hyper.momentum * bv[j] + step : bv[j];
    }
    sgrad__store(w + i, wv);
    sgrad__store(b + i, bv);
}

/* Operands: w, dw, Σ g² over all parameters (1) or absent, b. */
extern "C" void sgrad__lars_cuda(const struct sgrad_args *args) {
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t n = sgrad_shape_count(shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        double *sums = shape->rank > 1 ? (double *)args->workspace : NULL;
        if (sums) sgrad__sum_rows(norms_term<P>{ (const P *)args->data[0], (const P *)args->data[1] }, n / P::size, 1, sums);
        sgrad__launch(lars<P>, n / P::size, *(const struct sgrad_hyper *)args->attrs, args->step, args->data[2], sums,
                      args->data[0], args->data[1], args->data[3]);
    });
}
