/* fuse.c: operations on the same samples, one after another, become one task, which does a few samples at a time: what one
 * operation leaves is in the core's own cache when the next one takes it, and what nobody else takes never leaves it.
 *
 *     batchnorm apply #3    x ──> y          |     conv1 fused forward #3:   for each slice of the samples
 *     conv2d forward #3     y, w ──> z       |         apply    x ──> y
 *     batchnorm stats #3    z ──> part       |         conv2d   y, w ──> z
 *                                            |         stats    z ──> part, or added to it
 *
 * Tasks of one micro-batch go through its samples by turns forwards and backwards: what the last one left last is in the
 * third-level cache still.
 *
 * An operation joins the one before it when nothing in between has to come between them: here it would run where that one stands.
 *
 *     1 batchnorm apply #3   x ──> y
 *     2 send y
 *     3 conv2d forward #3    y ──> z         joins 1: the message only reads y
 *     4 relu in place #3     y ──> y         would not: y would be another before it is sent
 *
 * A layer with weights is a task's one heavy operation, its backward-data and backward-weight together, so that its gradient can
 * leave while others are made; only tiny layers share a task. Small updates share tasks too, with the sums and copies that lead
 * to them.
 *
 * A GPU does whole operations, each with all its cores; there a task is many for what StarPU's share of a task costs, as much
 * as some kernels of a GPU, and what it launches is recorded (runtime/recording.c):
 *
 *     layer1.0.conv1 fused forward #0:   conv2d, stats, moments, apply of layer1.0.conv1 and bn1, then of layer1.0.conv2 and bn2
 *
 * A pass over what backward keeps anyway is made again by the task that takes it, so that in forward, too, what it makes does not
 * leave the cache:
 *
 *     conv2d backward-data #3      dz, w ──> dy
 *     batchnorm apply again #3     x ──> y             of bn1, for conv2's weight alone
 *     conv2d backward-weight #3    y, dz ──> dw
 *     batchnorm sums #3            x, dy ──> part
 *
 * What else is computed again goes as it went the first time, with those of its neighbours that do, too, by the same slices, so
 * that it has the same bits; and right before the task that takes it, so that tasks of backward are the same with it and without.
 *
 * Source: the loop tiling of cache blocking, over samples; for batch norm's halves between convolutions W. Jung et al.,
 * Restructuring Batch Normalization to Accelerate CNN Training, 2019 ("BN fission-n-fusion"). */
#include "graphs/programs/builder.h"
#include "graphs/programs/fusion.h"

#include <stdlib.h>
#include <string.h>

/* What the links of a task hand on to each other of one slice: a core's second-level cache, 1 MiB in today's servers, and its
 * part of the third (measured: 0.4 and 0.75 MiB are slower, 3 as good). The same on every machine, since sums depend on it. */
static const int64_t CACHE = 1536 << 10;
enum { LEAST = 4 };                 /* samples: fewer are not worth an operation's beginning and end */
static const double TINY = 2e7;     /* flops: some 100 us, worth ten times what a task costs */
static const double SMALL_UPDATE = 2e5, WHOLE = 4e10; /* flops of a CPU's task of updates, and of a GPU's in bf16: each 100 us */

/* ---- which operations join -------------------------------------------------------------------------------------- */

/* Instructions that become one, where the first of them stands. */
struct chain {
    int start, links, link[SGRAD__GPU_LINKS];
    const struct sgrad_kind *kind;
    bool backwards, sliced, gpus;
    const struct chain *repeats;    /* the one that computed first what this one computes again; NULL: it is none such */
    double flops;
    const void *heavy;              /* attributes of its one layer that is more than a pass over memory; NULL: none yet */
    int touched;
    struct touched {
        int buffer, times, links, last;     /* uses; links that use it, and the last one */
        struct sgrad_view view;             /* as kernels see it, however it is packed */
        bool rows, written, first_written;
    } buffer[SGRAD__BUFFERS];                           /* that are operands, and that nobody else uses */
};

/* The last instruction of the new program by which a buffer is written, and by which it is read. */
struct history {
    int write, read;
};

struct fuser {
    struct sgrad__builder *b;
    struct sgrad__program *p;
    struct chain **chain;           /* of each instruction; NULL: it stays alone */
    struct history *history;        /* of each buffer */
    struct chain **open;            /* of each micro-batch, updates, sums, each GPU's sums: the one that may grow; NULL: none */
    int *uses;                      /* of each buffer, in the whole program */
    int *again;                     /* of each buffer: the instruction that computes it again; -1: none does */
    struct sgrad__instruction *list;    /* the new program */
    int count;
    bool *put;                      /* of each instruction: it, or the chain that it begins, is there */
    struct task_made *made[256];         /* by their first link */
};

/* A fused task's call, which all chains that do the same share. */
struct task_made {
    struct sgrad__fusion *fusion;
    const struct sgrad_call *call;
    struct task_made *next;
};

static bool writes(const struct sgrad_call *call, int i) { return call->access[i] != SGRAD_R; }
static bool rows(const struct sgrad_call *call, int i) { return call->rows >> i & 1; }

/* Does it write something that is no samples'? */
static bool leaves_sums(const struct sgrad_call *call) {
    for (int i = 0; i < call->operands; i++)
        if (call->view[i].shape.rank >= 0 && writes(call, i) && !rows(call, i)) return true;
    return false;
}

/* Does the next instruction take something that J, a sum or a copy, has made? */
static bool feeds_next(const struct sgrad__program *p, int j) {
    const struct sgrad__instruction *in = &p->instruction[j], *next = in + 1;
    if (in->call->kernel->kind != &sgrad_reduction_kind || !in->call->kernel->cpu || in->gpu) return false;
    if (j + 1 == p->instruction_count) return false;
    for (int i = 0; i < in->call->operands; i++)
        for (int k = 0; k < next->call->operands; k++)
            if (in->operand[i] >= 0 && writes(in->call, i) && next->operand[k] == in->operand[i]) return true;
    return false;
}

/* Instructions of an update, beginning with J: a sum of gradients or a copy out of a bucket, and so on, to the update itself. 0:
 * it is none. */
static int update_length(const struct sgrad__program *p, int j) {
    int length = 1;
    for (; p->instruction[j].call->kernel->kind != &sgrad_update_kind; j++, length++)
        if (!feeds_next(p, j)) return 0;
    return length;
}

/* Does a GPU do many such at once? Norms of gradients, say. */
static bool gathers(const struct fuser *f, int j) {
    const struct sgrad__instruction *in = &f->p->instruction[j];
    return in->call->kernel->kind == &sgrad_reduction_kind && in->call->kernel->many && sgrad__on_gpus(f->b, in->workers);
}

/* What the chain that it may be part of does. */
static const struct sgrad_kind *kind_of(const struct fuser *f, int j) {
    const struct sgrad__instruction *in = &f->p->instruction[j];
    return update_length(f->p, j) ? &sgrad_update_kind : in->passing ? &sgrad_backward_kind : in->call->kernel->kind;
}

static bool can_fuse(const struct fuser *f, int j) {
    const struct sgrad_call *call = f->p->instruction[j].call;
    const struct sgrad_kernel *k = call->kernel;
    const bool passes = k->kind == &sgrad_forward_kind || k->kind == &sgrad_backward_kind, update = update_length(f->p, j) > 0;
    if (!k->cpu || (!passes && !update && !gathers(f, j)) || f->p->instruction[j].when.every) return false;
    if (sgrad__on_gpus(f->b, f->p->instruction[j].workers)) return k->cuda != NULL;
    return update || (call->rows && (k->adds || !leaves_sums(call)));
}

/* What the chain knows of BUFFER; NULL: nothing. */
static struct touched *find(struct chain *c, int buffer) {
    for (int i = 0; i < c->touched; i++)
        if (c->buffer[i].buffer == buffer) return &c->buffer[i];
    return NULL;
}

/* Does an instruction outside the chain, after the chain's start, use BUFFER in a way that a use by the chain would overtake? The
 * chain runs where it starts; it may not write what is read in between, nor use what is written in between. */
static bool overtakes(const struct fuser *f, const struct chain *c, int buffer, bool write) {
    const struct history *h = &f->history[sgrad__whole_of(f->p, buffer)];
    return h->write > c->start || (write && h->read > c->start);
}

/* A pass over memory: no more work than what it moves. */
static bool light(const struct sgrad_call *call) { return call->flops <= call->bytes; }

static int most_links(const struct chain *c) { return c->gpus ? SGRAD__GPU_LINKS : SGRAD__LINKS; }
static int most_operands(const struct chain *c) { return c->gpus ? SGRAD_MAX_OPERANDS : SGRAD_FEW_OPERANDS; }
static int most_buffers(const struct chain *c) { return c->gpus ? SGRAD__BUFFERS : SGRAD_FEW_OPERANDS + SGRAD__LINKS; }

/* Would the task be too long, or have too many operands, with the update that begins here? One that has begun is not torn. */
static bool too_much_to_update(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in) {
    const int length = update_length(f->p, (int)(in - f->p->instruction));
    double flops = c->flops;
    int more = 0;
    if (f->p->instruction[c->link[c->links - 1]].call->kernel->kind == &sgrad_reduction_kind) return false;
    for (int i = 0; i < length; i++) {
        flops += in[i].call->flops;
        for (int k = 0; k < in[i].call->operands; k++) more += in[i].operand[k] >= 0 && !find(c, in[i].operand[k]);
        more -= i > 0;      /* what the one before has made */
    }
    return flops > (c->gpus ? WHOLE : SMALL_UPDATE) || c->links + length > most_links(c) ||
           c->touched + more > most_operands(c);
}

/* Does nobody but one take what it makes, who may do so in one kernel with it? */
static bool has_one_taker(const struct fuser *f, const struct sgrad__instruction *in) {
    int i = 0;
    while (i < in->call->operands && (in->operand[i] < 0 || !writes(in->call, i) || f->uses[in->operand[i]] != 2)) i++;
    return in->call->kernel->cuda_with && i < in->call->operands;
}

/* Would the task be too long? A pass over memory stays with its layer, for one kernel; or it had better go with the next one. */
static bool too_much(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in) {
    const bool full = c->heavy && c->heavy != in->call->attrs && c->flops + in->call->flops > (c->gpus ? WHOLE : TINY);
    if (c->kind == &sgrad_update_kind) return too_much_to_update(f, c, in);
    return full && (!light(in->call) || (c->gpus && has_one_taker(f, in)));
}

/* Does nobody else use it, when the chain uses it so many TIMES? */
static bool is_own(const struct fuser *f, const struct touched *t, int times) {
    const struct sgrad__buffer *buffer = &f->p->buffer[t->buffer];
    return t->first_written && buffer->lifetime == SGRAD_TRANSIENT && buffer->copies == 1 && f->uses[t->buffer] == times;
}
static bool is_inner(const struct fuser *f, const struct chain *c, const struct touched *t, int times) {
    return c->sliced && t->rows && is_own(f, t, times);
}

/* Of what the chain uses, operands of the task that it is with IN. */
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
    const struct sgrad_call *call = in->call;
    bool meets = c && (!c->sliced || in->passing);      /* what comes next takes what is made in passing */
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
    const bool packed = in->call->packing && i == in->call->kernel->factor;
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

/* Has the task too many operands with IN? What stays within a chain that computes for the first time may be backward's here. */
static bool too_many(const struct fuser *f, struct chain *c, const struct sgrad__instruction *in) {
    int more = 0;
    for (int i = 0; i < in->call->operands; i++) more += in->operand[i] >= 0 && !find(c, in->operand[i]);
    return operands_with(f, c, in) + more > most_operands(c);
}

/* Instruction J repeats one: it joins what was computed again before it, if they were in one chain. */
static void join_again(struct fuser *f, int j) {
    const struct chain *first = f->chain[f->p->instruction[j].again];
    struct chain *c = f->chain[j - 1];
    if (!first) return;
    if (!c || c->repeats != first || too_many(f, c, &f->p->instruction[j])) {
        c = sgrad_alloc(1, sizeof *c);
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
            struct chain **open = &f->open[kind == &sgrad_update_kind      ? f->b->micros
                                           : kind == &sgrad_reduction_kind ? f->b->micros + 1 + in->gpu
                                                                           : in->micro];
            if (!joins(f, *open, in, kind)) {
                const bool gpus = sgrad__on_gpus(f->b, in->workers), sliced = !gpus && kind != &sgrad_update_kind;
                const bool turn = sliced && *open && !(*open)->backwards;
                *open = sgrad_alloc(1, sizeof **open);
                **open = (struct chain){ .start = j, .kind = kind, .backwards = turn, .sliced = sliced, .gpus = gpus };
            }
            join(f, *open, j);
            at = (*open)->start;
        }
        for (int i = 0; i < in->call->operands; i++) {
            if (in->operand[i] < 0) continue;
            if (in->again >= 0 && writes(in->call, i)) {
                f->again[in->operand[i]] = j;   /* it comes before whoever takes it, wherever that is */
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

/* Of so many samples that the cache holds what is handed on. One, where it is full of weights, or holds too few samples. */
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

static const struct sgrad_call *slice_call(struct fuser *f, const struct sgrad_call *whole, int64_t samples, bool later) {
    struct sgrad_call *call = sgrad__own(f->p, sgrad_alloc(1, sizeof *call));
    *call = *whole;
    for (int i = 0; i < call->operands; i++) {
        if (call->view[i].shape.rank < 0) continue;
        if (rows(call, i)) call->view[i].shape.dim[0] = samples;
        else if (writes(call, i) && later) call->accumulate |= UINT64_C(1) << i;
    }
    sgrad_call_prepare(call);
    return call;
}

static const struct sgrad_call *call_of(struct fuser *f, const struct chain *c, const struct sgrad__fusion *wanted,
                                        struct sgrad_call call) {
    struct task_made **list = &f->made[((uintptr_t)wanted->link[0].whole >> 6) % 256];
    for (struct task_made *m = *list; m; m = m->next)
        if (sgrad__fusion_same(m->fusion, wanted)) return m->call;
    struct sgrad__fusion *made = sgrad__own(f->p, sgrad_alloc(1, sizeof *made));
    struct task_made *entry = sgrad__own(f->p, sgrad_alloc(1, sizeof *entry));
    *made = *wanted;
    size_t most = 0, of_gpus = 0;
    for (struct sgrad__link *l = made->link; l < made->link + made->links; l++)
        for (int i = 0; i < 4; i++) {
            const bool smaller = i > 1, later = i % 2;
            const int64_t samples = smaller ? made->samples / made->slices : sgrad__fusion_slice(made);
            const struct sgrad_call **slice = &l->slice[smaller][later];
            *slice = made->slices == 1                         ? l->whole
                     : later && !leaves_sums(l->whole)         ? l->slice[smaller][0]
                     : smaller && made->samples % made->slices == 0 ? l->slice[0][later]
                                                               : slice_call(f, l->whole, samples, later);
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

/* The layer that has most of the work gives the task its name. */
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
    struct sgrad_call call = { .operands = 0 };
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
        call.access[call.operands++] = !t->written ? SGRAD_R : t->first_written ? SGRAD_W : SGRAD_RW;
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

/* One link alone stays what it is, unless it goes by slices, as it went among others. */
static bool is_made(const struct fuser *f, const struct chain *c) { return c && (c->links > 1 || slices_of(f, c) > 1); }

/* Instruction J, or the chain that it is part of, goes into the new program, behind what is computed again for it. */
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
    f->list = sgrad_grow(f->list, f->count, sizeof *f->list);
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

void sgrad__fuse(struct sgrad__builder *b) {
    struct sgrad__program *p = b->p;
    struct fuser f = { .b = b, .p = p };
    f.chain = sgrad_alloc((size_t)p->instruction_count, sizeof *f.chain);
    f.history = sgrad_alloc((size_t)p->buffer_count, sizeof *f.history);
    f.open = sgrad_alloc((size_t)(b->micros + 2 + b->o->cudas), sizeof *f.open);
    f.uses = sgrad_alloc((size_t)p->buffer_count, sizeof *f.uses);
    f.again = sgrad_alloc((size_t)p->buffer_count, sizeof *f.again);
    f.put = sgrad_alloc((size_t)p->instruction_count, sizeof *f.put);
    for (int i = 0; i < p->buffer_count; i++) {
        f.history[i] = (struct history){ -1, -1 };
        f.again[i] = -1;
    }
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
