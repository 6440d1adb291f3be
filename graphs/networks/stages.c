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

bool sgrad__graph_takes(const struct sgrad_graph *g, int value, int stage) {
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->node[n].is.inputs && g->node[n].stage == stage && !g->node[n].is.view_of_input; i++)
            if (g->value[g->node[n].input[i]].root == value) return true;
    return false;
}

bool sgrad__parameter_on(const struct sgrad_graph *g, const struct sgrad__parameter *p, int rank) {
    return g->stages == 1 || p->stages >> sgrad__stage_of(g, rank) & 1;
}

int sgrad__stage_of(const struct sgrad_graph *g, int rank) {
    const struct sgrad_axis *axis = sgrad_mesh_axis(&g->mesh, SGRAD__PIPE);
    return g->stages == 1 ? 0 : sgrad_mesh_place(&g->mesh, sgrad_mesh_bit(&g->mesh, axis), rank);
}

/* ---- costs ---- */

/* Returns the seconds for the forward and backward pass of a sample through a node. */
static double node_seconds(const struct sgrad__node *n) {
    enum { PASSES = 3 };
    if (n->is.view_of_input) return 0;
    double bytes = (double)sgrad_view_bytes(&n->is.y);
    for (int i = 0; i < n->is.inputs; i++) bytes += (double)sgrad_view_bytes(&n->is.x[i]);
    return PASSES * (sgrad__node_work(n).flops / FLOPS + bytes / BYTES);
}

/* Adds, for each node, the bytes of a sample's values that earlier nodes compute and that it or later nodes use. */
static void add_crossing(const struct sgrad_graph *g, double *crossing) {
    for (int v = 0; v < g->value_count; v++) {
        const struct sgrad__value *is = &g->value[v];
        int last = -1;
        for (int n = g->node_count - 1; n > is->maker && last < 0; n--)
            for (int i = 0; i < g->node[n].is.inputs; i++)
                if (g->value[g->node[n].input[i]].root == v) last = n;
        for (int n = is->maker + 1; n <= last && is->maker >= 0 && is->root == v; n++)
            crossing[n] += (double)sgrad_view_bytes(&is->view);
    }
}

/* Returns true if the node has parameters. Every stage must have such a node. */
static bool is_layer(const struct sgrad__node *n) { return n->is.p[0].name; }

/* ---- cutting ---- */

struct cutter {
    const struct sgrad_graph *graph;
    int nodes, *layers;         /* number of layers before each node */
    double *before, *crossing;  /* by node: seconds of all nodes before it; bytes sent if a stage begins with it */
};

static struct cutter open_cutter(const struct sgrad_graph *g) {
    const size_t count = (size_t)g->node_count + 1;
    struct cutter c = { g, g->node_count, sgrad_xcalloc(count, sizeof *c.layers), sgrad_xcalloc(count, sizeof *c.before),
                        sgrad_xcalloc(count, sizeof *c.crossing) };
    for (int n = 0; n < c.nodes; n++) {
        c.layers[n + 1] = c.layers[n] + is_layer(&g->node[n]);
        c.before[n + 1] = c.before[n] + node_seconds(&g->node[n]);
    }
    add_crossing(g, c.crossing);
    return c;
}

static void close_cutter(struct cutter *c) {
    free(c->layers);
    free(c->before);
    free(c->crossing);
}

/* Returns the seconds of a stage of nodes FROM to TO - 1; DBL_MAX: it has no layer with parameters. */
static double stage_seconds(const struct cutter *c, int from, int to) {
    enum { WAYS = 2 };          /* values, and their gradients */
    if (c->layers[to] == c->layers[from]) return DBL_MAX;
    return c->before[to] - c->before[from] + WAYS * (c->crossing[from] + c->crossing[to]) / LINK;
}

/* Sets FIRST to the first node of each of STAGES stages: the slowest one is as fast as possible and, among such divisions, the
 * fewest bytes are sent. */
static void cut(const struct cutter *c, int stages, int *first) {
    struct best { double slowest, sent; int from; };
    const size_t width = (size_t)c->nodes + 1;
    struct best *best = sgrad_xcalloc((size_t)(stages + 1) * width, sizeof *best);
    for (size_t i = 0; i < (size_t)(stages + 1) * width; i++) best[i] = (struct best){ DBL_MAX, 0, 0 };
    best[0].slowest = 0;
    for (int s = 1; s <= stages; s++)
        for (int to = 1; to <= c->nodes; to++)
            for (int from = 0; from < to; from++) {
                const struct best *before = &best[(size_t)(s - 1) * width + (size_t)from];
                struct best *at = &best[(size_t)s * width + (size_t)to];
                double slowest = stage_seconds(c, from, to);
                const double sent = before->sent + c->crossing[from];
                if (slowest == DBL_MAX || before->slowest == DBL_MAX) continue;
                if (before->slowest > slowest) slowest = before->slowest;
                if (slowest < at->slowest || (slowest == at->slowest && sent < at->sent))
                    *at = (struct best){ slowest, sent, from };
            }
    for (int s = stages, to = c->nodes; s > 0; s--) to = first[s - 1] = best[(size_t)s * width + (size_t)to].from;
    free(best);
}

/* Sets the stages that use each parameter. */
static void place_parameters(struct sgrad_graph *g) {
    for (struct sgrad__node *n = g->node; n < g->node + g->node_count; n++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
            if (n->p[i] >= 0) g->parameter[n->p[i]].stages |= UINT64_C(1) << n->stage;
            if (n->s[i] >= 0) g->parameter[n->s[i]].stages |= UINT64_C(1) << n->stage;
        }
}

int sgrad__graph_cut(struct sgrad_graph *g, int stages) {
    struct cutter c = open_cutter(g);
    const int layers = c.layers[c.nodes], most = layers < SGRAD__STAGES_MOST ? layers : SGRAD__STAGES_MOST;
    int first[SGRAD__STAGES_MOST + 1];
    if (stages > most) {
        close_cutter(&c);
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s=%d: %s has %d %s with parameters, for %d stages at most: %s=%d",
                               SGRAD__PIPE, stages, g->model ? g->model->name : "the network", layers,
                               sgrad_plural(layers, "layer", "layers"), most, SGRAD__PIPE, most);
    }
    cut(&c, stages, first);
    first[stages] = g->node_count;
    for (int s = 0; s < stages; s++)
        for (int n = first[s]; n < first[s + 1]; n++) g->node[n].stage = s;
    g->stages = stages;
    place_parameters(g);
    close_cutter(&c);
    return 0;
}

struct sgrad__stage sgrad__stage(const struct sgrad_graph *g, int stage) {
    struct sgrad__stage is = { .first = -1 };
    for (int n = 0; n < g->node_count; n++) {
        if (g->node[n].stage != stage) continue;
        if (is.first < 0) is.first = n;
        is.last = n;
        is.seconds += node_seconds(&g->node[n]);
    }
    return is;
}
