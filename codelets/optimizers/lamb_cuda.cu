/* lamb_cuda.cu: lamb.c on CUDA devices: one pass for the moments and the norms, one for the step. */
#include <cmath>

#include "codelets/cuda/cuda.h"
#include "codelets/updates.h"

/* Values that are the same for all elements: see lamb.c. */
struct scales {
    struct sgrad_hyper h;
    const struct sgrad_step *step;
};

static __device__ inline float direction(const struct scales &scales, float w, float m, float v) {
    const float size = 1 / sgrad__one_less(scales.h.beta1, scales.step->number);
    const float root = 1 / sqrtf(sgrad__one_less(scales.h.beta2, scales.step->number));
    return size * m / (sqrtf(v) * root + scales.h.eps) + scales.h.weight_decay * w;
}

/* Terms for sgrad__sum_rows: each pack is a row with one column. Updates the moments, and adds to Σ w² and Σ u². */
template <typename P> struct moments_term {
    static constexpr int values = 2, size = 1;
    struct scales s;
    const double *squares;
    const P *w, *dw;
    P *m, *v;
    __device__ void column(int) {}
    __device__ void add(int row, int, double (*sum)[size]) const {
        const float c = sgrad__clip(s.h.clip_norm, squares);
        float wv[P::size], g[P::size], mv[P::size], vv[P::size];
        sgrad__load(w + row, wv);
        sgrad__load(dw + row, g);
        sgrad__load(m + row, mv);
        sgrad__load(v + row, vv);
        for (int j = 0; j < P::size; j++) {
            g[j] *= c;
            mv[j] = s.h.beta1 * mv[j] + (1 - s.h.beta1) * g[j];
            vv[j] = s.h.beta2 * vv[j] + (1 - s.h.beta2) * g[j] * g[j];
            const float u = direction(s, wv[j], mv[j], vv[j]);
            sum[0][0] += (double)wv[j] * wv[j];
            sum[1][0] += (double)u * u;
        }
        sgrad__store(m + row, mv);
        sgrad__store(v + row, vv);
    }
};

/* w = w - rate·‖w‖/‖u‖·u. VECTOR: the ratio is 1. */
template <typename P>
static __global__ void take_step(uint32_t n, struct scales scales, bool vector, const double *sums, P *w, const P *m,
                                 const P *v) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const double ratio = !vector && sums[0] > 0 && sums[1] > 0 ? sqrt(sums[0]) / sqrt(sums[1]) : 1;
    const float scaled = (float)(sgrad_lr_of(&scales.h, scales.step) * ratio);
    float wv[P::size], mv[P::size], vv[P::size];
    sgrad__load(w + i, wv);
    sgrad__load(m + i, mv);
    sgrad__load(v + i, vv);
    for (int j = 0; j < P::size; j++) wv[j] -= scaled * direction(scales, wv[j], mv[j], vv[j]);
    sgrad__store(w + i, wv);
}

/* Operands: w, dw, Σ g² over all parameters (1) or absent, m, v. */
extern "C" void sgrad__lamb_cuda(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = (const struct sgrad_hyper *)args->attrs;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t n = sgrad_shape_count(shape);
    const struct scales s = { *h, args->step };
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        double *sums = (double *)args->workspace;
        P *w = (P *)args->data[0], *dw = (P *)args->data[1], *m = (P *)args->data[3], *v = (P *)args->data[4];
        sgrad__sum_rows(moments_term<P>{ s, (const double *)args->data[2], w, dw, m, v }, n / P::size, 1, sums);
        sgrad__launch(take_step<P>, n / P::size, s, shape->rank <= 1, sums, w, m, v);
    });
}
