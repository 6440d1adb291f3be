/* list.c: lists of all networks and composite layers, from their .def files, and search by name. */
#include "graphs/networks/graph.h"

#include <stdlib.h>
#include <string.h>

#define SGRAD_MODEL(name) extern const struct sgrad_model sgrad_##name##_model;
#include "graphs/networks/models.def"
#undef SGRAD_MODEL
static const struct sgrad_model *const built_in[] = {
#define SGRAD_MODEL(name) &sgrad_##name##_model,
#include "graphs/networks/models.def"
#undef SGRAD_MODEL
    NULL,
};
const struct sgrad_model *const *sgrad_models = built_in;

#define SGRAD_COMPOSITE(name) extern const struct sgrad_composite sgrad_##name##_composite;
#include "graphs/networks/layers.def"
#undef SGRAD_COMPOSITE
const struct sgrad_composite *const sgrad_composites[] = {
#define SGRAD_COMPOSITE(name) &sgrad_##name##_composite,
#include "graphs/networks/layers.def"
#undef SGRAD_COMPOSITE
    NULL,
};

const struct sgrad_model *sgrad_model_find(const char *text) {
    char *name = sgrad_format("%.*s", (int)strcspn(text, ":"), text);
    const struct sgrad_model *model = sgrad_registry_find("model", name, sgrad_models);
    free(name);
    return model;
}

int sgrad_model_vocabulary(const char *text, int *vocabulary) {
    const struct sgrad_model *model = sgrad_model_find(text);
    struct sgrad_graph graph = { 0 };
    if (!model) return SGRAD_ENAME;
    SGRAD_TRY(sgrad__graph_set_model(&graph, model, text));
    *vocabulary = (int)sgrad_graph_option(&graph, "vocabulary");
    return 0;
}

bool sgrad_model_equal(const char *text, const char *other) {
    const size_t length = strcspn(text, ":");
    struct sgrad_graph one = { 0 }, two = { 0 };
    const struct sgrad_model *const *m = sgrad_models;
    while (*m && (strlen((*m)->name) != length || strncmp((*m)->name, text, length))) m++;
    if (!*m || (*m)->from_file || strcspn(other, ":") != length || strncmp(text, other, length)) return !strcmp(text, other);
    return !sgrad__graph_set_model(&one, *m, text) && !sgrad__graph_set_model(&two, *m, other) &&
           !memcmp(one.option, two.option, sizeof one.option);
}
