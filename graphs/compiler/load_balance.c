/* load_balance.c: assigns work that one rank does for several ranks, by cost, in particular updates of whole parameters.
 *
 * An optimizer with expensive updates, such as muon with its matrix products, should not do each of them on every rank. Two
 * ranks, parameters a to d, of which a is the most expensive:
 *
 *     rank 0   sums of gradients   a   ·   ·   d    update ─┐ all_     ┌─ weights a b c d
 *     rank 1   sums of gradients   ·   b   c   ·    update ─┘ gather   └─ weights a b c d
 *
 * Every rank has the sum of a gradient (sync), or only the rank that uses it (shard): see buckets.c. The rank that updates a
 * parameter stores its states. */
#include "graphs/compiler/program.h"

#include <math.h>
#include <stdlib.h>

void sgrad_lpt_assign(const double *size, int count, int *bin, int step, int bins, double *load) {
    bool *assigned = sgrad_xcalloc((size_t)count + 1, sizeof *assigned);
    for (int i = 0; i < count; i++) {
        int largest = -1;
        for (int j = 0; j < count; j++)
            if (!assigned[j] && (largest < 0 || size[j] > size[largest])) largest = j;
        int least = bin[largest];
        for (int at = least; at < bins; at += step)
            if (load[at] < load[least]) least = at;
        assigned[largest] = true;
        load[least] += size[largest];
        bin[largest] = least;
    }
    free(assigned);
}

/* ---- updates ---- */

/* Returns the operations of an update of PARAMETER, an index. */
static double flops_of(const struct sgrad__training *training, int parameter) {
    const struct sgrad__update *update = &training->update[parameter];
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    for (int i = 0; i < SGRAD_MAX_OPERANDS; i++)
        view[i] = (struct sgrad_view){ SGRAD_F32, training->graph->parameter[parameter].kept_shape };
    return sgrad_kernel_flops(update->optimizer->update, &(struct sgrad_args){ .view = view, .attrs = &update->hyper });
}

/* Assigns those WANTED updates whose parameters are used by exactly the stages STAGES to the ranks of GROUP. */
static void assign_within(struct sgrad__training *training, const bool *wanted, uint64_t stages, struct sgrad_group group) {
    const struct sgrad_graph *graph = training->graph;
    double *size = sgrad_xcalloc((size_t)graph->parameter_count, sizeof *size);
    double *load = sgrad_xcalloc((size_t)group.count, sizeof *load);
    int *bin = sgrad_xcalloc((size_t)graph->parameter_count, sizeof *bin);
    int *which = sgrad_xcalloc((size_t)graph->parameter_count, sizeof *which);
    int count = 0;
    for (int i = 0; i < graph->parameter_count; i++)
        if (wanted[i] && graph->parameter[i].stages == stages) {
            size[count] = flops_of(training, i);
            which[count++] = i;
        }
    sgrad_lpt_assign(size, count, bin, 1, group.count, load);
    for (int i = 0; i < count; i++) {
        training->update[which[i]].ranks = group.count;
        training->update[which[i]].owner = group.rank[bin[i]];
    }
    free(which);
    free(bin);
    free(load);
    free(size);
}

void sgrad__assign_updates(struct sgrad__training *training, const struct sgrad_program_options *options, const bool *wanted) {
    const struct sgrad_graph *graph = training->graph;
    int *member = sgrad_xcalloc((size_t)sgrad__peer_count(options), sizeof *member);
    for (int i = 0; i < graph->parameter_count; i++) {
        const struct sgrad__parameter *parameter = &graph->parameter[i];
        if (!wanted[i] || training->update[i].ranks) continue;
        const struct sgrad_group group =
            graph->mesh.axes ? sgrad__holders(graph, parameter, options->rank, member) : *options->peers;
        if (group.count > 1) assign_within(training, wanted, parameter->stages, group);
    }
    free(member);
}

/* Adds the flops of all assigned updates to *ALL. Returns those of the rank that has the most. */
static double most_of(const struct sgrad__training *training, const struct sgrad_program_options *options, double *all) {
    const int ranks = sgrad__peer_count(options);
    double *load = sgrad_xcalloc((size_t)ranks, sizeof *load), most = 0;
    for (int i = 0; i < training->graph->parameter_count; i++) {
        const struct sgrad__update *update = &training->update[i];
        if (update->ranks) load[sgrad_group_index(options->peers, update->owner)] += flops_of(training, i);
    }
    for (int i = 0; i < ranks; i++) {
        *all += load[i];
        most = fmax(most, load[i]);
    }
    free(load);
    return most;
}

char *sgrad__assignment_text(const struct sgrad__training *training, const struct sgrad_program_options *options) {
    const struct sgrad_graph *graph = training->graph;
    char *text = NULL, shape[SGRAD_SHAPE_TEXT];
    size_t size;
    double all = 0;
    int count = 0;
    for (int i = 0; i < graph->parameter_count; i++) count += training->update[i].ranks > 0;
    if (!count) return NULL;
    const double most = most_of(training, options, &all);
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "updates    of %d %s distributed by cost: %.1f Mflop per step, at most %.1f of them on one rank\n", count,
            sgrad_plural(count, "parameter", "parameters"), 1e-6 * all, 1e-6 * most);
    fprintf(to, "parameters updated on one rank, which stores their states, and then gathered by the others:\n");
    for (int i = 0; i < graph->parameter_count; i++)
        if (training->update[i].ranks)
            fprintf(to, "  %-36s %-14s %8.1f Mflop, rank %d\n", graph->parameter[i].name,
                    sgrad_shape_text(&graph->parameter[i].kept_shape, shape), 1e-6 * flops_of(training, i),
                    training->update[i].owner);
    fclose(to);
    return text;
}
