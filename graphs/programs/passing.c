/* passing.c: what forward makes and backward makes again, in passing, so that it needs no memory in between.
 *
 *     forward     batchnorm   x ──> y          conv2d   y ──> z                            y is not kept
 *     backward    batchnorm   x ──> y, and, while it is in the cache, conv2d's tasks, which take it                    */
#include "graphs/programs/builder.h"

#include <stdlib.h>

/* Nodes whose output a task of backward that takes it makes again, in passing, rather than that it goes to memory and back: where
 * one alone takes it, which tasks of several operations do together (fuse.c; a third of a residual network's traffic). */
bool *sgrad__made_in_passing(const struct sgrad__builder *b) {
    enum { ELSEWHERE = 2 };     /* it is needed, whatever its taker does */
    const struct sgrad_graph *g = b->g;
    bool *passing = sgrad_alloc((size_t)g->node_count, sizeof *passing);
    int *takers = sgrad_alloc((size_t)g->value_count, sizeof *takers);
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n].is.inputs && !g->node[n].is.view_of_input; i++)
            takers[g->value[g->node[n].input[i]].root] += sgrad__is_here(b, n) ? 1 : ELSEWHERE;
    for (int n = 0; n < g->node_count && b->o->fuse && b->p->training && !b->o->cudas; n++) {
        const struct sgrad__node *node = &g->node[n];
        const int maker = node->is.inputs ? g->value[g->value[node->input[0]].root].maker : -1;
        passing[n] = node->is.passing && takers[g->value[node->output].root] == 1 && (maker < 0 || !passing[maker]);
    }
    free(takers);
    return passing;
}
