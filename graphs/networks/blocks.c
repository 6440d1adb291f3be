/* blocks.c: selects the layers that are recomputed in backward.
 *
 * A block is the layers between two values that are saved for backward. The results inside it exist twice, for a short time each:
 * during forward, and when backward reaches the block.
 *
 *     block        │ conv1  bn1  conv2  bn2 │ conv1  bn1  conv2  bn2 │ pool  fc  loss
 *     saved      images                    bn2                      bn2    all that follows
 *     recomputed     conv1  bn1  conv2        conv1  bn1  conv2
 *
 * The results after the last block are saved, because backward begins with them.
 *
 * A network that defines no blocks is divided into blocks of at most some number of bytes, the best of several numbers: fewer
 * blocks save less between them, but need more memory at once. A chain of equal layers is divided into about as many blocks as
 * each block has layers. (T. Chen, B. Xu, C. Zhang, C. Guestrin: Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174,
 * algorithm 3.) */
#include "graphs/networks/graph.h"

#include <stdlib.h>

/* Returns true if the node is never recomputed: it prepares inputs, which are stored for later steps, or moves values between
 * ranks. */
static bool computes_once(const struct sgrad__node *node) {
    return sgrad__graph_prepares(node) || node->is.axis || node->is.shard.shape.rank;
}

/* Returns the layer that computes VALUE, or the value that it is a view of; NULL: no layer, or it is never recomputed. */
static struct sgrad__node *maker_of(struct sgrad_graph *graph, int value) {
    if (graph->error || value < 0 || value >= graph->value_count) return NULL;
    const int maker = graph->value[graph->value[value].root].maker;
    return maker < 0 || computes_once(&graph->node[maker]) ? NULL : &graph->node[maker];
}

void sgrad_graph_recompute(struct sgrad_graph *graph, int value) {
    struct sgrad__node *node = maker_of(graph, value);
    if (node) node->again = true;
}

int sgrad_graph_block(struct sgrad_graph *graph, int value) {
    struct sgrad__node *node = maker_of(graph, value);
    if (node) node->ends_block = true;
    return value;
}

/* Returns the bytes that a layer stores per sample. */
static double bytes_of(const struct sgrad__node *node) {
    double bytes =
        node->output < 0 || node->is.view_of_input || sgrad__graph_prepares(node) ? 0 : (double)sgrad_view_bytes(&node->is.y);
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && node->is.saved[i].shape.rank; i++)
        bytes += (double)sgrad_view_bytes(&node->is.saved[i]);
    return bytes;
}

/* Ends a block with each layer that would exceed BUDGET bytes inside it. Returns the maximum bytes in memory: the ends of all
 * blocks and the largest inside, including that of the layers after the last block. */
static double cut(struct sgrad_graph *graph, double budget) {
    double ends = 0, inside = 0, largest = 0;
    for (int n = 0; n < graph->node_count; n++) {
        const double bytes = bytes_of(&graph->node[n]);
        graph->node[n].ends_block = bytes > 0 && inside + bytes > budget;
        if (graph->node[n].ends_block) ends += bytes, inside = 0;
        else inside += bytes;
        if (largest < inside) largest = inside;
    }
    return ends + largest;
}

static void cut_best(struct sgrad_graph *graph) {
    double all = 0, best = 0, least = 0;
    for (int n = 0; n < graph->node_count; n++) all += bytes_of(&graph->node[n]);
    for (int parts = 1; parts <= graph->node_count; parts++) {
        const double bytes = cut(graph, all / parts);
        if (parts == 1 || bytes < least) least = bytes, best = all / parts;
    }
    cut(graph, best);
}

bool *sgrad__graph_inside_blocks(struct sgrad_graph *graph) {
    bool *inside = sgrad_xcalloc((size_t)graph->node_count + 1, sizeof *inside);
    int last = -1;
    for (int pass = 0; pass < 2 && last < 0; pass++) {
        if (pass) cut_best(graph);
        for (int n = 0; n < graph->node_count; n++)
            if (graph->node[n].ends_block) last = n;
    }
    for (int n = 0; n < last; n++) inside[n] = !graph->node[n].ends_block && !computes_once(&graph->node[n]);
    return inside;
}

int sgrad__graph_recompute_blocks(struct sgrad_graph *graph) {
    bool *inside = sgrad__graph_inside_blocks(graph);
    int count = 0;
    for (int n = 0; n < graph->node_count; n++) {
        graph->node[n].again |= inside[n];
        count += graph->node[n].again && bytes_of(&graph->node[n]) > 0;
    }
    free(inside);
    return count;
}
