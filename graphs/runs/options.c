/* options.c: what a run is asked for, where nothing else is said; what options imply; and what values are called. */
#include "graphs/runs/run.h"

#include <string.h>

struct sgrad_train_options sgrad_train_defaults(void) {
    return (struct sgrad_train_options){
        .epochs = 10,
        .batch = 128,
        .optimizer = "sgd",
        .lr = -1,
        .momentum = 0.9,
        .weight_decay = 1e-4,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .trust = 0.001,
        .kfac_damping = 0.003,
        .kfac_decay = 0.95,
        .kfac_clip = 0.001,
        .kfac_damping_schedule = "constant",
        .kfac_factor_every = 10,
        .kfac_eigen_every = 100,
        .kfac_lag = -1,
        .kfac_variant = "auto",
        .schedule = "constant",
        .strategy = "sync",
        .bn_group = SGRAD_GROUP_GPU,
        .backup = -1,
        .seed = 1,
        .checkpoint_every = 1,
        .keep = 3,
        .window = 2,
        .stall_timeout = 300,
    };
}

const char *sgrad_precision_name(enum sgrad_precision precision) {
    static const char *const names[] = { "f32", "tf32", "bf16" };
    return names[precision];
}

static const struct {
    const char *name;
    long group;
} groups[] = {
    { "gpu", SGRAD_GROUP_GPU },
    { "rank", SGRAD_GROUP_RANK },
    { "micro", SGRAD_GROUP_MICRO },
    { "global", SGRAD_GROUP_GLOBAL },
};
enum { GROUPS = sizeof groups / sizeof *groups };

const char *sgrad_group_name(long group) {
    for (int i = 0; i < GROUPS; i++)
        if (groups[i].group == group) return groups[i].name;
    return NULL;
}

bool sgrad_group_named(const char *name, long *group) {
    for (int i = 0; i < GROUPS; i++)
        if (!strcmp(groups[i].name, name)) return *group = groups[i].group, true;
    return false;
}

/* ---- what other options imply ---- */

int sgrad__run_window(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    return r->strategy && r->strategy->served && o->staleness ? o->staleness + 1 : o->window;
}

int sgrad__run_backup(const struct sgrad__run *r) {
    if (r->options.backup >= 0 || !r->strategy || !r->strategy->fresh) return r->options.backup;
    return r->context->ranks > 1;
}

long sgrad__run_lag(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if (o->kfac_lag >= 0) return o->kfac_lag;
    return o->kfac_factor_every < o->kfac_eigen_every ? o->kfac_factor_every : o->kfac_eigen_every;
}
