/* rotary_cuda.cu: rotary.c on CUDA devices. A thread rotates one pair of features, or several that are adjacent. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/frequencies.h"

/* The frequencies of a head, which all threads read from constant memory. */
struct frequencies {
    float at[SGRAD_MAX_FREQUENCIES];
};

/* Element i of N packs of first halves: rows of T positions, of HEADS heads, of HALF packs. SIGN -1: the opposite angles. */
template <typename P>
static __global__ void rotate(uint32_t n, int T, struct sgrad_zigzag rows, int heads, int half, float sign,
                              const struct sgrad_step *step, SGRAD_SHARED_PARAMETER(struct frequencies) f, const P *x, P *y,
                              bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const uint32_t pair = i % half, head = i / half, row = head / heads;
    const int at = row % T;
    const float t = step ? (float)(step->number - 1) : (float)(at + (at < rows.half ? rows.early : rows.late));
    const int64_t first = (int64_t)head * 2 * half + pair, second = first + half;
    float a[P::size], b[P::size];
    sgrad__load(x + first, a);
    sgrad__load(x + second, b);
    for (int j = 0; j < P::size; j++) {
        float sine, cosine;
        sincosf(t * f.at[pair * P::size + j], &sine, &cosine);
        sine *= sign;
        const float turned = a[j] * cosine - b[j] * sine;
        b[j] = b[j] * cosine + a[j] * sine;
        a[j] = turned;
    }
    sgrad__store(y + first, a, add);
    sgrad__store(y + second, b, add);
}

static void rotate_all(const struct sgrad_args *args, float sign) {
    const struct sgrad_rotary *attrs = (const struct sgrad_rotary *)args->attrs;
    const int64_t *dim = args->view[0].shape.dim;
    const int size = (int)dim[2] / attrs->heads;
    const struct sgrad_step *step = attrs->cached ? args->step : NULL;
    struct frequencies f = {};
    for (int i = 0; i < size / 2; i++) f.at[i] = sgrad__frequency(attrs, size, i);
    sgrad__with_wide_pack(args->view[0].dtype, size / 2, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(rotate<P>, dim[0] * dim[1] * dim[2] / 2 / P::size, (int)dim[1], attrs->rows, attrs->heads,
                      size / 2 / P::size, sign, step, f, args->data[0], args->data[1], sgrad_adds(args, 1));
    });
}

/* x, y (N,T,C) */
extern "C" void sgrad__rotary_forward_cuda(const struct sgrad_args *args) { rotate_all(args, 1); }

/* dy, dx (N,T,C) */
extern "C" void sgrad__rotary_backward_cuda(const struct sgrad_args *args) { rotate_all(args, -1); }
