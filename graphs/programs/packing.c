/* packing.c: factors that all of a step's tasks take, packed once for them.
 *
 *     conv1.weight ── pack ──> packed U8 ──┬─ conv1 forward #0
 *                                          ├─ conv1 forward #1        each its own samples
 *                                          └─ conv1 forward #2
 *
 * How it is best packed is its kernel's business (struct sgrad_kernel, .packing), which is asked for a micro-batch; slices of
 * that (fuse.c) take it as it is then. */
#include "graphs/programs/builder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Always in training, so that programs are alike, and bits, however many micro-batches a rank has. Outside it a task that is
 * alone packs what it takes as fast itself. */
void sgrad__plan_packing(const struct sgrad__builder *b, const struct sgrad_task *task, int m, struct sgrad_call *call) {
    const bool alone = b->micros == 1 && !b->p->training;
    size_t bytes;
    if (SGRAD_SIMULATED || !task->kernel.packing || alone || sgrad__on_gpus(b, b->p->micro[m].workers)) return;
    assert(task->use[task->kernel.factor].factor);
    call->deterministic = b->o->deterministic;
    const struct sgrad_args args = sgrad_call_args(call);
    call->packing = task->kernel.packing(&args, &bytes);
}

void sgrad__add_packed(struct sgrad__builder *b, const struct sgrad_call *call, int *operand, int *packed) {
    if (!call->packing) return;
    int *factor = &operand[call->kernel->factor];
    if (*packed < 0) {
        size_t bytes;
        const struct sgrad_args args = sgrad_call_args(call);
        const struct sgrad_view from = b->p->buffer[*factor].view;
        const char *name = b->p->buffer[*factor].name;
        call->kernel->packing(&args, &bytes);
        const struct sgrad_call pack = { .kernel = &sgrad_pack_kernel, .attrs = call, .operands = 2,
                                         .access = { SGRAD_R, SGRAD_W },
                                         .view = { from, { SGRAD_U8, { 1, { (int64_t)bytes } } } } };
        *packed = sgrad__add_buffer(b, sgrad_format("%s packed", name), pack.view[1]);
        sgrad__add_instruction(b, sgrad__add_call(b, pack), (int[]){ *factor, *packed }, 0, SGRAD__PRIORITY_CHAIN,
                               sgrad_format("%s packed", name))->workers = SGRAD_CPU_WORKERS;
    }
    *factor = *packed;
}

/* Else it would stand between tasks that become one (fuse.c). */
void sgrad__pack_first(struct sgrad__builder *b) {
    struct sgrad__program *p = b->p;
    const size_t count = (size_t)p->instruction_count;
    bool *written = sgrad_alloc((size_t)p->buffer_count + 1, sizeof *written), *early = sgrad_alloc(count + 1, sizeof *early);
    int *now = sgrad_alloc(count + 1, sizeof *now), at = 0;
    struct sgrad__instruction *list = sgrad_alloc(count + 1, sizeof *list);
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
