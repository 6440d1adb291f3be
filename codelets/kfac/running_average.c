/* running_average.c: the running average of a statistic of batches:
 *
 *     y = decay·y + (1 - decay)·scale·x            in the first step of a run  y = scale·x
 *
 * If x contains a NaN or an infinity, it is left out and a warning is logged. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/kfac/kronecker.h"

/* Operands: x, y (any shape). */
SGRAD_VECTOR(running_average)(const struct sgrad_args *args) {
    const struct sgrad_running_average *r = args->attrs;
    const float *restrict x = args->data[0];
    float *restrict y = args->data[1];
    const int64_t count = sgrad_shape_count(&args->view[0].shape);
    const bool first = args->step->number == 1;
    const float keep = (float)r->decay, take = (float)(first ? r->scale : (1 - r->decay) * r->scale);
    float bad = 0;      /* NaN if an element is not finite */
    for (int64_t i = 0; i < count; i++) bad += 0 * x[i];
    if (bad != 0) {
        sgrad__factor_tell(r->health, &r->health->infinite, args->step, "is not finite; it is skipped");
        return;
    }
    for (int64_t i = 0; i < count; i++) y[i] = first ? take * x[i] : keep * y[i] + take * x[i];
}

static double flops(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_kernel sgrad_running_average_kernel = {
    .name = "running_average",
    .kind = &sgrad_reduction_kind,
    .cpu = running_average,
    .flops = flops,
};
