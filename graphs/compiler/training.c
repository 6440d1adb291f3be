/* training.c: the table of how each parameter is updated, and the memory of optimizer states. */
#include "graphs/compiler/training.h"

#include <stdlib.h>
#include <string.h>

struct sgrad__training *sgrad__training_create(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer) {
    struct sgrad__training *training = sgrad_xcalloc(1, sizeof *training);
    *training = (struct sgrad__training){ .graph = graph, .optimizer = optimizer };
    training->update = sgrad_xcalloc((size_t)graph->parameter_count + 1, sizeof *training->update);
    for (int i = 0; i < graph->parameter_count; i++)
        if (!graph->parameter[i].state && (!graph->lora.rank || graph->parameter[i].adapter))
            training->update[i].optimizer = optimizer;
    return training;
}

void sgrad__training_destroy(struct sgrad__training *training) {
    if (!training) return;
    sgrad__training_free_wholes(training);
    for (int i = 0; i < training->kept_count; i++) {
        sgrad_tensor_destroy(training->kept[i].tensor);
        free(training->kept[i].name);
    }
    for (int i = 0; i < training->graph->parameter_count; i++) {
        const struct sgrad__update *update = &training->update[i];
        for (int j = 0; j < sgrad__state_count(update) && update->state; j++) sgrad_tensor_destroy(update->state[j]);
        free(update->state);
        free(update->whole);
    }
    free(training->kept);
    free(training->update);
    free(training);
}

void sgrad__training_freeze(struct sgrad__training *training, const char *list, long done) {
    const struct sgrad_graph *graph = training->graph;
    bool *frozen = sgrad_xcalloc((size_t)graph->parameter_count + 1, sizeof *frozen);
    for (int i = 0; i < graph->parameter_count; i++) {
        const long until = training->update[i].until;
        frozen[i] = (until && until <= done) || sgrad__is_listed(list, graph->parameter[i].name);
    }
    sgrad__graph_freeze(training->graph, frozen);
    free(frozen);
}

void sgrad__training_share_parameters(struct sgrad__training *training) {
    struct sgrad_graph *graph = training->graph;
    for (struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++) {
        if (p->state || (p->stages & (p->stages - 1))) continue;
        const struct sgrad__share share = sgrad__share_of(training, p, graph->rank);
        if (share.ranks > 1) p->share = share;
    }
}

/* ---- states of parameters --------------------------------------------------------------------------------------- */

int sgrad__state_count(const struct sgrad__update *update) {
    const struct sgrad_state *states = update->optimizer ? update->optimizer->states : NULL;
    int count = 0;
    while (states && states[count].name) count++;
    return count;
}

double sgrad__state_elements(const struct sgrad__training *training, int parameter, const struct sgrad_shape *shape) {
    const struct sgrad__update *update = &training->update[parameter];
    double elements = 0;
    for (int i = 0; i < sgrad__state_count(update); i++) {
        const struct sgrad_state *state = &update->optimizer->states[i];
        const struct sgrad_shape own = state->shape ? state->shape(shape) : *shape;
        elements += (double)sgrad_shape_count(&own);
    }
    return elements;
}

static char *state_name(const char *state, const char *of) { return sgrad_format(SGRAD__STATES "%s.%s", state, of); }

static int allocate(const struct sgrad__training *training, int parameter) {
    const struct sgrad_graph *graph = training->graph;
    const struct sgrad__parameter *is = &graph->parameter[parameter];
    struct sgrad__update *update = &training->update[parameter];
    const int count = sgrad__state_count(update);
    const struct sgrad__share share = sgrad__share_of(training, is, graph->rank);
    update->state = sgrad_xcalloc((size_t)count + 1, sizeof *update->state);
    update->whole = sgrad_xcalloc((size_t)count + 1, sizeof *update->whole);
    for (int i = 0; i < count && sgrad__parameter_on(graph, is, graph->rank); i++) {
        const struct sgrad_state *state = &update->optimizer->states[i];
        if (is->cuts && state->shape)
            return sgrad_log_error(SGRAD_ESHAPE,
                                   "%s: is split over axis %s, but the optimizer's state %s cannot be split; "
                                   "use another optimizer",
                                   is->name, is->cut[0].axis->name, state->name);
        const bool whole = state->shape && (share.count || !update->ranks);     /* only the owner needs it, if there is one */
        struct sgrad_shape shape = state->shape ? state->shape(&is->is.shape) : is->kept_shape;
        if (share.ranks > 1 && !whole) shape = sgrad_shape(1, share.count ? share.count : 1);
        char *name = state_name(state->name, is->name);
        int error = sgrad_tensor_create(name, is->is.dtype, shape, SGRAD_PERSISTENT, &update->state[i]);
        free(name);
        if (error) return error;
    }
    return 0;
}

int sgrad__training_allocate(struct sgrad__training *training) {
    int error = 0;
    for (int i = 0; i < training->graph->parameter_count && !error; i++) error = allocate(training, i);
    return error;
}

struct sgrad__share sgrad__share_of(const struct sgrad__training *training, const struct sgrad__parameter *parameter, int rank) {
    const struct sgrad_graph *graph = training->graph;
    const struct sgrad__update *update = &training->update[parameter - graph->parameter];
    const int64_t count = sgrad_shape_count(&parameter->kept_shape);
    int ranks = training->sharers, place = rank;
    if (update->ranks) return (struct sgrad__share){ update->ranks, 0, update->owner == rank ? count : 0 };
    if (!training->sharers) return (struct sgrad__share){ 1, 0, count };
    if (graph->mesh.axes) {
        int *member = sgrad_xcalloc((size_t)training->sharers, sizeof *member);
        const struct sgrad_group group = sgrad__holders(graph, parameter, rank, member);
        ranks = group.count;
        place = sgrad_group_index(&group, rank);
        free(member);
    }
    if (place < 0) return (struct sgrad__share){ ranks, 0, 0 };
    const int64_t first = count * place / ranks;
    return (struct sgrad__share){ ranks, first, count * (place + 1) / ranks - first };
}

void sgrad__share_put(const struct sgrad__training *training, const struct sgrad__parameter *parameter, int rank,
                      const float *share, float *whole) {
    const struct sgrad__share is = sgrad__share_of(training, parameter, rank);
    float *part = sgrad_xcalloc((size_t)sgrad_shape_count(&parameter->kept_shape), sizeof *part);
    sgrad__part_take(training->graph, parameter, rank, whole, part);
    memcpy(part + is.first, share, (size_t)is.count * sizeof *share);
    sgrad__part_put(training->graph, parameter, rank, part, whole);
    free(part);
}

/* ---- further states --------------------------------------------------------------------------------------------- */

int sgrad__training_keep(struct sgrad__training *training, const char *state, const char *layer, struct sgrad_shape shape,
                         int rank, bool here) {
    training->kept = sgrad_array_grow(training->kept, training->kept_count, sizeof *training->kept);
    struct sgrad__kept *kept = &training->kept[training->kept_count++];
    *kept = (struct sgrad__kept){ .name = state_name(state, layer), .shape = shape, .layout = SGRAD_AS_IS, .rank = rank };
    return here ? sgrad_tensor_create(kept->name, SGRAD_F32, shape, SGRAD_PERSISTENT, &kept->tensor) : 0;
}

struct sgrad_tensor *sgrad__training_kept(const struct sgrad__training *training, const char *state, const char *layer) {
    char *name = state_name(state, layer);
    struct sgrad_tensor *tensor = NULL;
    for (int i = 0; i < training->kept_count && !tensor; i++)
        if (strcmp(training->kept[i].name, name) == 0) tensor = training->kept[i].tensor;
    free(name);
    return tensor;
}

/* Returns true if the parameter has a moving average and slow weights. */
static bool is_followed(const struct sgrad__parameter *parameter) {
    return !parameter->frozen && parameter->is.dtype == SGRAD_F32;
}

const struct sgrad__parameter *sgrad__training_find_split(const struct sgrad__training *training) {
    const struct sgrad_graph *graph = training->graph;
    for (const struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++)
        if (p->cuts && is_followed(p)) return p;
    return NULL;
}

const struct sgrad_optimizer *sgrad__averaging(const struct sgrad__training *training, int parameter) {
    const struct sgrad_optimizer *is =
        training->graph->parameter[parameter].state ? training->optimizer : training->update[parameter].optimizer;
    return is && is->average ? is : NULL;
}

/* Logs that WHAT does not suit the mesh, which splits PARAMETER. */
static int refuse(const char *what, const char *name, const struct sgrad__parameter *parameter) {
    return sgrad_log_error(SGRAD_EINVAL,
                           "%s%s cannot be combined with this mesh: %s is sharded over ranks; use a mesh that splits no "
                           "parameter",
                           what, name, parameter->name);
}

/* Adds STATE, with the shape of the parameter, for each parameter that is followed. The state is that of the option with this
 * name or, if AVERAGED, of the optimizers that average their parameters. AT: offset of its pointer in the update. */
static int keep_of_each(struct sgrad__training *training, const char *state, bool averaged, size_t at) {
    const struct sgrad_graph *graph = training->graph;
    for (int i = 0; i < graph->parameter_count; i++) {
        const struct sgrad__parameter *parameter = &graph->parameter[i];
        const struct sgrad_optimizer *by = averaged ? sgrad__averaging(training, i) : NULL;
        if (!is_followed(parameter) || (averaged && !by)) continue;
        if (parameter->cuts) return by ? refuse("optimizer ", by->name, parameter) : refuse("--", state, parameter);
        const bool here = sgrad__parameter_on(graph, parameter, graph->rank), shared = parameter->share.ranks;
        SGRAD_TRY(sgrad__training_keep(training, state, parameter->name, parameter->is.shape,
                                       sgrad__parameter_provider(graph, parameter), here && !shared));
        struct sgrad__kept *kept = &training->kept[training->kept_count - 1];
        if (shared) kept->split = parameter;
        if (shared && here)
            SGRAD_TRY(sgrad_tensor_create(kept->name, SGRAD_F32, parameter->tensor->view.shape, SGRAD_PERSISTENT, &kept->tensor));
        kept->layout = parameter->is.layout;
        *(struct sgrad_tensor **)((char *)&training->update[i] + at) = kept->tensor;
    }
    return 0;
}

int sgrad__training_average(struct sgrad__training *training, bool ema) {
    const size_t at = offsetof(struct sgrad__update, average);
    return keep_of_each(training, ema ? "ema" : "average", !ema, at);
}

int sgrad__training_keep_slow(struct sgrad__training *training) {
    return keep_of_each(training, "lookahead", false, offsetof(struct sgrad__update, slow));
}

int sgrad__training_begin_slow(struct sgrad__training *training) {
    for (int i = 0; i < training->graph->parameter_count; i++)
        if (training->update[i].slow)
            SGRAD_TRY(sgrad_tensor_copy(training->graph->parameter[i].tensor, training->update[i].slow));
    return 0;
}

/* ---- items ------------------------------------------------------------------------------------------------------ */

/* Returns the item of state STATE of PARAMETER, both indices. */
static struct sgrad__item state_item(const struct sgrad__training *training, int parameter, int state) {
    const struct sgrad_graph *graph = training->graph;
    const struct sgrad__parameter *is = &graph->parameter[parameter];
    const struct sgrad__update *update = &training->update[parameter];
    const struct sgrad_state *record = &update->optimizer->states[state];
    const struct sgrad__share share = sgrad__share_of(training, is, graph->rank);
    struct sgrad__item item = sgrad__parameter_item(graph, parameter);
    free(item.name);
    item.name = state_name(record->name, is->name);
    item.tensor = update->state[state];
    if (record->shape) {
        item.view.shape = record->shape(&is->is.shape);
        item.layout = SGRAD_AS_IS;
        item.split = NULL;
        item.share = (struct sgrad__share){ 0 };
        if (update->ranks) item.rank = update->owner;
        if (update->ranks && update->owner != graph->rank) item.tensor = NULL;
    } else if (share.ranks > 1) {
        item.split = is;
        item.share = share;
    }
    item.whole = item.split || update->ranks || graph->stages > 1 ? &update->whole[state] : NULL;
    return item;
}

static struct sgrad__item kept_item(const struct sgrad__training *training, struct sgrad__kept *kept) {
    const bool whole = !kept->split && (kept->rank < 0 || training->sharded);
    return (struct sgrad__item){ .name = sgrad_format("%s", kept->name), .view = { SGRAD_F32, kept->shape },
                                 .layout = kept->layout, .tensor = kept->tensor, .rank = kept->rank, .split = kept->split,
                                 .share = kept->split ? kept->split->share : (struct sgrad__share){ 0 },
                                 .whole = whole ? NULL : &kept->whole };
}

/* Adds the item of a parameter or of its state. */
static void add_item(const struct sgrad__training *training, struct sgrad__items *list, struct sgrad__item item) {
    if (training->sharded && !item.tensor) {
        free(item.name);
        return;
    }
    if (training->sharded)
        item = (struct sgrad__item){ .name = item.name, .view = item.tensor->view, .tensor = item.tensor, .rank = -1 };
    list->item[list->count++] = item;
}

struct sgrad__items sgrad__training_list(const struct sgrad__training *training, bool with_states) {
    const struct sgrad_graph *graph = training->graph;
    int most = training->kept_count;
    for (int i = 0; i < graph->parameter_count; i++) most += 1 + sgrad__state_count(&training->update[i]);
    struct sgrad__items list = { .states = with_states, .lora_scale = sgrad__lora_scale(graph), .file = graph->copies,
                                 .item = sgrad_xcalloc((size_t)most, sizeof *list.item) };
    for (int i = 0; i < graph->parameter_count; i++) {
        const struct sgrad__update *update = &training->update[i];
        if (graph->parameter[i].is.unsaved || (training->sharded && !graph->parameter[i].tensor)) continue;
        struct sgrad__item item = sgrad__parameter_item(graph, i);
        if (update->average && !with_states) item.tensor = update->average;
        add_item(training, &list, item);
        const int states = with_states && update->state ? sgrad__state_count(update) : 0;
        for (int j = 0; j < states; j++) add_item(training, &list, state_item(training, i, j));
    }
    for (int i = 0; i < training->kept_count && with_states; i++)
        if (training->kept[i].tensor || !training->sharded) list.item[list.count++] = kept_item(training, &training->kept[i]);
    return list;
}

void sgrad__training_free_wholes(struct sgrad__training *training) {
    sgrad__wholes_free(training->graph);
    for (int i = 0; i < training->graph->parameter_count; i++) {
        const struct sgrad__update *update = &training->update[i];
        for (int j = 0; j < sgrad__state_count(update) && update->whole; j++) {
            free(update->whole[j]);
            update->whole[j] = NULL;
        }
    }
    for (struct sgrad__kept *kept = training->kept; kept < training->kept + training->kept_count; kept++) {
        free(kept->whole);
        kept->whole = NULL;
    }
}
