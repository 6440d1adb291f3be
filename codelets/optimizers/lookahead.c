/* lookahead.c: every N steps, moves slow weights towards the optimizer's weights, and sets these to the slow weights:
 *
 *     slow = slow + (1 - d)·(w - slow)      w = slow
 *
 * Sources: M. R. Zhang, J. Lucas, G. Hinton, J. Ba: Lookahead Optimizer, k steps forward, 1 step back, arXiv:1907.08610, where d
 * = 1 - α is constant; K. Jordan, arXiv:2404.00498, where d grows during the run. The last step ends with w = slow. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/updates.h"

void sgrad__lookahead_cuda(const struct sgrad_args *a);

/* Operands: w, slow (any shape). */
SGRAD_VECTOR(lookahead)(const struct sgrad_args *args) {
    float *restrict w = args->data[0], *restrict slow = args->data[1];
    const float share = sgrad_lookahead_weight(args->attrs, args->step);
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        slow[i] += share * (w[i] - slow[i]);
        w[i] = slow[i];
    }
}

static double flops(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_lookahead_kernel = {
    .name = "lookahead",
    .kind = &sgrad_update_kind,
    .cpu = lookahead,
    .cuda = SGRAD_ON_CUDA(sgrad__lookahead_cuda),
    .flops = flops,
};
