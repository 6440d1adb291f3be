/* inner_product.c: Σ x·y of two tensors, for second-order training, which looks at how long its steps are (kfac.c). */
#include "config.h"
#include "codelets/norms.h"

void sgrad__inner_product_cuda(const struct sgrad_args *a);

/* x, y (any shape), out (1) */
SGRAD_VECTOR(inner_product)(const struct sgrad_args *a) {
    const float *restrict x = a->data[0], *restrict y = a->data[1];
    const int64_t count = sgrad_shape_count(&a->view[0].shape), whole = count - count % SGRAD_LANES;
    double lane[SGRAD_LANES] = { 0 }, *out = a->data[2];
    for (int64_t i = 0; i < whole; i += SGRAD_LANES)
        for (int j = 0; j < SGRAD_LANES; j++) lane[j] += (double)x[i + j] * y[i + j];
    for (int64_t i = whole; i < count; i++) lane[i - whole] += (double)x[i] * y[i];
    *out = sgrad__join_lanes(lane);
}

static double flops(const struct sgrad_args *a) { return 2.0 * (double)sgrad_shape_count(&a->view[0].shape); }

const struct sgrad_kernel sgrad_inner_product_kernel = {
    .name = "inner_product",
    .kind = &sgrad_reduction_kind,
    .cpu = inner_product,
    .cuda = SGRAD_ON_CUDA(sgrad__inner_product_cuda),
    .flops = flops,
};
