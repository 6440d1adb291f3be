/* lists.c: every network, composite layer, optimizer and strategy, as their .def files list them. */
#include "graphs/graphs.h"

const char *sgrad_precision_name(enum sgrad_precision precision) {
    static const char *const names[] = { "f32", "tf32", "bf16" };
    return names[precision];
}

#define SGRAD_MODEL(name) extern const struct sgrad_model sgrad_##name##_model;
#include "graphs/models.def"
#undef SGRAD_MODEL
const struct sgrad_model *const sgrad_models[] = {
#define SGRAD_MODEL(name) &sgrad_##name##_model,
#include "graphs/models.def"
#undef SGRAD_MODEL
    NULL,
};

#define SGRAD_COMPOSITE(name) extern const struct sgrad_composite sgrad_##name##_composite;
#include "graphs/layers.def"
#undef SGRAD_COMPOSITE
const struct sgrad_composite *const sgrad_composites[] = {
#define SGRAD_COMPOSITE(name) &sgrad_##name##_composite,
#include "graphs/layers.def"
#undef SGRAD_COMPOSITE
    NULL,
};

#define SGRAD_OPTIMIZER(name) extern const struct sgrad_optimizer sgrad_##name##_optimizer;
#include "graphs/optimizers.def"
#undef SGRAD_OPTIMIZER
const struct sgrad_optimizer *const sgrad_optimizers[] = {
#define SGRAD_OPTIMIZER(name) &sgrad_##name##_optimizer,
#include "graphs/optimizers.def"
#undef SGRAD_OPTIMIZER
    NULL,
};

#define SGRAD_STRATEGY(name) extern const struct sgrad_strategy sgrad_##name##_strategy;
#include "graphs/strategies.def"
#undef SGRAD_STRATEGY
const struct sgrad_strategy *const sgrad_strategies[] = {
#define SGRAD_STRATEGY(name) &sgrad_##name##_strategy,
#include "graphs/strategies.def"
#undef SGRAD_STRATEGY
    NULL,
};
