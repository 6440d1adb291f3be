/* squared_norm.c: Σ x² of one tensor, for clipping gradients by their norm. */
#include "codelets/kernels.h"

#include <math.h>

void sgrad__squared_norm_cuda(const struct sgrad_args *a);

/* x (any shape), out (1): thirty-two sums side by side, joined in order at the end, whatever the processor. The square of a
 * float is exact as a double. */
enum { LANES = 32 };
SGRAD_VECTOR static void squared_norm(const struct sgrad_args *a) {
    const float *x = a->data[0];
    double *out = a->data[1], lane[LANES] = { 0 }, sum = 0;
    int64_t n = sgrad_shape_count(&a->view[0].shape), whole = n - n % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j] * x[i + j];
    for (int64_t i = whole; i < n; i++) lane[i - whole] += (double)x[i] * x[i];
    for (int j = 0; j < LANES; j++) sum += lane[j];
    *out = sum;
}

float sgrad__clip_factor(const struct sgrad_hyper *hyper, const double *squares) {
    if (!squares || hyper->clip_norm <= 0) return 1;
    double factor = hyper->clip_norm / (sqrt(*squares) + 1e-6); /* torch.nn.utils.clip_grad_norm_ */
    return factor < 1 ? (float)factor : 1;
}

static double flops(const struct sgrad_args *a) { return 2.0 * (double)sgrad_shape_count(&a->view[0].shape); }

const struct sgrad_kernel sgrad_squared_norm_kernel = {
    .name = "squared_norm",
    .kind = SGRAD_REDUCTION,
    .cpu = squared_norm,
    .cuda = SGRAD_ON_CUDA(sgrad__squared_norm_cuda),
    .flops = flops,
};
