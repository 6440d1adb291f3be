/* muon.c: orthogonalised momentum; its kernel is codelets/optimizers/muon.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(muon);

const struct sgrad_optimizer sgrad_muon_optimizer = {
    .name = "muon",
    .summary = "SGD with orthogonalised updates of matrices and filters",
    .source = "K. Jordan and others, Muon: an optimizer for hidden layers in neural networks, 2024",
    .default_lr = 0.02,
    .options = (const char *const[]){ "momentum", "nesterov", NULL },
    .update = &sgrad_muon_kernel,
    .needs_full_tensor = true,
    .expensive = true,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
};
