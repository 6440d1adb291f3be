/* updates.c: adds the updates of parameters by their gradients, with the optimizer, and with clipping if it is requested; then
 * those of slow weights (lookahead) and of moving averages. */
#include "codelets/updates.h"
#include "graphs/compiler/builder.h"

#include <stdlib.h>

static void add_squared_norm(struct sgrad_builder *b, int parameter, int gradient, int *norm) {
    const struct sgrad__parameter *w = &b->g->parameter[parameter];
    struct sgrad_bound_kernel call = { .kernel = &sgrad_squared_norm_kernel, .operands = 2, .access = { SGRAD_R, SGRAD_W },
                               .view = { b->p->buffer[gradient].view, sgrad__doubles(sgrad_shape(1, 1)) } };
    *norm = sgrad__add_buffer(b, sgrad_format("%s norm", w->name), call.view[1]);
    sgrad__add_instruction(b, sgrad__add_call(b, call), (int[]){ gradient, *norm }, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s norm", w->name));
}

/* Returns a buffer with a copy of this rank's shard of a parameter's value, which is then updated. */
static int add_share(struct sgrad_builder *b, int parameter, const struct sgrad__share *share) {
    const char *name = b->g->parameter[parameter].name;
    const int to = sgrad__add_buffer(b, sgrad_format("%s updated", name),
                                     (struct sgrad_view){ SGRAD_F32, sgrad_shape(1, share->count) });
    sgrad__add_slice(b, b->parameter[parameter], share->first, to);
    return b->updated[parameter] = to;
}

/* Adds the update of VALUE by GRADIENT and STATE, one buffer for each state of the optimizer. */
static void add_update(struct sgrad_builder *b, int parameter, int value, int gradient, const int *state) {
    const struct sgrad__update *update = &b->o->training->update[parameter];
    struct sgrad_bound_kernel call = { .kernel = update->optimizer->update, .attrs = &update->hyper, .operands = 3 };
    int operand[SGRAD_MAX_OPERANDS] = { value, gradient, b->norm };
    call.access[0] = SGRAD_RW;
    call.access[1] = call.access[2] = SGRAD_R;
    call.view[0] = call.view[1] = b->p->buffer[value].view;
    call.view[2] = sgrad__doubles(sgrad_shape(1, 1));
    if (b->norm < 0) call.view[2].shape.rank = -1;
    for (int i = 0; update->state[i]; i++) {
        operand[call.operands] = state[i];
        call.view[call.operands] = b->p->buffer[state[i]].view;
        call.access[call.operands++] = SGRAD_RW;
    }
    sgrad__add_instruction(b, sgrad__add_call(b, call), operand, 0, sgrad__update_priority(b),
                           sgrad_format("%s update", b->g->parameter[parameter].name));
}

void sgrad__add_update(struct sgrad_builder *b, int parameter, int gradient) {
    const struct sgrad__update *update = &b->o->training->update[parameter];
    int state[SGRAD_MAX_OPERANDS];
    sgrad__add_histogram(b, "gradients", parameter, gradient);
    const struct sgrad__share share = sgrad__share_of(b->o->training, &b->g->parameter[parameter], b->o->rank);
    if (update->ranks && !share.count) return;      /* another rank updates it */
    const int value = share.ranks > 1 && !update->ranks ? add_share(b, parameter, &share) : b->parameter[parameter];
    if (update->ranks) b->updated[parameter] = value;
    for (int i = 0; update->state[i]; i++) state[i] = sgrad__lend_buffer(b, update->state[i]);
    add_update(b, parameter, value, gradient, state);
}

/* Each element is updated independently, unless the optimizer needs the whole parameter. The number of chunks does not depend on
 * the machine, which may have many cores. On GPUs a parameter is not divided, because a GPU uses all its cores for it. */
int sgrad__update_parts(const struct sgrad_builder *b, int parameter) {
    enum { PART = 1 << 17, MOST = 64 };     /* elements: about 100 us, and the sum stays in the core's cache */
    const struct sgrad__training *training = b->o->training;
    const struct sgrad__parameter *w = &b->g->parameter[parameter];
    const struct sgrad__update *update = &training->update[parameter];
    const int64_t count = sgrad_shape_count(&w->kept_shape), parts = (count + PART - 1) / PART;
    if (sgrad__updates_wait(b) || b->o->gpus || b->o->histograms || update->optimizer != training->optimizer ||
        update->optimizer->needs_full_tensor || sgrad__share_of(training, w, b->o->rank).ranks > 1)
        return 1;
    for (int i = 0; update->state[i]; i++)
        if (sgrad_shape_count(&update->state[i]->view.shape) != count) return 1;
    return (int)(parts < MOST ? parts : MOST);
}

/* Returns the external buffer with TENSOR. The chunks of a tensor must belong to the same buffer. */
static int lent_to(struct sgrad_builder *b, struct sgrad_tensor *tensor) {
    for (int i = b->p->buffer_count; i-- > 0;)
        if (b->p->buffer[i].lent && b->p->buffer[i].tensor[0] == tensor) return i;
    return sgrad__lend_buffer(b, tensor);
}

void sgrad__add_update_part(struct sgrad_builder *b, int parameter, int part, int parts, int gradient) {
    const struct sgrad__update *update = &b->o->training->update[parameter];
    int state[SGRAD_MAX_OPERANDS];
    const int value = sgrad__add_part(b, b->parameter[parameter], part, parts);
    for (int i = 0; update->state[i]; i++) state[i] = sgrad__add_part(b, lent_to(b, update->state[i]), part, parts);
    add_update(b, parameter, value, gradient, state);
}

/* Returns the sum over all ranks of SUM, the squared norm of this rank's shards; -1: it has none. */
static int add_norm_of_shares(struct sgrad_builder *b, int sum) {
    const struct sgrad_group all = sgrad__peers(b, 0, b->peers);
    if (sum < 0) {
        sum = sgrad__add_buffer(b, sgrad_format("gradient norm of shares"), sgrad__doubles(sgrad_shape(1, 1)));
        sgrad__add_copy(b, -1, sum);
    }
    return sgrad__add_collective(b, SGRAD_ALLREDUCE, &all, -1, sum, SGRAD__PRIORITY_UPDATE, "gradient norm of shares");
}

/* Returns the squared norm of all parameters that are split like those of SHARING, summed over their shards; -1: there are none.
 * Their elements in NORM are set to -1. */
static int add_norm_of_parts(struct sgrad_builder *b, const struct sgrad__sharing *sharing, int *norm) {
    int *part = sgrad_xcalloc((size_t)b->g->parameter_count, sizeof *part), sum;
    for (int i = 0; i < b->g->parameter_count; i++) {
        const bool split = sgrad__part_axes(b->g, &b->g->parameter[i]) == sharing->axes;
        part[i] = split ? norm[i] : -1;
        if (split) norm[i] = -1;
    }
    sum = sgrad__add_sum(b, part, b->g->parameter_count, "gradient norm of parts");
    free(part);
    if (b->o->training->sharers && sharing->group.count > 1) return add_norm_of_shares(b, sum);
    if (sum < 0) return -1;
    const struct sgrad_group group = sgrad__along(b, sharing->axes);
    return sgrad__add_collective(b, SGRAD_ALLREDUCE, &group, -1, sum, SGRAD__PRIORITY_UPDATE, "gradient norm of parts");
}

/* Stages have different parameters: each is counted by the first rank that stores it or, if optimizer states are sharded, by all
 * ranks that have shards of it. */
static int add_norm_of_stages(struct sgrad_builder *b, const int *summed) {
    int *norm = sgrad_xcalloc((size_t)b->g->parameter_count, sizeof *norm);
    int *member = sgrad_xcalloc((size_t)b->peers, sizeof *member);
    for (int i = 0; i < b->g->parameter_count; i++) {
        norm[i] = -1;
        const struct sgrad_group holders = sgrad__holders(b->g, &b->g->parameter[i], b->o->rank, member);
        if (summed[i] >= 0 && (b->o->training->sharers || holders.rank[0] == b->o->rank))
            add_squared_norm(b, i, summed[i], &norm[i]);
    }
    const int sum = sgrad__add_sum(b, norm, b->g->parameter_count, "gradient norm of a stage");
    const int before = sgrad__number_from(b, sgrad__norm_number());
    const int all = add_norm_of_shares(b, sum);
    sgrad__number_from(b, before);
    free(member);
    free(norm);
    return all;
}

static int add_norm(struct sgrad_builder *b, const int *summed) {
    int *norm = sgrad_xcalloc((size_t)(b->g->parameter_count + b->sharings), sizeof *norm), count = b->g->parameter_count;
    for (int i = 0; i < b->g->parameter_count; i++) {
        norm[i] = -1;
        if (summed[i] >= 0) add_squared_norm(b, i, summed[i], &norm[i]);
    }
    for (int i = b->o->training->sharers ? 0 : 1; i < b->sharings; i++)
        norm[count++] = add_norm_of_parts(b, &b->sharing[i], norm);
    const int sum = sgrad__add_sum(b, norm, count, "gradient norm");
    free(norm);
    return sum;
}

void sgrad__add_clipped_updates(struct sgrad_builder *b, const int *summed) {
    b->norm = b->g->stages > 1 ? add_norm_of_stages(b, summed) : add_norm(b, summed);
    for (int i = 0; i < b->g->parameter_count; i++)
        if (summed[i] >= 0) sgrad__add_update(b, i, summed[i]);
}

void sgrad__add_averages(struct sgrad_builder *b) {
    double *decay = sgrad__own(b->p, sgrad_xcalloc(1, sizeof *decay));
    *decay = b->o->ema;
    for (int i = 0; i < b->g->parameter_count; i++) {
        struct sgrad_tensor *average = b->o->training->update[i].average;
        if (!average) continue;
        const struct sgrad_bound_kernel call = { .kernel = &sgrad_ema_kernel, .attrs = decay, .operands = 2,
                                         .access = { SGRAD_R, SGRAD_RW },
                                         .view = { average->view, average->view } };
        const int operand[] = { b->parameter[i], sgrad__lend_buffer(b, average) };
        sgrad__add_instruction(b, sgrad__add_call(b, call), operand, 0, SGRAD__PRIORITY_WEIGHT,
                               sgrad_format("%s average", b->g->parameter[i].name));
    }
}

/* Adds the lookahead updates in the steps WHEN. */
static void add_steps_back(struct sgrad_builder *b, struct sgrad_lookahead is, struct sgrad__when when) {
    struct sgrad_lookahead *how = sgrad__own(b->p, sgrad_xcalloc(1, sizeof *how));
    *how = is;
    b->when = when;
    for (int i = 0; i < b->g->parameter_count; i++) {
        struct sgrad_tensor *slow = b->o->training->update[i].slow;
        if (!slow) continue;
        const struct sgrad_bound_kernel call = { .kernel = &sgrad_lookahead_kernel, .attrs = how, .operands = 2,
                                         .access = { SGRAD_RW, SGRAD_RW }, .view = { slow->view, slow->view } };
        const int operand[] = { b->parameter[i], sgrad__lend_buffer(b, slow) };
        sgrad__add_instruction(b, sgrad__add_call(b, call), operand, 0, SGRAD__PRIORITY_WEIGHT,
                               sgrad_format("%s lookahead", b->g->parameter[i].name));
    }
    b->when = (struct sgrad__when){ 0 };
}

/* The last step ends with the slow weights. */
void sgrad__add_lookahead(struct sgrad_builder *b) {
    struct sgrad_lookahead is = b->o->lookahead;
    add_steps_back(b, is, (struct sgrad__when){ is.every, is.every });
    is.decay = -1;
    if (is.steps % is.every) add_steps_back(b, is, (struct sgrad__when){ SGRAD__ONCE, is.steps });
}
