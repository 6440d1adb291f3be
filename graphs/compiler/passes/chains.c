/* chains.c: selects the instructions that become one task (fuse.c has the rules). */
#include "graphs/compiler/passes/chains.h"

static const double TINY = 2e7;     /* flops: about 100 us, ten times the overhead of a task */
static const double SMALL_UPDATE = 2e5, WHOLE = 4e10; /* maximum flops: CPU update task; GPU task (bf16); each about 100 us */

bool sgrad__leaves_sums(const struct sgrad_bound_kernel *call) {
    for (int i = 0; i < call->operands; i++)
        if (call->view[i].shape.rank >= 0 && sgrad__writes(call, i) && !sgrad__has_rows(call, i)) return true;
    return false;
}

/* Returns true if J is a sum or a copy, and the next instruction uses its result. */
static bool feeds_next(const struct sgrad__program *program, int j) {
    const struct sgrad__instruction *in = &program->instruction[j], *next = in + 1;
    if (in->call->kernel->kind != &sgrad_reduction_kind || !in->call->kernel->cpu || in->gpu) return false;
    if (j + 1 == program->instruction_count) return false;
    for (int i = 0; i < in->call->operands; i++)
        for (int k = 0; k < next->call->operands; k++)
            if (in->operand[i] >= 0 && sgrad__writes(in->call, i) && next->operand[k] == in->operand[i]) return true;
    return false;
}

/* Returns the number of instructions of the update that begins at J: sums of gradients or copies from a bucket, then the update
 * itself. 0: no update begins at J. */
static int update_length(const struct sgrad__program *program, int j) {
    int length = 1;
    for (; program->instruction[j].call->kernel->kind != &sgrad_update_kind; j++, length++)
        if (!feeds_next(program, j)) return 0;
    return length;
}

/* Returns true if a GPU can do many instructions like J by one launch, for example norms of gradients. */
static bool gathers(const struct sgrad__fuser *fuser, int j) {
    const struct sgrad__instruction *in = &fuser->p->instruction[j];
    return in->call->kernel->kind == &sgrad_reduction_kind && in->call->kernel->batched && sgrad__on_gpus(fuser->b, in->workers);
}

/* Returns the kind of the chain that J may join. */
static const struct sgrad_kind *kind_of(const struct sgrad__fuser *fuser, int j) {
    const struct sgrad__instruction *in = &fuser->p->instruction[j];
    if (update_length(fuser->p, j)) return &sgrad_update_kind;
    return in->passing ? &sgrad_backward_kind : in->call->kernel->kind;
}

static bool can_fuse(const struct sgrad__fuser *fuser, int j) {
    const struct sgrad_bound_kernel *call = fuser->p->instruction[j].call;
    const struct sgrad_kernel *k = call->kernel;
    const bool passes = k->kind == &sgrad_forward_kind || k->kind == &sgrad_backward_kind,
               update = update_length(fuser->p, j) > 0;
    if (!k->cpu || (!passes && !update && !gathers(fuser, j)) || fuser->p->instruction[j].when.every) return false;
    if (sgrad__on_gpus(fuser->b, fuser->p->instruction[j].workers)) return k->cuda != NULL;
    return update || (call->rows && (k->accumulates || !sgrad__leaves_sums(call)));
}

/* Returns the entry of BUFFER in the chain; NULL: no link uses it. */
static struct sgrad__touched *find(struct sgrad__chain *chain, int buffer) {
    for (int i = 0; i < chain->touched; i++)
        if (chain->buffer[i].buffer == buffer) return &chain->buffer[i];
    return NULL;
}

/* Returns true if the chain must not use BUFFER. The chain runs at the position of its first link. It must not write a buffer
 * that an instruction after that position reads, nor use a buffer that such an instruction writes. */
static bool overtakes(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain, int buffer, bool write) {
    const struct sgrad__accesses *h = &fuser->history[sgrad__whole_of(fuser->p, buffer)];
    return h->write > chain->start || (write && h->read > chain->start);
}

/* Returns true for a pass over memory: CALL has at most as many flops as bytes of memory traffic. */
static bool light(const struct sgrad_bound_kernel *call) { return call->flops <= call->bytes; }

static int most_links(const struct sgrad__chain *chain) { return chain->gpus ? SGRAD__GPU_LINKS : SGRAD__LINKS; }
static int most_operands(const struct sgrad__chain *chain) { return chain->gpus ? SGRAD_MAX_OPERANDS : SGRAD_FEW_OPERANDS; }
static int most_buffers(const struct sgrad__chain *chain) {
    return chain->gpus ? SGRAD__BUFFERS : SGRAD_FEW_OPERANDS + SGRAD__LINKS;
}

/* Returns true if the update at IN would make the task too long, or need too many operands. Updates are never divided. */
static bool too_much_to_update(const struct sgrad__fuser *fuser, struct sgrad__chain *chain,
                               const struct sgrad__instruction *in) {
    const int length = update_length(fuser->p, (int)(in - fuser->p->instruction));
    double flops = chain->flops;
    int more = 0;
    if (fuser->p->instruction[chain->link[chain->links - 1]].call->kernel->kind == &sgrad_reduction_kind) return false;
    for (int i = 0; i < length; i++) {
        flops += in[i].call->flops;
        for (int k = 0; k < in[i].call->operands; k++) more += in[i].operand[k] >= 0 && !find(chain, in[i].operand[k]);
        more -= i > 0;      /* the result of the previous instruction */
    }
    return flops > (chain->gpus ? WHOLE : SMALL_UPDATE) || chain->links + length > most_links(chain) ||
           chain->touched + more > most_operands(chain);
}

/* Returns true if an output of IN has exactly one consumer, and the kernel of IN may run the consumer as well. */
static bool has_one_taker(const struct sgrad__fuser *fuser, const struct sgrad__instruction *in) {
    int i = 0;
    while (i < in->call->operands && (in->operand[i] < 0 || !sgrad__writes(in->call, i) || fuser->uses[in->operand[i]] != 2)) i++;
    return in->call->kernel->cuda_fused && i < in->call->operands;
}

/* Returns true if the task would be too long with IN. A pass over memory stays with its layer, unless (on GPUs) its kernel may
 * also run its only consumer. */
static bool too_much(const struct sgrad__fuser *fuser, struct sgrad__chain *chain, const struct sgrad__instruction *in) {
    const bool full =
        chain->heavy && chain->heavy != in->call->attrs && chain->flops + in->call->flops > (chain->gpus ? WHOLE : TINY);
    if (chain->kind == &sgrad_update_kind) return too_much_to_update(fuser, chain, in);
    return full && (!light(in->call) || (chain->gpus && has_one_taker(fuser, in)));
}

bool sgrad__chain_owns(const struct sgrad__fuser *fuser, const struct sgrad__touched *touched, int times) {
    const struct sgrad__buffer *buffer = &fuser->p->buffer[touched->buffer];
    return touched->first_written && buffer->lifetime == SGRAD_TRANSIENT && buffer->copies == 1 &&
           fuser->uses[touched->buffer] == times;
}

bool sgrad__chain_hides(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain, const struct sgrad__touched *touched,
                        int times) {
    return chain->sliced && touched->rows && sgrad__chain_owns(fuser, touched, times);
}

/* Returns the number of the chain's buffers that are operands of the task, if IN joins. */
static int operands_with(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain,
                         const struct sgrad__instruction *in) {
    int count = 0;
    for (const struct sgrad__touched *t = chain->buffer; t < chain->buffer + chain->touched; t++) {
        int times = t->times;
        for (int i = 0; i < in->call->operands; i++) times += in->operand[i] == t->buffer;
        count += !sgrad__chain_hides(fuser, chain, t, times);
    }
    return count;
}

/* Returns true if the operands of the task, with those of IN, have more bytes than a GPU with limited memory can spare. */
static bool too_large(const struct sgrad__fuser *fuser, struct sgrad__chain *chain, const struct sgrad__instruction *in) {
    const struct sgrad__instruction *last = &fuser->p->instruction[chain->link[chain->links - 1]];
    double bytes = 0;
    if (!chain->gpus || !fuser->b->most_bytes) return false;
    if (chain->kind == &sgrad_update_kind && last->call->kernel->kind == &sgrad_reduction_kind) return false;
    for (int i = 0; i < chain->touched; i++) bytes += (double)sgrad_view_bytes(&chain->buffer[i].view);
    for (int i = 0; i < in->call->operands; i++)
        if (in->operand[i] >= 0 && !find(chain, in->operand[i])) bytes += (double)sgrad_view_bytes(&in->call->view[i]);
    return bytes > fuser->b->most_bytes;
}

static bool joins(const struct sgrad__fuser *fuser, struct sgrad__chain *chain, const struct sgrad__instruction *in,
                  const struct sgrad_kind *kind) {
    const struct sgrad_bound_kernel *call = in->call;
    bool meets = chain && (!chain->sliced || in->passing);      /* an inline recomputation joins: the next link uses its result */
    int more = 0;
    if (!chain || chain->links == most_links(chain) || chain->kind != kind || too_much(fuser, chain, in) ||
        too_large(fuser, chain, in))
        return false;
    for (int i = 0; i < call->operands; i++) {
        if (in->operand[i] < 0) continue;
        const struct sgrad__touched *t = find(chain, in->operand[i]);
        if (overtakes(fuser, chain, in->operand[i], sgrad__writes(call, i))) return false;
        if (chain->sliced && t && (t->rows != sgrad__has_rows(call, i) || (!t->rows && (t->written || sgrad__writes(call, i)))))
            return false;
        meets |= t && t->rows;
        more += !t;
    }
    return meets && chain->touched + more <= most_buffers(chain) &&
           operands_with(fuser, chain, in) + more <= most_operands(chain);
}

static struct sgrad_view view_of(const struct sgrad__fuser *fuser, const struct sgrad__instruction *in, int i) {
    const bool packed = in->call->packing && i == in->call->kernel->weight_operand;
    return packed ? in->call->view[i] : fuser->p->buffer[in->operand[i]].view;
}

static void join(struct sgrad__fuser *fuser, struct sgrad__chain *chain, int j) {
    const struct sgrad__instruction *in = &fuser->p->instruction[j];
    fuser->chain[j] = chain;
    if (!light(in->call)) chain->heavy = in->call->attrs;
    chain->flops += in->call->flops;
    for (int i = 0; i < in->call->operands; i++) {
        if (in->operand[i] < 0) continue;
        struct sgrad__touched *t = find(chain, in->operand[i]);
        if (!t) {
            t = &chain->buffer[chain->touched++];
            *t = (struct sgrad__touched){ .buffer = in->operand[i],
                                          .view = view_of(fuser, in, i),
                                          .rows = sgrad__has_rows(in->call, i),
                                          .first_written = in->call->access[i] == SGRAD_W,
                                          .last = -1 };
        }
        t->times++;
        t->links += t->last != chain->links;
        t->last = chain->links;
        t->written |= sgrad__writes(in->call, i);
    }
    chain->link[chain->links++] = j;
}

/* Returns true if the task would have too many operands with IN: backward may use values that are internal to the original
 * chain. */
static bool too_many(const struct sgrad__fuser *fuser, struct sgrad__chain *chain, const struct sgrad__instruction *in) {
    int more = 0;
    for (int i = 0; i < in->call->operands; i++) more += in->operand[i] >= 0 && !find(chain, in->operand[i]);
    return operands_with(fuser, chain, in) + more > most_operands(chain);
}

/* Instruction J is a recomputation. It joins the chain of the previous one, if the original instructions are in one chain. */
static void join_again(struct sgrad__fuser *fuser, int j) {
    const struct sgrad__chain *first = fuser->chain[fuser->p->instruction[j].again];
    struct sgrad__chain *c = fuser->chain[j - 1];
    if (!first) return;
    if (!c || c->repeats != first || too_many(fuser, c, &fuser->p->instruction[j])) {
        c = sgrad_xcalloc(1, sizeof *c);
        *c = (struct sgrad__chain){ .start = j, .kind = first->kind, .backwards = first->backwards, .sliced = first->sliced,
                             .gpus = first->gpus, .repeats = first };
    }
    join(fuser, c, j);
}

static void count_uses(struct sgrad__fuser *fuser) {
    for (int j = 0; j < fuser->p->instruction_count; j++)
        for (int i = 0; i < fuser->p->instruction[j].call->operands; i++)
            if (fuser->p->instruction[j].operand[i] >= 0) fuser->uses[fuser->p->instruction[j].operand[i]]++;
}

void sgrad__find_chains(struct sgrad__fuser *fuser) {
    count_uses(fuser);
    for (int j = 0; j < fuser->p->instruction_count; j++) {
        const struct sgrad__instruction *in = &fuser->p->instruction[j];
        int at = j;
        if (in->again >= 0) join_again(fuser, j);
        if (in->again < 0 && can_fuse(fuser, j)) {
            const struct sgrad_kind *kind = kind_of(fuser, j);
            struct sgrad__chain **open = &fuser->open[in->micro];
            if (kind == &sgrad_update_kind) open = &fuser->open[fuser->b->micros];
            else if (kind == &sgrad_reduction_kind) open = &fuser->open[fuser->b->micros + 1 + in->gpu];
            if (!joins(fuser, *open, in, kind)) {
                const bool gpus = sgrad__on_gpus(fuser->b, in->workers), sliced = !gpus && kind != &sgrad_update_kind;
                const bool turn = sliced && *open && !(*open)->backwards;
                *open = sgrad_xcalloc(1, sizeof **open);
                **open = (struct sgrad__chain){ .start = j, .kind = kind, .backwards = turn, .sliced = sliced, .gpus = gpus };
            }
            join(fuser, *open, j);
            at = (*open)->start;
        }
        for (int i = 0; i < in->call->operands; i++) {
            if (in->operand[i] < 0) continue;
            if (in->again >= 0 && sgrad__writes(in->call, i)) {
                fuser->again[in->operand[i]] = j;   /* put() in fuse.c inserts it before its first consumer */
                continue;
            }
            struct sgrad__accesses *h = &fuser->history[sgrad__whole_of(fuser->p, in->operand[i])];
            int *last = sgrad__writes(in->call, i) ? &h->write : &h->read;
            if (*last < at) *last = at;
        }
    }
}
