/* implied.c: values of options that by default follow from other options. They are not written to config.json. */
#include "graphs/engine/run.h"

int sgrad__run_steps_in_flight(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    return r->strategy && r->strategy->asynchronous && o->staleness ? o->staleness + 1 : o->steps_in_flight;
}

int sgrad__run_backup(const struct sgrad__run *r) {
    if (r->options.backup_workers >= 0 || !r->strategy || !r->strategy->drops_stale) return r->options.backup_workers;
    return r->context->ranks > 1;
}

long sgrad__run_lag(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if (o->kfac_lag >= 0) return o->kfac_lag;
    return o->kfac_factor_every < o->kfac_eigen_every ? o->kfac_factor_every : o->kfac_eigen_every;
}
