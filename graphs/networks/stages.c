/* stages.c: divides a network into stages of consecutive layers, for the ranks along axis pipe.
 *
 *     conv1  bn1  conv2  bn2 │ conv3  bn3  conv4 │ bn4  pool  fc  loss        three stages, with about equal work
 *
 * The boundaries are chosen with a cost model of a typical core and link, which does not depend on the machine. A stage costs the
 * time of its layers, and that of sending the values that later stages use. No other division has a faster slowest stage (by
 * dynamic programming, the usual method for dividing a chain of work into runs: A. Harlap et al., PipeDream, 2018). A parameter
 * is stored by the stages that use it.
 *
 * Limits: 64 stages; layers remain in the order in which they were added. */
#include "graphs/networks/graph.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static const double FLOPS = 5e10, BYTES = 1e10, LINK = 1e9;     /* per second: flops of a core; bytes of memory; of a link */

bool sgrad__graph_takes(const struct sgrad_graph *graph, int value, int stage) {
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0; i < graph->node[n].is.inputs && graph->node[n].stage == stage && !graph->node[n].is.view_of_input; i++)
            if (graph->value[graph->node[n].input[i]].root == value) return true;
    return false;
}

bool sgrad__parameter_on(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank) {
    return graph->stages == 1 || parameter->stages >> sgrad__stage_of(graph, rank) & 1;
}

int sgrad__stage_of(const struct sgrad_graph *graph, int rank) {
    const struct sgrad_axis *axis = sgrad_mesh_axis(&graph->mesh, SGRAD__PIPE);
    return graph->stages == 1 ? 0 : sgrad_mesh_index(&graph->mesh, sgrad_mesh_bit(&graph->mesh, axis), rank);
}

/* ---- costs ---- */

/* Returns the seconds for the forward and backward pass of a sample through a node. */
static double node_seconds(const struct sgrad__node *node) {
    enum { PASSES = 3 };
    if (node->is.view_of_input) return 0;
    double bytes = (double)sgrad_view_bytes(&node->is.y);
    for (int i = 0; i < node->is.inputs; i++) bytes += (double)sgrad_view_bytes(&node->is.x[i]);
    return PASSES * (sgrad__node_work(node).flops / FLOPS + bytes / BYTES);
}

/* Adds, for each node, the bytes of a sample's values that earlier nodes compute and that it or later nodes use. */
static void add_crossing(const struct sgrad_graph *graph, double *crossing) {
    for (int v = 0; v < graph->value_count; v++) {
        const struct sgrad__value *is = &graph->value[v];
        int last = -1;
        for (int n = graph->node_count - 1; n > is->maker && last < 0; n--)
            for (int i = 0; i < graph->node[n].is.inputs; i++)
                if (graph->value[graph->node[n].input[i]].root == v) last = n;
        for (int n = is->maker + 1; n <= last && is->maker >= 0 && is->root == v; n++)
            crossing[n] += (double)sgrad_view_bytes(&is->view);
    }
}

/* Returns true if the node has parameters. Every stage must have such a node. */
static bool is_layer(const struct sgrad__node *node) { return node->is.p[0].name; }

/* ---- cutting ---- */

struct cutter {
    const struct sgrad_graph *graph;
    int nodes, *layers;         /* number of layers before each node */
    double *before, *crossing;  /* by node: seconds of all nodes before it; bytes sent if a stage begins with it */
};

static struct cutter open_cutter(const struct sgrad_graph *graph) {
    const size_t count = (size_t)graph->node_count + 1;
    struct cutter c = { graph, graph->node_count, sgrad_xcalloc(count, sizeof *c.layers), sgrad_xcalloc(count, sizeof *c.before),
                        sgrad_xcalloc(count, sizeof *c.crossing) };
    for (int n = 0; n < c.nodes; n++) {
        c.layers[n + 1] = c.layers[n] + is_layer(&graph->node[n]);
        c.before[n + 1] = c.before[n] + node_seconds(&graph->node[n]);
    }
    add_crossing(graph, c.crossing);
    return c;
}

static void close_cutter(struct cutter *cutter) {
    free(cutter->layers);
    free(cutter->before);
    free(cutter->crossing);
}

/* Returns the seconds of a stage of nodes FROM to TO - 1; DBL_MAX: it has no layer with parameters. */
static double stage_seconds(const struct cutter *cutter, int from, int to) {
    enum { WAYS = 2 };          /* values, and their gradients */
    if (cutter->layers[to] == cutter->layers[from]) return DBL_MAX;
    return cutter->before[to] - cutter->before[from] + WAYS * (cutter->crossing[from] + cutter->crossing[to]) / LINK;
}

/* Sets FIRST to the first node of each of STAGES stages: the slowest one is as fast as possible and, among such divisions, the
 * fewest bytes are sent. */
static void cut(const struct cutter *cutter, int stages, int *first) {
    struct best { double slowest, sent; int from; };
    const size_t width = (size_t)cutter->nodes + 1;
    struct best *best = sgrad_xcalloc((size_t)(stages + 1) * width, sizeof *best);
    for (size_t i = 0; i < (size_t)(stages + 1) * width; i++) best[i] = (struct best){ DBL_MAX, 0, 0 };
    best[0].slowest = 0;
    for (int s = 1; s <= stages; s++)
        for (int to = 1; to <= cutter->nodes; to++)
            for (int from = 0; from < to; from++) {
                const struct best *before = &best[(size_t)(s - 1) * width + (size_t)from];
                struct best *at = &best[(size_t)s * width + (size_t)to];
                double slowest = stage_seconds(cutter, from, to);
                const double sent = before->sent + cutter->crossing[from];
                if (slowest == DBL_MAX || before->slowest == DBL_MAX) continue;
                if (before->slowest > slowest) slowest = before->slowest;
                if (slowest < at->slowest || (slowest == at->slowest && sent < at->sent))
                    *at = (struct best){ slowest, sent, from };
            }
    for (int s = stages, to = cutter->nodes; s > 0; s--) to = first[s - 1] = best[(size_t)s * width + (size_t)to].from;
    free(best);
}

/* Sets the stages that use each parameter. */
static void place_parameters(struct sgrad_graph *graph) {
    for (struct sgrad__node *n = graph->node; n < graph->node + graph->node_count; n++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
            if (n->p[i] >= 0) graph->parameter[n->p[i]].stages |= UINT64_C(1) << n->stage;
            if (n->s[i] >= 0) graph->parameter[n->s[i]].stages |= UINT64_C(1) << n->stage;
        }
}

int sgrad__graph_cut(struct sgrad_graph *graph, int stages) {
    struct cutter c = open_cutter(graph);
    const int layers = c.layers[c.nodes], most = layers < SGRAD__STAGES_MOST ? layers : SGRAD__STAGES_MOST;
    int first[SGRAD__STAGES_MOST + 1];
    if (stages > most) {
        close_cutter(&c);
        return sgrad_log_error(SGRAD_EINVAL,
                               "mesh %s=%d: %s has %d %s with parameters, so at most %d stages are possible; use %s=%d",
                               SGRAD__PIPE, stages, graph->model ? graph->model->name : "the network", layers,
                               sgrad_plural(layers, "layer", "layers"), most, SGRAD__PIPE, most);
    }
    cut(&c, stages, first);
    first[stages] = graph->node_count;
    for (int s = 0; s < stages; s++)
        for (int n = first[s]; n < first[s + 1]; n++) graph->node[n].stage = s;
    graph->stages = stages;
    place_parameters(graph);
    close_cutter(&c);
    return 0;
}

struct sgrad__stage sgrad__stage(const struct sgrad_graph *graph, int stage) {
    struct sgrad__stage is = { .first = -1 };
    for (int n = 0; n < graph->node_count; n++) {
        if (graph->node[n].stage != stage) continue;
        if (is.first < 0) is.first = n;
        is.last = n;
        is.seconds += node_seconds(&graph->node[n]);
    }
    return is;
}
