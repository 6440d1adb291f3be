/* packing.c: packs factors that many tasks of a step use, once for all of them.
 *
 *     conv1.weight ── pack ──> packed U8 ──┬─ conv1 forward #0
 *                                          ├─ conv1 forward #1        each for its micro-batch
 *                                          └─ conv1 forward #2
 *
 * The kernel determines the layout (struct sgrad_kernel, .pack_layout) for a whole micro-batch; slices of it (fuse.c) use the
 * same layout. */
#include "graphs/compiler/builder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* In training, factors are always packed, so that programs and bits of results do not depend on the number of micro-batches of a
 * rank. Outside training, the only task of a layer packs its factor itself, which is as fast. */
void sgrad__plan_packing(const struct sgrad_builder *builder, const struct sgrad_task *task, int m,
                         struct sgrad_bound_kernel *call) {
    const bool alone = builder->micros == 1 && !builder->p->training;
    size_t bytes;
    if (SGRAD_SIMULATED || !task->kernel.pack_layout || alone || sgrad__on_gpus(builder, builder->p->micro[m].workers)) return;
    assert(task->use[task->kernel.weight_operand].factor);
    call->deterministic = builder->o->deterministic;
    const struct sgrad_args args = sgrad_bound_kernel_args(call);
    call->packing = task->kernel.pack_layout(&args, &bytes);
}

void sgrad__add_packed(struct sgrad_builder *builder, const struct sgrad_bound_kernel *call, int *operand, int *packed) {
    if (!call->packing) return;
    int *factor = &operand[call->kernel->weight_operand];
    if (*packed < 0) {
        size_t bytes;
        const struct sgrad_args args = sgrad_bound_kernel_args(call);
        const struct sgrad_view from = builder->p->buffer[*factor].view;
        const char *name = builder->p->buffer[*factor].name;
        call->kernel->pack_layout(&args, &bytes);
        const struct sgrad_bound_kernel pack = { .kernel = &sgrad_pack_kernel, .attrs = call, .operands = 2,
                                         .access = { SGRAD_R, SGRAD_W },
                                         .view = { from, { SGRAD_U8, { 1, { (int64_t)bytes } } } } };
        *packed = sgrad__add_buffer(builder, sgrad_format("%s packed", name), pack.view[1]);
        sgrad__add_instruction(builder, sgrad__add_call(builder, pack), (int[]){ *factor, *packed }, 0, SGRAD__PRIORITY_CHAIN,
                               sgrad_format("%s packed", name))->workers = SGRAD_CPU_WORKERS;
    }
    *factor = *packed;
}

/* Otherwise the packing would be between tasks that are fused (fuse.c). */
void sgrad__pack_first(struct sgrad_builder *builder) {
    struct sgrad__program *p = builder->p;
    const size_t count = (size_t)p->instruction_count;
    bool *written = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *written), *early = sgrad_xcalloc(count + 1, sizeof *early);
    int *now = sgrad_xcalloc(count + 1, sizeof *now), at = 0;
    struct sgrad__instruction *list = sgrad_xcalloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        early[i] = in->call->kernel == &sgrad_pack_kernel && !written[in->operand[0]];
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] >= 0 && in->call->access[j] != SGRAD_R) written[in->operand[j]] = true;
    }
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < count; i++) {
            if (early[i] == late) continue;
            list[at] = p->instruction[i];
            now[i] = at++;
        }
    for (size_t i = 0; i < count; i++)
        if (list[i].again >= 0) list[i].again = now[list[i].again];
    memcpy(p->instruction, list, count * sizeof *list);
    free(list);
    free(now);
    free(early);
    free(written);
}
