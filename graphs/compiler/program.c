/* program.c: builds the tasks of one step from a graph, in the order of submission.
 *
 * The local batch of this rank is divided into micro-batches. Batch norm takes sums over a group of micro-batches; without such
 * sums, each micro-batch is a group. The sums of a group that spans several ranks are added over these ranks. Two groups of two
 * micro-batches, for a network of layers 1 and 2:
 *
 *     group 0   read 0 1   1f 0 1   2f 0 1   loss 0 1   2b 0 1   1b 0 1
 *     group 1   read 2 3   1f 2 3   2f 2 3   loss 2 3   2b 2 3   sum and update 2   1b 2 3   sum and update 1
 *
 * Backward visits the nodes in reverse order. The gradient of a node's output is complete when backward reaches the node, because
 * the consumers of the output come first. The first task that writes the gradient of a value overwrites, later ones add.
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
 *     0f  1f  2f  3f  loss   1f again  2f again  3b  2b  1b  0b         3b reads the result of 2f, which reads that of 1f */
#include "graphs/compiler/builder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum phase { FORWARD, AGAIN, PASSING, BACKWARD, FINISH, PHASES };

/* ---- operands ---- */

static struct sgrad_view per_micro(const struct sgrad_builder *b, int m, struct sgrad_view view) {
    view.shape.dim[0] = b->p->micro[m].samples;
    return view;
}

/* Returns the buffer at *SLOT, which is created by the first use. */
static int on_demand(struct sgrad_builder *b, int *slot, struct sgrad_view view, const char *layer, const char *what, int index,
                     int micro) {
    if (*slot < 0)
        *slot = sgrad__add_buffer(b, index < 0 ? sgrad_format("%s %s#%d", layer, what, micro)
                                               : sgrad_format("%s %s%d#%d", layer, what, index, micro), view);
    return *slot;
}

/* Returns the sum of the PARTIALs of a group. PART: those of this rank, one per micro-batch. */
static int add_group_sum(struct sgrad_builder *b, const int *part, const char *name) {
    const int sum = sgrad__add_sum(b, part, b->group_micros, name);
    return sgrad__add_collective(b, SGRAD_ALLREDUCE, &b->span, -1, sum, SGRAD__PRIORITY_CHAIN, name);
}

/* Returns the form of the results of node N (-1: no node) that a task of PHASE uses. */
static enum made made(const struct sgrad_builder *b, int n, enum phase phase) {
    if (n < 0 || !sgrad__is_here(b, n)) return AT_FIRST;
    if (b->passing[n] && (phase == BACKWARD || phase == PASSING)) return IN_PASSING;
    return b->g->node[n].again && (phase == AGAIN || phase == BACKWARD || phase == PASSING) ? ONCE_MORE : AT_FIRST;
}

static void add_again(struct sgrad_builder *b, int n, enum made made, int m);

/* Returns true if backward tasks of node N do not read Y: it is not stored, or a GPU reads less without it. */
static bool without_y(const struct sgrad_builder *b, int n, int m) {
    return b->passing[n] || (b->g->node[n].is.cheap_to_recompute && sgrad__on_gpus(b, b->p->micro[m].workers));
}

/* Returns the operand of a task of node N for micro-batch M (of a group: its first one). -1: the operand is absent. */
static int resolve(struct sgrad_builder *b, int n, enum phase phase, struct sgrad_use use, int m, struct sgrad_view *view) {
    struct sgrad_graph *g = b->g;
    const struct sgrad__node *node = &g->node[n];
    const struct sgrad_signature *is = &node->is;
    int i = use.index, at = (n * SGRAD_MAX_PARAMETERS + i) * b->micros, start = m - m % b->group_micros;
    int value = use.role == SGRAD_Y || use.role == SGRAD_DY ? node->output : node->input[i];
    struct sgrad__value *v = NULL;
    int *slot;
    *view = (struct sgrad_view){ .shape.rank = -1 };

    switch (use.role) {
    case SGRAD_NONE: return -1;
    case SGRAD_X: case SGRAD_Y: case SGRAD_DX: case SGRAD_DY:
        if ((use.role == SGRAD_X || use.role == SGRAD_DX) && i >= is->inputs) return -1;
        v = &g->value[value];
        if (use.role == SGRAD_DX && (!v->needs_gradient || node->op->no_gradient >> i & 1)) return -1;
        if (use.role == SGRAD_Y && phase == BACKWARD && without_y(b, n, m)) return -1;
        *view = per_micro(b, m, v->view);
        if (use.role == SGRAD_X || use.role == SGRAD_Y) {
            const int maker = g->value[v->root].maker;
            const enum made which = made(b, maker, phase);
            slot = &b->activation[which][v->root * b->micros + m];
            if (*slot < 0 && use.access == SGRAD_R && which != AT_FIRST) add_again(b, maker, which, m);
            const int buffer = on_demand(b, slot, *view, v->name, "", -1, m);
            if (use.role == SGRAD_Y && sgrad__graph_prepares(node)) b->p->buffer[buffer].copies = b->p->window;
            return buffer;
        }
        return on_demand(b, &b->gradient[v->root * b->micros + m], *view, v->name, "gradient", -1, m);
    case SGRAD_P: case SGRAD_S: {
        if (use.if_recomputed && !without_y(b, n, m)) return -1;
        int parameter = use.role == SGRAD_P ? node->p[i] : node->s[i];
        if (parameter < 0) return -1;
        *view = (struct sgrad_view){ g->parameter[parameter].is.dtype, g->parameter[parameter].is.shape };
        const bool rounded = use.factor && g->dtype == SGRAD_BF16 && b->p->micro[m].workers == SGRAD_GPU_WORKERS;
        if (rounded) view->dtype = SGRAD_BF16;
        return rounded ? sgrad__add_rounded(b, parameter) : sgrad__add_gathered(b, parameter);
    }
    case SGRAD_DP:
        if (node->p[i] < 0) return -1;
        *view = (struct sgrad_view){ SGRAD_F32, is->p[i].shape };
        return on_demand(b, &b->dparameter[at + m], *view, g->parameter[node->p[i]].name, "gradient", -1, m);
    case SGRAD_SHARD:
        if (!is->axis || i >= is->axis->ranks) return -1;
        *view = per_micro(b, m, is->piece);
        return on_demand(b, &b->piece[i * b->micros + m], *view, node->name, "piece", i, m);
    case SGRAD_SAVED:
        if (!is->keep[i].shape.rank) return -1;
        *view = per_micro(b, m, is->keep[i]);
        slot = &b->keep[made(b, n, phase)][at + m];
        if (*slot < 0 && use.access == SGRAD_R && made(b, n, phase) != AT_FIRST) add_again(b, n, made(b, n, phase), m);
        return on_demand(b, slot, *view, node->name, "keep", i, m);
    case SGRAD_PARTIAL:
        *view = sgrad__doubles(is->part[i]);
        if (phase == AGAIN) return on_demand(b, &(int){ -1 }, *view, node->name, "uncounted part", i, m);
        return on_demand(b, &b->part[at + m], *view, node->name, "part", i, m);
    case SGRAD_SUM:
        *view = sgrad__doubles(is->part[i]);
        if (b->sum[at + start] < 0) b->sum[at + start] = add_group_sum(b, &b->part[at + start], node->name);
        return b->sum[at + start];
    case SGRAD_STAT:
        *view = sgrad__doubles(is->stat[i]);
        if (phase == AGAIN) return on_demand(b, &(int){ -1 }, *view, node->name, "uncounted statistic", i, m);
        if (use.access != SGRAD_R) return on_demand(b, &b->leaf[at + m], *view, node->name, "statistic", i, m);
        if (b->total[at] < 0) b->total[at] = sgrad__add_sum(b, &b->leaf[at], b->micros, node->name);
        return b->total[at];
    }
    return -1;
}

/* Tasks do not use each other's inline recomputations, because they may run in different steps. */
int sgrad__add_operand(struct sgrad_builder *b, int n, struct sgrad_use use, int m, struct sgrad_view *view) {
    const int value = use.role == SGRAD_X ? b->g->value[b->g->node[n].input[use.index]].root : -1;
    int *passing = value < 0 ? NULL : &b->activation[IN_PASSING][value * b->micros + m], made = passing ? *passing : -1;
    if (passing) *passing = -1;
    const int buffer = resolve(b, n, BACKWARD, use, m, view);
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
static bool is_of_frozen(const struct sgrad_builder *b, int n, const struct sgrad_task *task) {
    bool frozen = writes_only(task, SGRAD_DP);
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role && frozen; j++) {
        const int parameter = task->use[j].role == SGRAD_DP ? b->g->node[n].p[task->use[j].index] : -1;
        if (parameter >= 0) frozen = b->g->parameter[parameter].frozen;
    }
    return frozen;
}

/* Returns true if an operand with ROLE has a row per sample. */
static bool has_rows(enum sgrad_role role) {
    return role == SGRAD_X || role == SGRAD_Y || role == SGRAD_DX || role == SGRAD_DY || role == SGRAD_SAVED ||
           role == SGRAD_SHARD;
}

int sgrad__lane_first(const struct sgrad_builder *b, int m) {
    const int64_t lane = (int64_t)m * b->lanes / b->micros;
    int first = (int)((lane * b->micros + b->lanes - 1) / b->lanes);
    while (b->p->micro[first].workers != b->p->micro[m].workers) first++;
    return first;
}

/* Returns the micro-batch whose leaf the term of M for operand USE is written to: the first of the lane, if the kernel can
 * add. */
static int leaf_of(const struct sgrad_builder *b, const struct sgrad_task *task, struct sgrad_use use, int m) {
    const bool lanes = use.role == SGRAD_DP && task->scope == SGRAD_MICRO && task->kernel.accumulates &&
                       !sgrad__on_gpus(b, b->p->micro[m].workers);
    return lanes ? sgrad__lane_first(b, m) : m;
}

/* Returns true if operand USE of a task of node N must be added to an existing value. */
static bool adds(const struct sgrad_builder *b, int n, struct sgrad_use use, int m) {
    const struct sgrad__node *node = &b->g->node[n];
    if (use.role == SGRAD_DX && use.index < node->is.inputs)
        return b->gradient[b->g->value[node->input[use.index]].root * b->micros + m] >= 0;
    return use.role == SGRAD_DP && b->dparameter[(n * SGRAD_MAX_PARAMETERS + use.index) * b->micros + m] >= 0;
}

/* Recomputations use the packed factors of forward. */
static int *packed_at(struct sgrad_builder *b, int n, enum phase phase, int task, int m) {
    const int as = phase == AGAIN || phase == PASSING ? FORWARD : (int)phase;
    return &b->packed[((n * PHASES + as) * SGRAD_MAX_TASKS + task) * SGRAD__SIZES + b->p->micro[m].size];
}

/* Adds one task of a node, unless none of its results is used (the gradient of the images). */
static void add_task(struct sgrad_builder *b, int n, enum phase phase, int index, const struct sgrad_task *task, int m) {
    if (task->move) {
        sgrad__add_move(b, n, task, m);
        return;
    }
    struct sgrad_bound_kernel call = { .kernel = &task->kernel, .attrs = b->g->node[n].attrs };
    int operand[SGRAD_MAX_OPERANDS];
    bool wanted = false, lane = false;  /* lane: its leaf already has a value */

    if (phase == BACKWARD && is_of_frozen(b, n, task)) return;
    while (call.operands < SGRAD_MAX_OPERANDS && task->use[call.operands].role) call.operands++;
    for (int i = 0; i < 2 * call.operands; i++) {
        const int j = i % call.operands;
        struct sgrad_use use = task->use[j];
        if ((use.access == SGRAD_R) != (i >= call.operands)) continue;
        if (i >= call.operands && !wanted) return;      /* before recomputations are added */
        const int at = leaf_of(b, task, use, m);
        if (adds(b, n, use, at)) {
            call.accumulate |= UINT64_C(1) << j;
            use.access = SGRAD_RW;
            lane = use.role == SGRAD_DP;
        }
        operand[j] = resolve(b, n, phase, use, at, &call.view[j]);
        if (task->scope == SGRAD_MICRO && has_rows(use.role)) call.rows |= UINT64_C(1) << j;
        if (operand[j] >= 0 && has_rows(use.role)) b->p->buffer[operand[j]].rows = true;
        call.access[j] = use.access;
        wanted |= use.access != SGRAD_R && operand[j] >= 0;
    }
    if (!wanted) return;
    const int kind = (n * PHASES + (int)phase) * SGRAD_MAX_TASKS + index;
    const struct sgrad_bound_kernel **known = &b->call[(kind * SGRAD__SIZES + b->p->micro[m].size) * 2 + lane];
    if (!*known || (*known)->accumulate != call.accumulate) {
        sgrad__plan_packing(b, task, m, &call);
        *known = sgrad__add_call(b, call);
    }
    sgrad__add_packed(b, *known, operand, packed_at(b, n, phase, index, m));
    int priority = SGRAD__PRIORITY_CHAIN;
    if (sgrad__graph_prepares(&b->g->node[n])) priority = SGRAD__PRIORITY_INPUT;
    else if (phase == FORWARD && b->g->stages > 1) priority = SGRAD__PRIORITY_FORWARD;
    else if (phase == BACKWARD && writes_only(task, SGRAD_DP))
        priority = b->peers > 1 && b->g->stages == 1 ? SGRAD__PRIORITY_SENT_WEIGHT : SGRAD__PRIORITY_WEIGHT;
    const char *what = strrchr(task->kernel.name, ' ');
    const bool repeats = phase == AGAIN || phase == PASSING;
    char *name = sgrad_format("%s%s%s #%d", b->g->node[n].name, what ? what : "", repeats ? " again" : "", m);
    struct sgrad__instruction *in = sgrad__add_instruction(b, *known, operand, m, priority, name);
    int *first = &b->first[(n * SGRAD_MAX_TASKS + index) * b->micros + m];
    if (phase == FORWARD) *first = (int)(in - b->p->instruction);
    if (phase == AGAIN) in->again = *first;
    in->passing = phase == PASSING;
    if (task->scope == SGRAD_MICRO) in->workers = b->p->micro[m].workers, in->gpu = b->p->micro[m].gpu;
}

/* Returns true if the task writes a result that backward may use. */
static bool leaves(const struct sgrad_task *task) {
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++)
        if (task->use[j].access != SGRAD_R && (task->use[j].role == SGRAD_Y || task->use[j].role == SGRAD_SAVED)) return true;
    return false;
}

/* Adds the tasks that recompute the results of node N for micro-batch M, inline or once for all of backward. */
static void add_again(struct sgrad_builder *b, int n, enum made made, int m) {
    const struct sgrad_task *tasks = b->g->node[n].op->forward;
    for (int t = 0; t < SGRAD_MAX_TASKS && tasks[t].kernel.name; t++)
        if (leaves(&tasks[t])) add_task(b, n, made == IN_PASSING ? PASSING : AGAIN, t, &tasks[t], m);
}

/* Returns true if TASK of node N writes a statistic, or the gradient of a parameter that is trained. */
static bool leaves_sums(const struct sgrad_builder *b, int n, enum phase phase, const struct sgrad_task *task) {
    if (phase == BACKWARD && is_of_frozen(b, n, task)) return false;
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++)
        if (task->use[j].role == SGRAD_STAT || (task->use[j].role == SGRAD_DP && b->g->node[n].p[task->use[j].index] >= 0))
            return true;
    return false;
}

/* A group task runs only on the first rank of the group, because its terms count once. This is called on the other ranks: they
 * must add the sums over all ranks that the task reads, like the first rank, even if no other task of theirs reads them. */
static void add_elsewhere(struct sgrad_builder *b, int n, enum phase phase, const struct sgrad_task *task, int start) {
    struct sgrad_view view;
    if (!leaves_sums(b, n, phase, task)) return;
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++) {
        const struct sgrad_use use = task->use[j];
        if (use.role == SGRAD_DP && b->g->node[n].p[use.index] >= 0) b->elsewhere[b->g->node[n].p[use.index]] = true;
        if (use.role == SGRAD_SUM) resolve(b, n, phase, use, start, &view);
    }
}

/* Adds the tasks of a node for the group that begins at micro-batch START (phase FINISH: for the step). */
static void add_node(struct sgrad_builder *b, int n, enum phase phase, int start) {
    const struct sgrad_op *op = b->g->node[n].op;
    const struct sgrad_task *tasks = phase == BACKWARD ? op->backward : op->forward;
    if (phase == FINISH) tasks = op->finish;
    if (phase == FORWARD && !b->p->training && op->inference[0].kernel.name) tasks = op->inference;
    if (b->g->node[n].is.view_of_input || !sgrad__is_here(b, n)) return;
    if (phase == BACKWARD && b->g->node[n].output >= 0 &&
        b->gradient[b->g->value[b->g->node[n].output].root * b->micros + start] < 0)
        return; /* the loss does not depend on it */
    if (b->g->node[n].is.axis) {
        memset(b->piece, 0xff, (size_t)(SGRAD_MAX_INPUTS * b->micros) * sizeof *b->piece);
        if (phase == BACKWARD && !b->g->value[b->g->node[n].input[0]].needs_gradient) return;
    }
    for (int t = 0; t < SGRAD_MAX_TASKS && tasks[t].kernel.name; t++) {
        int count = tasks[t].scope == SGRAD_MICRO ? b->group_micros : 1;
        if (tasks[t].scope == SGRAD_GROUP && b->o->rank != b->span.rank[0]) {
            add_elsewhere(b, n, phase, &tasks[t], start);
            continue;
        }
        for (int m = start; m < start + count; m++) add_task(b, n, phase, t, &tasks[t], m);
    }
    if (phase == FORWARD) sgrad__add_departures(b, n, start);
    for (int m = start; phase == BACKWARD && b->o->optimizer->watch && m < start + b->group_micros; m++)
        b->o->optimizer->watch(b, n, m);
}

/* ---- the step ---- */

/* Returns true if this rank's stage reads a field of the samples. */
static bool takes_input(const struct sgrad_builder *b) {
    for (int i = 0; i < b->g->inputs; i++)
        if (sgrad__graph_takes(b->g, b->g->input[i], b->g->stage)) return true;
    return false;
}

/* Makes the inputs of the loss, for each micro-batch, outputs of the program. */
static void add_answers(struct sgrad_builder *b) {
    b->p->answer = sgrad_xcalloc((size_t)b->micros, 2 * sizeof *b->p->answer);
    for (int i = 0; i < 2 * b->micros; i++) {
        struct sgrad_view view;
        const struct sgrad_use input = { .role = SGRAD_X, .index = i % 2, .access = SGRAD_R };
        b->p->answer[i] = sgrad__add_output(b, resolve(b, b->g->loss, FORWARD, input, i / 2, &view));
    }
}

/* Returns the first node of this rank's stage. */
static int first_here(const struct sgrad_builder *b) {
    int n = 0;
    while (!sgrad__is_here(b, n)) n++;
    return n;
}

/* Returns the sums of the loss; zeros, if this stage neither computes nor receives them. */
static int loss_sums(struct sgrad_builder *b) {
    struct sgrad_view view;
    const struct sgrad_use total = SGRAD_IN(STAT, 0);
    int sums = resolve(b, b->g->loss, FINISH, total, 0, &view);
    if (sums >= 0) return sums;
    sums = sgrad__add_buffer(b, sgrad_format("no loss"), view);
    sgrad__add_copy(b, -1, sums);
    return sums;
}

static void add_step(struct sgrad_builder *b) {
    struct sgrad_graph *g = b->g;
    int *summed = sgrad_xcalloc((size_t)g->parameter_count, sizeof *summed);
    for (int i = 0; i < g->parameter_count; i++) summed[i] = -1;
    b->rest = sgrad__parameters_count(g) * (int64_t)sizeof(float);

    for (int start = 0; start < b->micros; start += b->group_micros) {
        for (int m = start; m < start + b->group_micros && takes_input(b); m++) sgrad__add_input(b, m);
        sgrad__add_arrivals(b, start);
        for (int n = 0; n < g->node_count; n++) add_node(b, n, FORWARD, start);
        if (!b->p->training) continue;
        sgrad__add_gradient_arrivals(b, start);
        for (int n = g->node_count - 1; n >= 0; n--) {
            add_node(b, n, BACKWARD, start);
            if (n == first_here(b)) sgrad__add_gradient_departures(b, start);
            if (start + b->group_micros == b->micros) sgrad__add_node_updates(b, n, summed);
        }
    }
    if (b->p->training) {
        sgrad__close_gradients(b);
        if (b->o->optimizer->update_all) b->o->optimizer->update_all(b, summed);
        else if (b->o->clip_norm > 0) sgrad__add_clipped_updates(b, summed);
        sgrad__close_shares(b);
        if (!b->p->note) b->p->note = sgrad__assignment_text(g, b->o);
        if (b->peers > 1) sgrad__add_statistics(b);
        for (int n = 0; n < g->node_count; n++) add_node(b, n, FINISH, 0);
        if (b->o->lookahead.every) sgrad__add_lookahead(b);
        if (b->o->ema > 0) sgrad__add_averages(b);
        for (int i = 0; i < g->parameter_count; i++)
            if (!g->parameter[i].state) sgrad__add_histogram(b, "weights", i, b->parameter[i]);
    }
    if (b->o->answers && sgrad__is_here(b, g->loss)) add_answers(b);
    b->p->statistics = sgrad__add_output(b, loss_sums(b));
    free(summed);
}

bool sgrad__has_groups(const struct sgrad_graph *g) {
    for (int n = 0; n < g->node_count; n++)
        if (g->node[n].is.part[0].rank) return true;
    return false;
}

/* Returns true if a node is recomputed. */
static bool marked(const struct sgrad_graph *g) {
    for (int n = 0; n < g->node_count; n++)
        if (g->node[n].again) return true;
    return false;
}

static int *minus_ones(size_t count) {
    int *array = sgrad_xcalloc(count, sizeof *array);
    memset(array, 0xff, count * sizeof *array);
    return array;
}

static void open_builder(struct sgrad_builder *b) {
    size_t micros = (size_t)b->micros, per_node = (size_t)b->g->node_count * SGRAD_MAX_PARAMETERS * micros;
    for (enum made made = AT_FIRST; made < MADE; made++) {
        b->activation[made] = minus_ones((size_t)b->g->value_count * micros);
        b->keep[made] = minus_ones(per_node);
    }
    b->gradient = minus_ones((size_t)b->g->value_count * micros);
    b->part = minus_ones(per_node);
    b->sum = minus_ones(per_node);
    b->leaf = minus_ones(per_node);
    b->total = minus_ones(per_node);
    b->parameter = minus_ones((size_t)b->g->parameter_count);
    b->gathered = minus_ones((size_t)b->g->parameter_count);
    b->rounded = minus_ones((size_t)b->g->parameter_count);
    b->updated = minus_ones((size_t)b->g->parameter_count);
    b->dparameter = minus_ones(per_node);
    b->first = minus_ones((size_t)b->g->node_count * SGRAD_MAX_TASKS * micros);
    b->piece = minus_ones(SGRAD_MAX_INPUTS * micros);
    b->call = sgrad_xcalloc((size_t)b->g->node_count * PHASES * SGRAD_MAX_TASKS * SGRAD__SIZES * 2, sizeof *b->call);
    b->packed = minus_ones((size_t)b->g->node_count * PHASES * SGRAD_MAX_TASKS * SGRAD__SIZES);
    b->elsewhere = sgrad_xcalloc((size_t)b->g->parameter_count, sizeof *b->elsewhere);
    b->passing = sgrad__made_in_passing(b);
    b->norm = -1;
    for (int i = 0; i < b->g->parameter_count; i++)
        if (b->g->parameter[i].tensor)
            b->parameter[i] = sgrad__lend_buffer(b, b->o->parameter ? b->o->parameter[i] : b->g->parameter[i].tensor);
}

static void close_builder(struct sgrad_builder *b) {
    int *arrays[] = { b->gradient, b->part, b->sum, b->leaf, b->total, b->parameter, b->gathered, b->rounded, b->updated,
                      b->packed, b->dparameter, b->first, b->piece };
    for (enum made made = AT_FIRST; made < MADE; made++) {
        free(b->activation[made]);
        free(b->keep[made]);
    }
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(b->sharing);
    free(b->passing);
    free(b->elsewhere);
    free(b->call);
}

/* Returns the peers with different samples, including this rank: on a mesh, the ranks along its sample axes. */
static struct sgrad_group others(struct sgrad_builder *b) {
    const struct sgrad_mesh *mesh = &b->g->mesh;
    return mesh->axes && b->o->peers ? sgrad__along(b, sgrad_mesh_sampled(mesh)) : sgrad__peers(b, 0, sgrad__peer_count(b->o));
}

int sgrad__program_build(struct sgrad_graph *g, const struct sgrad_program_options *o, struct sgrad__program **program) {
    const bool grouped = o->training && sgrad__has_groups(g);
    const int peers = sgrad__peer_count(o), place = o->peers ? sgrad_group_place(o->peers, o->rank) : 0;
    struct sgrad__program *p = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .g = g, .o = o, .place = place, .peers = peers };
    sgrad__open_gradients(&b);
    b.others = others(&b);
    if (g->stages > 1) b.stage = sgrad__along(&b, sgrad_mesh_bit(&g->mesh, sgrad_mesh_axis(&g->mesh, SGRAD__PIPE)));
    const int64_t share = o->batch / b.others.count, group = grouped ? o->group : share;
    const int64_t here = group < share ? group : share;     /* samples of a group on this rank */
    assert(o->batch % b.others.count == 0 && o->window <= SGRAD__MAX_WINDOW && g->loss >= 0);
    assert(o->batch % group == 0 && share % here == 0 && group % here == 0 && (!o->unit || here % o->unit == 0));

    const int64_t averaged = o->training && peers > 1 ? share * o->strategy->ranks(o) / g->stages : o->batch;
    p->graph = g;
    p->batch = (struct sgrad_batch){ share * peers / (o->training ? g->stages : 1), group, averaged };
    p->share = share;
    p->training = o->training;
    p->grouped = grouped;
    p->window = o->window;
    p->bucket_bytes = sgrad__bucket_bytes_of(g, o);
    sgrad__cut_share(p, o, o->unit ? o->unit : here);
    b.micros = p->micros;
    b.group_micros = grouped ? (int)(p->micros * here / share) : 1;
    b.lanes = o->lanes && o->lanes < b.micros ? o->lanes : b.micros;
    const int span = (int)(group / here), at = sgrad_group_place(&b.others, o->rank);
    b.span = (struct sgrad_group){ span, b.others.rank + at - at % span };
    if (o->source.records.shape.rank) p->records = sgrad__add_lent(&b, "records", o->source.records);
    open_builder(&b);
    add_step(&b);
    close_builder(&b);
    sgrad__pack_first(&b);
    if (o->fuse) sgrad__fuse(&b);
    sgrad__hold_back(&b);
    sgrad__mark_last_uses(p);
    if (o->fuse && o->training && (!o->gpus || o->recorded))
        sgrad__share_memory(p, sgrad__micros_at_once(&b), o->gpus || marked(g), o->gpus);
    *program = p;
    return 0;
}
