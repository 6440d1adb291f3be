/* lars.c: layer-wise adaptive rate scaling; its kernel is codelets/lars.c. */
#include "codelets/updates.h"
#include "graphs/programs/programs.h"

SGRAD_UPDATE_KERNEL(lars);

const struct sgrad_optimizer sgrad_lars_optimizer = {
    .name = "lars",
    .summary = "sgd whose steps follow the norm of each parameter, for large batches",
    .source = "Y. You, I. Gitman, B. Ginsburg, Large batch training of convolutional networks, 2017",
    .rate = 1,
    .options = (const char *const[]){ "momentum", "nesterov", "trust", NULL },
    .update = &sgrad_lars_kernel,
    .whole = true,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
};
