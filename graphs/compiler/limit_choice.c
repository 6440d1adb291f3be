/* limit_choice.c: --memory, --gpu-memory, plan --memory: makes a step fit a limit.
 *
 *     homes in the file,              layers that are recomputed,         fewer homes,
 *     as few as fit          ──>      where a step waits for moves  ──>   if these fit now
 *     all, if none fit       ──>      so that a step fits           ──>
 *
 * Each trial compiles the program, and uses the time that its plan of moves predicts (passes/spill.c).
 *
 * Limits: on a GPU, whose moves are fast, layers are recomputed only if a step does not fit otherwise. */
#include "graphs/compiler/builder.h"

#include <math.h>
#include <stdlib.h>

enum { LEVELS = 16 };       /* numbers of homes that are tried differ by this part of the bytes of all */
#define SAVES 0.99          /* times the predicted seconds: worth a move of more bytes */

static struct sgrad_program_options options_with(const struct sgrad__limit_search *search, int moved) {
    struct sgrad_program_options o = search->options;
    o.limit.moved = moved;
    o.limit.bytes = search->bytes - search->use(search->arg, moved).other;
    return o;
}

/* Returns true if an evaluation fits, and a step may have at least a byte. */
static bool is_possible(const struct sgrad__limit_search *search, int moved) {
    const struct sgrad__memory_use use = search->use(search->arg, moved);
    return search->bytes - use.other >= fmax(use.evaluation, 1);
}

double sgrad__limit_predict(const struct sgrad__limit_search *search, int moved) {
    const struct sgrad_program_options o = options_with(search, moved);
    return is_possible(search, moved) ? sgrad__program_predict(search->graph, &o) : INFINITY;
}

/* ---- homes ---- */

/* Sets MOVED[level] to the number of homes that have about level / LEVELS of the bytes of the first MOST ones. */
static void divide(const struct sgrad__limit_search *search, int most, int moved[LEVELS + 1]) {
    struct sgrad__homes homes = sgrad__homes_find(search->options.training);
    const double all = sgrad__homes_bytes(&homes, 0, most);
    for (int level = 0, n = 0; level <= LEVELS; moved[level++] = n)
        while (n < most && sgrad__homes_bytes(&homes, 0, n) < level * all / LEVELS) n++;
    sgrad__homes_free(&homes);
}

/* Returns the number of homes in the file, at most MOST: as few as possible, unless a step is predicted to be faster with more;
 * -1: the limit is too low. */
static int choose_homes(const struct sgrad__limit_search *search, int most) {
    int moved[LEVELS + 1], low = -1, high = 0;      /* LOW is too little, HIGH suffices */
    divide(search, most, moved);
    double seconds = sgrad__limit_predict(search, 0);
    if (!most) return seconds < INFINITY ? 0 : -1;
    if (!(seconds < INFINITY)) {
        low = 0, high = LEVELS;
        seconds = sgrad__limit_predict(search, moved[LEVELS]);
        if (!(seconds < INFINITY)) return -1;
    }
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const double with_middle = sgrad__limit_predict(search, moved[middle]);
        if (with_middle < INFINITY) high = middle, seconds = with_middle;
        else low = middle;
    }
    while (seconds > 0 && high < LEVELS) {
        const double with_more = sgrad__limit_predict(search, moved[high + 1]);
        if (with_more >= SAVES * seconds) break;
        seconds = with_more, high++;
    }
    return moved[high];
}

/* ---- recomputation ---- */

double *sgrad__limit_marks(const struct sgrad_graph *graph) {
    double *marks = sgrad_xcalloc((size_t)graph->node_count + 1, sizeof *marks);
    for (int n = 0; n < graph->node_count; n++) marks[n] = graph->node[n].again;
    return marks;
}

void sgrad__limit_set_marks(struct sgrad_graph *graph, const double *marks) {
    for (int n = 0; n < graph->node_count; n++) graph->node[n].again = marks[n] > 0;
}

/* Marks layers as recomputed, if a step with MOVED homes is then faster or only then fits. */
static struct sgrad__recomputation recompute(const struct sgrad__limit_search *search, int moved) {
    const struct sgrad_program_options o = options_with(search, moved);
    double *before = sgrad__limit_marks(search->graph);
    struct sgrad__recomputation is = sgrad__program_choose_recomputed(search->graph, &o);
    if (is.layers && !(sgrad__limit_predict(search, moved) < INFINITY)) {
        sgrad__limit_set_marks(search->graph, before);
        is = (struct sgrad__recomputation){ 0 };
    }
    free(before);
    return is;
}

/* ---- both ---- */

struct sgrad__limit_choice sgrad__limit_choose(const struct sgrad__limit_search *search) {
    struct sgrad__limit_choice choice = { .moved = choose_homes(search, search->most) };
    const bool fits = choice.moved >= 0;
    if (!fits) choice.moved = search->most;
    const bool compares = search->options.limit.spills && !search->options.limit.gpu;
    if (search->recomputes && is_possible(search, choice.moved) && (!fits || compares))
        choice.recomputation = recompute(search, choice.moved);
    if (!fits && !choice.recomputation.layers) return (struct sgrad__limit_choice){ .moved = -1 };
    if (choice.recomputation.layers && choice.moved && !search->layers_may_be_dropped) {
        const int fewer = choose_homes(search, choice.moved);
        if (fewer >= 0) choice.moved = fewer;
    }
    return choice;
}

double sgrad__limit_least(const struct sgrad__limit_search *search, double *other) {
    struct sgrad__homes homes = sgrad__homes_find(search->options.training);
    const int all[] = { 0, homes.states, homes.count };
    double *before = sgrad__limit_marks(search->graph), least = INFINITY;
    sgrad__homes_free(&homes);
    for (int again = !search->recomputes; again < 2; again++) {
        if (again && search->recomputes) sgrad__graph_recompute_blocks(search->graph);
        for (int i = 0; i < 3 && all[i] <= search->most; i++) {
            const struct sgrad_program_options o = options_with(search, all[i]);
            const struct sgrad__memory_use use = search->use(search->arg, all[i]);
            const double bytes = use.other + fmax(sgrad__program_least_memory(search->graph, &o), use.evaluation);
            if (bytes < least) least = bytes, *other = use.other;
        }
    }
    sgrad__limit_set_marks(search->graph, before);
    free(before);
    return least;
}
