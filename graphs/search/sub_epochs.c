/* sub_epochs.c: orders of sub-epochs. Models A B C D, partitions 0 1 2, one epoch and the next:
 *
 *     ring         0   A B C D A B C D             staggered    0   A C B D .  .             open-shop   first idle pair first
 *                  1   . A B C D A B C D                        1   B A C . D  .
 *                  2   . . A B C D A B C D                      2   C B A . .  D
 *
 * In a ring the models start one after another: max(M,K)·E + min(M,K) − 1 slots for M models, K partitions and E epochs.
 * Staggered, K models at a time start with different partitions, so that every partition is busy from the first slot on: M·E
 * slots if K divides M. The orders are Latin squares that are drawn again for each epoch, so that no model always visits the
 * partitions in the same order.
 *
 * Times are computed from an order by simulation: a sub-epoch starts when its model is idle, and a slot of the rank that has its
 * partition, or of each rank of its group. */
#include "graphs/search/sub_epochs.h"
#include "datasets/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sgrad__sub_epochs_options options;   /* an abbreviation */

static int count_of(const options *o) { return o->models * o->partitions * o->epochs; }
static double cost_of(const options *o, int model) { return o->cost ? o->cost[model] : 1; }
/* If the order is computed for fewer ranks than a model needs, the model needs all of them. */
static int width_of(const options *o, int model) {
    const int width = o->width ? o->width[model] : 1;
    return width < o->ranks ? width : o->ranks;
}
static int first_of(const options *o, int model, int partition) {
    return sgrad__sub_epochs_rank(partition, o->ranks, width_of(o, model));
}

/* ---- orders ------------------------------------------------------------------------------------------------------- */

/* At slot t, partition p has the model that partition 0 had at slot t − p. */
static void order_ring(const options *o, struct sgrad__sub_epoch *sub_epoch) {
    const int count = count_of(o), stride = o->models > o->partitions ? o->models : o->partitions;
    for (int slot = 0, made = 0; made < count; slot++)
        for (int p = 0; p < o->partitions && p <= slot; p++) {
            const int epoch = (slot - p) / stride, model = (slot - p) % stride;
            if (epoch < o->epochs && model < o->models)
                sub_epoch[made++] = (struct sgrad__sub_epoch){ .model = model, .epoch = o->first_epoch + epoch, .partition = p };
        }
}

static void draw(uint64_t seed, int number, int count, int *permutation) {
    struct sgrad__sampler order = { .seed = sgrad_hash("visits", 6) ^ seed, .count = count, .shuffle = true };
    for (int i = 0; i < count; i++) permutation[i] = (int)sgrad__sampler_index(&order, (uint32_t)number, i);
    sgrad__sampler_close(&order);
}

/* Latin squares with random permutations of rows and columns; a row is the order of one model of a group. */
static void order_staggered(const options *o, struct sgrad__sub_epoch *sub_epoch) {
    const int k = o->partitions, groups = (o->models + k - 1) / k;
    int *partition = sgrad_xcalloc((size_t)k, sizeof *partition), *row = sgrad_xcalloc((size_t)k, sizeof *row);
    for (int block = 0; block < o->epochs * groups; block++) {
        const int epoch = o->first_epoch + block / groups, first = block % groups * k;
        draw(o->seed, 2 * (epoch * groups + block % groups), k, partition);
        draw(o->seed, 2 * (epoch * groups + block % groups) + 1, k, row);
        for (int slot = 0; slot < k; slot++)
            for (int j = 0; j < k && first + j < o->models; j++)
                *sub_epoch++ = (struct sgrad__sub_epoch){ .model = first + j, .epoch = epoch,
                                                  .partition = partition[(row[j] + slot) % k] };
    }
    free(partition);
    free(row);
}

/* The state of the simulation of an open shop. */
struct shop {
    const options *o;
    double *model_free, *rank_free;
    int *epochs;                    /* by model: epochs started, one more than completed */
    int *left;                      /* by model: partitions not yet visited in this epoch */
    bool *visited;                  /* (models, partitions): visited in this epoch */
};

static double work_left(const struct shop *shop, int model) {
    return cost_of(shop->o, model) * (shop->left[model] + (shop->o->epochs - shop->epochs[model]) * shop->o->partitions);
}

/* Returns the time when all ranks that a sub-epoch needs are idle. */
static double are_free(const struct shop *shop, int model, int partition) {
    const int first = first_of(shop->o, model, partition);
    double last = 0;
    for (int r = first; r < first + width_of(shop->o, model); r++) last = fmax(last, shop->rank_free[r]);
    return last;
}

/* Chooses the sub-epoch that can start first; among several, the one whose model has most work left; among these, the first one
 * in a random order. */
static struct sgrad__sub_epoch next_sub_epoch(const struct shop *shop, const int *among) {
    const int k = shop->o->partitions;
    struct sgrad__sub_epoch best = { .model = -1, .begin = DBL_MAX };
    double most = 0;
    for (int i = 0; i < shop->o->models * k; i++) {
        const int model = among[i] / k, partition = among[i] % k;
        if (!shop->left[model] || shop->visited[among[i]]) continue;
        const double begin = fmax(shop->model_free[model], are_free(shop, model, partition)), left = work_left(shop, model);
        if (begin > best.begin || (begin == best.begin && left <= most)) continue;
        most = left;
        best = (struct sgrad__sub_epoch){ .model = model, .epoch = shop->o->first_epoch + shop->epochs[model] - 1,
                                          .partition = partition, .begin = begin, .end = begin + cost_of(shop->o, model) };
    }
    return best;
}

static void note(struct shop *shop, const struct sgrad__sub_epoch *epoch) {
    const int k = shop->o->partitions;
    const int first = first_of(shop->o, epoch->model, epoch->partition);
    shop->model_free[epoch->model] = epoch->end;
    for (int r = first; r < first + width_of(shop->o, epoch->model); r++) shop->rank_free[r] = epoch->end;
    shop->visited[epoch->model * k + epoch->partition] = true;
    if (--shop->left[epoch->model] || shop->epochs[epoch->model] == shop->o->epochs) return;
    shop->epochs[epoch->model]++;
    shop->left[epoch->model] = k;
    memset(shop->visited + epoch->model * k, 0, (size_t)k * sizeof *shop->visited);
}

static void order_open_shop(const options *o, struct sgrad__sub_epoch *sub_epoch) {
    const int pairs = o->models * o->partitions, count = count_of(o);
    int *among = sgrad_xcalloc((size_t)pairs, sizeof *among);
    struct shop s = { .o = o,
                      .model_free = sgrad_xcalloc((size_t)o->models, sizeof(double)),
                      .rank_free = sgrad_xcalloc((size_t)o->ranks, sizeof(double)),
                      .epochs = sgrad_xcalloc((size_t)o->models, sizeof(int)),
                      .left = sgrad_xcalloc((size_t)o->models, sizeof(int)),
                      .visited = sgrad_xcalloc((size_t)pairs, sizeof(bool)) };
    for (int m = 0; m < o->models; m++) s.epochs[m] = 1, s.left[m] = o->partitions;
    for (int i = 0; i < count; i++) {
        if (i % pairs == 0) draw(o->seed, o->first_epoch + i / pairs, pairs, among);
        sub_epoch[i] = next_sub_epoch(&s, among);
        note(&s, &sub_epoch[i]);
    }
    free(among);
    free(s.model_free);
    free(s.rank_free);
    free(s.epochs);
    free(s.left);
    free(s.visited);
}

const struct sgrad__sub_epoch_order sgrad__sub_epoch_orders[] = {
    { "staggered",
      "as many models at a time as there are partitions, each on a different partition, in an order that is random in each epoch",
      "Latin squares", order_staggered },
    { "ring", "models start at the first partition, one after another, and move from each partition to the next",
      "Chen, Lee, Xia, Lin, Suzumura and Lin 2015", order_ring },
    { "open-shop", "a free rank trains the free model with the most remaining work; for models of unequal size",
      "Gonzalez and Sahni 1976; Kumar, Nakandala, Zhang, Li, Gemawat and Nagrecha 2021 (Cerebro)", order_open_shop },
    { 0 },
};

/* ---- times -------------------------------------------------------------------------------------------------------- */

static int by_begin(const void *one, const void *other) {
    const struct sgrad__sub_epoch *a = one, *b = other;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->partition != b->partition ? a->partition - b->partition : a->model - b->model;
}

static double *first_free(double *slot, int slots) {
    double *first = slot;
    for (int i = 1; i < slots; i++)
        if (slot[i] < *first) first = &slot[i];
    return first;
}

void sgrad__sub_epochs_time(const options *o, struct sgrad__sub_epochs *epochs) {
    epochs->makespan = 0;
    const int slots = o->slots > 1 ? o->slots : 1;
    double *model = sgrad_xcalloc((size_t)o->models, sizeof *model),
           *slot = sgrad_xcalloc((size_t)(o->ranks * slots), sizeof *slot);
    for (struct sgrad__sub_epoch *i = epochs->sub_epoch; i < epochs->sub_epoch + epochs->count; i++) {
        const int first = first_of(o, i->model, i->partition), last = first + width_of(o, i->model);
        i->begin = model[i->model];
        for (int r = first; r < last; r++) i->begin = fmax(i->begin, *first_free(slot + r * slots, slots));
        i->end = model[i->model] = i->begin + cost_of(o, i->model);
        for (int r = first; r < last; r++) *first_free(slot + r * slots, slots) = i->end;
        if (i->end > epochs->makespan) epochs->makespan = i->end;
    }
    qsort(epochs->sub_epoch, (size_t)epochs->count, sizeof *epochs->sub_epoch, by_begin);
    free(model);
    free(slot);
}

static void number_sub_epochs(const options *o, struct sgrad__sub_epochs *epochs) {
    int *next = sgrad_xcalloc((size_t)o->models, sizeof *next);
    for (int i = 0; i < epochs->count; i++)
        epochs->sub_epoch[i].number = o->first_epoch * o->partitions + next[epochs->sub_epoch[i].model]++;
    free(next);
}

static struct sgrad__sub_epochs plan(const struct sgrad__sub_epoch_order *method, const options *o) {
    struct sgrad__sub_epochs v = { .schedule = method->name, .count = count_of(o) };
    v.sub_epoch = sgrad_xcalloc((size_t)v.count, sizeof *v.sub_epoch);
    method->order(o, v.sub_epoch);
    sgrad__sub_epochs_time(o, &v);
    number_sub_epochs(o, &v);
    return v;
}

int sgrad__sub_epochs_plan(const char *name, const options *o, struct sgrad__sub_epochs *sub_epochs) {
    const double hardly = 1 - 1e-9;
    struct sgrad__sub_epochs best = { 0 };
    const char *names[4] = { 0 };
    for (int i = 0; sgrad__sub_epoch_orders[i].name; i++) {
        names[i] = sgrad__sub_epoch_orders[i].name;
        if (name && strcmp(name, sgrad__sub_epoch_orders[i].name)) continue;
        struct sgrad__sub_epochs v = plan(&sgrad__sub_epoch_orders[i], o);
        const bool better = !best.sub_epoch || v.makespan < best.makespan * hardly;
        sgrad__sub_epochs_free(better ? &best : &v);
        if (better) best = v;
    }
    if (!best.schedule) {
        const char *near = sgrad_suggest(name, names);
        return sgrad_log_error(SGRAD_ENAME, "unknown schedule '%s'; did you mean %s?", name,
                               near ? near : "staggered, ring or open-shop");
    }
    *sub_epochs = best;
    return 0;
}

void sgrad__sub_epochs_free(struct sgrad__sub_epochs *epochs) {
    free(epochs->sub_epoch);
    epochs->sub_epoch = NULL;
}

const struct sgrad__sub_epoch *sgrad__sub_epochs_next(const struct sgrad__sub_epochs *epochs,
                                                      const struct sgrad__sub_epoch *before) {
    for (const struct sgrad__sub_epoch *next = before + 1; next < epochs->sub_epoch + epochs->count; next++)
        if (next->model == before->model) return next;
    return NULL;
}
