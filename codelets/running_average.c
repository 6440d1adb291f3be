/* running_average.c: a statistic that follows what batches say of it:
 *
 *     y = decay·y + (1 - decay)·scale·x            in the first step of a run  y = scale·x
 *
 * An x that holds a number that is none is left out, and told once. Limits: on CPUs alone. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/kronecker.h"

#include <math.h>
#include <stdatomic.h>

/* x, y (any shape) */
SGRAD_VECTOR(running_average)(const struct sgrad_args *a) {
    const struct sgrad_running_average *r = a->attrs;
    const float *restrict x = a->data[0];
    float *restrict y = a->data[1];
    const int64_t count = sgrad_shape_count(&a->view[0].shape);
    const bool first = a->step->number == 1;
    const float keep = (float)r->decay, take = (float)(first ? r->scale : (1 - r->decay) * r->scale);
    static atomic_bool told;
    float bad = 0;      /* NaN, as soon as one is not finite */
    for (int64_t i = 0; i < count; i++) bad += 0 * x[i];
    if (bad != 0) {
        if (!atomic_exchange(&told, true))
            sgrad_warn("step %u: a curvature factor is not finite: it is left out, here and whenever this happens again",
                       a->step->number);
        return;
    }
    for (int64_t i = 0; i < count; i++) y[i] = first ? take * x[i] : keep * y[i] + take * x[i];
}

static double flops(const struct sgrad_args *a) { return 3.0 * (double)sgrad_shape_count(&a->view[0].shape); }

const struct sgrad_kernel sgrad_running_average_kernel = {
    .name = "running_average",
    .kind = &sgrad_reduction_kind,
    .cpu = running_average,
    .flops = flops,
};
