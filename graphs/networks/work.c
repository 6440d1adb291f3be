/* work.c: computes the work of a network's forward pass, for one sample. */
#include "graphs/networks/graph.h"

/* Returns the view of operand USE of a task of NODE, for one sample. */
static struct sgrad_view view_of(const struct sgrad__node *node, struct sgrad_use use) {
    const struct sgrad_signature *is = &node->is;
    switch (use.role) {
    case SGRAD_X: return is->x[use.index];
    case SGRAD_Y: return is->y;
    case SGRAD_P: return (struct sgrad_view){ SGRAD_F32, is->p[use.index].shape };
    case SGRAD_SAVED: return is->saved[use.index];
    case SGRAD_SHARD: return is->shard;
    case SGRAD_PARTIAL: return (struct sgrad_view){ SGRAD_F64, is->partial[use.index] };
    default: return (struct sgrad_view){ .shape.rank = 0 };
    }
}

struct sgrad__work sgrad__node_work(const struct sgrad__node *node) {
    struct sgrad__work work = { 0 };
    for (const struct sgrad_task *t = node->op->forward; t < node->op->forward + SGRAD_MAX_TASKS && t->kernel.name; t++) {
        struct sgrad_view view[SGRAD_MAX_OPERANDS];
        int operands = 0;
        for (; operands < SGRAD_MAX_OPERANDS && t->use[operands].role; operands++) {
            view[operands] = view_of(node, t->use[operands]);
            if (!view[operands].shape.rank) view[operands].shape.rank = -1;
        }
        const struct sgrad_args args = { .view = view, .attrs = node->attrs };
        const int turns = t->ring && node->is.axis ? node->is.axis->ranks : 1;
        const double flops = turns * sgrad_kernel_flops(&t->kernel, &args),
                     bytes = turns * sgrad_kernel_bytes(&t->kernel, &args, operands);
        if (t->scope != SGRAD_MICRO || node->is.view_of_input) continue;
        work.flops += flops, work.bytes += bytes;
        work.layers += flops > bytes;
    }
    return work;
}

struct sgrad__work sgrad__graph_work(const struct sgrad_graph *graph) {
    struct sgrad__work work = { 0 };
    for (const struct sgrad__node *n = graph->node; n < graph->node + graph->node_count; n++) {
        const struct sgrad__work own = sgrad__node_work(n);
        work.flops += own.flops;
        work.layers += own.layers;
    }
    return work;
}
