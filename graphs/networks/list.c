/* list.c: every network and composite layer, as their .def files list them. */
#include "graphs/networks/networks.h"

#define SGRAD_MODEL(name) extern const struct sgrad_model sgrad_##name##_model;
#include "graphs/networks/models.def"
#undef SGRAD_MODEL
const struct sgrad_model *const sgrad_models[] = {
#define SGRAD_MODEL(name) &sgrad_##name##_model,
#include "graphs/networks/models.def"
#undef SGRAD_MODEL
    NULL,
};

#define SGRAD_COMPOSITE(name) extern const struct sgrad_composite sgrad_##name##_composite;
#include "graphs/networks/layers.def"
#undef SGRAD_COMPOSITE
const struct sgrad_composite *const sgrad_composites[] = {
#define SGRAD_COMPOSITE(name) &sgrad_##name##_composite,
#include "graphs/networks/layers.def"
#undef SGRAD_COMPOSITE
    NULL,
};
