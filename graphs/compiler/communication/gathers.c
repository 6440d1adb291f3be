/* gathers.c: parameters that are sharded over ranks, and that layers use whole. They are gathered once per step, before the first
 * layer that uses them; their gradients are summed and scattered once, after the last one.
 *
 *     rank 0   shard a ─┬─ all_gather ── join ── a b ── layers ── gradient ── cut ─┬─ reduce_scatter ── a's ── update
 *     rank 1   shard b ─┴─ all_gather ── join ── a b ── layers ── gradient ── cut ─┴─ reduce_scatter ── b's ── update
 *
 * (S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, stage 3; along one axis of
 * three, R. C. Agarwal et al., A three-dimensional approach to parallel matrix multiplication, 1995.) */
#include "graphs/compiler/builder.h"

#include <string.h>

/* Adds the task that joins shards to the WHOLE buffer, or cuts it into shards, as KERNEL does. */
static void add_pieces(struct sgrad_builder *builder, const struct sgrad_kernel *kernel, int whole, const int *piece, int pieces,
                       const char *name) {
    const bool join = kernel == &sgrad_join_kernel;
    struct sgrad_bound_kernel call = { .kernel = kernel, .operands = 1 + SGRAD_MAX_INPUTS };
    int operand[SGRAD_MAX_OPERANDS];
    for (int i = 0; i < call.operands; i++) {
        const int at = join ? i : i - 1;        /* shard; the whole is the last operand of join, and the first of cut */
        const bool is_whole = at == (join ? SGRAD_MAX_INPUTS : -1);
        operand[i] = is_whole ? whole : -1;
        if (!is_whole && at < pieces) operand[i] = piece[at];
        call.view[i].shape.rank = -1;
        if (operand[i] >= 0) call.view[i] = builder->p->buffer[operand[i]].view;
        call.access[i] = (operand[i] == whole) == join ? SGRAD_W : SGRAD_R;
    }
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, SGRAD__PRIORITY_CHAIN,
                           sgrad_format("%s %s", name, kernel->name));
}

static int add_gather(struct sgrad_builder *builder, const struct sgrad__cut *cut, int part, const char *name) {
    const struct sgrad_group group = sgrad__along(builder, sgrad_mesh_bit(&builder->g->mesh, cut->axis));
    struct sgrad_view whole = builder->p->buffer[part].view;
    int piece[SGRAD_MAX_INPUTS];
    for (int i = 0; i < group.count; i++) piece[i] = part;
    sgrad__add_exchange(builder, SGRAD_ALL_GATHER, &group, -1, piece, group.count, SGRAD__PRIORITY_CHAIN, name);
    whole.shape.dim[cut->dimension] *= group.count;
    const int to = sgrad__add_buffer(builder, sgrad_format("%s gathered", name), whole);
    add_pieces(builder, &sgrad_join_kernel, to, piece, group.count, name);
    return to;
}

static int add_scatter(struct sgrad_builder *builder, const struct sgrad__cut *cut, int whole, const char *name) {
    const struct sgrad_group group = sgrad__along(builder, sgrad_mesh_bit(&builder->g->mesh, cut->axis));
    struct sgrad_view part = builder->p->buffer[whole].view;
    int piece[SGRAD_MAX_INPUTS];
    part.shape.dim[cut->dimension] /= group.count;
    for (int i = 0; i < group.count; i++)
        piece[i] = sgrad__add_buffer(builder, sgrad_format("%s gradient piece%d", name, i), part);
    add_pieces(builder, &sgrad_cut_kernel, whole, piece, group.count, name);
    sgrad__add_exchange(builder, SGRAD_REDUCE_SCATTER, &group, -1, piece, group.count, SGRAD__PRIORITY_SENT_WEIGHT, name);
    return piece[sgrad_group_index(&group, builder->o->rank)];
}

/* Returns the place of PARAMETER in an array with one half for forward and one for backward. */
static int place_of(const struct sgrad_builder *builder, int parameter, enum phase phase) {
    const bool again = builder->g->parameter[parameter].share.ranks && phase != FORWARD && phase != FINISH;
    return again ? builder->g->parameter_count + parameter : parameter;
}

/* Returns the buffer of the shard of PARAMETER, all of it. */
static int add_whole(struct sgrad_builder *builder, int parameter, enum phase phase) {
    const struct sgrad__parameter *p = &builder->g->parameter[parameter];
    if (!p->share.ranks) return builder->parameter[parameter];
    int *at = &builder->whole[place_of(builder, parameter, phase)];
    if (*at < 0)
        *at = sgrad__add_buffer(builder, sgrad_format("%s gathered", p->name), (struct sgrad_view){ p->is.dtype, p->kept_shape });
    return *at;
}

int sgrad__add_gathered(struct sgrad_builder *builder, int parameter, enum phase phase) {
    const struct sgrad__parameter *p = &builder->g->parameter[parameter];
    int *at = &builder->gathered[place_of(builder, parameter, phase)];
    if (*at >= 0) return *at;
    *at = add_whole(builder, parameter, phase);
    for (int c = p->cuts - 1; c >= 0 && p->cut[c].gathered; c--) *at = add_gather(builder, &p->cut[c], *at, p->name);
    return *at;
}

int sgrad__add_rounded(struct sgrad_builder *builder, int parameter, enum phase phase) {
    const int whole = sgrad__add_gathered(builder, parameter, phase);
    int *at = &builder->rounded[place_of(builder, parameter, phase)];
    if (*at >= 0) return *at;
    const struct sgrad_view from = builder->p->buffer[whole].view, to = { SGRAD_BF16, from.shape };
    const struct sgrad_bound_kernel call = { .kernel = &sgrad_round_kernel, .operands = 2, .access = { SGRAD_R, SGRAD_W },
                                     .view = { from, to } };
    const char *name = builder->g->parameter[parameter].name;
    *at = sgrad__add_buffer(builder, sgrad_format("%s rounded", name), to);
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), (int[]){ whole, *at }, 0, SGRAD__PRIORITY_CHAIN,
                           sgrad_format("%s rounded", name))->workers = SGRAD_GPU_WORKERS;
    return *at;
}

int sgrad__add_scattered(struct sgrad_builder *builder, int parameter, int gradient) {
    const struct sgrad__parameter *p = &builder->g->parameter[parameter];
    for (int c = 0; c < p->cuts && gradient >= 0; c++)
        if (p->cut[c].gathered) gradient = add_scatter(builder, &p->cut[c], gradient, p->name);
    return gradient;
}
