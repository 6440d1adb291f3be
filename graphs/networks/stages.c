/* stages.c: a network cut into stages, each some layers one after another, for other ranks along axis pipe.
 *
 *     conv1  bn1  conv2  bn2 │ conv3  bn3  conv4 │ bn4  pool  fc  loss        three stages, of about as much work
 *
 * Where it is cut is chosen by a model of a usual core and link, which knows no machine: a stage takes its layers' time and that
 * of sending what later stages take. No other cut leaves the slowest stage less (by dynamic programming, as cutting a chain of
 * work into runs is usually done: A. Harlap et al., PipeDream, 2018). A parameter is kept by the stages that use it.
 *
 * Limits: 64 stages; layers keep the order in which they were added. */
#include "graphs/networks/graph.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static const double FLOPS = 5e10, BYTES = 1e10, LINK = 1e9;     /* a second: of a core, in its memory, between ranks */

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

/* Seconds that a sample's forward and backward pass through a node take. */
static double node_seconds(const struct sgrad__node *n) {
    enum { PASSES = 3 };
    if (n->is.view_of_input) return 0;
    double bytes = (double)sgrad_view_bytes(&n->is.y);
    for (int i = 0; i < n->is.inputs; i++) bytes += (double)sgrad_view_bytes(&n->is.x[i]);
    return PASSES * (sgrad__node_work(n).flops / FLOPS + bytes / BYTES);
}

/* Bytes of a sample's values that are made before a node and taken by it or behind it, for each node. */
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

/* Nodes that have parameters of their own: no stage is without. */
static bool is_layer(const struct sgrad__node *n) { return n->is.p[0].name; }

/* ---- cutting ---- */

struct cutter {
    const struct sgrad_graph *graph;
    int nodes, *layers;         /* layers before a node */
    double *before, *crossing;  /* seconds of all nodes before one; bytes sent where a stage begins with it */
};

static struct cutter open_cutter(const struct sgrad_graph *g) {
    const size_t count = (size_t)g->node_count + 1;
    struct cutter c = { g, g->node_count, sgrad_alloc(count, sizeof *c.layers), sgrad_alloc(count, sizeof *c.before),
                        sgrad_alloc(count, sizeof *c.crossing) };
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

/* Of a stage of nodes FROM to TO - 1; infinite, where it is none. */
static double stage_seconds(const struct cutter *c, int from, int to) {
    enum { WAYS = 2 };          /* values, and their gradients */
    if (c->layers[to] == c->layers[from]) return DBL_MAX;
    return c->before[to] - c->before[from] + WAYS * (c->crossing[from] + c->crossing[to]) / LINK;
}

/* The first node of each of STAGES stages, of which the slowest is as fast as can be, and, of such cuts, least is sent. */
static void cut(const struct cutter *c, int stages, int *first) {
    struct best { double slowest, sent; int from; };
    const size_t width = (size_t)c->nodes + 1;
    struct best *best = sgrad_alloc((size_t)(stages + 1) * width, sizeof *best);
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

/* Of a parameter which stages use it. */
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
        return sgrad_fail(SGRAD_EINVAL, "mesh %s=%d: %s has %d %s with parameters, for %d stages at most: %s=%d", SGRAD__PIPE,
                          stages, g->model ? g->model->name : "the network", layers, sgrad_plural(layers, "layer", "layers"),
                          most, SGRAD__PIPE, most);
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
