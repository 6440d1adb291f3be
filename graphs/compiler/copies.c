/* copies.c: adds tasks that assemble a buffer from elements of other buffers.
 *
 *     from 0   . a a .  ──┐
 *     from 1   b b b    ──┴──>   to   b b b a a */
#include "graphs/compiler/builder.h"

/* Adds several tasks, if one has not enough operands. */
void sgrad__add_copies(struct sgrad_builder *builder, const struct sgrad__piece *piece, int count, int to, const char *name) {
    for (int at = 0; at < count; at += SGRAD_COPY_INPUTS) {
        struct sgrad_copy *copy = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *copy));
        struct sgrad_bound_kernel call = { .kernel = &sgrad_copy_kernel, .attrs = copy, .operands = SGRAD_COPY_INPUTS + 1 };
        int operand[SGRAD_COPY_INPUTS + 1];
        for (int i = 0; i < SGRAD_COPY_INPUTS; i++) {
            operand[i] = at + i < count ? piece[at + i].from : -1;
            call.access[i] = SGRAD_R;
            call.view[i].shape.rank = -1;
            if (operand[i] >= 0) call.view[i] = builder->p->buffer[operand[i]].view;
            if (at + i < count) copy->block[i] = piece[at + i].is;
        }
        operand[SGRAD_COPY_INPUTS] = to;
        call.view[SGRAD_COPY_INPUTS] = builder->p->buffer[to].view;
        call.access[SGRAD_COPY_INPUTS] = at ? SGRAD_RW : SGRAD_W;
        sgrad__add_instruction(builder, sgrad__add_call(builder, call), operand, 0, SGRAD__PRIORITY_UPDATE,
                               sgrad_format("%s", name));
    }
}

void sgrad__add_copy(struct sgrad_builder *builder, int from, int to) {
    const int64_t count = sgrad_shape_count(&builder->p->buffer[to].view.shape);
    sgrad__add_copies(builder, &(struct sgrad__piece){ from, { 0, 0, count } }, 1, to, builder->p->buffer[to].name);
}

void sgrad__add_slice(struct sgrad_builder *builder, int from, int64_t first, int to) {
    const int64_t count = sgrad_shape_count(&builder->p->buffer[to].view.shape);
    sgrad__add_copies(builder, &(struct sgrad__piece){ from, { first, 0, count } }, 1, to, builder->p->buffer[to].name);
}
