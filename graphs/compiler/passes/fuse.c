/* fuse.c: fuses consecutive operations on the same samples into one task, which processes a slice of the samples at a time.
 * Outputs are then in the core's cache when the next operation reads them; those that only this task uses are never written to
 * memory.
 *
 *     batchnorm apply #3    x ──> y          |     conv1 fused forward #3:   for each slice of the samples
 *     conv2d forward #3     y, w ──> z       |         apply    x ──> y
 *     batchnorm stats #3    z ──> part       |         conv2d   y, w ──> z
 *                                            |         stats    z ──> part, or added to it
 *
 * Consecutive tasks of a micro-batch process its samples in alternating directions: the samples that the previous task processed
 * last are still in the third-level cache.
 *
 * An operation joins an earlier one, and then runs at its position, if no instruction between the two must run before it.
 *
 *     1 batchnorm apply #3   x ──> y
 *     2 send y
 *     3 conv2d forward #3    y ──> z         joins 1: the message only reads y
 *     4 relu in place #3     y ──> y         does not join: it would change y before y is sent
 *
 * On CPUs, a task has at most one layer with weights, with both its backward-data and its backward-weight, so that its gradient
 * can be sent while others are computed; only very small layers are fused with each other. Small updates are fused, too, with the
 * sums and copies before them.
 *
 * On GPUs, links are whole operations, each of which uses all cores. Fusion there reduces the overhead of StarPU, which per task
 * is as long as some GPU kernels, and the launches of a task are recorded (runtime/recording.c):
 *
 *     layer1.0.conv1 fused forward #0:   conv2d, stats, moments, apply of layer1.0.conv1 and bn1, then of layer1.0.conv2 and bn2
 *
 * A pass over a value that is saved for backward is recomputed by the backward task that uses its result. Then the result is not
 * written to memory in forward either:
 *
 *     conv2d backward-data #3      dz, w ──> dy
 *     batchnorm apply again #3     x ──> y             of bn1, only for the weight of conv2
 *     conv2d backward-weight #3    y, dz ──> dw
 *     batchnorm sums #3            x, dy ──> part
 *
 * Other recomputations use the chains and slices of the original computation, so that their results are the same to the bit. They
 * are inserted directly before the task that uses them, so that backward has the same tasks with and without recomputation.
 *
 * Source: the loop tiling of cache blocking, over samples; for batch norm's halves between convolutions W. Jung et al.,
 * Restructuring Batch Normalization to Accelerate CNN Training, 2019 ("BN fission-n-fusion"). */
#include "graphs/compiler/passes/chains.h"

#include <stdlib.h>
#include <string.h>

/* Maximum bytes that links pass to each other per slice: the second-level cache of a core, 1 MiB in current servers, and some of
 * the third (measured: 0.4 and 0.75 MiB are slower, 3 as fast). The same on every machine, because sums depend on it. */
static const int64_t CACHE = 1536 << 10;
enum { LEAST = 4 };                 /* minimum samples of a slice, because each operation has a fixed cost */

/* The call of a fused task. Chains with the same operations use one call. */
struct sgrad__task_made {
    struct sgrad__fusion *fusion;
    const struct sgrad_bound_kernel *call;
    struct sgrad__task_made *next;
};

/* ---- a chain as a task ------------------------------------------------------------------------------------------ */

static int64_t row_bytes(const struct sgrad__fuser *fuser, int buffer) {
    const struct sgrad_view *view = &fuser->p->buffer[buffer].view;
    return (int64_t)sgrad_view_bytes(view) / view->shape.dim[0];
}

static int64_t samples_of(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain) {
    return fuser->p->micro[fuser->p->instruction[chain->start].micro].samples;
}

/* Returns the number of slices: links pass at most CACHE bytes per slice. 1: weights fill it, or slices would be too small. */
static int slices_of(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain) {
    int64_t handed = 0, other = 0;
    if (chain->repeats) return slices_of(fuser, chain->repeats);
    if (!chain->sliced) return 1;
    for (const struct sgrad__touched *t = chain->buffer; t < chain->buffer + chain->touched; t++) {
        if (!t->rows) other += (int64_t)sgrad_view_bytes(&t->view);
        else if (t->links > 1) handed += row_bytes(fuser, t->buffer);
    }
    if (other > CACHE / 2 || handed == 0 || CACHE / handed < LEAST) return 1;
    return sgrad__micros(samples_of(fuser, chain), CACHE / handed);
}

static const struct sgrad_bound_kernel *slice_call(struct sgrad__fuser *fuser, const struct sgrad_bound_kernel *whole,
                                                   int64_t samples, bool later) {
    struct sgrad_bound_kernel *call = sgrad__own(fuser->p, sgrad_xcalloc(1, sizeof *call));
    *call = *whole;
    for (int i = 0; i < call->operands; i++) {
        if (call->view[i].shape.rank < 0) continue;
        if (sgrad__has_rows(call, i)) call->view[i].shape.dim[0] = samples;
        else if (sgrad__writes(call, i) && later) call->accumulate |= UINT64_C(1) << i;
    }
    sgrad_bound_kernel_prepare(call);
    return call;
}

static const struct sgrad_bound_kernel *call_of(struct sgrad__fuser *fuser, const struct sgrad__chain *chain,
                                                const struct sgrad__fusion *wanted, struct sgrad_bound_kernel call) {
    struct sgrad__task_made **list = &fuser->made[((uintptr_t)wanted->link[0].whole >> 6) % 256];
    for (struct sgrad__task_made *m = *list; m; m = m->next)
        if (sgrad__fusion_same(m->fusion, wanted)) return m->call;
    struct sgrad__fusion *made = sgrad__own(fuser->p, sgrad_xcalloc(1, sizeof *made));
    struct sgrad__task_made *entry = sgrad__own(fuser->p, sgrad_xcalloc(1, sizeof *entry));
    *made = *wanted;
    size_t most = 0, of_gpus = 0;
    for (struct sgrad__link *l = made->link; l < made->link + made->links; l++)
        for (int i = 0; i < 4; i++) {
            const bool smaller = i > 1, later = i % 2;
            const int64_t samples = smaller ? made->samples / made->slices : sgrad__fusion_slice(made);
            const struct sgrad_bound_kernel **slice = &l->slice[smaller][later];
            if (made->slices == 1) *slice = l->whole;
            else if (later && !sgrad__leaves_sums(l->whole)) *slice = l->slice[smaller][0];
            else if (smaller && made->samples % made->slices == 0) *slice = l->slice[0][later];
            else *slice = slice_call(fuser, l->whole, samples, later);
            most = sgrad_larger(most, (*slice)->workspace);
            of_gpus = sgrad_larger(of_gpus, (*slice)->gpu_workspace);
        }
    made->workspace = made->room[made->inner] + most + SGRAD_LINE;
    made->gpu_workspace = made->room[made->inner] + of_gpus + SGRAD_LINE;
    call.kernel = sgrad__fusion_kernel(chain->kind, chain->gpus);
    call.attrs = made;
    *entry = (struct sgrad__task_made){ made, sgrad__add_call(fuser->b, call), *list };
    *list = entry;
    return entry->call;
}

/* Returns the name of the task, which begins with the name of the layer that has the most work. */
static char *name_of(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain, int micro) {
    const struct sgrad__instruction *most = &fuser->p->instruction[chain->start];
    for (int l = 1; l < chain->links; l++)
        if (fuser->p->instruction[chain->link[l]].call->flops > most->call->flops) most = &fuser->p->instruction[chain->link[l]];
    const int layer = (int)strcspn(most->name, " ");
    const char *what = sgrad__fusion_kernel(chain->kind, false)->name;
    if (chain->kind == &sgrad_update_kind || chain->kind == &sgrad_reduction_kind)
        return sgrad_format("%.*s %s", layer, most->name, what);
    return sgrad_format("%.*s %s%s #%d", layer, most->name, what, chain->repeats ? " again" : "", micro);
}

static void fuse(struct sgrad__fuser *fuser, const struct sgrad__chain *chain, struct sgrad__instruction *fused) {
    struct sgrad__fusion wanted = { .links = chain->links, .slices = slices_of(fuser, chain), .samples = samples_of(fuser, chain),
                                    .backwards = chain->backwards };
    struct sgrad_bound_kernel call = { .operands = 0 };
    int slot[SGRAD__BUFFERS], operand[SGRAD_MAX_OPERANDS];
    for (int i = 0; i < chain->touched; i++) {
        const struct sgrad__touched *t = &chain->buffer[i];
        if (sgrad__chain_hides(fuser, chain, t, t->times)) {
            slot[i] = SGRAD_MAX_OPERANDS + wanted.inner;
            wanted.room[wanted.inner + 1] =
                wanted.room[wanted.inner] + sgrad_aligned((size_t)(row_bytes(fuser, t->buffer) * sgrad__fusion_slice(&wanted)));
            wanted.inner++;
            fuser->p->buffer[t->buffer].copies = 0;
            continue;
        }
        if (sgrad__chain_owns(fuser, t, t->times)) wanted.own |= UINT64_C(1) << call.operands;
        slot[i] = call.operands;
        operand[call.operands] = t->buffer;
        wanted.row[call.operands] = t->rows ? (size_t)row_bytes(fuser, t->buffer) : 0;
        call.view[call.operands] = t->view;
        const enum sgrad_access written = t->first_written ? SGRAD_W : SGRAD_RW;
        call.access[call.operands++] = t->written ? written : SGRAD_R;
    }
    *fused = fuser->p->instruction[chain->start];
    for (int l = 0; l < chain->links; l++) {
        const struct sgrad__instruction *in = &fuser->p->instruction[chain->link[l]];
        struct sgrad__link *link = &wanted.link[l];
        link->whole = in->call;
        wanted.flops += in->call->flops;
        if (in->priority > fused->priority) fused->priority = in->priority;
        if (in->workers) fused->workers = in->workers;
        if (in->gpu) fused->gpu = in->gpu;
        memset(link->operand, 0xff, sizeof link->operand);
        for (int i = 0; i < in->call->operands; i++)
            for (int t = 0; t < chain->touched; t++)
                if (in->operand[i] == chain->buffer[t].buffer) link->operand[i] = slot[t];
    }
    if (chain->gpus) sgrad__fusion_gather(&wanted);
    call.recorded = chain->gpus && fuser->b->o->recorded;
    fused->call = call_of(fuser, chain, &wanted, call);
    fused->name = name_of(fuser, chain, fused->micro);
    memset(fused->operand, 0xff, sizeof fused->operand);
    memcpy(fused->operand, operand, (size_t)call.operands * sizeof *operand);
}

/* Returns true if CHAIN becomes a fused task. A single link does so only if it is sliced, as in the chain that it recomputes. */
static bool is_made(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain) {
    return chain && (chain->links > 1 || slices_of(fuser, chain) > 1);
}

/* Appends instruction J, or its chain, to the new program, after the recomputations of its operands. */
static void put(struct sgrad__fuser *fuser, int j) {
    struct sgrad__chain *c = fuser->chain[j];
    const int start = c ? c->start : j, links = c ? c->links : 1;
    if (fuser->put[start]) return;
    fuser->put[start] = true;
    for (int l = 0; l < links; l++) {
        const struct sgrad__instruction *in = &fuser->p->instruction[c ? c->link[l] : j];
        for (int i = 0; i < in->call->operands; i++)
            if (in->operand[i] >= 0 && fuser->again[in->operand[i]] >= 0) put(fuser, fuser->again[in->operand[i]]);
    }
    fuser->list = sgrad_array_grow(fuser->list, fuser->count, sizeof *fuser->list);
    if (is_made(fuser, c)) fuse(fuser, c, &fuser->list[fuser->count++]);
    else fuser->list[fuser->count++] = fuser->p->instruction[start];
}

static void replace_chains(struct sgrad__fuser *fuser) {
    struct sgrad__program *p = fuser->p;
    for (int j = 0; j < p->instruction_count; j++)
        if (p->instruction[j].again < 0) put(fuser, j);
    for (int j = p->instruction_count; j-- > 0;) {
        struct sgrad__chain *c = fuser->chain[j];
        if (is_made(fuser, c) || !fuser->put[c ? c->start : j]) free(p->instruction[j].name);
        if (c && c->start == j) free(c);
    }
    free(p->instruction);
    p->instruction = fuser->list;
    p->instruction_count = fuser->count;
}

void sgrad__fuse(struct sgrad_builder *builder) {
    struct sgrad__program *p = builder->p;
    struct sgrad__fuser f = { .b = builder, .p = p };
    f.chain = sgrad_xcalloc((size_t)p->instruction_count, sizeof *f.chain);
    f.history = sgrad_xcalloc((size_t)p->buffer_count, sizeof *f.history);
    f.open = sgrad_xcalloc((size_t)(builder->micros + 2 + builder->o->gpus), sizeof *f.open);
    f.uses = sgrad_xcalloc((size_t)p->buffer_count, sizeof *f.uses);
    f.again = sgrad_xcalloc((size_t)p->buffer_count, sizeof *f.again);
    f.put = sgrad_xcalloc((size_t)p->instruction_count, sizeof *f.put);
    for (int i = 0; i < p->buffer_count; i++) f.history[i] = (struct sgrad__accesses){ -1, -1 }, f.again[i] = -1;
    sgrad__find_chains(&f);
    replace_chains(&f);
    free(f.chain);
    free(f.history);
    free(f.open);
    free(f.uses);
    free(f.again);
    free(f.put);
}
