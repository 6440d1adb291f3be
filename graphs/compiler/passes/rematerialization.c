/* rematerialization.c: selects results of forward that backward tasks recompute inline, so that they are not stored in between.
 *
 *     forward     batchnorm   x ──> y          conv2d   y ──> z                            y is not stored
 *     backward    batchnorm   x ──> y, and, while y is in the cache, the tasks of conv2d, which use it */
#include "graphs/compiler/builder.h"

#include <stdlib.h>

/* Selects nodes whose output is cheap to recompute and has one consumer: the backward tasks of the consumer recompute it, so that
 * it is not written to memory and read back (a third of the traffic of a residual network). Tasks must be fused (fuse.c). */
bool *sgrad__made_in_passing(const struct sgrad_builder *builder) {
    enum { ELSEWHERE = 2 };     /* another stage uses it, so it must be stored */
    const struct sgrad_graph *g = builder->g;
    bool *passing = sgrad_xcalloc((size_t)g->node_count, sizeof *passing);
    int *takers = sgrad_xcalloc((size_t)g->value_count, sizeof *takers);
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n].is.inputs && !g->node[n].is.view_of_input; i++)
            takers[g->value[g->node[n].input[i]].root] += sgrad__is_here(builder, n) ? 1 : ELSEWHERE;
    for (int n = 0; n < g->node_count && builder->o->fuse && builder->p->training && !builder->o->gpus; n++) {
        const struct sgrad__node *node = &g->node[n];
        const int maker = node->is.inputs ? g->value[g->value[node->input[0]].root].maker : -1;
        passing[n] = node->is.cheap_to_recompute && takers[g->value[node->output].root] == 1 && (maker < 0 || !passing[maker]);
    }
    free(takers);
    return passing;
}
