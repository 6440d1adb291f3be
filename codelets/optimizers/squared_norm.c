/* squared_norm.c: Σ x² of one tensor, for clipping gradients by their norm, and the clip factor. */
#include "config.h"
#include "codelets/optimizers/norms.h"

#include <math.h>

void sgrad__squared_norm_cuda(const struct sgrad_args *a);

/* Operands: x (any shape), out (1). */
SGRAD_VECTOR(squared_norm)(const struct sgrad_args *args) {
    double *out = args->data[1], lane[SGRAD_LANES] = { 0 };
    sgrad__add_products(args->data[0], args->data[0], sgrad_shape_count(&args->view[0].shape), lane);
    *out = sgrad__join_lanes(lane);
}

float sgrad_clip_factor(const struct sgrad_hyper *hyper, const double *squares) {
    if (!squares || hyper->clip_norm <= 0) return 1;
    double factor = hyper->clip_norm / (sqrt(*squares) + 1e-6); /* torch.nn.utils.clip_grad_norm_ */
    return factor < 1 ? (float)factor : 1;
}

static double flops(const struct sgrad_args *args) { return 2.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_squared_norm_kernel = {
    .name = "squared_norm",
    .kind = &sgrad_reduction_kind,
    .cpu = squared_norm,
    .cuda = SGRAD_ON_CUDA(sgrad__squared_norm_cuda),
    .batched = true,
    .flops = flops,
};
