/* nodes.c: adds the tasks of a node, and the buffers of their operands.
 *
 * The first task that writes the gradient of a value overwrites, later ones add.
 *
 * Statistics have a leaf (the buffer of a term) per task that writes one. Gradients of parameters have a leaf per *lane*:
 * consecutive micro-batches, which add to it one after another. Leaves are added in a fixed tree, so that the result does not
 * depend on the order of execution; then over the ranks (plans.c, buckets.c). Eight micro-batches in four lanes:
 *
 *     lane 0   0, then 1 is added ─┐
 *     lane 1   2, then 3          ─┴┐
 *     lane 2   4, then 5          ─┐├─ sum          many lanes: no task waits for another; few: memory for few gradients
 *     lane 3   6, then 7          ─┴┘
 *
 * A kernel that cannot add, as on GPUs, has a leaf for each micro-batch.
 *
 * The results of a node that is marked for recomputation exist twice. The first use in backward adds the forward tasks of the
 * node a second time, and likewise those of its inputs, down to saved values. Sums and statistics are retained; a task that
 * computes nothing else is not repeated. Nodes 0 to 3, of which 1 and 2 are marked:
 *
 *     0f  1f  2f  3f  loss   1f again  2f again  3b  2b  1b  0b         3b reads the result of 2f, which reads that of 1f
 *
 * A task in a ring (codelets.h) is executed for the shards of all ranks along an axis. Rank 0 of 3, with shards s0 to s2 and, in
 * backward, their gradients d0 to d2:
 *
 *     send s0, receive s2   task s0            send s2, receive s1   task s2                        task s1
 *     backward:             own = d0                                 send d2, receive Σ d1          Σ d1 + d1, send, receive Σ d0
 *
 * Last, own is added to the received Σ d0. So the transfer of the next shard and the task of this one overlap. */
#include "graphs/compiler/builder.h"

#include <stdlib.h>
#include <string.h>

/* ---- operands ---- */

static struct sgrad_view per_micro(const struct sgrad_builder *builder, int m, struct sgrad_view view) {
    view.shape.dim[0] = builder->p->micro[m].samples;
    return view;
}

/* Returns the buffer at *SLOT, which is created by the first use. */
static int on_demand(struct sgrad_builder *builder, int *slot, struct sgrad_view view, const char *layer, const char *what,
                     int index, int micro) {
    if (*slot < 0)
        *slot = sgrad__add_buffer(builder, index < 0 ? sgrad_format("%s %s#%d", layer, what, micro)
                                               : sgrad_format("%s %s%d#%d", layer, what, index, micro), view);
    return *slot;
}

/* Returns the sum of the PARTIALs of a group. PART: those of this rank, one per micro-batch. */
static int add_group_sum(struct sgrad_builder *builder, const int *part, const char *name) {
    const int sum = sgrad__add_sum(builder, part, builder->group_micros, name);
    return sgrad__add_collective(builder, SGRAD_ALLREDUCE, &builder->span, -1, sum, SGRAD__PRIORITY_CHAIN, name);
}

/* Returns the form of the results of node N (-1: no node) that a task of PHASE uses. */
static enum made made(const struct sgrad_builder *builder, int n, enum phase phase) {
    if (n < 0 || !sgrad__is_here(builder, n)) return AT_FIRST;
    if (builder->passing[n] && (phase == BACKWARD || phase == PASSING)) return IN_PASSING;
    return builder->g->node[n].again && (phase == AGAIN || phase == BACKWARD || phase == PASSING) ? ONCE_MORE : AT_FIRST;
}

static void add_again(struct sgrad_builder *b, int n, enum made made, int m);

/* Returns true if backward tasks of node N do not read Y: it is not stored, or a GPU reads less without it. */
static bool without_y(const struct sgrad_builder *builder, int n, int m) {
    return builder->passing[n] ||
           (builder->g->node[n].is.cheap_to_recompute && sgrad__on_gpus(builder, builder->p->micro[m].workers));
}

/* Returns the buffer at *SLOT. If a recomputed result is read that does not exist yet, the tasks of MAKER that compute it are
 * added first. */
static int recomputed(struct sgrad_builder *builder, int *slot, int maker, enum made which, enum sgrad_access access, int m,
                      struct sgrad_view view, const char *layer, const char *what, int index) {
    if (*slot < 0 && access == SGRAD_R && which != AT_FIRST) add_again(builder, maker, which, m);
    return on_demand(builder, slot, view, layer, what, index, m);
}

/* A task of PHASE uses BUFFER, a result of node MAKER in the form WHICH. It is stored for backward if a later phase reads it. */
static int note_result(struct sgrad_builder *builder, int buffer, int maker, enum made which, enum phase phase,
                       struct sgrad_use use) {
    struct sgrad__buffer *is = &builder->p->buffer[buffer];
    if (which == AT_FIRST && phase != FORWARD && use.access == SGRAD_R)
        is->result_of = maker, is->output = use.role != SGRAD_SAVED;
    return buffer;
}

/* A value (X, Y) or its gradient (DX, DY). */
static int resolve_value(struct sgrad_builder *builder, int n, enum phase phase, struct sgrad_use use, int m,
                         struct sgrad_view *view) {
    const struct sgrad__node *node = &builder->g->node[n];
    const bool input = use.role == SGRAD_X || use.role == SGRAD_DX;
    if (input && use.index >= node->is.inputs) return -1;
    const struct sgrad__value *v = &builder->g->value[input ? node->input[use.index] : node->output];
    if (use.role == SGRAD_DX && (!v->needs_gradient || node->op->no_gradient >> use.index & 1)) return -1;
    if (use.role == SGRAD_Y && phase == BACKWARD && without_y(builder, n, m)) return -1;
    *view = per_micro(builder, m, v->view);
    if (use.role == SGRAD_DX || use.role == SGRAD_DY)
        return on_demand(builder, &builder->gradient[v->root * builder->micros + m], *view, v->name, "gradient", -1, m);
    const int maker = builder->g->value[v->root].maker;
    const enum made which = made(builder, maker, phase);
    int *slot = &builder->activation[which][v->root * builder->micros + m];
    const int buffer = recomputed(builder, slot, maker, which, use.access, m, *view, v->name, "", -1);
    note_result(builder, buffer, maker, which, phase, use);
    if (use.role == SGRAD_Y && sgrad__graph_prepares(node)) builder->p->buffer[buffer].copies = builder->p->window;
    return buffer;
}

/* A parameter (P) or a state of the operation (S). */
static int resolve_parameter(struct sgrad_builder *builder, int n, enum phase phase, struct sgrad_use use, int m,
                             struct sgrad_view *view) {
    const struct sgrad__node *node = &builder->g->node[n];
    const int parameter = use.role == SGRAD_P ? node->p[use.index] : node->s[use.index];
    if (parameter < 0 || (use.if_recomputed && !without_y(builder, n, m))) return -1;
    const bool rounded = use.factor && builder->g->dtype == SGRAD_BF16 && builder->p->micro[m].workers == SGRAD_GPU_WORKERS;
    *view = (struct sgrad_view){ builder->g->parameter[parameter].is.dtype, builder->g->parameter[parameter].is.shape };
    if (rounded) view->dtype = SGRAD_BF16;
    return rounded ? sgrad__add_rounded(builder, parameter, phase) : sgrad__add_gathered(builder, parameter, phase);
}

/* A partial sum of a micro-batch (PARTIAL), the sum of its group (SUM), or a statistic (STAT): of a micro-batch if it is written,
 * of the step if it is read. Absent without a shape. Recomputations write sums and statistics that are not counted. */
static int resolve_sum(struct sgrad_builder *builder, int n, enum phase phase, struct sgrad_use use, int m,
                       struct sgrad_view *view) {
    const struct sgrad__node *node = &builder->g->node[n];
    const int i = use.index, at = (n * SGRAD_MAX_PARAMETERS + i) * builder->micros, start = m - m % builder->group_micros;
    const struct sgrad_shape *shape = use.role == SGRAD_STAT ? &node->is.stat[i] : &node->is.partial[i];
    if (!shape->rank) return -1;
    *view = sgrad__doubles(*shape);
    if (use.role == SGRAD_SUM) {
        if (builder->sum[at + start] < 0)
            builder->sum[at + start] = add_group_sum(builder, &builder->part[at + start], node->name);
        return builder->sum[at + start];
    }
    const char *what = use.role == SGRAD_STAT ? "uncounted statistic" : "uncounted part";
    if (phase == AGAIN) return on_demand(builder, &(int){ -1 }, *view, node->name, what, i, m);
    if (use.role == SGRAD_PARTIAL) return on_demand(builder, &builder->part[at + m], *view, node->name, "part", i, m);
    if (use.access != SGRAD_R) return on_demand(builder, &builder->leaf[at + m], *view, node->name, "statistic", i, m);
    if (builder->total[at] < 0) builder->total[at] = sgrad__add_sum(builder, &builder->leaf[at], builder->micros, node->name);
    return builder->total[at];
}

/* Returns the number of ranks that have shards of the values of NODE. */
static int ranks_of(const struct sgrad__node *node) { return node->is.axis ? node->is.axis->ranks : 1; }

static int *gradient_of_shard(const struct sgrad_builder *builder, int m) {
    return &builder->piece[SGRAD_MAX_INPUTS * builder->micros + m];
}

int sgrad__resolve(struct sgrad_builder *builder, int n, enum phase phase, struct sgrad_use use, int m, struct sgrad_view *view) {
    const struct sgrad__node *node = &builder->g->node[n];
    const struct sgrad_signature *is = &node->is;
    const int i = use.index, at = (n * SGRAD_MAX_PARAMETERS + i) * builder->micros + m;
    *view = (struct sgrad_view){ .shape.rank = -1 };

    switch (use.role) {
    case SGRAD_NONE: return -1;
    case SGRAD_X: case SGRAD_Y: case SGRAD_DX: case SGRAD_DY: return resolve_value(builder, n, phase, use, m, view);
    case SGRAD_P: case SGRAD_S: return resolve_parameter(builder, n, phase, use, m, view);
    case SGRAD_DP:
        if (node->p[i] < 0) return -1;
        *view = (struct sgrad_view){ SGRAD_F32, is->p[i].shape };
        return on_demand(builder, &builder->dparameter[at], *view, builder->g->parameter[node->p[i]].name, "gradient", -1, m);
    case SGRAD_SHARD:
        if (!is->shard.shape.rank || i >= ranks_of(node)) return -1;
        *view = per_micro(builder, m, is->shard);
        return on_demand(builder, &builder->piece[i * builder->micros + m], *view, node->name, "piece", i, m);
    case SGRAD_DSHARD:
        *view = per_micro(builder, m, (struct sgrad_view){ SGRAD_F32, is->shard.shape });
        return on_demand(builder, gradient_of_shard(builder, m), *view, node->name, "gradient of piece", -1, m);
    case SGRAD_SAVED: {
        if (!is->saved[i].shape.rank) return -1;
        const enum made which = made(builder, n, phase);
        *view = per_micro(builder, m, is->saved[i]);
        const int buffer = recomputed(builder, &builder->keep[which][at], n, which, use.access, m, *view, node->name, "keep", i);
        return note_result(builder, buffer, n, which, phase, use);
    }
    case SGRAD_PARTIAL: case SGRAD_SUM: case SGRAD_STAT: return resolve_sum(builder, n, phase, use, m, view);
    }
    return -1;
}

/* Tasks do not use each other's inline recomputations, because they may run in different steps. */
int sgrad__add_operand(struct sgrad_builder *builder, int n, struct sgrad_use use, int m, struct sgrad_view *view) {
    const int value = use.role == SGRAD_X ? builder->g->value[builder->g->node[n].input[use.index]].root : -1;
    int *passing = value < 0 ? NULL : &builder->activation[IN_PASSING][value * builder->micros + m],
        made = passing ? *passing : -1;
    if (passing) *passing = -1;
    const int buffer = sgrad__resolve(builder, n, BACKWARD, use, m, view);
    if (passing) *passing = made;
    return buffer;
}

/* ---- tasks of nodes ---- */

static bool writes_only(const struct sgrad_task *task, enum sgrad_role role) {
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++)
        if (task->use[j].access != SGRAD_R && task->use[j].role != role) return false;
    return true;
}

/* Returns true if the task writes only gradients of frozen parameters. */
static bool is_of_frozen(const struct sgrad_builder *builder, int n, const struct sgrad_task *task) {
    bool frozen = writes_only(task, SGRAD_DP);
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role && frozen; j++) {
        const int parameter = task->use[j].role == SGRAD_DP ? builder->g->node[n].p[task->use[j].index] : -1;
        if (parameter >= 0) frozen = builder->g->parameter[parameter].frozen;
    }
    return frozen;
}

/* Returns true if an operand with ROLE has a row per sample. */
static bool has_rows(enum sgrad_role role) {
    return role == SGRAD_X || role == SGRAD_Y || role == SGRAD_DX || role == SGRAD_DY || role == SGRAD_SAVED ||
           role == SGRAD_SHARD || role == SGRAD_DSHARD;
}

int sgrad__lane_first(const struct sgrad_builder *builder, int m) {
    const int64_t lane = (int64_t)m * builder->lanes / builder->micros;
    int first = (int)((lane * builder->micros + builder->lanes - 1) / builder->lanes);
    while (builder->p->micro[first].workers != builder->p->micro[m].workers) first++;
    return first;
}

/* Returns the micro-batch whose leaf the term of M for operand USE is written to: the first of the lane, if the kernel can
 * add. */
static int leaf_of(const struct sgrad_builder *builder, const struct sgrad_task *task, struct sgrad_use use, int m) {
    const bool lanes = use.role == SGRAD_DP && task->scope == SGRAD_MICRO && task->kernel.accumulates &&
                       !sgrad__on_gpus(builder, builder->p->micro[m].workers);
    return lanes ? sgrad__lane_first(builder, m) : m;
}

/* Returns true if operand USE of a task of node N must be added to an existing value. */
static bool adds(const struct sgrad_builder *builder, int n, struct sgrad_use use, int m) {
    const struct sgrad__node *node = &builder->g->node[n];
    if (use.role == SGRAD_DX && use.index < node->is.inputs)
        return builder->gradient[builder->g->value[node->input[use.index]].root * builder->micros + m] >= 0;
    return use.role == SGRAD_DP && builder->dparameter[(n * SGRAD_MAX_PARAMETERS + use.index) * builder->micros + m] >= 0;
}

/* Returns true if operand USE has values of earlier turns, to which those of TURN are added. */
static bool adds_to_turns(const struct sgrad__turn *turn, struct sgrad_use use) {
    return turn && turn->later && (use.role == SGRAD_Y || use.role == SGRAD_SAVED) && use.access != SGRAD_R;
}

static char *name_of(const struct sgrad__node *node, enum phase phase, const struct sgrad_task *task,
                     const struct sgrad__turn *turn, int m) {
    const char *what = strrchr(task->kernel.name, ' ');
    char place[24] = "";
    if (turn) snprintf(place, sizeof place, " %d", turn->place);
    const char *again = phase == AGAIN || phase == PASSING ? " again" : "";
    return sgrad_format("%s%s%s%s #%d", node->name, what ? what : "", place, again, m);
}

/* Recomputations use the packed factors of forward, unless factors are gathered again. */
static int *packed_at(struct sgrad_builder *builder, int n, enum phase phase, int task, int m) {
    const bool repeats = phase == AGAIN || phase == PASSING;
    const int as = repeats && !builder->o->shares ? FORWARD : (int)phase;
    return &builder->packed[((n * PHASES + as) * SGRAD_MAX_TASKS + task) * SGRAD__SIZES + builder->p->micro[m].size];
}

/* Adds one task of a node, unless none of its results is used (the gradient of the images). TURN: of a task in a ring. */
static void add_kernel(struct sgrad_builder *builder, int n, enum phase phase, int index, const struct sgrad_task *task, int m,
                       struct sgrad__turn *turn) {
    struct sgrad_bound_kernel call = { .kernel = &task->kernel, .attrs = turn ? turn->attrs : builder->g->node[n].attrs };
    int operand[SGRAD_MAX_OPERANDS];
    bool wanted = false, lane = false;  /* lane: its leaf already has a value */

    if (phase == BACKWARD && is_of_frozen(builder, n, task)) return;
    while (call.operands < SGRAD_MAX_OPERANDS && task->use[call.operands].role) call.operands++;
    for (int i = 0; i < 2 * call.operands; i++) {
        const int j = i % call.operands;
        struct sgrad_use use = task->use[j];
        if ((use.access == SGRAD_R) != (i >= call.operands)) continue;
        if (i >= call.operands && !wanted) return;      /* before recomputations are added */
        const int at = leaf_of(builder, task, use, m);
        if (adds(builder, n, use, at) || adds_to_turns(turn, use)) {
            call.accumulate |= UINT64_C(1) << j;
            use.access = SGRAD_RW;
            lane = use.role == SGRAD_DP;
        }
        operand[j] = sgrad__resolve(builder, n, phase, use, at, &call.view[j]);
        if (task->scope == SGRAD_MICRO && has_rows(use.role)) call.rows |= UINT64_C(1) << j;
        if (operand[j] >= 0 && has_rows(use.role)) builder->p->buffer[operand[j]].rows = true;
        call.access[j] = use.access;
        wanted |= use.access != SGRAD_R && operand[j] >= 0;
    }
    if (!wanted) return;
    const int kind = (n * PHASES + (int)phase) * SGRAD_MAX_TASKS + index;
    const int size = builder->p->micro[m].size;
    const struct sgrad_bound_kernel **known =
        turn ? &turn->call[phase][size] : &builder->call[(kind * SGRAD__SIZES + size) * 2 + lane];
    if (!*known || (*known)->accumulate != call.accumulate) {
        sgrad__plan_packing(builder, task, m, &call);
        *known = sgrad__add_call(builder, call);
    }
    sgrad__add_packed(builder, *known, operand, packed_at(builder, n, phase, index, m));
    int priority = SGRAD__PRIORITY_CHAIN;
    if (sgrad__graph_prepares(&builder->g->node[n])) priority = SGRAD__PRIORITY_INPUT;
    else if (phase == FORWARD && builder->g->stages > 1) priority = SGRAD__PRIORITY_FORWARD;
    else if (phase == BACKWARD && writes_only(task, SGRAD_DP))
        priority = builder->peers > 1 && builder->g->stages == 1 ? SGRAD__PRIORITY_SENT_WEIGHT : SGRAD__PRIORITY_WEIGHT;
    struct sgrad__instruction *in = sgrad__add_instruction(builder, *known, operand, m, priority,
                                                           name_of(&builder->g->node[n], phase, task, turn, m));
    int *first = &builder->first[(n * SGRAD_MAX_TASKS + index) * builder->micros + m];
    if (phase == FORWARD) *first = (int)(in - builder->p->instruction);
    if (phase == AGAIN) in->again = *first;
    in->passing = phase == PASSING;
    if (task->scope == SGRAD_MICRO) in->workers = builder->p->micro[m].workers, in->gpu = builder->p->micro[m].gpu;
}

static struct sgrad__turn *turns_of(struct sgrad_builder *builder, int n) {
    const struct sgrad__node *node = &builder->g->node[n];
    const struct sgrad_mesh *mesh = &builder->g->mesh;
    const int ranks = ranks_of(node),
              here = node->is.axis ? sgrad_mesh_index(mesh, sgrad_mesh_bit(mesh, node->is.axis), builder->o->rank) : 0;
    if (builder->turn[n]) return builder->turn[n];
    builder->turn[n] = sgrad__own(builder->p, sgrad_xcalloc((size_t)ranks, sizeof **builder->turn));
    for (int i = 0; i < ranks; i++) {
        struct sgrad__turn *turn = &builder->turn[n][i];
        turn->place = (here - i + ranks) % ranks;
        turn->later = i > 0;
        turn->attrs = sgrad__own(builder->p, sgrad_xcalloc(1, node->op->attrs_size));
        memcpy(turn->attrs, node->attrs, node->op->attrs_size);
        node->op->set_shard(turn->place, turn->attrs);
    }
    return builder->turn[n];
}

/* Adds the sum of two gradients of shards; returns its buffer. */
static int sum_shards(struct sgrad_builder *builder, int one, int other, const char *name) {
    const int sum = sgrad__add_sum(builder, (int[]){ one, other }, 2, name);
    builder->p->buffer[sum].rows = true;
    return sum;
}

/* Adds a task in a ring, as the figure above shows. */
static void add_ring(struct sgrad_builder *builder, int n, enum phase phase, int index, const struct sgrad_task *task, int m) {
    const int ranks = ranks_of(&builder->g->node[n]);
    const char *name = builder->g->node[n].name;
    int *shard = &builder->piece[m], *gradient = gradient_of_shard(builder, m), own = -1, sum = -1;
    struct sgrad__turn *turn = turns_of(builder, n);
    for (int i = 0; i < ranks; i++) {
        const int next = i + 1 < ranks ? sgrad__add_shift(builder, n, *shard) : -1;
        *gradient = -1;
        add_kernel(builder, n, phase, index, task, m, &turn[i]);
        *shard = next;
        if (*gradient < 0) continue;
        if (i == 0) own = *gradient;
        else sum = sgrad__add_shift(builder, n, i == 1 ? *gradient : sum_shards(builder, sum, *gradient, name));
        if (sum >= 0) builder->p->buffer[sum].rows = true;
    }
    *gradient = sum < 0 ? own : sum_shards(builder, own, sum, name);
}

/* Adds a task of a node. Messages belong to its micro-batch, too, so that they use the memory of this one (passes/memory.c). */
static void add_task(struct sgrad_builder *builder, int n, enum phase phase, int index, const struct sgrad_task *task, int m) {
    const int begin = builder->p->instruction_count;
    if (task->move) sgrad__add_move(builder, n, task, m);
    else if (task->ring) add_ring(builder, n, phase, index, task, m);
    else return add_kernel(builder, n, phase, index, task, m, NULL);
    for (int i = begin; i < builder->p->instruction_count; i++) builder->p->instruction[i].micro = m;
}

/* Returns true if the task writes a result that backward may use. */
static bool leaves(const struct sgrad_task *task) {
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++)
        if (task->use[j].access != SGRAD_R && (task->use[j].role == SGRAD_Y || task->use[j].role == SGRAD_SAVED)) return true;
    return false;
}

/* Adds the tasks that recompute the results of node N for micro-batch M, inline or once for all of backward. */
static void add_again(struct sgrad_builder *builder, int n, enum made made, int m) {
    const struct sgrad_task *tasks = builder->g->node[n].op->forward;
    for (int t = 0; t < SGRAD_MAX_TASKS && tasks[t].kernel.name; t++)
        if (leaves(&tasks[t])) add_task(builder, n, made == IN_PASSING ? PASSING : AGAIN, t, &tasks[t], m);
}

/* Returns true if TASK of node N writes a statistic, or the gradient of a parameter that is trained. */
static bool leaves_sums(const struct sgrad_builder *builder, int n, enum phase phase, const struct sgrad_task *task) {
    if (phase == BACKWARD && is_of_frozen(builder, n, task)) return false;
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++)
        if (task->use[j].role == SGRAD_STAT || (task->use[j].role == SGRAD_DP && builder->g->node[n].p[task->use[j].index] >= 0))
            return true;
    return false;
}

/* A group task runs only on the first rank of the group, because its terms count once. This is called on the other ranks: they
 * must add the sums over all ranks that the task reads, like the first rank, even if no other task of theirs reads them. */
static void add_elsewhere(struct sgrad_builder *builder, int n, enum phase phase, const struct sgrad_task *task, int start) {
    struct sgrad_view view;
    if (!leaves_sums(builder, n, phase, task)) return;
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++) {
        const struct sgrad_use use = task->use[j];
        if (use.role == SGRAD_DP && builder->g->node[n].p[use.index] >= 0)
            builder->elsewhere[builder->g->node[n].p[use.index]] = true;
        if (use.role == SGRAD_SUM) sgrad__resolve(builder, n, phase, use, start, &view);
    }
}

void sgrad__add_node(struct sgrad_builder *builder, int n, enum phase phase, int start) {
    const struct sgrad_op *op = builder->g->node[n].op;
    const struct sgrad_task *tasks = phase == BACKWARD ? op->backward : op->forward;
    if (phase == FINISH) tasks = op->finish;
    if (phase == FORWARD && !builder->p->training && op->inference[0].kernel.name) tasks = op->inference;
    if (builder->g->node[n].is.view_of_input || !sgrad__is_here(builder, n)) return;
    if (phase == BACKWARD && builder->g->node[n].output >= 0 &&
        builder->gradient[builder->g->value[builder->g->node[n].output].root * builder->micros + start] < 0)
        return; /* the loss does not depend on it */
    if (builder->g->node[n].is.shard.shape.rank || builder->g->node[n].is.axis) {
        memset(builder->piece, 0xff, (size_t)((SGRAD_MAX_INPUTS + 1) * builder->micros) * sizeof *builder->piece);
        if (phase == BACKWARD && !builder->g->value[builder->g->node[n].output].needs_gradient) return;
    }
    for (int t = 0; t < SGRAD_MAX_TASKS && tasks[t].kernel.name; t++) {
        int count = tasks[t].scope == SGRAD_MICRO ? builder->group_micros : 1;
        if (tasks[t].scope == SGRAD_GROUP && builder->o->rank != builder->span.rank[0]) {
            add_elsewhere(builder, n, phase, &tasks[t], start);
            continue;
        }
        for (int m = start; m < start + count; m++) add_task(builder, n, phase, t, &tasks[t], m);
    }
    if (phase == FORWARD) sgrad__add_departures(builder, n, start);
    for (int m = start; phase == BACKWARD && builder->o->training->hooks && m < start + builder->group_micros; m++)
        builder->o->training->hooks->on_backward(builder, n, m);
}
