/* homes.c: large tensors of a training, some of which live in the file of --spill: which ones, and how many. passes/spill.c moves
 * copies of them to memory while tasks use them. */
#include "graphs/compiler/program.h"
#include "graphs/compiler/training.h"

#include <math.h>
#include <stdlib.h>

/* Appends TENSOR, if it is large. */
static void add_home(struct sgrad__homes *homes, struct sgrad_tensor *tensor) {
    if (!tensor || sgrad_view_bytes(&tensor->view) < SGRAD__SMALLEST_MOVE) return;
    homes->tensor = sgrad_array_grow(homes->tensor, homes->count, sizeof *homes->tensor);
    homes->tensor[homes->count++] = tensor;
}

/* The last layers come first: their states are updated at the start of the backward pass, and their weights are used by it soon
 * after the forward pass, so that the disk works during the whole backward pass. */
struct sgrad__homes sgrad__homes_find(const struct sgrad__training *training) {
    struct sgrad__homes homes = { 0 };
    const int count = training->graph->parameter_count;
    for (int i = count; i-- > 0;) {
        const struct sgrad__update *update = &training->update[i];
        for (int k = 0; update->state && update->state[k]; k++) add_home(&homes, update->state[k]);
        add_home(&homes, update->average);
    }
    homes.states = homes.count;
    for (int i = count; i-- > 0;) {
        const struct sgrad__update *update = &training->update[i];
        const bool passed = training->sharers || update->ranks || update->slow;     /* messages, or some steps, use its value */
        if (!passed) add_home(&homes, training->graph->parameter[i].tensor);
    }
    return homes;
}

void sgrad__homes_free(struct sgrad__homes *homes) { free(homes->tensor); }

double sgrad__homes_bytes(const struct sgrad__homes *homes, int first, int end) {
    double bytes = 0;
    for (int i = first; i < end; i++) bytes += (double)sgrad_view_bytes(&homes->tensor[i]->view);
    return bytes;
}

/* ---- how many ---- */

enum { LEVELS = 16 };
#define SAVES 0.99      /* times the predicted seconds: worth a move of more bytes */

/* Sets MOVED[level] to the number of homes that have about level / LEVELS of the bytes of the first MOST ones. */
static void divide(const struct sgrad__training *training, int most, int moved[LEVELS + 1]) {
    struct sgrad__homes homes = sgrad__homes_find(training);
    const double all = sgrad__homes_bytes(&homes, 0, most);
    for (int level = 0, n = 0; level <= LEVELS; moved[level++] = n)
        while (n < most && sgrad__homes_bytes(&homes, 0, n) < level * all / LEVELS) n++;
    sgrad__homes_free(&homes);
}

int sgrad__homes_choose(const struct sgrad__training *training, int most, double (*predicted)(void *arg, int moved),
                        void *arg) {
    int moved[LEVELS + 1], low = -1, high = 0;      /* LOW is too little, HIGH suffices */
    divide(training, most, moved);
    double seconds = predicted(arg, 0);
    if (!most) return seconds < INFINITY ? 0 : -1;
    if (!(seconds < INFINITY)) {
        low = 0, high = LEVELS;
        seconds = predicted(arg, moved[LEVELS]);
        if (!(seconds < INFINITY)) return -1;
    }
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const double with_middle = predicted(arg, moved[middle]);
        if (with_middle < INFINITY) high = middle, seconds = with_middle;
        else low = middle;
    }
    while (seconds > 0 && high < LEVELS) {
        const double with_more = predicted(arg, moved[high + 1]);
        if (with_more >= SAVES * seconds) break;
        seconds = with_more, high++;
    }
    return moved[high];
}
