/* list.c: lists of all optimizers and strategies, from their .def files. */
#include "graphs/compiler/compiler.h"

#define SGRAD_OPTIMIZER(name) extern const struct sgrad_optimizer sgrad_##name##_optimizer;
#include "graphs/compiler/optimizers.def"
#undef SGRAD_OPTIMIZER
static const struct sgrad_optimizer *const built_in[] = {
#define SGRAD_OPTIMIZER(name) &sgrad_##name##_optimizer,
#include "graphs/compiler/optimizers.def"
#undef SGRAD_OPTIMIZER
    NULL,
};
const struct sgrad_optimizer *const *sgrad_optimizers = built_in;

#define SGRAD_STRATEGY(name) extern const struct sgrad_strategy sgrad_##name##_strategy;
#include "graphs/compiler/strategies.def"
#undef SGRAD_STRATEGY
const struct sgrad_strategy *const sgrad_strategies[] = {
#define SGRAD_STRATEGY(name) &sgrad_##name##_strategy,
#include "graphs/compiler/strategies.def"
#undef SGRAD_STRATEGY
    NULL,
};
