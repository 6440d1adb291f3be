/* lars.c: layer-wise adaptive rate scaling; its kernel is codelets/optimizers/lars.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(lars);

const struct sgrad_optimizer sgrad_lars_optimizer = {
    .name = "lars",
    .summary = "SGD with steps in proportion to the norm of each parameter, for large batches",
    .source = "Y. You, I. Gitman, B. Ginsburg, Large batch training of convolutional networks, 2017",
    .default_lr = 1,
    .options = (const char *const[]){ "momentum", "nesterov", "trust", NULL },
    .update = &sgrad_lars_kernel,
    .needs_full_tensor = true,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
};
