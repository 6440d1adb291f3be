/* lamb.c: layer-wise adaptive moments; its kernel is codelets/lamb.c. */
#include "codelets/updates.h"
#include "graphs/programs/programs.h"

const struct sgrad_optimizer sgrad_lamb_optimizer = {
    .name = "lamb",
    .summary = "adamw whose steps follow the norm of each parameter, for large batches",
    .source = "Y. You et al., Large batch optimization for deep learning: training BERT in 76 minutes, 2019",
    .rate = 0.002,
    .options = (const char *const[]){ "beta1", "beta2", "eps", NULL },
    .update = &sgrad_lamb_kernel,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" }, { .name = "exp_avg_sq" }, { 0 } },
};
