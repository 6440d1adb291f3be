/* normuon.c: Muon with rows of similar size; its kernel is in codelets/optimizers/muon.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(normuon);

/* One number for each output; vectors use none. */
static struct sgrad_shape rows(const struct sgrad_shape *parameter) {
    return (struct sgrad_shape){ 1, { parameter->rank > 1 ? parameter->dim[0] : 1 } };
}

const struct sgrad_optimizer sgrad_normuon_optimizer = {
    .name = "normuon",
    .summary = "Muon with updates of similar size for all outputs of a layer",
    .source = "Z. Li and others, NorMuon: making Muon more efficient and scalable, 2025",
    .default_lr = 0.02,
    .momentum = 0.95,
    .beta2 = 0.95,
    .options = (const char *const[]){ "momentum", "nesterov", "beta2", NULL },
    .update = &sgrad_normuon_kernel,
    .needs_full_tensor = true,
    .expensive = true,
    .states = (const struct sgrad_state[]){ { .name = "momentum" }, { .name = "row_sq", .shape = rows }, { 0 } },
};
