/* ema.c: the exponential moving average of weights, in which the last steps count most (in that of Polyak and Juditsky, 1992, all
 * steps count equally):
 *
 *     y = y + (1 - d)·(x - y)     d = min(decay, (1 + t)/(10 + t))       in the first step of a run  y = x
 *
 * t is the number of earlier steps. The decay d grows with t, so that the initial weights, which are arbitrary, do not remain in
 * the average (tf.train.ExponentialMovingAverage's num_updates). Finally it is that of torch.optim.swa_utils.get_ema_avg_fn. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/updates.h"

void sgrad__ema_cuda(const struct sgrad_args *a);

/* Operands: x, y (any shape). */
SGRAD_VECTOR(ema)(const struct sgrad_args *args) {
    const float *restrict x = args->data[0];
    float *restrict y = args->data[1];
    const float share = sgrad_ema_weight(*(const double *)args->attrs, args->step);
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) y[i] += share * (x[i] - y[i]);
}

static double flops(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_ema_kernel = {
    .name = "ema",
    .kind = &sgrad_update_kind,
    .cpu = ema,
    .cuda = SGRAD_ON_CUDA(sgrad__ema_cuda),
    .batched = true,
    .flops = flops,
};
