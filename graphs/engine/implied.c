/* implied.c: values of options that by default follow from other options. They are not written to config.json. */
#include "graphs/engine/run.h"

int sgrad__run_steps_in_flight(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    return run->parallel.strategy && run->parallel.strategy->asynchronous && o->parallel.staleness ? o->parallel.staleness + 1
                                                                                                   : o->parallel.steps_in_flight;
}

int sgrad__run_backup(const struct sgrad__run *run) {
    if (run->options.parallel.backup_workers >= 0 || !run->parallel.strategy || !run->parallel.strategy->drops_stale)
        return run->options.parallel.backup_workers;
    return run->context->ranks > 1;
}

long sgrad__run_lag(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if (o->optimizer.kfac.lag >= 0) return o->optimizer.kfac.lag;
    return o->optimizer.kfac.factor_every < o->optimizer.kfac.eigen_every ? o->optimizer.kfac.factor_every
                                                                          : o->optimizer.kfac.eigen_every;
}
