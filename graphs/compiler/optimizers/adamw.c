/* adamw.c: Adam with decoupled weight decay; its kernel is in codelets/optimizers/adam.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(adamw);

const struct sgrad_optimizer sgrad_adamw_optimizer = {
    .name = "adamw",
    .summary = "Adam with decoupled weight decay, as torch.optim.AdamW",
    .source = "I. Loshchilov, F. Hutter, Decoupled weight decay regularization, 2019",
    .default_lr = 0.001,
    .options = (const char *const[]){ "beta1", "beta2", "eps", NULL },
    .update = &sgrad_adamw_kernel,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" }, { .name = "exp_avg_sq" }, { 0 } },
};
