/* mesh_costs.c: estimates the cost of a step on a mesh before anything is executed. Collectives are estimated by the same cost
 * model that chooses their algorithms.
 *
 *     computing    the layers of a stage, for all its samples: the maximum of arithmetic and memory traffic; forward once,
 *                  backward twice
 *     sending      per micro-batch: communication of sharded layers, values between stages; once per step: gathered shards
 *                  of weights, summed gradients; each collective by its cheapest algorithm
 *     waiting      for other stages
 *
 * With M micro-batches, one computes while the values of another are sent: C of computing and S of sending take
 * max(C, S) + min(C, S)/M. Gradients are sent concurrently with the backward pass, except for the last eighth. The model is only
 * for comparisons of meshes: it ignores the scheduler, caches, and other jobs on the network. */
#include "graphs/costs/mesh_costs.h"

#include <math.h>
#include <stdlib.h>

enum { PASSES = 3, IN_A_PIPE = 4, USUAL = 32 };
enum { IN_A_RING = 5 };                     /* shards and their gradients in memory at a time (passes/memory.c) */
static const double BUCKETS = 6.0 / 24;     /* fraction of parameters that are gathered, and of gradients, at a time */

struct pricer {
    const struct sgrad_graph *graph;
    const struct sgrad__terms *is;
    int *member;                    /* buffer for the ranks of a group */
    int64_t share, micro, micros;   /* samples of a local batch; of a micro-batch; number of micro-batches */
};

static struct sgrad_group along(const struct pricer *pricer, unsigned axes, int rank) {
    return sgrad_mesh_group(&pricer->graph->mesh, axes, rank, pricer->member);
}

/* Returns the seconds of a collective; BYTES: in all. */
static double collective(const struct pricer *pricer, enum sgrad_collective_kind kind, struct sgrad_group group, double bytes) {
    const struct sgrad_exchange what = { .bytes = bytes, .group = &group, .root = group.rank[0] };
    if (group.count == 1 || bytes <= 0) return 0;
    return sgrad_collective_cost(sgrad_collective_cheapest(kind, &what, pricer->is->network), &what, pricer->is->network);
}

static double message(const struct pricer *pricer, double bytes) {
    return pricer->is->network->latency + bytes / pricer->is->network->bandwidth;
}

/* Returns the seconds of a communication task of a layer, for one micro-batch. */
static double move(const struct pricer *pricer, const struct sgrad__node *node, const struct sgrad_task *task, int rank) {
    static const int kind[] = {
        [SGRAD_MOVE_ALL_REDUCE] = SGRAD_ALLREDUCE,       [SGRAD_MOVE_REDUCE_SCATTER] = SGRAD_REDUCE_SCATTER,
        [SGRAD_MOVE_ALL_GATHER] = SGRAD_ALL_GATHER, [SGRAD_MOVE_REDUCE] = SGRAD_REDUCE,
        [SGRAD_MOVE_BROADCAST] = SGRAD_BROADCAST,
    };
    const double piece = (double)sgrad_view_bytes(&node->is.shard) * (double)pricer->micro;
    const bool back = task->use[0].role == SGRAD_DY || task->use[1].role == SGRAD_DY;
    const double value = (double)sgrad_view_bytes(back ? &node->is.y : &node->is.x[0]) * (double)pricer->micro;
    const bool cut = task->use[0].role == SGRAD_SHARD || task->use[1].role == SGRAD_SHARD;
    const double bytes = cut ? piece * node->is.axis->ranks : value;
    switch (task->move) {
    case SGRAD_MOVE_NONE: case SGRAD_MOVE_SLICE: case SGRAD_MOVE_PAD: return 0;
    case SGRAD_MOVE_SHIFT: case SGRAD_MOVE_UNSHIFT: return message(pricer, value);
    case SGRAD_MOVE_ALL_TO_ALL:
        return (node->is.axis->ranks - 1) * message(pricer, piece * (node->is.shard_use > 0 ? node->is.shard_use : 1));
    default: break;
    }
    const struct sgrad_group group = along(pricer, sgrad_mesh_bit(&pricer->graph->mesh, node->is.axis), rank);
    return collective(pricer, (enum sgrad_collective_kind)kind[task->move], group, bytes);
}

/* Returns the seconds of the messages of a task in a ring: shards, and in backward the sums of their gradients. */
static double ring(const struct pricer *pricer, const struct sgrad__node *node, bool backward) {
    const double shard = (double)sgrad_view_bytes(&node->is.shard) * (double)pricer->micro;
    const double gradient = (double)sgrad_shape_count(&node->is.shard.shape) * sizeof(float) * (double)pricer->micro;
    return (node->is.axis->ranks - 1) * (message(pricer, shard) + (backward ? message(pricer, gradient) : 0));
}

static double node_moves(const struct pricer *pricer, const struct sgrad__node *node, int rank) {
    double seconds = 0;
    for (int t = 0; t < SGRAD_MAX_TASKS && node->is.axis; t++) {
        if (node->op->forward[t].move) seconds += move(pricer, node, &node->op->forward[t], rank);
        if (node->op->backward[t].move) seconds += move(pricer, node, &node->op->backward[t], rank);
        if (node->op->forward[t].ring) seconds += ring(pricer, node, false);
        if (node->op->backward[t].ring) seconds += ring(pricer, node, true);
    }
    return (double)pricer->micros * seconds;
}

/* Returns the seconds of a layer, for all samples of a rank. */
static double compute(const struct pricer *pricer, const struct sgrad__node *node) {
    const struct sgrad__work work = sgrad__node_work(node);
    double bytes = node->output < 0 ? 0 : (double)sgrad_view_bytes(&node->is.y);
    for (int i = 0; i < node->is.inputs; i++) bytes += (double)sgrad_view_bytes(&node->is.x[i]);
    if (node->is.view_of_input || (node->is.axis && work.flops == 0)) return 0;
    return PASSES * (double)pricer->share * fmax(work.flops / pricer->is->flops, bytes / pricer->is->bandwidth);
}

/* Returns the seconds for the values between a stage and earlier ones, for all micro-batches: forward values and their
 * gradients. */
static double crossing(const struct pricer *pricer, int stage) {
    double bytes = 0;
    for (int v = 0; v < pricer->graph->value_count; v++) {
        const struct sgrad__value *is = &pricer->graph->value[v];
        if (is->root != v || is->maker < 0 || pricer->graph->node[is->maker].stage >= stage) continue;
        if (sgrad__graph_takes(pricer->graph, v, stage)) bytes += (double)sgrad_view_bytes(&is->view);
    }
    return 2 * (double)pricer->micros * message(pricer, bytes * (double)pricer->micro);
}

/* ---- parameters ---- */

struct kept {
    double parts, whole;            /* bytes of the parameters on a rank, without --shard; that its layers use */
    double trained;                 /* bytes of WHOLE that are not frozen: they have gradients */
    double stated;                  /* bytes of PARTS that have optimizer states */
    double stored, states;          /* bytes that a rank stores: of parameters; of those with optimizer states */
    double gathering, summing;      /* seconds */
};

/* Sums the costs of the parameters of a stage. RANK: the first one of the stage. */
static struct kept parameters(const struct pricer *pricer, int stage, int rank) {
    const struct sgrad_graph *g = pricer->graph;
    struct kept all = { 0 };
    double bytes[1 << SGRAD_MAX_AXES] = { 0 };
    for (const struct sgrad__parameter *w = g->parameter; w < g->parameter + g->parameter_count; w++) {
        if (w->state || (g->stages > 1 && !(w->stages >> stage & 1))) continue;
        const double part = (double)sgrad_shape_count(&w->kept_shape) * sizeof(float);
        const bool states = !g->lora.rank || w->adapter;
        double used = part;
        for (int c = w->cuts - 1; c >= 0 && w->cut[c].gathered; c--) {
            used *= w->cut[c].axis->ranks;
            const struct sgrad_group group = along(pricer, sgrad_mesh_bit(&g->mesh, w->cut[c].axis), rank);
            all.gathering += collective(pricer, SGRAD_ALL_GATHER, group, used);
            if (!w->frozen) all.gathering += collective(pricer, SGRAD_REDUCE_SCATTER, group, used);
        }
        all.parts += part;
        all.whole += used;
        if (states) all.stated += part;
        const double share = part / (pricer->is->shares ? sgrad__holders(g, w, rank, pricer->member).count : 1);
        all.stored += pricer->is->gathers ? share : part;
        if (states) all.states += share;
        if (w->frozen) continue;
        all.trained += used;
        if (w->stages & (w->stages - 1))
            all.summing += collective(pricer, SGRAD_ALLREDUCE, sgrad__holders(g, w, rank, pricer->member), part);
        else bytes[sgrad__part_axes(g, w)] += part;
    }
    for (unsigned axes = 0; axes < 1u << g->mesh.axes; axes++) {
        const struct sgrad_axis *pipe = sgrad_mesh_axis(&g->mesh, SGRAD__PIPE);
        const unsigned own = axes | (pipe ? sgrad_mesh_bit(&g->mesh, pipe) : 0);
        const struct sgrad_group group = along(pricer, sgrad_mesh_all(&g->mesh) & ~own, rank);
        const enum sgrad_collective_kind sum = pricer->is->gathers ? SGRAD_REDUCE_SCATTER : SGRAD_ALLREDUCE;
        all.summing += collective(pricer, sum, group, bytes[axes]);
        if (pricer->is->gathers) all.gathering += 2 * collective(pricer, SGRAD_ALL_GATHER, group, bytes[axes]);
    }
    return all;
}

/* ---- memory ---- */

static bool in_ring(const struct sgrad__node *node) {
    return node->is.axis && node->is.axis->ranks > 1 && (node->op->forward[0].ring || node->op->forward[1].ring);
}

/* Returns the bytes of parameters, optimizer states, gradient-accumulation buffers, and activations of the micro-batches in
 * flight; the largest activation counts twice more, for gradients. All tasks in a ring use the same memory for shards and their
 * gradients. */
static double memory(const struct pricer *pricer, int stage, const struct kept *kept) {
    const struct sgrad_graph *g = pricer->graph;
    const int flight = sgrad__micros_in_flight(g, stage, pricer->is->workers);
    const bool all = pricer->is->turns || pricer->is->gathers;
    const double in_flight = (double)(flight < pricer->micros && !all ? flight : pricer->micros);
    const double lanes = fmin((double)pricer->micros, fmax(8, (double)(1 << 30) / fmax(kept->trained, 1)));
    double made = 0, largest = 0, shard = 0;
    for (const struct sgrad__node *n = g->node; n < g->node + g->node_count; n++) {
        if (n->stage != stage) continue;
        const double bytes = n->output < 0 || n->is.view_of_input ? 0 : (double)sgrad_view_bytes(&n->is.y);
        if (bytes > largest) largest = bytes;
        made += n->again ? 0 : bytes;
        if (in_ring(n)) shard = fmax(shard, (double)sgrad_shape_count(&n->is.shard.shape) * sizeof(float));
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && n->is.saved[i].shape.rank; i++)
            made += (double)sgrad_view_bytes(&n->is.saved[i]);
    }
    const double gathered = kept->whole > kept->parts ? kept->whole : 0;
    const double activations = in_flight * (double)pricer->micro * (made + 2 * largest + IN_A_RING * shard);
    const double stored = kept->stored + kept->states * pricer->is->states + gathered;
    if (pricer->is->gathers) return stored + BUCKETS * (kept->parts + lanes * kept->trained) + activations;
    return stored + lanes * kept->trained + activations;
}

/* ---- the step ---- */

static void choose_micro(struct pricer *pricer) {
    const struct sgrad_graph *g = pricer->graph;
    const int64_t most = g->stages > 1 ? (pricer->share + IN_A_PIPE * g->stages - 1) / (IN_A_PIPE * g->stages) : USUAL;
    pricer->micro = pricer->is->micro;
    if (!pricer->micro) pricer->micro = most < pricer->share ? most : pricer->share;
    pricer->micros = (pricer->share + pricer->micro - 1) / pricer->micro;
}

struct sgrad__price sgrad__graph_price(const struct sgrad_graph *graph, const struct sgrad__terms *terms) {
    const int ranks = graph->mesh.axes ? sgrad_mesh_ranks(&graph->mesh, sgrad_mesh_all(&graph->mesh)) : 1;
    const int parts = graph->mesh.axes ? sgrad_mesh_ranks(&graph->mesh, sgrad_mesh_sampled(&graph->mesh)) : 1;
    struct pricer p = { graph, terms, sgrad_xcalloc((size_t)ranks, sizeof(int)), terms->batch / parts, 0, 0 };
    struct sgrad__price price = { 0 };
    double filling = 0, slowest = 0, last = 0;
    choose_micro(&p);
    for (int s = 0; s < graph->stages; s++) {
        int rank = 0;
        while (sgrad__stage_of(graph, rank) != s) rank++;
        const struct kept kept = parameters(&p, s, rank);
        double computing = 0, sending = kept.gathering + (graph->stages > 1 ? crossing(&p, s) : 0);
        for (const struct sgrad__node *n = graph->node; n < graph->node + graph->node_count; n++) {
            if (n->stage != s) continue;
            computing += compute(&p, n);
            sending += node_moves(&p, n, rank);
        }
        const double update = kept.stated * (PASSES + 2 * terms->states) / terms->bandwidth;
        const double passes = fmax(computing, sending) + fmin(computing, sending) / (double)p.micros;
        const double behind = fmax(kept.summing - computing * 2 / PASSES, kept.summing / 8) + update;
        filling += passes / (double)p.micros;
        if (passes > slowest) slowest = passes, price.computing = computing + update, price.sending = sending + kept.summing;
        if (behind > last) last = behind;
        price.memory = fmax(price.memory, memory(&p, s, &kept));
    }
    const int64_t turns = terms->turns ? 1 : p.micros;
    price.micros = p.micros;
    price.step = last + (terms->turns ? filling * (double)p.micros : filling + (double)(turns - 1) * slowest / (double)p.micros);
    price.waiting = fmax(0, price.step - last - slowest); /* avoids -0.00 by rounding */
    free(p.member);
    return price;
}
