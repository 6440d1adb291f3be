/* updates.c: adds the updates of parameters by their gradients, with the optimizer, and with clipping if it is requested; then
 * those of slow weights (lookahead) and of moving averages. */
#include "codelets/updates.h"
#include "graphs/compiler/builder.h"

#include <stdlib.h>

static void add_squared_norm(struct sgrad_builder *builder, int parameter, int gradient, int *norm) {
    const struct sgrad__parameter *w = &builder->g->parameter[parameter];
    struct sgrad_bound_kernel call = { .kernel = &sgrad_squared_norm_kernel, .operands = 2, .access = { SGRAD_R, SGRAD_W },
                               .view = { builder->p->buffer[gradient].view, sgrad__doubles(sgrad_shape(1, 1)) } };
    *norm = sgrad__add_buffer(builder, sgrad_format("%s norm", w->name), call.view[1]);
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), (int[]){ gradient, *norm }, 0, SGRAD__PRIORITY_UPDATE,
                           sgrad_format("%s norm", w->name));
}

/* Returns a buffer with a copy of this rank's shard of a parameter's value, which is then updated. */
static int add_share(struct sgrad_builder *builder, int parameter, const struct sgrad__share *share) {
    const char *name = builder->g->parameter[parameter].name;
    const int to = sgrad__add_buffer(builder, sgrad_format("%s updated", name),
                                     (struct sgrad_view){ SGRAD_F32, sgrad_shape(1, share->count) });
    sgrad__add_slice(builder, builder->parameter[parameter], share->first, to);
    return builder->updated[parameter] = to;
}

/* Adds the update of VALUE by GRADIENT and STATE, one buffer for each state of the optimizer. */
static void add_update(struct sgrad_builder *builder, int parameter, int value, int gradient, const int *state) {
    const struct sgrad__update *update = &builder->o->training->update[parameter];
    struct sgrad_bound_kernel call = { .kernel = update->optimizer->update, .attrs = &update->hyper, .operands = 3 };
    int operand[SGRAD_MAX_OPERANDS] = { value, gradient, builder->norm };
    call.access[0] = SGRAD_RW;
    call.access[1] = call.access[2] = SGRAD_R;
    call.view[0] = call.view[1] = builder->p->buffer[value].view;
    call.view[2] = sgrad__doubles(sgrad_shape(1, 1));
    if (builder->norm < 0) call.view[2].shape.rank = -1;
    for (int i = 0; update->state[i]; i++) {
        operand[call.operands] = state[i];
        call.view[call.operands] = builder->p->buffer[state[i]].view;
        call.access[call.operands++] = SGRAD_RW;
    }
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, sgrad__update_priority(builder),
                           sgrad_format("%s update", builder->g->parameter[parameter].name));
}

void sgrad__add_update(struct sgrad_builder *builder, int parameter, int gradient) {
    const struct sgrad__update *update = &builder->o->training->update[parameter];
    int state[SGRAD_MAX_OPERANDS];
    sgrad__add_histogram(builder, "gradients", parameter, gradient);
    const struct sgrad__share share = sgrad__share_of(builder->o->training, &builder->g->parameter[parameter], builder->o->rank);
    if (update->ranks && !share.count) return;      /* another rank updates it */
    const bool copied = share.ranks > 1 && !update->ranks && !builder->g->parameter[parameter].share.ranks;
    const int value = copied ? add_share(builder, parameter, &share) : builder->parameter[parameter];
    if (update->ranks) builder->updated[parameter] = value;
    for (int i = 0; update->state[i]; i++) state[i] = sgrad__lend_buffer(builder, update->state[i]);
    add_update(builder, parameter, value, gradient, state);
}

/* Each element is updated independently, unless the optimizer needs the whole parameter. The number of chunks does not depend on
 * the machine, which may have many cores. On GPUs a parameter is not divided, because a GPU uses all its cores for it. Chunks of
 * states that are read from a file are larger. */
int sgrad__update_parts(const struct sgrad_builder *builder, int parameter) {
    enum { PART = 1 << 17, MOVED = 1 << 20, MOST = 64 };    /* elements: about 100 us, and the sum stays in the core's cache */
    const struct sgrad__training *training = builder->o->training;
    const struct sgrad__parameter *w = &builder->g->parameter[parameter];
    const struct sgrad__update *update = &training->update[parameter];
    const int64_t count = sgrad_shape_count(&w->kept_shape), part = builder->o->limit.moved ? MOVED : PART,
                  parts = (count + part - 1) / part;
    if (sgrad__updates_wait(builder) || builder->o->gpus || builder->o->histograms || update->optimizer != training->optimizer ||
        update->optimizer->needs_full_tensor || sgrad__share_of(training, w, builder->o->rank).ranks > 1)
        return 1;
    for (int i = 0; update->state[i]; i++)
        if (sgrad_shape_count(&update->state[i]->view.shape) != count) return 1;
    return (int)(parts < MOST ? parts : MOST);
}

/* Returns the external buffer with TENSOR. The chunks of a tensor must belong to the same buffer. */
static int lent_to(struct sgrad_builder *builder, struct sgrad_tensor *tensor) {
    for (int i = builder->p->buffer_count; i-- > 0;)
        if (builder->p->buffer[i].lent && builder->p->buffer[i].tensor[0] == tensor) return i;
    return sgrad__lend_buffer(builder, tensor);
}

void sgrad__add_update_part(struct sgrad_builder *builder, int parameter, int part, int parts, int gradient) {
    const struct sgrad__update *update = &builder->o->training->update[parameter];
    int state[SGRAD_MAX_OPERANDS];
    const int value = sgrad__add_part(builder, builder->parameter[parameter], part, parts);
    for (int i = 0; update->state[i]; i++) state[i] = sgrad__add_part(builder, lent_to(builder, update->state[i]), part, parts);
    add_update(builder, parameter, value, gradient, state);
}

/* Returns the sum over all ranks of SUM, the squared norm of this rank's shards; -1: it has none. */
static int add_norm_of_shares(struct sgrad_builder *builder, int sum) {
    const struct sgrad_group all = sgrad__peers(builder, 0, builder->peers);
    if (sum < 0) {
        sum = sgrad__add_buffer(builder, sgrad_format("gradient norm of shares"), sgrad__doubles(sgrad_shape(1, 1)));
        sgrad__add_copy(builder, -1, sum);
    }
    return sgrad__add_collective(builder, SGRAD_ALLREDUCE, &all, -1, sum, SGRAD__PRIORITY_UPDATE, "gradient norm of shares");
}

/* Returns the squared norm of all parameters that are split like those of SHARING, summed over their shards; -1: there are none.
 * Their elements in NORM are set to -1. */
static int add_norm_of_parts(struct sgrad_builder *builder, const struct sgrad__sharing *sharing, int *norm) {
    int *part = sgrad_xcalloc((size_t)builder->g->parameter_count, sizeof *part), sum;
    for (int i = 0; i < builder->g->parameter_count; i++) {
        const bool split = sgrad__part_axes(builder->g, &builder->g->parameter[i]) == sharing->axes;
        part[i] = split ? norm[i] : -1;
        if (split) norm[i] = -1;
    }
    sum = sgrad__add_sum(builder, part, builder->g->parameter_count, "gradient norm of parts");
    free(part);
    if (builder->o->training->sharers && sharing->group.count > 1) return add_norm_of_shares(builder, sum);
    if (sum < 0) return -1;
    const struct sgrad_group group = sgrad__along(builder, sharing->axes);
    return sgrad__add_collective(builder, SGRAD_ALLREDUCE, &group, -1, sum, SGRAD__PRIORITY_UPDATE, "gradient norm of parts");
}

/* Stages have different parameters: each is counted by the first rank that stores it or, if optimizer states are sharded, by all
 * ranks that have shards of it. */
static int add_norm_of_stages(struct sgrad_builder *builder, const int *summed) {
    int *norm = sgrad_xcalloc((size_t)builder->g->parameter_count, sizeof *norm);
    int *member = sgrad_xcalloc((size_t)builder->peers, sizeof *member);
    for (int i = 0; i < builder->g->parameter_count; i++) {
        norm[i] = -1;
        const struct sgrad_group holders = sgrad__holders(builder->g, &builder->g->parameter[i], builder->o->rank, member);
        if (summed[i] >= 0 && (builder->o->training->sharers || holders.rank[0] == builder->o->rank))
            add_squared_norm(builder, i, summed[i], &norm[i]);
    }
    const int sum = sgrad__add_sum(builder, norm, builder->g->parameter_count, "gradient norm of a stage");
    const int before = sgrad__number_from(builder, sgrad__norm_number());
    const int all = add_norm_of_shares(builder, sum);
    sgrad__number_from(builder, before);
    free(member);
    free(norm);
    return all;
}

static int add_norm(struct sgrad_builder *builder, const int *summed) {
    int *norm = sgrad_xcalloc((size_t)(builder->g->parameter_count + builder->sharings), sizeof *norm),
        count = builder->g->parameter_count;
    for (int i = 0; i < builder->g->parameter_count; i++) {
        norm[i] = -1;
        if (summed[i] >= 0) add_squared_norm(builder, i, summed[i], &norm[i]);
    }
    for (int i = builder->o->training->sharers ? 0 : 1; i < builder->sharings; i++)
        norm[count++] = add_norm_of_parts(builder, &builder->sharing[i], norm);
    const int sum = sgrad__add_sum(builder, norm, count, "gradient norm");
    free(norm);
    return sum;
}

void sgrad__add_clipped_updates(struct sgrad_builder *builder, const int *summed) {
    builder->norm = builder->g->stages > 1 ? add_norm_of_stages(builder, summed) : add_norm(builder, summed);
    for (int i = 0; i < builder->g->parameter_count; i++)
        if (summed[i] >= 0) sgrad__add_update(builder, i, summed[i]);
}

void sgrad__add_averages(struct sgrad_builder *builder) {
    const struct sgrad__training *training = builder->o->training;
    double *decay = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *decay));
    *decay = builder->o->ema;
    for (int i = 0; i < builder->g->parameter_count; i++) {
        struct sgrad_tensor *average = training->update[i].average;
        if (!average) continue;
        const struct sgrad_optimizer *by = sgrad__averaging(training, i);
        const struct sgrad_bound_kernel call = { .kernel = by ? by->average : &sgrad_ema_kernel, .operands = 2,
                                         .attrs = by ? (const void *)&training->update[i].hyper : decay,
                                         .access = { SGRAD_R, SGRAD_RW },
                                         .view = { average->view, average->view } };
        const int operand[] = { builder->parameter[i], sgrad__lend_buffer(builder, average) };
        sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, SGRAD__PRIORITY_WEIGHT,
                               sgrad_format("%s average", builder->g->parameter[i].name));
    }
}

/* Adds the lookahead updates in the steps WHEN. */
static void add_steps_back(struct sgrad_builder *builder, struct sgrad_lookahead is, struct sgrad__when when) {
    struct sgrad_lookahead *how = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *how));
    *how = is;
    builder->when = when;
    for (int i = 0; i < builder->g->parameter_count; i++) {
        struct sgrad_tensor *slow = builder->o->training->update[i].slow;
        if (!slow) continue;
        const struct sgrad_bound_kernel call = { .kernel = &sgrad_lookahead_kernel, .attrs = how, .operands = 2,
                                         .access = { SGRAD_RW, SGRAD_RW }, .view = { slow->view, slow->view } };
        const int operand[] = { builder->parameter[i], sgrad__lend_buffer(builder, slow) };
        sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, SGRAD__PRIORITY_WEIGHT,
                               sgrad_format("%s lookahead", builder->g->parameter[i].name));
    }
    builder->when = (struct sgrad__when){ 0 };
}

/* The last step ends with the slow weights. */
void sgrad__add_lookahead(struct sgrad_builder *builder) {
    struct sgrad_lookahead is = builder->o->lookahead;
    add_steps_back(builder, is, (struct sgrad__when){ is.every, is.every });
    is.decay = -1;
    if (is.steps % is.every) add_steps_back(builder, is, (struct sgrad__when){ SGRAD__ONCE, is.steps });
}
