/* list.c: every optimizer and strategy, as their .def files list them. */
#include "graphs/programs/programs.h"

#define SGRAD_OPTIMIZER(name) extern const struct sgrad_optimizer sgrad_##name##_optimizer;
#include "graphs/programs/optimizers.def"
#undef SGRAD_OPTIMIZER
static const struct sgrad_optimizer *const built_in[] = {
#define SGRAD_OPTIMIZER(name) &sgrad_##name##_optimizer,
#include "graphs/programs/optimizers.def"
#undef SGRAD_OPTIMIZER
    NULL,
};
const struct sgrad_optimizer *const *sgrad_optimizers = built_in;

#define SGRAD_STRATEGY(name) extern const struct sgrad_strategy sgrad_##name##_strategy;
#include "graphs/programs/strategies.def"
#undef SGRAD_STRATEGY
const struct sgrad_strategy *const sgrad_strategies[] = {
#define SGRAD_STRATEGY(name) &sgrad_##name##_strategy,
#include "graphs/programs/strategies.def"
#undef SGRAD_STRATEGY
    NULL,
};
