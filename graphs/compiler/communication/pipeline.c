/* pipeline.c: messages between the stages of a network (graphs/networks/stages.c): values are sent forwards, their gradients
 * backwards. Two stages, three micro-batches. The order is determined only by priority, which is higher for backward tasks than
 * for forward tasks:
 *
 *     stage 0    0f  1f  2f  ·   0b  ·   1b  ·  2b          f  forward, then its values are sent
 *     stage 1    ·   0f  0b  1f  1b  2f  2b  ·  ·           b  backward, then its values' gradients are sent
 *
 * A stage has memory for some micro-batches only, fewer in later stages: a further one cannot begin before the oldest has ended.
 * (One forward, one backward: D. Narayanan et al., PipeDream, 2019; Efficient Large-Scale Language Model Training on GPU Clusters
 * Using Megatron-LM, 2021.)
 *
 * A value is sent from the stage that computes it directly to each stage that uses it, between ranks whose other coordinates are
 * equal. Inputs are not sent: each stage reads those that it uses. The tag of a message identifies the value. A collective
 * between several stages has a number that identifies its purpose, because the stages add different numbers of collectives. */
#include "graphs/compiler/builder.h"

#include <stdlib.h>

/* Numbers of collectives that several stages have in common; those of a single stage are lower. */
enum {
    CROSSING = 1 << 23,         /* transfers of a value and of its gradient */
    STATISTICS = CROSSING + (1 << 21),
    NORM = STATISTICS + (1 << 20),
    PARAMETERS = CROSSING + (1 << 22), OF_PARAMETER = 1 << 8,
};

bool sgrad__is_here(const struct sgrad_builder *builder, int n) { return builder->g->node[n].stage == builder->g->stage; }

int sgrad__number_from(struct sgrad_builder *builder, int number) {
    const int before = builder->collectives;
    builder->collectives = number;
    return before;
}

bool sgrad__is_common(int number) { return number >= CROSSING; }
int sgrad__statistics_number(const struct sgrad_builder *builder) {
    return builder->g->stages > 1 ? STATISTICS : builder->collectives;
}
int sgrad__norm_number(void) { return NORM; }
int sgrad__parameter_number(int parameter) { return PARAMETERS + parameter * OF_PARAMETER; }

/* ---- destinations of values ---- */

/* Returns true if this stage uses the value, a root, and another stage computes it. */
static bool arrives(const struct sgrad_builder *builder, int value) {
    const struct sgrad__value *v = &builder->g->value[value];
    return v->root == value && v->maker >= 0 && !sgrad__is_here(builder, v->maker) &&
           sgrad__graph_takes(builder->g, value, builder->g->stage);
}

/* Returns, by node, whether the loss depends on its output through inputs that have gradients. The caller must free the array. */
static bool *find_live(const struct sgrad_graph *graph) {
    bool *live = sgrad_xcalloc((size_t)graph->node_count, sizeof *live),
         *wanted = sgrad_xcalloc((size_t)graph->value_count, sizeof *wanted);
    for (int n = graph->node_count - 1; n >= 0; n--) {
        const struct sgrad__node *node = &graph->node[n];
        live[n] = n == graph->loss || (node->output >= 0 && wanted[graph->value[node->output].root]);
        for (int i = 0; i < node->is.inputs && live[n]; i++)
            if (!(node->op->no_gradient >> i & 1)) wanted[graph->value[node->input[i]].root] = true;
    }
    free(wanted);
    return live;
}

/* Returns true if STAGE computes a gradient of the value. */
static bool has_gradient(const struct sgrad_graph *graph, const bool *live, int value, int stage) {
    if (!graph->value[value].needs_gradient) return false;
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0;
             i < graph->node[n].is.inputs && graph->node[n].stage == stage && live[n] && !graph->node[n].is.view_of_input; i++)
            if (graph->value[graph->node[n].input[i]].root == value && !(graph->node[n].op->no_gradient >> i & 1)) return true;
    return false;
}

/* ---- messages ---- */

static int64_t tag_of(struct sgrad_builder *builder, int value, bool gradient, int m) {
    const int before = sgrad__number_from(builder, CROSSING + 2 * value + gradient);
    const int64_t tag = sgrad__next_tag(builder);
    struct sgrad_view view = builder->g->value[value].view;
    sgrad__number_from(builder, before);
    for (int i = 0; i < builder->micros; i++)
        if (builder->p->micro[i].samples > view.shape.dim[0] || !i) view.shape.dim[0] = builder->p->micro[i].samples;
    return tag + m * sgrad__message_pieces(&view);
}

static int peer_of(const struct sgrad_builder *builder, int stage) { return builder->stage.rank[stage]; }

static void send(struct sgrad_builder *builder, int value, bool gradient, int m, int buffer, int stage) {
    sgrad__add_send(builder, buffer, peer_of(builder, stage), tag_of(builder, value, gradient, m), SGRAD__PRIORITY_CHAIN,
                    builder->g->value[value].name);
    builder->p->instruction[builder->p->instruction_count - 1].micro = m;
}

static int receive(struct sgrad_builder *builder, int value, bool gradient, int m, int stage) {
    struct sgrad_view view = builder->g->value[value].view;
    view.shape.dim[0] = builder->p->micro[m].samples;
    const int buffer = sgrad__add_receive(builder, view, peer_of(builder, stage), tag_of(builder, value, gradient, m),
                                          SGRAD__PRIORITY_CHAIN, builder->g->value[value].name);
    builder->p->instruction[builder->p->instruction_count - 1].micro = m;
    builder->p->buffer[buffer].rows = sgrad__message_pieces(&view) == 1;
    return buffer;
}

void sgrad__add_arrivals(struct sgrad_builder *builder, int start) {
    for (int v = 0; v < builder->g->value_count && builder->g->stages > 1; v++)
        for (int m = start; m < start + builder->group_micros && arrives(builder, v); m++)
            builder->activation[AT_FIRST][v * builder->micros + m] =
                receive(builder, v, false, m, builder->g->node[builder->g->value[v].maker].stage);
}

void sgrad__add_departures(struct sgrad_builder *builder, int n, int start) {
    const int value = builder->g->node[n].output;
    if (builder->g->stages == 1 || value < 0 || builder->g->value[value].root != value) return;
    for (int m = start; m < start + builder->group_micros; m++)
        for (int s = builder->g->stage + 1; s < builder->g->stages; s++)
            if (sgrad__graph_takes(builder->g, value, s))
                send(builder, value, false, m, builder->activation[AT_FIRST][value * builder->micros + m], s);
}

/* Values of later stages come first, like the nodes within a stage. */
void sgrad__add_gradient_arrivals(struct sgrad_builder *builder, int start) {
    bool *live = builder->g->stages > 1 ? find_live(builder->g) : NULL;
    for (int v = builder->g->value_count - 1; v >= 0 && live; v--) {
        const struct sgrad__value *is = &builder->g->value[v];
        if (is->root != v || is->maker < 0 || !sgrad__is_here(builder, is->maker)) continue;
        for (int s = builder->g->stages - 1; s > builder->g->stage; s--)
            for (int m = start; m < start + builder->group_micros && has_gradient(builder->g, live, v, s); m++) {
                int *slot = &builder->gradient[v * builder->micros + m], come = receive(builder, v, true, m, s);
                *slot = *slot < 0 ? come : sgrad__add_sum(builder, (int[]){ *slot, come }, 2, is->name);
            }
    }
    free(live);
}

void sgrad__add_gradient_departures(struct sgrad_builder *builder, int start) {
    for (int v = 0; v < builder->g->value_count && builder->g->stages > 1; v++)
        for (int m = start; m < start + builder->group_micros && arrives(builder, v); m++) {
            const int gradient = builder->gradient[v * builder->micros + m];
            if (gradient >= 0) send(builder, v, true, m, gradient, builder->g->node[builder->g->value[v].maker].stage);
        }
}
