/* lamb.c: layer-wise adaptive moments; its kernel is codelets/optimizers/lamb.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(lamb);

const struct sgrad_optimizer sgrad_lamb_optimizer = {
    .name = "lamb",
    .summary = "AdamW with steps in proportion to the norm of each parameter, for large batches",
    .source = "Y. You et al., Large batch optimization for deep learning: training BERT in 76 minutes, 2019",
    /* Of 0.002, 0.005, 0.01 and 0.02, this one is good in all tests. convnet on digits, 8 epochs, worst of three seeds: 79, 95,
     * 87 and 69 %; lenet on Fashion-MNIST, 300 steps: 75, 82, 85, 83; mlp there: 83, 84, 84, 81; resnet20 on CIFAR-10, 100 steps:
     * 31, 32, 32, 28. */
    .default_lr = 0.005,
    .options = (const char *const[]){ "beta1", "beta2", "eps", NULL },
    .update = &sgrad_lamb_kernel,
    .needs_full_tensor = true,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" }, { .name = "exp_avg_sq" }, { 0 } },
};
