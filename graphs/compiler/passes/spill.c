/* spill.c: --memory: moves activations to a file between their uses, if they do not fit in memory (residence.c plans this).
 *
 * A buffer that leaves memory ends with its store. A new buffer takes its place when it is fetched, so that the two may have
 * different memory:
 *
 *     before      conv1 forward → a      …                      …         conv1 backward ← a
 *     after       conv1 forward → a      store a (slot 0)       fetch a' (slot 0)   …   conv1 backward ← a'
 *                                        memory of a is free                            memory of a' is used
 *
 * Micro-batches whose numbers are equal modulo DISTANCE use the same memory, one after another. They form a sequence, which is
 * planned separately: DISTANCE sequences share the limit, the bandwidth of the file and the workers. If micro-batches form groups
 * (batch norm), each layer is computed for all of them before the next one; then all are one sequence, of which several tasks run
 * at the same time.
 *
 * Limits: only for CPUs; gradients of parameters, parameters and optimizer states are not moved. */
#include "graphs/compiler/builder.h"
#include "graphs/compiler/passes/residence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct sgrad_kernel sgrad__store_kernel = { .name = "store", .kind = &sgrad_input_kind, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__fetch_kernel = { .name = "fetch", .kind = &sgrad_input_kind, .flops = sgrad_no_flops };

enum { LEAST = 256 << 10 };     /* bytes: smaller buffers are not moved */

/* The instructions of the micro-batches with one number modulo DISTANCE. */
struct sequence {
    struct sgrad__residence_problem is;
    int *instruction;               /* by task */
    struct sgrad__task_uses *task;
    double *bytes;
    bool *fixed;
    struct sgrad__residence plan;
};

static bool runs_in(const struct sgrad__program *p, int i, int berth, int distance) {
    return p->instruction[i].micro % distance == berth;
}

/* Returns the mean duration of IN as measured in earlier runs or, if it is unknown, by its operations and bytes. */
static double seconds_of(const struct sgrad__instruction *in, const struct sgrad__memory_limit *limit) {
    const double measured = sgrad_workers() && in->call->codelet ? sgrad_bound_kernel_expected(in->call, 0) : NAN;
    const double arithmetic = in->call->flops / limit->flops, memory = in->call->bytes / limit->bandwidth;
    if (measured > 0) return measured;
    return arithmetic > memory ? arithmetic : memory;
}

static bool can_move(const struct sgrad__program *p, int b, const struct sgrad__instruction *in) {
    return !in->when.every && !sgrad__is_message(in->call) && sgrad_view_bytes(&p->buffer[b].view) >= LEAST;
}

/* Adds instruction I, if it uses planned buffers. */
static void add_task(struct sequence *s, const struct sgrad__program *p, int i, double seconds) {
    const struct sgrad__instruction *in = &p->instruction[i];
    int *buffer = sgrad_xcalloc(SGRAD_MAX_OPERANDS, sizeof *buffer), count = 0;
    bool *writes = sgrad_xcalloc(SGRAD_MAX_OPERANDS, sizeof *writes);
    for (int j = 0; j < in->call->operands; j++) {
        const int b = in->operand[j];
        if (b < 0 || !sgrad__shares_memory(&p->buffer[b])) continue;
        int at = 0;
        while (at < count && buffer[at] != b) at++;
        buffer[at] = b;
        count += at == count;
        writes[at] |= in->call->access[j] != SGRAD_R;
        s->bytes[b] = (double)sgrad_view_bytes(&p->buffer[b].view);
        s->fixed[b] |= !can_move(p, b, in);
    }
    s->instruction[s->is.tasks] = i;
    s->task[s->is.tasks++] = (struct sgrad__task_uses){ seconds, count, buffer, writes };
}

static struct sequence *open_sequence(const struct sgrad_builder *builder, int berth, int distance, int running) {
    const double share = 1.0 / distance;
    const struct sgrad__program *p = builder->p;
    const struct sgrad__memory_limit *limit = &builder->o->limit;
    struct sequence *s = sgrad_xcalloc(1, sizeof *s);
    s->instruction = sgrad_xcalloc((size_t)p->instruction_count + 1, sizeof *s->instruction);
    s->task = sgrad_xcalloc((size_t)p->instruction_count + 1, sizeof *s->task);
    s->bytes = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *s->bytes);
    s->fixed = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *s->fixed);
    const double slower = 1 / (share * (builder->o->cpus > 1 ? builder->o->cpus : 1));
    for (int i = 0; i < p->instruction_count; i++)
        if (runs_in(p, i, berth, distance)) add_task(s, p, i, slower * seconds_of(&p->instruction[i], limit));
    s->is.buffers = p->buffer_count;
    s->is.running = running;
    s->is.task = s->task, s->is.bytes = s->bytes, s->is.fixed = s->fixed;
    s->is.write = share * limit->speed.write, s->is.read = share * limit->speed.read;
    return s;
}

static void close_sequence(struct sequence *sequence) {
    if (!sequence) return;
    for (int k = 0; k < sequence->is.tasks; k++) {
        free((void *)sequence->task[k].buffer);
        free((void *)sequence->task[k].writes);
    }
    sgrad__residence_free(&sequence->plan);
    free(sequence->instruction);
    free(sequence->task);
    free(sequence->bytes);
    free(sequence->fixed);
    free(sequence);
}

/* ---- application of a plan ---- */

/* Appends a move of BUFFER to or from SLOT. Returns its index. */
static int add_move(struct sgrad_builder *builder, const struct sgrad_kernel *kernel, int buffer, int slot, int micro) {
    const struct sgrad__buffer *is = &builder->p->buffer[buffer];
    const struct sgrad_bound_kernel call = { .kernel = kernel, .operands = 1, .view = { is->view },
                                             .access = { kernel == &sgrad__store_kernel ? SGRAD_R : SGRAD_W } };
    struct sgrad__instruction *in = sgrad__add_instruction(builder, sgrad__shared_call(builder, call), &buffer, micro,
                                                           SGRAD__PRIORITY_CHAIN, sgrad_format("%s %s", is->name, kernel->name));
    in->peer = -1;
    in->tag = slot;
    return builder->p->instruction_count - 1;
}

/* Returns the slot of BUFFER; it is created if it does not exist. SLOT: by buffer of the program without moves; -1: none. */
static int slot_of(struct sgrad__program *p, int *slot, int buffer) {
    struct sgrad__spilling *s = &p->spilling;
    if (slot[buffer] >= 0) return slot[buffer];
    s->bytes = sgrad_array_grow(s->bytes, s->slots, sizeof *s->bytes);
    s->bytes[s->slots] = sgrad_view_bytes(&p->buffer[buffer].view);
    return slot[buffer] = s->slots++;
}

/* Replaces buffer OLD by NEW in the tasks of SEQUENCE from task FIRST on. */
static void rename_from(struct sgrad__program *p, const struct sequence *sequence, int first, int old, int new) {
    for (int k = first; k < sequence->is.tasks; k++) {
        struct sgrad__instruction *in = &p->instruction[sequence->instruction[k]];
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] == old) in->operand[j] = new;
    }
}

/* Adds the moves of SEQUENCE. IS: by buffer, the buffer that has its content now. */
static void apply(struct sgrad_builder *builder, const struct sequence *sequence, int *is, int *slot,
                  struct sgrad__insertion *before, struct sgrad__insertion *after) {
    struct sgrad__program *p = builder->p;
    for (int i = 0; i < sequence->plan.count; i++) {
        const struct sgrad__absence *a = &sequence->plan.absence[i];
        const int old = is[a->buffer], micro = p->instruction[sequence->instruction[a->use]].micro;
        const int at = slot_of(p, slot, a->buffer);
        if (a->store >= 0)
            sgrad__insert(&after[sequence->instruction[a->store]], add_move(builder, &sgrad__store_kernel, old, at, micro));
        p->buffer[old].release = sequence->instruction[a->release];
        const int new = sgrad__add_buffer(builder, sgrad_format("%s", p->buffer[old].name), p->buffer[old].view);
        p->buffer[new].rows = true;
        is[a->buffer] = new;
        sgrad__insert(&before[sequence->instruction[a->fetch]], add_move(builder, &sgrad__fetch_kernel, new, at, micro));
        rename_from(p, sequence, a->use, old, new);
    }
    p->spilling.written += sequence->plan.written;
    p->spilling.read += sequence->plan.read;
    if (sequence->plan.seconds > p->spilling.seconds)
        p->spilling.seconds = sequence->plan.seconds, p->spilling.waited = sequence->plan.waited;
}

static void apply_all(struct sgrad_builder *builder, struct sequence *const *sequence, int distance) {
    struct sgrad__program *p = builder->p;
    const int count = p->instruction_count, buffers = p->buffer_count;
    struct sgrad__insertion *before = sgrad_xcalloc((size_t)count + 1, sizeof *before),
                     *after = sgrad_xcalloc((size_t)count + 1, sizeof *after);
    int *is = sgrad_xcalloc((size_t)buffers + 1, sizeof *is), *slot = sgrad_xcalloc((size_t)buffers + 1, sizeof *slot);
    for (int b = 0; b < buffers; b++) is[b] = b, slot[b] = -1;
    for (int s = 0; s < distance; s++) apply(builder, sequence[s], is, slot, before, after);
    sgrad__put_in_order(p, count, before, after);
    p->spilling.folder = builder->o->limit.folder;
    free(before);
    free(after);
    free(is);
    free(slot);
}

bool sgrad__spill(struct sgrad_builder *builder, int distance, int running, double bytes) {
    const int used = distance < builder->micros ? distance : builder->micros;
    struct sequence **sequence = sgrad_xcalloc((size_t)distance, sizeof *sequence);
    bool fits = true;
    for (int s = 0; s < used && fits; s++) {
        sequence[s] = open_sequence(builder, s, used, running);
        sequence[s]->is.limit = bytes / used;
        fits = sgrad__residence_plan(&sequence[s]->is, &sequence[s]->plan) == 0 &&
               (builder->o->limit.folder || !sequence[s]->plan.count);
    }
    if (fits) apply_all(builder, sequence, used);
    for (int s = 0; s < used; s++) close_sequence(sequence[s]);
    free(sequence);
    return fits;
}
