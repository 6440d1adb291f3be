/* kronecker.c: logs that a curvature factor is not finite or not positive definite. */
#include "config.h"
#include "codelets/kfac/kronecker.h"

void sgrad__factor_tell(const struct sgrad_factor_health *health, long *count, const struct sgrad_step *step, const char *what) {
    long times = ++*count;
    while (times % 10 == 0) times /= 10;
    if (times != 1) return;
    sgrad_log_warning("step %u: the curvature factor %s %s (%ld %s so far; next warning at %ld)", step->number, health->name,
                      what, *count, sgrad_plural(*count, "time", "times"), 10 * *count);
}
