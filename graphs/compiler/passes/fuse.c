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
#include "graphs/compiler/builder.h"
#include "graphs/compiler/passes/fusion.h"

#include <stdlib.h>
#include <string.h>

/* Maximum bytes that links pass to each other per slice: the second-level cache of a core, 1 MiB in current servers, and some of
 * the third (measured: 0.4 and 0.75 MiB are slower, 3 as fast). The same on every machine, because sums depend on it. */
static const int64_t CACHE = 1536 << 10;
enum { LEAST = 4 };                 /* minimum samples of a slice, because each operation has a fixed cost */
static const double TINY = 2e7;     /* flops: about 100 us, ten times the overhead of a task */
static const double SMALL_UPDATE = 2e5, WHOLE = 4e10; /* maximum flops: CPU update task; GPU task (bf16); each about 100 us */

/* ---- selection of operations --------------------------------------------------------------------------------------- */

/* A chain: instructions (links) that become one task, at the position of the first one. */
struct chain {
    int start, links, link[SGRAD__GPU_LINKS];
    const struct sgrad_kind *kind;
    bool backwards, sliced, gpus;
    const struct chain *repeats;    /* the chain that this one recomputes; NULL: it is not a recomputation */
    double flops;
    const void *heavy;              /* attributes of its only layer with more flops than bytes; NULL: none yet */
    int touched;
    struct touched {
        int buffer, times, links, last;     /* number of uses; number of links that use it; the last such link */
        struct sgrad_view view;             /* the view that kernels get: packed, if it is a packed factor */
        bool rows, written, first_written;
    } buffer[SGRAD__BUFFERS];                           /* operands of the task, and buffers that only its links use */
};

/* The last writer and the last reader of a buffer so far. The index of a link is that of the first link of its chain. */
struct history {
    int write, read;
};

struct fuser {
    struct sgrad_builder *b;
    struct sgrad__program *p;
    struct chain **chain;           /* by instruction; NULL: it is not fused */
    struct history *history;        /* by buffer */
    struct chain **open;            /* chain that may grow, by micro-batch; for updates; for sums, by GPU (0: any); NULL: none */
    int *uses;                      /* by buffer: number of uses in the whole program */
    int *again;                     /* by buffer: the instruction that recomputes it; -1: none */
    struct sgrad__instruction *list;    /* the new program */
    int count;
    bool *put;                      /* by instruction: it, or the chain that begins with it, is in the new program */
    struct task_made *made[256];         /* hash table by the first link */
};

/* The call of a fused task. Chains with the same operations use one call. */
struct task_made {
    struct sgrad__fusion *fusion;
    const struct sgrad_bound_kernel *call;
    struct task_made *next;
};

static bool writes(const struct sgrad_bound_kernel *call, int i) { return call->access[i] != SGRAD_R; }
static bool rows(const struct sgrad_bound_kernel *call, int i) { return call->rows >> i & 1; }

/* Returns true if CALL writes an operand without samples. */
static bool leaves_sums(const struct sgrad_bound_kernel *call) {
    for (int i = 0; i < call->operands; i++)
        if (call->view[i].shape.rank >= 0 && writes(call, i) && !rows(call, i)) return true;
    return false;
}

/* Returns true if J is a sum or a copy, and the next instruction uses its result. */
static bool feeds_next(const struct sgrad__program *p, int j) {
    const struct sgrad__instruction *in = &p->instruction[j], *next = in + 1;
    if (in->call->kernel->kind != &sgrad_reduction_kind || !in->call->kernel->cpu || in->gpu) return false;
    if (j + 1 == p->instruction_count) return false;
    for (int i = 0; i < in->call->operands; i++)
        for (int k = 0; k < next->call->operands; k++)
            if (in->operand[i] >= 0 && writes(in->call, i) && next->operand[k] == in->operand[i]) return true;
    return false;
}

/* Returns the number of instructions of the update that begins at J: sums of gradients or copies from a bucket, then the update
 * itself. 0: no update begins at J. */
static int update_length(const struct sgrad__program *p, int j) {
    int length = 1;
    for (; p->instruction[j].call->kernel->kind != &sgrad_update_kind; j++, length++)
        if (!feeds_next(p, j)) return 0;
    return length;
}

/* Returns true if a GPU can do many instructions like J by one launch, for example norms of gradients. */
static bool gathers(const struct fuser *f, int j) {
    const struct sgrad__instruction *in = &f->p->instruction[j];
    return in->call->kernel->kind == &sgrad_reduction_kind && in->call->kernel->batched && sgrad__on_gpus(f->b, in->workers);
}

/* Returns the kind of the chain that J may join. */
static const struct sgrad_kind *kind_of(const struct fuser *f, int j) {
    const struct sgrad__instruction *in = &f->p->instruction[j];
    if (update_length(f->p, j)) return &sgrad_update_kind;
    return in->passing ? &sgrad_backward_kind : in->call->kernel->kind;
}

static bool can_fuse(const struct fuser *f, int j) {
    const struct sgrad_bound_kernel *call = f->p->instruction[j].call;
    const struct sgrad_kernel *k = call->kernel;
    const bool passes = k->kind == &sgrad_forward_kind || k->kind == &sgrad_backward_kind, update = update_length(f->p, j) > 0;
    if (!k->cpu || (!passes && !update && !gathers(f, j)) || f->p->instruction[j].when.every) return false;
    if (sgrad__on_gpus(f->b, f->p->instruction[j].workers)) return k->cuda != NULL;
    return update || (call->rows && (k->accumulates || !leaves_sums(call)));
}

/* Returns the entry of BUFFER in the chain; NULL: no link uses it. */
static struct touched *find(struct chain *c, int buffer) {
    for (int i = 0; i < c->touched; i++)
        if (c->buffer[i].buffer == buffer) return &c->buffer[i];
    return NULL;
}

/* Returns true if the chain must not use BUFFER. The chain runs at the position of its first link. It must not write a buffer
 * that an instruction after that position reads, nor use a buffer that such an instruction writes. */
static bool overtakes(const struct fuser *f, const struct chain *c, int buffer, bool write) {
    const struct history *h = &f->history[sgrad__whole_of(f->p, buffer)];
    return h->write > c->start || (write && h->read > c->start);
}

/* Returns true for a pass over memory: CALL has at most as many flops as bytes of memory traffic. */
static bool light(const struct sgrad_bound_kernel *call) { return call->flops <= call->bytes; }

static int most_links(const struct chain *c) { return c->gpus ? SGRAD__GPU_LINKS : SGRAD__LINKS; }
static int most_operands(const struct chain *c) { return c->gpus ? SGRAD_MAX_OPERANDS : SGRAD_FEW_OPERANDS; }
static int most_buffers(const struct chain *c) { return c->gpus ? SGRAD__BUFFERS : SGRAD_FEW_OPERANDS + SGRAD__LINKS; }

/* Returns true if the update at IN would make the task too long, or need too many operands. Updates are never divided. */
static bool too_much_to_update(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in) {
    const int length = update_length(f->p, (int)(in - f->p->instruction));
    double flops = c->flops;
    int more = 0;
    if (f->p->instruction[c->link[c->links - 1]].call->kernel->kind == &sgrad_reduction_kind) return false;
    for (int i = 0; i < length; i++) {
        flops += in[i].call->flops;
        for (int k = 0; k < in[i].call->operands; k++) more += in[i].operand[k] >= 0 && !find(c, in[i].operand[k]);
        more -= i > 0;      /* the result of the previous instruction */
    }
    return flops > (c->gpus ? WHOLE : SMALL_UPDATE) || c->links + length > most_links(c) ||
           c->touched + more > most_operands(c);
}

/* Returns true if an output of IN has exactly one consumer, and the kernel of IN may run the consumer as well. */
static bool has_one_taker(const struct fuser *f, const struct sgrad__instruction *in) {
    int i = 0;
    while (i < in->call->operands && (in->operand[i] < 0 || !writes(in->call, i) || f->uses[in->operand[i]] != 2)) i++;
    return in->call->kernel->cuda_fused && i < in->call->operands;
}

/* Returns true if the task would be too long with IN. A pass over memory stays with its layer, unless (on GPUs) its kernel may
 * also run its only consumer. */
static bool too_much(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in) {
    const bool full = c->heavy && c->heavy != in->call->attrs && c->flops + in->call->flops > (c->gpus ? WHOLE : TINY);
    if (c->kind == &sgrad_update_kind) return too_much_to_update(f, c, in);
    return full && (!light(in->call) || (c->gpus && has_one_taker(f, in)));
}

/* Returns true if only the chain uses the buffer, in TIMES operands. */
static bool is_own(const struct fuser *f, const struct touched *t, int times) {
    const struct sgrad__buffer *buffer = &f->p->buffer[t->buffer];
    return t->first_written && buffer->lifetime == SGRAD_TRANSIENT && buffer->copies == 1 && f->uses[t->buffer] == times;
}
static bool is_inner(const struct fuser *f, const struct chain *c, const struct touched *t, int times) {
    return c->sliced && t->rows && is_own(f, t, times);
}

/* Returns the number of the chain's buffers that are operands of the task, if IN joins. */
static int operands_with(const struct fuser *f, const struct chain *c, const struct sgrad__instruction *in) {
    int count = 0;
    for (const struct touched *t = c->buffer; t < c->buffer + c->touched; t++) {
        int times = t->times;
        for (int i = 0; i < in->call->operands; i++) times += in->operand[i] == t->buffer;
        count += !is_inner(f, c, t, times);
    }
    return count;
}

static bool joins(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in, const struct sgrad_kind *kind) {
    const struct sgrad_bound_kernel *call = in->call;
    bool meets = c && (!c->sliced || in->passing);      /* an inline recomputation joins: the next link uses its result */
    int more = 0;
    if (!c || c->links == most_links(c) || c->kind != kind || too_much(f, c, in)) return false;
    for (int i = 0; i < call->operands; i++) {
        if (in->operand[i] < 0) continue;
        const struct touched *t = find(c, in->operand[i]);
        if (overtakes(f, c, in->operand[i], writes(call, i))) return false;
        if (c->sliced && t && (t->rows != rows(call, i) || (!t->rows && (t->written || writes(call, i))))) return false;
        meets |= t && t->rows;
        more += !t;
    }
    return meets && c->touched + more <= most_buffers(c) && operands_with(f, c, in) + more <= most_operands(c);
}

static struct sgrad_view view_of(const struct fuser *f, const struct sgrad__instruction *in, int i) {
    const bool packed = in->call->packing && i == in->call->kernel->weight_operand;
    return packed ? in->call->view[i] : f->p->buffer[in->operand[i]].view;
}

static void join(struct fuser *f, struct chain *c, int j) {
    const struct sgrad__instruction *in = &f->p->instruction[j];
    f->chain[j] = c;
    if (!light(in->call)) c->heavy = in->call->attrs;
    c->flops += in->call->flops;
    for (int i = 0; i < in->call->operands; i++) {
        if (in->operand[i] < 0) continue;
        struct touched *t = find(c, in->operand[i]);
        if (!t) {
            t = &c->buffer[c->touched++];
            *t = (struct touched){ .buffer = in->operand[i], .view = view_of(f, in, i), .rows = rows(in->call, i),
                                   .first_written = in->call->access[i] == SGRAD_W, .last = -1 };
        }
        t->times++;
        t->links += t->last != c->links;
        t->last = c->links;
        t->written |= writes(in->call, i);
    }
    c->link[c->links++] = j;
}

/* Returns true if the task would have too many operands with IN: backward may use values that are internal to the original
 * chain. */
static bool too_many(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in) {
    int more = 0;
    for (int i = 0; i < in->call->operands; i++) more += in->operand[i] >= 0 && !find(c, in->operand[i]);
    return operands_with(f, c, in) + more > most_operands(c);
}

/* Instruction J is a recomputation. It joins the chain of the previous one, if the original instructions are in one chain. */
static void join_again(struct fuser *f, int j) {
    const struct chain *first = f->chain[f->p->instruction[j].again];
    struct chain *c = f->chain[j - 1];
    if (!first) return;
    if (!c || c->repeats != first || too_many(f, c, &f->p->instruction[j])) {
        c = sgrad_xcalloc(1, sizeof *c);
        *c = (struct chain){ .start = j, .kind = first->kind, .backwards = first->backwards, .sliced = first->sliced,
                             .gpus = first->gpus, .repeats = first };
    }
    join(f, c, j);
}

static void count_uses(struct fuser *f) {
    for (int j = 0; j < f->p->instruction_count; j++)
        for (int i = 0; i < f->p->instruction[j].call->operands; i++)
            if (f->p->instruction[j].operand[i] >= 0) f->uses[f->p->instruction[j].operand[i]]++;
}

static void find_chains(struct fuser *f) {
    for (int j = 0; j < f->p->instruction_count; j++) {
        const struct sgrad__instruction *in = &f->p->instruction[j];
        int at = j;
        if (in->again >= 0) join_again(f, j);
        if (in->again < 0 && can_fuse(f, j)) {
            const struct sgrad_kind *kind = kind_of(f, j);
            struct chain **open = &f->open[in->micro];
            if (kind == &sgrad_update_kind) open = &f->open[f->b->micros];
            else if (kind == &sgrad_reduction_kind) open = &f->open[f->b->micros + 1 + in->gpu];
            if (!joins(f, *open, in, kind)) {
                const bool gpus = sgrad__on_gpus(f->b, in->workers), sliced = !gpus && kind != &sgrad_update_kind;
                const bool turn = sliced && *open && !(*open)->backwards;
                *open = sgrad_xcalloc(1, sizeof **open);
                **open = (struct chain){ .start = j, .kind = kind, .backwards = turn, .sliced = sliced, .gpus = gpus };
            }
            join(f, *open, j);
            at = (*open)->start;
        }
        for (int i = 0; i < in->call->operands; i++) {
            if (in->operand[i] < 0) continue;
            if (in->again >= 0 && writes(in->call, i)) {
                f->again[in->operand[i]] = j;   /* put() inserts it before its first consumer */
                continue;
            }
            struct history *h = &f->history[sgrad__whole_of(f->p, in->operand[i])];
            int *last = writes(in->call, i) ? &h->write : &h->read;
            if (*last < at) *last = at;
        }
    }
}

/* ---- a chain as a task ------------------------------------------------------------------------------------------ */

static int64_t row_bytes(const struct fuser *f, int buffer) {
    const struct sgrad_view *view = &f->p->buffer[buffer].view;
    return (int64_t)sgrad_view_bytes(view) / view->shape.dim[0];
}

static int64_t samples_of(const struct fuser *f, const struct chain *c) {
    return f->p->micro[f->p->instruction[c->start].micro].samples;
}

/* Returns the number of slices: links pass at most CACHE bytes per slice. 1: weights fill it, or slices would be too small. */
static int slices_of(const struct fuser *f, const struct chain *c) {
    int64_t handed = 0, other = 0;
    if (c->repeats) return slices_of(f, c->repeats);
    if (!c->sliced) return 1;
    for (const struct touched *t = c->buffer; t < c->buffer + c->touched; t++) {
        if (!t->rows) other += (int64_t)sgrad_view_bytes(&t->view);
        else if (t->links > 1) handed += row_bytes(f, t->buffer);
    }
    if (other > CACHE / 2 || handed == 0 || CACHE / handed < LEAST) return 1;
    return sgrad__micros(samples_of(f, c), CACHE / handed);
}

static const struct sgrad_bound_kernel *slice_call(struct fuser *f, const struct sgrad_bound_kernel *whole, int64_t samples,
                                                   bool later) {
    struct sgrad_bound_kernel *call = sgrad__own(f->p, sgrad_xcalloc(1, sizeof *call));
    *call = *whole;
    for (int i = 0; i < call->operands; i++) {
        if (call->view[i].shape.rank < 0) continue;
        if (rows(call, i)) call->view[i].shape.dim[0] = samples;
        else if (writes(call, i) && later) call->accumulate |= UINT64_C(1) << i;
    }
    sgrad_bound_kernel_prepare(call);
    return call;
}

static const struct sgrad_bound_kernel *call_of(struct fuser *f, const struct chain *c, const struct sgrad__fusion *wanted,
                                                struct sgrad_bound_kernel call) {
    struct task_made **list = &f->made[((uintptr_t)wanted->link[0].whole >> 6) % 256];
    for (struct task_made *m = *list; m; m = m->next)
        if (sgrad__fusion_same(m->fusion, wanted)) return m->call;
    struct sgrad__fusion *made = sgrad__own(f->p, sgrad_xcalloc(1, sizeof *made));
    struct task_made *entry = sgrad__own(f->p, sgrad_xcalloc(1, sizeof *entry));
    *made = *wanted;
    size_t most = 0, of_gpus = 0;
    for (struct sgrad__link *l = made->link; l < made->link + made->links; l++)
        for (int i = 0; i < 4; i++) {
            const bool smaller = i > 1, later = i % 2;
            const int64_t samples = smaller ? made->samples / made->slices : sgrad__fusion_slice(made);
            const struct sgrad_bound_kernel **slice = &l->slice[smaller][later];
            if (made->slices == 1) *slice = l->whole;
            else if (later && !leaves_sums(l->whole)) *slice = l->slice[smaller][0];
            else if (smaller && made->samples % made->slices == 0) *slice = l->slice[0][later];
            else *slice = slice_call(f, l->whole, samples, later);
            most = sgrad_larger(most, (*slice)->workspace);
            of_gpus = sgrad_larger(of_gpus, (*slice)->gpu_workspace);
        }
    made->workspace = made->room[made->inner] + most + SGRAD_LINE;
    made->gpu_workspace = made->room[made->inner] + of_gpus + SGRAD_LINE;
    call.kernel = sgrad__fusion_kernel(c->kind, c->gpus);
    call.attrs = made;
    *entry = (struct task_made){ made, sgrad__add_call(f->b, call), *list };
    *list = entry;
    return entry->call;
}

/* Returns the name of the task, which begins with the name of the layer that has the most work. */
static char *name_of(const struct fuser *f, const struct chain *c, int micro) {
    const struct sgrad__instruction *most = &f->p->instruction[c->start];
    for (int l = 1; l < c->links; l++)
        if (f->p->instruction[c->link[l]].call->flops > most->call->flops) most = &f->p->instruction[c->link[l]];
    const int layer = (int)strcspn(most->name, " ");
    const char *what = sgrad__fusion_kernel(c->kind, false)->name;
    if (c->kind == &sgrad_update_kind || c->kind == &sgrad_reduction_kind)
        return sgrad_format("%.*s %s", layer, most->name, what);
    return sgrad_format("%.*s %s%s #%d", layer, most->name, what, c->repeats ? " again" : "", micro);
}

static void fuse(struct fuser *f, const struct chain *c, struct sgrad__instruction *fused) {
    struct sgrad__fusion wanted = { .links = c->links, .slices = slices_of(f, c), .samples = samples_of(f, c),
                                    .backwards = c->backwards };
    struct sgrad_bound_kernel call = { .operands = 0 };
    int slot[SGRAD__BUFFERS], operand[SGRAD_MAX_OPERANDS];
    for (int i = 0; i < c->touched; i++) {
        const struct touched *t = &c->buffer[i];
        if (is_inner(f, c, t, t->times)) {
            slot[i] = SGRAD_MAX_OPERANDS + wanted.inner;
            wanted.room[wanted.inner + 1] =
                wanted.room[wanted.inner] + sgrad_aligned((size_t)(row_bytes(f, t->buffer) * sgrad__fusion_slice(&wanted)));
            wanted.inner++;
            f->p->buffer[t->buffer].copies = 0;
            continue;
        }
        if (is_own(f, t, t->times)) wanted.own |= UINT64_C(1) << call.operands;
        slot[i] = call.operands;
        operand[call.operands] = t->buffer;
        wanted.row[call.operands] = t->rows ? (size_t)row_bytes(f, t->buffer) : 0;
        call.view[call.operands] = t->view;
        const enum sgrad_access written = t->first_written ? SGRAD_W : SGRAD_RW;
        call.access[call.operands++] = t->written ? written : SGRAD_R;
    }
    *fused = f->p->instruction[c->start];
    for (int l = 0; l < c->links; l++) {
        const struct sgrad__instruction *in = &f->p->instruction[c->link[l]];
        struct sgrad__link *link = &wanted.link[l];
        link->whole = in->call;
        wanted.flops += in->call->flops;
        if (in->priority > fused->priority) fused->priority = in->priority;
        if (in->workers) fused->workers = in->workers;
        if (in->gpu) fused->gpu = in->gpu;
        memset(link->operand, 0xff, sizeof link->operand);
        for (int i = 0; i < in->call->operands; i++)
            for (int t = 0; t < c->touched; t++)
                if (in->operand[i] == c->buffer[t].buffer) link->operand[i] = slot[t];
    }
    if (c->gpus) sgrad__fusion_gather(&wanted);
    call.recorded = c->gpus && f->b->o->recorded;
    fused->call = call_of(f, c, &wanted, call);
    fused->name = name_of(f, c, fused->micro);
    memset(fused->operand, 0xff, sizeof fused->operand);
    memcpy(fused->operand, operand, (size_t)call.operands * sizeof *operand);
}

/* Returns true if C becomes a fused task. A single link does so only if it is sliced, as in the chain that it recomputes. */
static bool is_made(const struct fuser *f, const struct chain *c) { return c && (c->links > 1 || slices_of(f, c) > 1); }

/* Appends instruction J, or its chain, to the new program, after the recomputations of its operands. */
static void put(struct fuser *f, int j) {
    struct chain *c = f->chain[j];
    const int start = c ? c->start : j, links = c ? c->links : 1;
    if (f->put[start]) return;
    f->put[start] = true;
    for (int l = 0; l < links; l++) {
        const struct sgrad__instruction *in = &f->p->instruction[c ? c->link[l] : j];
        for (int i = 0; i < in->call->operands; i++)
            if (in->operand[i] >= 0 && f->again[in->operand[i]] >= 0) put(f, f->again[in->operand[i]]);
    }
    f->list = sgrad_array_grow(f->list, f->count, sizeof *f->list);
    if (is_made(f, c)) fuse(f, c, &f->list[f->count++]);
    else f->list[f->count++] = f->p->instruction[start];
}

static void replace_chains(struct fuser *f) {
    struct sgrad__program *p = f->p;
    for (int j = 0; j < p->instruction_count; j++)
        if (p->instruction[j].again < 0) put(f, j);
    for (int j = p->instruction_count; j-- > 0;) {
        struct chain *c = f->chain[j];
        if (is_made(f, c) || !f->put[c ? c->start : j]) free(p->instruction[j].name);
        if (c && c->start == j) free(c);
    }
    free(p->instruction);
    p->instruction = f->list;
    p->instruction_count = f->count;
}

void sgrad__fuse(struct sgrad_builder *b) {
    struct sgrad__program *p = b->p;
    struct fuser f = { .b = b, .p = p };
    f.chain = sgrad_xcalloc((size_t)p->instruction_count, sizeof *f.chain);
    f.history = sgrad_xcalloc((size_t)p->buffer_count, sizeof *f.history);
    f.open = sgrad_xcalloc((size_t)(b->micros + 2 + b->o->gpus), sizeof *f.open);
    f.uses = sgrad_xcalloc((size_t)p->buffer_count, sizeof *f.uses);
    f.again = sgrad_xcalloc((size_t)p->buffer_count, sizeof *f.again);
    f.put = sgrad_xcalloc((size_t)p->instruction_count, sizeof *f.put);
    for (int i = 0; i < p->buffer_count; i++) f.history[i] = (struct history){ -1, -1 }, f.again[i] = -1;
    count_uses(&f);
    find_chains(&f);
    replace_chains(&f);
    free(f.chain);
    free(f.history);
    free(f.open);
    free(f.uses);
    free(f.again);
    free(f.put);
}
