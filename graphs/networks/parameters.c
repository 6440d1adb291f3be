/* parameters.c: memory of parameters and operation states, and their initial values. */
#include "graphs/networks/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- initial values ------------------------------------------------------------------------------------------- */

/* Uniform in (0,1). */
static double uniform(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }

/* Two numbers from N(0,1) for two from U(0,1) (Box, Muller, 1958). */
static void normal(const uint32_t word[2], double x[2]) {
    double radius = sqrt(-2 * log(uniform(word[0]))), angle = 2 * M_PI * uniform(word[1]);
    x[0] = radius * cos(angle);
    x[1] = radius * sin(angle);
}

/* Draws the values 4·block to 4·block + 3 of a parameter. */
static void draw(const struct sgrad_parameter *parameter, struct sgrad_random r, double x[4]) {
    for (int i = 0; i < 4; i++) x[i] = parameter->init == SGRAD_ONES ? (parameter->deviation ? parameter->deviation : 1) : 0;
    if (parameter->init == SGRAD_UNIFORM || parameter->init == SGRAD_DIRAC || parameter->init == SGRAD_WHITENING)
        for (int i = 0; i < 4; i++) x[i] = (2 * uniform(r.word[i]) - 1) / sqrt(parameter->fan);
    if (parameter->init == SGRAD_HE || parameter->init == SGRAD_NORMAL) {
        normal(r.word, x);
        normal(r.word + 2, x + 2);
        for (int i = 0; i < 4; i++) x[i] *= parameter->init == SGRAD_HE ? sqrt(2 / parameter->fan) : parameter->deviation;
    }
}

/* The first filters of VALUE (K,R,S,C), one per channel, each copy one channel. */
static void pass_on(const struct sgrad_shape *filters, float *value) {
    const int64_t *dim = filters->dim, channels = dim[3], filter = dim[1] * dim[2] * channels;
    const int64_t middle = (dim[1] / 2 * dim[2] + dim[2] / 2) * channels, count = dim[0] < channels ? dim[0] : channels;
    memset(value, 0, (size_t)(count * filter) * sizeof *value);
    for (int64_t k = 0; k < count; k++) value[k * filter + middle + k] = 1;
}

/* Values are drawn in the order of memory, for a split parameter in that of the whole one. */
static int initialize(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, uint64_t seed) {
    if (SGRAD_SIMULATED) return 0;      /* simulations read no values */
    if (parameter->is.values) return sgrad_tensor_write(parameter->tensor, parameter->is.values); /* a state, never divided */
    if (parameter->is.init == SGRAD_ZEROS) return 0;    /* tensors are zeros */
    const struct sgrad_shape shape = sgrad__whole_shape(parameter);
    const int64_t count = sgrad_shape_count(&shape);
    const uint64_t index = sgrad_hash(parameter->name, strlen(parameter->name)); /* each parameter has a separate random stream */
    float *value = sgrad_xcalloc((size_t)count, sizeof *value);
    for (int64_t i = 0; i < count; i += 4) {
        double x[4];
        draw(&parameter->is, sgrad_philox(seed, SGRAD_STREAM_INIT, 0, index, (uint32_t)(i / 4)), x);
        for (int64_t j = i; j < i + 4 && j < count; j++) value[j] = (float)x[j - i];
    }
    if (parameter->is.init == SGRAD_DIRAC) pass_on(&shape, value);
    int error = sgrad__parameter_take(graph, parameter, value);
    free(value);
    return error;
}

int sgrad__parameter_take(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, const float *whole) {
    void *value = (void *)whole;
    const struct sgrad__item item = { .tensor = parameter->tensor, .share = parameter->share, .whole = &value,
                                      .split = parameter->cuts || parameter->share.ranks ? parameter : NULL };
    return sgrad__item_take(graph, &item);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

struct sgrad_view sgrad__parameter_view(const struct sgrad__parameter *parameter) {
    const struct sgrad__share *share = &parameter->share;
    if (!share->ranks || share->count == sgrad_shape_count(&parameter->kept_shape))
        return (struct sgrad_view){ parameter->is.dtype, parameter->kept_shape };
    return (struct sgrad_view){ parameter->is.dtype, sgrad_shape(1, share->count ? share->count : 1) };
}

static int allocate(const struct sgrad_graph *graph, struct sgrad__parameter *parameter, uint64_t seed) {
    if (!sgrad__parameter_on(graph, parameter, graph->rank)) return 0;
    const struct sgrad_view view = sgrad__parameter_view(parameter);
    SGRAD_TRY(sgrad_tensor_create(parameter->name, view.dtype, view.shape, SGRAD_PERSISTENT, &parameter->tensor));
    return initialize(graph, parameter, seed);
}

int sgrad__parameters_allocate(struct sgrad_graph *graph, uint64_t seed) {
    int error = 0;
    for (int i = 0; i < graph->parameter_count && !error; i++) error = allocate(graph, &graph->parameter[i], seed);
    if (error) sgrad__parameters_free(graph);
    return error;
}

void sgrad__parameters_free(struct sgrad_graph *graph) {
    sgrad__wholes_free(graph);
    for (int i = 0; i < graph->parameter_count; i++) {
        sgrad_tensor_destroy(graph->parameter[i].tensor);
        graph->parameter[i].tensor = NULL;
    }
}

/* Returns true if this rank stores elements of a weight. */
static bool is_weight(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter) {
    return !parameter->state && sgrad__parameter_on(graph, parameter, graph->rank);
}

int64_t sgrad__parameters_count(const struct sgrad_graph *graph) {
    int64_t count = 0;
    for (const struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++)
        if (is_weight(graph, p)) count += p->share.ranks ? p->share.count : sgrad_shape_count(&p->kept_shape);
    return count;
}

int64_t sgrad__parameters_trained(const struct sgrad_graph *graph) {
    int64_t count = 0;
    for (const struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++)
        if (is_weight(graph, p) && !p->frozen) count += sgrad_shape_count(&p->kept_shape);
    return count;
}

int64_t sgrad__parameters_whole(const struct sgrad_graph *graph) {
    int64_t count = 0;
    for (int i = 0; i < graph->parameter_count; i++) {
        const struct sgrad_shape whole = sgrad__whole_shape(&graph->parameter[i]);
        if (!graph->parameter[i].state) count += sgrad_shape_count(&whole);
    }
    return count;
}

/* ---- items ---------------------------------------------------------------------------------------------------- */

int sgrad__parameter_provider(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter) {
    int rank = 0;
    while (!sgrad__parameter_on(graph, parameter, rank)) rank++;
    return graph->stages > 1 ? rank : -1;
}

struct sgrad__item sgrad__parameter_item(const struct sgrad_graph *graph, int parameter) {
    struct sgrad__parameter *is = &graph->parameter[parameter];
    const bool split = is->cuts || is->share.ranks;
    return (struct sgrad__item){ .name = sgrad_format("%s", is->name), .view = { is->is.dtype, sgrad__whole_shape(is) },
                                 .layout = is->is.layout, .tensor = is->tensor, .split = split ? is : NULL, .share = is->share,
                                 .rank = sgrad__parameter_provider(graph, is),
                                 .whole = split || graph->stages > 1 ? &is->whole : NULL };
}

struct sgrad__items sgrad__parameters_list(const struct sgrad_graph *graph) {
    struct sgrad__items list = { .lora_scale = sgrad__lora_scale(graph), .file = graph->copies,
                                 .item = sgrad_xcalloc((size_t)graph->parameter_count, sizeof *list.item) };
    for (int i = 0; i < graph->parameter_count; i++)
        if (!graph->parameter[i].is.unsaved) list.item[list.count++] = sgrad__parameter_item(graph, i);
    return list;
}

struct sgrad__items sgrad__network_list(const struct sgrad_graph *graph) {
    struct sgrad__items list = sgrad__parameters_list(graph);
    if (graph->lora.rank) sgrad__items_select(&list, false);
    return list;
}

void sgrad__items_free(struct sgrad__items *list) {
    for (int i = 0; i < list->count; i++) free(list->item[i].name);
    free(list->item);
}
