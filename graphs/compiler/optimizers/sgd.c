/* sgd.c: stochastic gradient descent with momentum; its kernel is codelets/optimizers/sgd.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(sgd);

const struct sgrad_optimizer sgrad_sgd_optimizer = {
    .name = "sgd",
    .summary = "stochastic gradient descent with momentum, as torch.optim.SGD",
    .source = "I. Sutskever et al., On the importance of initialization and momentum in deep learning, 2013",
    .default_lr = 0.1,
    .options = (const char *const[]){ "momentum", "nesterov", NULL },
    .update = &sgrad_sgd_kernel,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
};
