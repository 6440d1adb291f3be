/* spill.c: --memory: moves activations, gradients, optimizer states and weights to a file between their uses, if they do not fit
 * in memory (residence.c plans this).
 *
 * A buffer that leaves memory ends with its store. A new buffer takes its place when it is fetched, so that the two may have
 * different memory:
 *
 *     before      conv1 forward → a      …                      …         conv1 backward ← a
 *     after       conv1 forward → a      store a (slot 0)       fetch a' (slot 0)   …   conv1 backward ← a'
 *                                        memory of a is free                            memory of a' is used
 *
 * The memory of some optimizer states, or of all of them and some weights, is a part of the file, their home (limit.moved). Tasks
 * use copies of them, which are fetched from it, and stored after a change:
 *
 *     before      update ← w, m
 *     after       fetch m' (m)   update ← w, m'   store m' (m)
 *
 * The tasks are planned in the order of submission, and as many consecutive tasks as there are workers run at the same time.
 *
 * If the memory of a GPU is limited (--gpu-memory), the buffers that its tasks use are placed in a block of this memory, and
 * moves go to main memory, where weights and optimizer states live in any case.
 *
 * Limits: one GPU per rank; messages, and contents that only some steps use, are not moved. */
#include "graphs/compiler/builder.h"
#include "graphs/compiler/passes/residence.h"
#include "runtime/gpu_memory.h"
#include "runtime/partitions.h"
#include "runtime/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct sgrad_kernel sgrad__store_kernel = { .name = "store", .kind = &sgrad_input_kind, .flops = sgrad_no_flops };
const struct sgrad_kernel sgrad__fetch_kernel = { .name = "fetch", .kind = &sgrad_input_kind, .flops = sgrad_no_flops };

/* Bytes: smaller buffers without samples are not placed on a GPU. Those of StarPU keep their memory in all steps there
 * (arena.c). */
enum { LEAST_ON_GPU = 16 << 10 };

/* The instructions that use planned buffers. */
struct sequence {
    struct sgrad__residence_problem is;
    int *instruction;               /* by task */
    struct sgrad__task_uses *task;
    double *bytes;
    bool *fixed;
    int *home, *over;               /* by buffer; as in the problem */
    struct sgrad__residence plan;
};

/* Returns the mean duration of IN as measured in earlier runs or, if it is unknown, by its operations and bytes. */
static double seconds_of(const struct sgrad__instruction *in, const struct sgrad__memory_limit *limit) {
    const int worker = limit->gpu ? sgrad_gpu_worker() : 0;
    const double measured = sgrad_workers() && in->call->codelet ? sgrad_bound_kernel_mean(in->call, worker) : NAN;
    const double arithmetic = in->call->flops / limit->flops, memory = in->call->bytes / limit->bandwidth;
    if (measured > 0) return measured;
    return arithmetic > memory ? arithmetic : memory;
}

/* Returns the number of workers that execute tasks at the same time. */
static int workers_of(const struct sgrad_program_options *options) {
    return options->cpus > 1 && !options->limit.gpu ? options->cpus : 1;
}

double sgrad__spill_seconds(const struct sgrad__program *program, const struct sgrad_program_options *options) {
    double seconds = 0;
    for (int i = 0; i < program->instruction_count; i++) seconds += seconds_of(&program->instruction[i], &options->limit);
    return seconds / workers_of(options);
}

static bool can_move(const struct sgrad__program *p, int b, const struct sgrad__instruction *in) {
    return !in->when.every && !sgrad__is_message(in->call) && sgrad_view_bytes(&p->buffer[b].view) >= SGRAD__SMALLEST_MOVE;
}

/* Adds instruction I, if it uses planned buffers. */
static void add_task(struct sequence *s, const struct sgrad__program *p, int i, double seconds) {
    const struct sgrad__instruction *in = &p->instruction[i];
    int *buffer = sgrad_xcalloc(SGRAD_MAX_OPERANDS, sizeof *buffer), count = 0;
    bool *writes = sgrad_xcalloc(SGRAD_MAX_OPERANDS, sizeof *writes);
    for (int j = 0; j < in->call->operands; j++) {
        const int b = in->operand[j];
        if (b < 0 || (!p->buffer[b].planned && s->home[b] < 0)) continue;
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

/* ---- planned buffers ---- */

/* Marks the buffers whose memory is planned: those with samples, and other large ones, such as gradients, that no message uses
 * and that are used in all steps. On a GPU: only those that its tasks use. */
static void choose_planned(const struct sgrad_builder *builder) {
    struct sgrad__program *p = builder->p;
    bool *computed = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *computed);      /* a GPU uses it */
    const size_t least = builder->o->limit.gpu ? LEAST_ON_GPU : SGRAD__SMALLEST_MOVE;
    for (int b = 0; b < p->buffer_count; b++) {
        struct sgrad__buffer *is = &p->buffer[b];
        is->planned = is->lifetime == SGRAD_TRANSIENT && is->copies == 1 && !is->lent &&
                       (is->rows || sgrad_view_bytes(&is->view) >= least);
    }
    for (int i = 0; i < p->instruction_count; i++)
        for (int j = 0; j < p->instruction[i].call->operands; j++) {
            const struct sgrad__instruction *in = &p->instruction[i];
            if (in->operand[j] < 0) continue;
            struct sgrad__buffer *is = &p->buffer[in->operand[j]];
            computed[in->operand[j]] |= sgrad__on_gpus(builder, in->workers) && in->call->kernel->cuda;
            is->planned &= is->rows || !(in->when.every || in->outlives || sgrad__is_message(in->call));
        }
    for (int b = 0; b < p->buffer_count && builder->o->limit.gpu; b++) p->buffer[b].planned &= computed[b];
    free(computed);
}

/* Returns true if BUFFER, a chunk of a tensor in the file, begins with a block, so that it can be moved alone. */
static bool starts_block(const struct sgrad__program *p, int buffer) {
    const struct sgrad__buffer *is = &p->buffer[buffer];
    if (!is->parts) return true;
    const int64_t first = sgrad_part_first(sgrad_shape_count(&p->buffer[is->whole].view.shape), is->parts, is->part);
    return first * (int64_t)sizeof(float) % SGRAD_SPILL_BLOCK == 0;
}

/* Sets the home of each buffer that is, or is a part of, a tensor in the file, if all instructions can use a copy of it. */
static void choose_homes(const struct sgrad_builder *builder, int *home) {
    const struct sgrad__program *p = builder->p;
    const int count = builder->o->limit.moved;
    struct sgrad__homes homes = { 0 };
    if (count) homes = sgrad__homes_find(builder->o->training);
    for (int b = 0; b < p->buffer_count; b++) {
        const int whole = sgrad__whole_of(p, b);
        int at = 0;
        home[b] = -1;
        if (!p->buffer[b].lent || sgrad_view_bytes(&p->buffer[b].view) < SGRAD__SMALLEST_MOVE) continue;
        while (at < count && homes.tensor[at] != p->buffer[whole].tensor[0]) at++;
        if (at < count && starts_block(p, b)) home[b] = at;
    }
    for (int i = 0; i < p->instruction_count; i++)
        for (int j = 0; j < p->instruction[i].call->operands; j++) {
            const struct sgrad__instruction *in = &p->instruction[i];
            if (in->operand[j] >= 0 && (in->when.every || in->outlives || sgrad__is_message(in->call))) home[in->operand[j]] = -1;
        }
    sgrad__homes_free(&homes);
}

/* Returns the input of IN whose memory output J may have, if IN uses it last; -1: none. LAST: by buffer. */
static int input_for(const struct sgrad__program *p, int i, int j, const int *last) {
    const struct sgrad__instruction *in = &p->instruction[i];
    for (int k = 0; k < in->call->operands; k++) {
        const int b = in->operand[k];
        if (b >= 0 && p->buffer[b].planned && in->call->access[k] == SGRAD_R && last[b] == i &&
            sgrad_view_bytes(&p->buffer[b].view) == sgrad_view_bytes(&p->buffer[in->operand[j]].view))
            return b;
    }
    return -1;
}

/* Sets the buffer whose memory each buffer has from its first use on, where kernels allow this; -1: none. */
static void choose_over(const struct sgrad_builder *builder, int *over) {
    const struct sgrad__program *p = builder->p;
    int *last = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *last);
    bool *seen = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *seen),
         *taken = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *taken);
    for (int i = 0; i < p->instruction_count; i++)
        for (int j = 0; j < p->instruction[i].call->operands; j++)
            if (p->instruction[i].operand[j] >= 0) last[p->instruction[i].operand[j]] = i;
    for (int b = 0; b < p->buffer_count; b++) over[b] = -1;
    for (int i = 0; i < p->instruction_count && !builder->o->limit.gpu; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        for (int j = 0; j < in->call->operands; j++) {
            const int b = in->operand[j];
            if (b < 0 || seen[b]) continue;
            seen[b] = true;
            if (!in->call->kernel->in_place || in->call->access[j] != SGRAD_W || !p->buffer[b].planned) continue;
            const int input = input_for(p, i, j, last);
            if (input >= 0 && !taken[input]) over[b] = input, taken[input] = true;
        }
    }
    free(taken);
    free(seen);
    free(last);
}

static struct sequence *open_sequence(const struct sgrad_builder *builder, int running) {
    const struct sgrad__program *p = builder->p;
    const struct sgrad__memory_limit *limit = &builder->o->limit;
    struct sequence *s = sgrad_xcalloc(1, sizeof *s);
    s->instruction = sgrad_xcalloc((size_t)p->instruction_count + 1, sizeof *s->instruction);
    s->task = sgrad_xcalloc((size_t)p->instruction_count + 1, sizeof *s->task);
    s->bytes = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *s->bytes);
    s->fixed = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *s->fixed);
    s->home = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *s->home);
    s->over = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *s->over);
    choose_homes(builder, s->home);
    choose_over(builder, s->over);
    for (int i = 0; i < p->instruction_count; i++)
        add_task(s, p, i, seconds_of(&p->instruction[i], limit) / workers_of(builder->o));
    s->is.buffers = p->buffer_count;
    s->is.running = running;
    s->is.task = s->task, s->is.bytes = s->bytes, s->is.fixed = s->fixed, s->is.home = s->home;
    s->is.over = s->over;
    s->is.simple = limit->simple;
    s->is.write = limit->speed.write, s->is.read = limit->speed.read;
    s->instruction[s->is.tasks] = p->instruction_count;
    return s;
}

static void close_sequence(struct sequence *sequence) {
    for (int k = 0; k < sequence->is.tasks; k++) {
        free((void *)sequence->task[k].buffer);
        free((void *)sequence->task[k].writes);
    }
    sgrad__residence_free(&sequence->plan);
    free(sequence->instruction);
    free(sequence->task);
    free(sequence->bytes);
    free(sequence->fixed);
    free(sequence->home);
    free(sequence->over);
    free(sequence);
}

/* ---- application of a plan ---- */

/* The moves that are added. */
struct moves {
    struct sgrad_builder *builder;
    struct sgrad__insertion *before, *after;    /* by instruction */
    int *slot;                                  /* by buffer of the program without moves; -1: it has none */
    int *home;                                  /* by buffer of the program with moves: that which it is a copy of; -1: none */
};

/* Returns the slot of BUFFER; it is created if it does not exist. */
static int slot_of(const struct moves *moves, int buffer) {
    struct sgrad__program *p = moves->builder->p;
    struct sgrad__spilling *s = &p->spilling;
    if (moves->slot[buffer] >= 0) return moves->slot[buffer];
    s->bytes = sgrad_array_grow(s->bytes, s->slots, sizeof *s->bytes);
    s->bytes[s->slots] = sgrad_view_bytes(&p->buffer[buffer].view);
    return moves->slot[buffer] = s->slots++;
}

/* Appends a move of buffer COPY, the content of ORIGINAL, to or from its home or its slot. Returns its index. */
static int add_move(const struct moves *moves, const struct sgrad_kernel *kernel, int copy, int original, int micro) {
    struct sgrad_builder *builder = moves->builder;
    const struct sgrad__buffer *is = &builder->p->buffer[copy];
    const bool stores = kernel == &sgrad__store_kernel, home = moves->home[copy] >= 0;
    const struct sgrad_bound_kernel call = { .kernel = kernel, .operands = home ? 2 : 1, .view = { is->view, is->view },
                                             .access = { stores ? SGRAD_R : SGRAD_W, stores ? SGRAD_W : SGRAD_R } };
    const int operand[] = { copy, moves->home[copy] };
    struct sgrad__instruction *in = sgrad__add_instruction(builder, sgrad__shared_call(builder, call), operand, micro,
                                                           SGRAD__PRIORITY_CHAIN, sgrad_format("%s %s", is->name, kernel->name));
    in->peer = -1;
    in->tag = home ? -1 : slot_of(moves, original);
    return builder->p->instruction_count - 1;
}

/* Replaces buffer OLD by NEW in the tasks of SEQUENCE from task FIRST on. */
static void rename_from(struct sgrad__program *p, const struct sequence *sequence, int first, int old, int new) {
    for (int k = first; k < sequence->is.tasks; k++) {
        struct sgrad__instruction *in = &p->instruction[sequence->instruction[k]];
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] == old) in->operand[j] = new;
    }
}

/* Returns a new buffer for the content of OLD. */
static int add_copy(const struct moves *moves, int old) {
    struct sgrad__program *p = moves->builder->p;
    const bool home = p->buffer[old].lent;
    const int new = sgrad__add_buffer(moves->builder, sgrad_format("%s", p->buffer[old].name), p->buffer[old].view);
    p->buffer[new].rows = p->buffer[old].rows;
    p->buffer[new].planned = true;
    moves->home[new] = home ? old : moves->home[old];
    return new;
}

/* Adds the moves of the absences in the plan. IS: by buffer, the one that has its content now. */
static void add_absences(const struct moves *moves, const struct sequence *sequence, int *is) {
    struct sgrad__program *p = moves->builder->p;
    for (int i = 0; i < sequence->plan.count; i++) {
        const struct sgrad__absence *a = &sequence->plan.absence[i];
        const int old = is[a->buffer], micro = p->instruction[sequence->instruction[a->use]].micro;
        if (a->store >= 0)
            sgrad__insert(&moves->after[sequence->instruction[a->store]],
                          add_move(moves, &sgrad__store_kernel, old, a->buffer, micro));
        p->buffer[a->buffer].leaves = true;
        p->buffer[old].release = sequence->instruction[a->release];
        const int new = is[a->buffer] = add_copy(moves, old);
        sgrad__insert(&moves->before[sequence->instruction[a->fetch]],
                      add_move(moves, &sgrad__fetch_kernel, new, a->buffer, micro));
        rename_from(p, sequence, a->use, old, new);
    }
    for (int b = 0; b < sequence->is.buffers; b++)
        if (sequence->plan.end[b]) p->buffer[is[b]].release = sequence->instruction[sequence->plan.end[b]];
    for (int b = 0; b < sequence->is.buffers; b++)
        if (sequence->over[b] >= 0) p->buffer[b].over = is[sequence->over[b]];
}

/* Stores each copy that a task changes, after it, to its home. */
static void add_returns(const struct moves *moves, const struct sequence *sequence) {
    const struct sgrad__program *p = moves->builder->p;
    for (int k = 0; k < sequence->is.tasks; k++) {
        const int i = sequence->instruction[k];
        const struct sgrad_bound_kernel *call = p->instruction[i].call;
        for (int j = 0; j < call->operands; j++) {
            const int b = p->instruction[i].operand[j];
            if (b >= 0 && call->access[j] != SGRAD_R && moves->home[b] >= 0)
                sgrad__insert(&moves->after[i], add_move(moves, &sgrad__store_kernel, b, b, p->instruction[i].micro));
        }
    }
}

static void apply(struct sgrad_builder *builder, const struct sequence *sequence) {
    struct sgrad__program *p = builder->p;
    const size_t count = (size_t)p->instruction_count, buffers = (size_t)p->buffer_count,
                 all = buffers + (size_t)sequence->plan.count + 1;
    struct moves moves = { builder, sgrad_xcalloc(count + 1, sizeof *moves.before), sgrad_xcalloc(count + 1, sizeof *moves.after),
                           sgrad_xcalloc(all, sizeof *moves.slot), sgrad_xcalloc(all, sizeof *moves.home) };
    int *is = sgrad_xcalloc(buffers + 1, sizeof *is);
    for (size_t b = 0; b < all; b++) moves.slot[b] = moves.home[b] = -1;
    for (int b = 0; b < (int)buffers; b++) is[b] = b;
    add_absences(&moves, sequence, is);
    add_returns(&moves, sequence);
    sgrad__put_in_order(p, (int)count, moves.before, moves.after);
    free(moves.before);
    free(moves.after);
    free(moves.slot);
    free(moves.home);
    free(is);
}

bool sgrad__spill(struct sgrad_builder *builder, int running, double bytes) {
    choose_planned(builder);
    struct sequence *sequence = open_sequence(builder, running);
    sequence->is.limit = bytes;
    const bool fits = sgrad__residence_plan(&sequence->is, &sequence->plan) == 0 &&
                      (builder->o->limit.spills || !sequence->plan.count);
    if (fits) {
        builder->p->spilling = (struct sgrad__spilling){ .file = builder->o->limit.file,
                                                         .first = -1,
                                                         .written = sequence->plan.written,
                                                         .read = sequence->plan.read,
                                                         .seconds = sequence->plan.seconds,
                                                         .waited = sequence->plan.waited };
        apply(builder, sequence);
    }
    close_sequence(sequence);
    return fits;
}
