/* homes.c: large tensors of a training, some of which live in the file of --spill. limit_choice.c chooses how many, and
 * passes/spill.c moves copies of them to memory while tasks use them. */
#include "graphs/compiler/program.h"
#include "graphs/compiler/training.h"

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
