/* options.c: defaults of the training options, and names of their values. */
#include "graphs/api/train.h"

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
        .backup_workers = -1,
        .seed = 1,
        .checkpoint_every = 1,
        .keep_checkpoints = 3,
        .steps_in_flight = 2,
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
