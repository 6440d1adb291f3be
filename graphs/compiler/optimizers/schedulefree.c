/* schedulefree.c: schedule-free AdamW; its kernels are in codelets/optimizers/schedulefree.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(schedulefree);
SGRAD_UPDATE_KERNEL(schedulefree_average);

const struct sgrad_optimizer sgrad_schedulefree_optimizer = {
    .name = "schedulefree",
    .summary = "AdamW whose average of all steps is evaluated and saved, instead of a learning-rate schedule",
    .source = "A. Defazio and others, The road less scheduled, 2024",
    .default_lr = 0.0025,
    .options = (const char *const[]){ "beta1", "beta2", "eps", NULL },
    .update = &sgrad_schedulefree_kernel,
    .average = &sgrad_schedulefree_average_kernel,
    .states = (const struct sgrad_state[]){ { .name = "ahead" }, { .name = "exp_avg_sq" }, { 0 } },
};
