/* blocks.c: which layers keep nothing for backward.
 *
 * A block is what lies between two values that are kept. What it makes inside is there twice, for a short time each: while
 * forward passes, and when backward comes to it.
 *
 *     block        │ conv1  bn1  conv2  bn2 │ conv1  bn1  conv2  bn2 │ pool  fc  loss
 *     kept       images                    bn2                      bn2    all that follows
 *     again          conv1  bn1  conv2        conv1  bn1  conv2
 *
 * What follows the last block is kept: backward begins with it.
 *
 * A network that names no blocks is cut into such as hold at most some number of bytes, the best of some numbers: fewer blocks
 * keep less between them, and need more at once. Equal layers in a row come out as about as many blocks as each has layers.
 * (T. Chen, B. Xu, C. Zhang, C. Guestrin: Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174, algorithm 3.) */
#include "graphs/networks/graph.h"

#include <stdlib.h>

/* One that prepares inputs leaves what is there for steps to come; and what moves between ranks moves once. */
static bool computes_once(const struct sgrad__node *node) { return sgrad__graph_prepares(node) || node->is.axis; }

/* The layer that makes VALUE's memory; NULL: none does, or one that computes it once. */
static struct sgrad__node *maker_of(struct sgrad_graph *g, int value) {
    if (g->error || value < 0 || value >= g->value_count) return NULL;
    const int maker = g->value[g->value[value].root].maker;
    return maker < 0 || computes_once(&g->node[maker]) ? NULL : &g->node[maker];
}

void sgrad_graph_recompute(struct sgrad_graph *g, int value) {
    struct sgrad__node *node = maker_of(g, value);
    if (node) node->again = true;
}

int sgrad_graph_block(struct sgrad_graph *g, int value) {
    struct sgrad__node *node = maker_of(g, value);
    if (node) node->ends_block = true;
    return value;
}

/* What a layer leaves of a sample. */
static double bytes_of(const struct sgrad__node *n) {
    double bytes = n->output < 0 || n->is.view_of_input || sgrad__graph_prepares(n) ? 0 : (double)sgrad_view_bytes(&n->is.y);
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && n->is.keep[i].shape.rank; i++) bytes += (double)sgrad_view_bytes(&n->is.keep[i]);
    return bytes;
}

/* Ends a block with the first layer that would exceed BUDGET bytes inside it. Returns what is in memory at most: all ends and the
 * largest inside, that of what follows the last block among them. */
static double cut(struct sgrad_graph *g, double budget) {
    double ends = 0, inside = 0, largest = 0;
    for (int n = 0; n < g->node_count; n++) {
        const double bytes = bytes_of(&g->node[n]);
        g->node[n].ends_block = bytes > 0 && inside + bytes > budget;
        if (g->node[n].ends_block) ends += bytes, inside = 0;
        else inside += bytes;
        if (largest < inside) largest = inside;
    }
    return ends + largest;
}

static void cut_best(struct sgrad_graph *g) {
    double all = 0, best = 0, least = 0;
    for (int n = 0; n < g->node_count; n++) all += bytes_of(&g->node[n]);
    for (int parts = 1; parts <= g->node_count; parts++) {
        const double bytes = cut(g, all / parts);
        if (parts == 1 || bytes < least) least = bytes, best = all / parts;
    }
    cut(g, best);
}

int sgrad__graph_recompute_blocks(struct sgrad_graph *g) {
    int last = -1, count = 0;
    for (int pass = 0; pass < 2 && last < 0; pass++) {
        if (pass) cut_best(g);
        for (int n = 0; n < g->node_count; n++)
            if (g->node[n].ends_block) last = n;
    }
    for (int n = 0; n < last; n++)
        if (!g->node[n].ends_block && !computes_once(&g->node[n])) g->node[n].again = true;
    for (int n = 0; n < g->node_count; n++) count += g->node[n].again && bytes_of(&g->node[n]) > 0;
    return count;
}
