/* list.c: lists of all optimizers and strategies, from their .def files. */
#include "graphs/compiler/training.h"

#define SGRAD_OPTIMIZER(name) extern const struct sgrad_optimizer sgrad_##name##_optimizer;
#define SGRAD_LAYER_OPTIMIZER(name) SGRAD_OPTIMIZER(name) extern const struct sgrad__layer_hooks sgrad__##name##_hooks;
#include "graphs/compiler/optimizers.def"
#undef SGRAD_OPTIMIZER
#undef SGRAD_LAYER_OPTIMIZER
static const struct sgrad_optimizer *const built_in[] = {
#define SGRAD_OPTIMIZER(name) &sgrad_##name##_optimizer,
#define SGRAD_LAYER_OPTIMIZER(name) SGRAD_OPTIMIZER(name)
#include "graphs/compiler/optimizers.def"
#undef SGRAD_OPTIMIZER
#undef SGRAD_LAYER_OPTIMIZER
    NULL,
};
const struct sgrad_optimizer *const *sgrad_optimizers = built_in;

static const struct sgrad__layer_hooks *const hooks[] = {
#define SGRAD_OPTIMIZER(name)
#define SGRAD_LAYER_OPTIMIZER(name) &sgrad__##name##_hooks,
#include "graphs/compiler/optimizers.def"
#undef SGRAD_OPTIMIZER
#undef SGRAD_LAYER_OPTIMIZER
    NULL,
};

const struct sgrad__layer_hooks *sgrad__layer_hooks_of(const struct sgrad_optimizer *optimizer) {
    for (const struct sgrad__layer_hooks *const *h = hooks; *h; h++)
        if ((*h)->optimizer == optimizer) return *h;
    return NULL;
}

#define SGRAD_STRATEGY(name) extern const struct sgrad_strategy sgrad_##name##_strategy;
#include "graphs/compiler/strategies.def"
#undef SGRAD_STRATEGY
const struct sgrad_strategy *const sgrad_strategies[] = {
#define SGRAD_STRATEGY(name) &sgrad_##name##_strategy,
#include "graphs/compiler/strategies.def"
#undef SGRAD_STRATEGY
    NULL,
};
