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

static double flops_of(const struct sgrad__parameter *p, const struct sgrad_program_options *o) {
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    for (int i = 0; i < SGRAD_MAX_OPERANDS; i++) view[i] = (struct sgrad_view){ SGRAD_F32, p->kept_shape };
    const struct sgrad_kernel *update = p->update ? p->update : o->optimizer->update;
    return sgrad_kernel_flops(update, &(struct sgrad_args){ .view = view, .attrs = &p->hyper });
}

/* Assigns those WANTED updates whose parameters are used by exactly the stages STAGES to the ranks of GROUP. */
static void assign_within(struct sgrad_graph *g, const struct sgrad_program_options *o, const bool *wanted, uint64_t stages,
                          struct sgrad_group group) {
    double *size = sgrad_xcalloc((size_t)g->parameter_count, sizeof *size);
    double *load = sgrad_xcalloc((size_t)group.count, sizeof *load);
    int *bin = sgrad_xcalloc((size_t)g->parameter_count, sizeof *bin);
    int *which = sgrad_xcalloc((size_t)g->parameter_count, sizeof *which);
    int count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (wanted[i] && g->parameter[i].stages == stages) {
            size[count] = flops_of(&g->parameter[i], o);
            which[count++] = i;
        }
    sgrad_lpt_assign(size, count, bin, 1, group.count, load);
    for (int i = 0; i < count; i++) {
        g->parameter[which[i]].dealt = group.count;
        g->parameter[which[i]].owner = group.rank[bin[i]];
    }
    free(which);
    free(bin);
    free(load);
    free(size);
}

bool sgrad__can_be_assigned(const struct sgrad_optimizer *is) {
    for (const struct sgrad_state *s = is->states; s && s->name; s++)
        if (s->shape) return false;
    return !is->keep && !is->update_all;
}

void sgrad__assign_updates(struct sgrad_graph *g, const struct sgrad_program_options *o, const bool *wanted) {
    int *member = sgrad_xcalloc((size_t)sgrad__peer_count(o), sizeof *member);
    for (int i = 0; i < g->parameter_count; i++) {
        const struct sgrad__parameter *p = &g->parameter[i];
        if (!wanted[i] || p->dealt) continue;
        const struct sgrad_group group = g->mesh.axes ? sgrad__holders(g, p, o->rank, member) : *o->peers;
        if (group.count > 1) assign_within(g, o, wanted, p->stages, group);
    }
    free(member);
}

/* Adds the flops of all assigned updates to *ALL. Returns those of the rank that has the most. */
static double most_of(const struct sgrad_graph *g, const struct sgrad_program_options *o, double *all) {
    const int ranks = sgrad__peer_count(o);
    double *load = sgrad_xcalloc((size_t)ranks, sizeof *load), most = 0;
    for (const struct sgrad__parameter *p = g->parameter; p < g->parameter + g->parameter_count; p++)
        if (p->dealt) load[sgrad_group_place(o->peers, p->owner)] += flops_of(p, o);
    for (int i = 0; i < ranks; i++) {
        *all += load[i];
        most = fmax(most, load[i]);
    }
    free(load);
    return most;
}

char *sgrad__assignment_text(const struct sgrad_graph *g, const struct sgrad_program_options *o) {
    char *text = NULL, shape[SGRAD_SHAPE_TEXT];
    size_t size;
    double all = 0;
    int count = 0;
    for (int i = 0; i < g->parameter_count; i++) count += g->parameter[i].dealt > 0;
    if (!count) return NULL;
    const double most = most_of(g, o, &all);
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "updates    of %d %s dealt out by cost: %.1f Mflop a step, %.1f of them the most that a rank has\n", count,
            sgrad_plural(count, "parameter", "parameters"), 1e-6 * all, 1e-6 * most);
    fprintf(to, "updated by one rank each, which has the states, and gathered:\n");
    for (const struct sgrad__parameter *p = g->parameter; p < g->parameter + g->parameter_count; p++)
        if (p->dealt) fprintf(to, "  %-36s %-14s %8.1f Mflop, rank %d\n", p->name, sgrad_shape_text(&p->kept_shape, shape),
                              1e-6 * flops_of(p, o), p->owner);
    fclose(to);
    return text;
}
