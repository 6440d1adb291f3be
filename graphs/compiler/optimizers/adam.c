/* adam.c: Adam; its kernel is in codelets/optimizers/adam.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(adam);

const struct sgrad_optimizer sgrad_adam_optimizer = {
    .name = "adam",
    .summary = "Adam with L2 weight decay, as torch.optim.Adam",
    .source = "D. Kingma, J. Ba, Adam: a method for stochastic optimization, 2014",
    .default_lr = 0.001,
    .options = (const char *const[]){ "beta1", "beta2", "eps", NULL },
    .update = &sgrad_adam_kernel,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" }, { .name = "exp_avg_sq" }, { 0 } },
};
