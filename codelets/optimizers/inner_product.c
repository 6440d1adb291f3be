/* inner_product.c: Σ x·y of two tensors, for second-order training, which limits the size of its steps (kfac.c). */
#include "config.h"
#include "codelets/optimizers/norms.h"

void sgrad__inner_product_cuda(const struct sgrad_args *a);

/* Operands: x, y (any shape), out (1). */
SGRAD_VECTOR(inner_product)(const struct sgrad_args *args) {
    double lane[SGRAD_LANES] = { 0 }, *out = args->data[2];
    sgrad__add_products(args->data[0], args->data[1], sgrad_shape_count(&args->view[0].shape), lane);
    *out = sgrad__join_lanes(lane);
}

static double flops(const struct sgrad_args *args) { return 2.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_inner_product_kernel = {
    .name = "inner_product",
    .kind = &sgrad_reduction_kind,
    .cpu = inner_product,
    .cuda = SGRAD_ON_CUDA(sgrad__inner_product_cuda),
    .flops = flops,
};
