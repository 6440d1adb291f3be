/* parameters.c: memory of parameters, operation states and optimizer states, and their initial values. */
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
static void draw(const struct sgrad_parameter *p, struct sgrad_random r, double x[4]) {
    for (int i = 0; i < 4; i++) x[i] = p->init == SGRAD_ONES;
    if (p->init == SGRAD_UNIFORM || p->init == SGRAD_DIRAC || p->init == SGRAD_WHITENING)
        for (int i = 0; i < 4; i++) x[i] = (2 * uniform(r.word[i]) - 1) / sqrt(p->fan);
    if (p->init == SGRAD_HE || p->init == SGRAD_NORMAL) {
        normal(r.word, x);
        normal(r.word + 2, x + 2);
        for (int i = 0; i < 4; i++) x[i] *= p->init == SGRAD_HE ? sqrt(2 / p->fan) : p->deviation;
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
static int initialize(const struct sgrad_graph *g, const struct sgrad__parameter *p, uint64_t seed) {
    if (p->is.init == SGRAD_ZEROS || SGRAD_SIMULATED) return 0;     /* tensors are zeros; simulations read no values */
    const struct sgrad_shape shape = sgrad__whole_shape(p);
    const int64_t count = sgrad_shape_count(&shape);
    const uint64_t index = sgrad_hash(p->name, strlen(p->name));     /* each parameter has a separate random stream */
    float *value = sgrad_xcalloc((size_t)count, sizeof *value);
    for (int64_t i = 0; i < count; i += 4) {
        double x[4];
        draw(&p->is, sgrad_philox(seed, SGRAD_STREAM_INIT, 0, index, (uint32_t)(i / 4)), x);
        for (int64_t j = i; j < i + 4 && j < count; j++) value[j] = (float)x[j - i];
    }
    if (p->is.init == SGRAD_DIRAC) pass_on(&shape, value);
    if (p->cuts) {
        float *part = sgrad_xcalloc(1, sgrad_view_bytes(&p->tensor->view));
        sgrad__part_take(g, p, g->rank, value, part);
        free(value);
        value = part;
    }
    int error = sgrad_tensor_write(p->tensor, value);
    free(value);
    return error;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static char *state_name(const struct sgrad__parameter *p, int state) {
    return sgrad_format(SGRAD__STATES "%s.%s", p->states[state].name, p->name);
}

static int allocate(const struct sgrad_graph *g, struct sgrad__parameter *p, uint64_t seed) {
    const int count = sgrad__states_of(p);
    p->kept = sgrad_xcalloc((size_t)count + 1, sizeof *p->kept);
    const struct sgrad__share share = sgrad__share_of(g, p, g->rank);
    const bool here = sgrad__parameter_on(g, p, g->rank);
    if (p->cuts || share.ranks > 1 || g->stages > 1) p->whole = sgrad_xcalloc((size_t)count + 1, sizeof *p->whole);
    if (here) SGRAD_TRY(sgrad_tensor_create(p->name, p->is.dtype, p->kept_shape, SGRAD_PERSISTENT, &p->tensor));
    for (int i = 0; i < count && here; i++) {
        if (p->cuts && p->states[i].shape)
            return sgrad_log_error(SGRAD_ESHAPE,
                                   "%s: is split over axis %s, and the optimizer's %s, whose shape is its own, is not: "
                                   "another optimizer does without",
                                   p->name, p->cut[0].axis->name, p->states[i].name);
        struct sgrad_shape shape = p->states[i].shape ? p->states[i].shape(&p->is.shape) : p->kept_shape;
        if (share.ranks > 1) shape = sgrad_shape(1, share.count ? share.count : 1);
        char *name = state_name(p, i);
        int error = sgrad_tensor_create(name, p->is.dtype, shape, SGRAD_PERSISTENT, &p->kept[i]);
        free(name);
        if (error) return error;
    }
    return here ? initialize(g, p, seed) : 0;
}

int sgrad__parameters_allocate(struct sgrad_graph *g, const struct sgrad_state *states, uint64_t seed) {
    int error = 0;
    for (int i = 0; i < g->parameter_count && !error; i++) {
        if (!g->parameter[i].update) g->parameter[i].states = states;
        error = allocate(g, &g->parameter[i], seed);
    }
    if (error) sgrad__parameters_free(g);
    return error;
}

static char *kept_name(const char *state, const char *layer) { return sgrad_format(SGRAD__STATES "%s.%s", state, layer); }

int sgrad__graph_keep(struct sgrad_graph *g, const char *state, const char *layer, struct sgrad_shape shape, int rank,
                      bool here) {
    g->kept = sgrad_array_grow(g->kept, g->kept_count, sizeof *g->kept);
    struct sgrad__kept *kept = &g->kept[g->kept_count++];
    *kept = (struct sgrad__kept){ .name = kept_name(state, layer), .shape = shape, .layout = SGRAD_AS_IS, .rank = rank };
    return here ? sgrad_tensor_create(kept->name, SGRAD_F32, shape, SGRAD_PERSISTENT, &kept->tensor) : 0;
}

struct sgrad_tensor *sgrad__graph_kept(const struct sgrad_graph *g, const char *state, const char *layer) {
    char *name = kept_name(state, layer);
    struct sgrad_tensor *kept = NULL;
    for (int i = 0; i < g->kept_count && !kept; i++)
        if (strcmp(g->kept[i].name, name) == 0) kept = g->kept[i].tensor;
    free(name);
    return kept;
}

/* Returns the first rank that stores it. */
static int first_with(const struct sgrad_graph *g, const struct sgrad__parameter *p) {
    int rank = 0;
    while (!sgrad__parameter_on(g, p, rank)) rank++;
    return rank;
}

/* Has it an average and slow weights? */
static bool is_followed(const struct sgrad__parameter *p) { return !p->frozen && p->is.dtype == SGRAD_F32; }

const struct sgrad__parameter *sgrad__graph_find_split(const struct sgrad_graph *g) {
    for (const struct sgrad__parameter *p = g->parameter; p < g->parameter + g->parameter_count; p++)
        if (p->cuts && is_followed(p)) return p;
    return NULL;
}

/* Adds a state with the shape of the parameter, for each trained parameter, for OPTION. AT: offset of its pointer in the
 * parameter. */
static int keep_of_each(struct sgrad_graph *g, const char *option, size_t at) {
    const struct sgrad__parameter *split = sgrad__graph_find_split(g);
    if (split)
        return sgrad_log_error(SGRAD_EINVAL, "--%s: %s is split over ranks, none of which has the whole", option, split->name);
    for (struct sgrad__parameter *p = g->parameter; p < g->parameter + g->parameter_count; p++) {
        if (!is_followed(p)) continue;
        SGRAD_TRY(sgrad__graph_keep(g, option, p->name, p->is.shape, g->stages > 1 ? first_with(g, p) : -1,
                                    sgrad__parameter_on(g, p, g->rank)));
        struct sgrad__kept *kept = &g->kept[g->kept_count - 1];
        kept->layout = p->is.layout;
        *(struct sgrad_tensor **)((char *)p + at) = kept->tensor;
    }
    return 0;
}

int sgrad__graph_average(struct sgrad_graph *g) { return keep_of_each(g, "ema", offsetof(struct sgrad__parameter, average)); }

int sgrad__graph_keep_slow(struct sgrad_graph *g) {
    return keep_of_each(g, "lookahead", offsetof(struct sgrad__parameter, slow));
}

int sgrad__graph_begin_slow(struct sgrad_graph *g) {
    for (const struct sgrad__parameter *p = g->parameter; p < g->parameter + g->parameter_count; p++)
        if (p->slow) SGRAD_TRY(sgrad_tensor_copy(p->tensor, p->slow));
    return 0;
}

void sgrad__parameters_free(struct sgrad_graph *g) {
    sgrad__wholes_free(g);
    for (int i = 0; i < g->kept_count; i++) {
        sgrad_tensor_destroy(g->kept[i].tensor);
        free(g->kept[i].name);
    }
    free(g->kept);
    g->kept = NULL;
    g->kept_count = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        struct sgrad__parameter *p = &g->parameter[i];
        sgrad_tensor_destroy(p->tensor);
        for (int j = 0; p->kept && p->kept[j]; j++) sgrad_tensor_destroy(p->kept[j]);
        free(p->kept);
        free(p->whole);
        p->tensor = p->average = p->slow = NULL;
        p->kept = NULL;
        p->whole = NULL;
    }
}

int64_t sgrad__parameters_count(const struct sgrad_graph *g) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (!g->parameter[i].state && sgrad__parameter_on(g, &g->parameter[i], g->rank))
            count += sgrad_shape_count(&g->parameter[i].kept_shape);
    return count;
}

int64_t sgrad__parameters_whole(const struct sgrad_graph *g) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        const struct sgrad_shape whole = sgrad__whole_shape(&g->parameter[i]);
        if (!g->parameter[i].state) count += sgrad_shape_count(&whole);
    }
    return count;
}

/* Returns the item of a parameter or, if J >= 0, of its state J. If the network has stages, the first rank that stores it
 * provides it. */
static struct sgrad__item item_of(const struct sgrad_graph *g, const struct sgrad__parameter *p, int j) {
    const bool state = j >= 0, own = state && p->states[j].shape, shared = state && sgrad__share_of(g, p, g->rank).ranks > 1;
    struct sgrad__item item = {
        .name = state ? state_name(p, j) : sgrad_format("%s", p->name),
        .view = { p->is.dtype, own ? p->states[j].shape(&p->is.shape) : sgrad__whole_shape(p) },
        .layout = own ? SGRAD_AS_IS : p->is.layout,
        .tensor = state ? p->kept[j] : p->tensor,
        .split = p->cuts || shared ? p : NULL,
        .average = state ? NULL : p->average,
        .shared = shared,
        .rank = g->stages > 1 ? first_with(g, p) : -1,
    };
    if (item.split || g->stages > 1) item.whole = p->whole + 1 + j;
    if (g->sharded)
        item = (struct sgrad__item){ .name = item.name, .view = item.tensor->view, .tensor = item.tensor, .average = item.average,
                                     .rank = -1 };
    return item;
}

struct sgrad__items sgrad__parameters_list(const struct sgrad_graph *g, bool with_states) {
    int most = g->kept_count;
    for (int i = 0; i < g->parameter_count; i++) most += 1 + sgrad__states_of(&g->parameter[i]);
    struct sgrad__items list = { .item = sgrad_xcalloc((size_t)most, sizeof *list.item) };
    for (int i = 0; i < g->parameter_count; i++) {
        const struct sgrad__parameter *p = &g->parameter[i];
        if (p->is.unsaved || (g->sharded && !p->tensor)) continue;
        const int states = with_states && p->kept ? sgrad__states_of(p) : 0;
        for (int j = -1; j < states; j++) list.item[list.count++] = item_of(g, p, j);
    }
    for (struct sgrad__kept *k = g->kept; k < g->kept + g->kept_count && with_states; k++)
        if (k->tensor || !g->sharded)
            list.item[list.count++] =
                (struct sgrad__item){ .name = sgrad_format("%s", k->name), .view = { SGRAD_F32, k->shape }, .layout = k->layout,
                                      .tensor = k->tensor, .rank = k->rank,
                                      .whole = k->rank < 0 || g->sharded ? NULL : &k->whole };
    return list;
}

void sgrad__items_free(struct sgrad__items *list) {
    for (int i = 0; i < list->count; i++) free(list->item[i].name);
    free(list->item);
}
