/* memory.c: plans the memory of a program's buffers, computes its amount, and allocates it.
 *
 * Without a plan, the memory of a transient buffer is freed after its last use, and StarPU allocates memory for it in the next
 * step, on the device that first writes it. With a plan, activations of one size and one micro-batch use the same memory, if the
 * last use of one comes before the first use of the other. This memory is used in all steps, on each device that computes the
 * micro-batch:
 *
 *     layer1.conv1#0   ──────────────────────── last use
 *     gradient#0                                     first use ─────
 *     memory           ─────────────────────────────────────────────
 *
 * StarPU sees one tensor, so the order of uses is maintained. Nothing is allocated or freed while steps run, and GPU launches
 * that use such memory can be recorded (runtime/recording.c). Two micro-batches use different memory, because one may run ahead
 * of the other, unless they are far apart in the order. (Register allocation by linear scan: M. Poletto, V. Sarkar, 1999.) */
#include "graphs/compiler/builder.h"
#include "runtime/gpu_memory.h"
#include "runtime/partitions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The uses of a buffer: the steps in which its content is computed, and its last uses. */
struct uses {
    bool made, seen, ended;
    struct sgrad__when when, later;     /* later: the steps of those uses that come after the last use in all steps of WHEN */
};

static bool same(struct sgrad__when a, struct sgrad__when b) { return a.every == b.every && (!a.every || a.from == b.from); }

/* Memory is freed after the last use, so that backward frees activations as it proceeds. If only some of the steps that compute
 * the content have its last use, it is freed in the other steps after the last use that all of them have. */
void sgrad__mark_last_uses(struct sgrad__program *program) {
    struct uses *uses = sgrad_xcalloc((size_t)program->buffer_count, sizeof *uses);
    for (int i = 0; i < program->instruction_count; i++)
        for (int j = 0; j < program->instruction[i].call->operands; j++) {
            const int buffer = program->instruction[i].operand[j];
            if (buffer >= 0 && !uses[buffer].made)
                uses[buffer] = (struct uses){ .made = true, .when = program->instruction[i].when };
        }
    for (int i = program->instruction_count - 1; i >= 0; i--)
        for (int j = 0; j < program->instruction[i].call->operands; j++) {
            struct sgrad__instruction *in = &program->instruction[i];
            struct uses *u = in->operand[j] < 0 ? NULL : &uses[in->operand[j]];
            if (!u || u->ended || program->buffer[in->operand[j]].lifetime != SGRAD_TRANSIENT) continue;
            u->ended = same(u->when, in->when);
            assert(u->ended || !u->seen || same(u->later, in->when));
            if (!u->seen) in->last |= UINT64_C(1) << j;
            else if (u->ended) in->else_last |= UINT64_C(1) << j, in->unless = u->later;
            if (!u->seen && !u->ended) u->later = in->when;
            u->seen = true;
        }
    free(uses);
}

/* ---- recomputation ---- */

/* Makes IN wait for BUFFER, by an operand that its kernel does not use. */
static void hold_behind(struct sgrad_builder *builder, struct sgrad__instruction *in, int buffer) {
    struct sgrad_bound_kernel call = *in->call;
    in->operand[call.operands] = buffer;
    call.view[call.operands].shape.rank = -1;
    call.access[call.operands++] = SGRAD_R;
    in->call = sgrad__shared_call(builder, call);
}

/* A recomputation that reads only saved values could run long before backward needs its result, which would occupy memory all
 * that time. Therefore it waits for a gradient that the consumer of its result reads as well. A recomputation that reads the
 * result of another one waits with that one. */
void sgrad__hold_back(struct sgrad_builder *builder) {
    const struct sgrad__program *p = builder->p;
    bool *gradient = sgrad_xcalloc((size_t)p->buffer_count, sizeof *gradient);  /* buffers that backward has written so far */
    bool *again = sgrad_xcalloc((size_t)p->buffer_count, sizeof *again);        /* buffers that are recomputed so far */
    for (int i = 0; i < p->instruction_count; i++) {
        struct sgrad__instruction *in = &p->instruction[i], *taker = in;
        const bool repeats = in->again >= 0;
        bool waits = false;
        for (int j = 0; j < in->call->operands; j++) {
            if (in->operand[j] < 0) continue;
            waits |= again[in->operand[j]];
            if (in->call->access[j] == SGRAD_R) continue;
            again[in->operand[j]] |= repeats;
            gradient[in->operand[j]] |= in->call->kernel->kind == &sgrad_backward_kind;
        }
        if (!repeats || waits || in->call->operands >= SGRAD_FEW_OPERANDS) continue;
        while (taker->again >= 0) taker++;
        for (int j = 0; j < taker->call->operands; j++)
            if (taker->operand[j] >= 0 && gradient[taker->operand[j]]) {
                hold_behind(builder, in, taker->operand[j]);
                break;
            }
    }
    free(again);
    free(gradient);
}

/* ---- reuse of memory ---- */

enum { SMALL = 64 << 10 };      /* bytes: buffers up to this size are not freed */

/* Buffers with the same memory have the same form. Messages must have the same number of bytes on both ranks, so their memory
 * must not be larger than their content. Counted tensors (partitions.h) are messages, and never other buffers. */
enum form { ANY, MESSAGE, COUNTED };

/* Free buffers of one size, for micro-batches that use the same memory (berth: their number modulo DISTANCE). */
struct shelf {
    size_t bytes;
    int berth;
    enum form form;
    int count, *buffer;
};

/* SENT: buffers that the last instructions, messages, have used last, and the micro-batches of these messages. */
struct shelves {
    int count, sent_count;
    struct shelf *shelf;
    struct sent {
        int buffer, micro;
    } *sent;
};

struct sharing {
    struct sgrad__program *p;
    int distance;
    bool little, for_good, *seen;       /* seen: by buffer */
    enum form *form;                    /* by buffer */
    struct shelves shelves;
};

static struct shelf *shelf_of(struct shelves *shelves, size_t bytes, int berth, enum form form) {
    for (struct shelf *at = shelves->shelf; at < shelves->shelf + shelves->count; at++)
        if (at->bytes == bytes && at->berth == berth && at->form == form) return at;
    shelves->shelf = sgrad_array_grow(shelves->shelf, shelves->count, sizeof *shelves->shelf);
    shelves->shelf[shelves->count] = (struct shelf){ .bytes = bytes, .berth = berth, .form = form };
    return &shelves->shelf[shelves->count++];
}

/* Returns the free buffers to use for BYTES of BERTH: those of this size; if LITTLE is set and FORM is ANY, else those
 * of the next larger size, or of the largest size that exists, which are enlarged. NULL: there are none. */
static struct shelf *shelf_for(struct shelves *shelves, size_t bytes, int berth, bool little, enum form form) {
    struct shelf *best = NULL;
    for (struct shelf *at = shelves->shelf; at < shelves->shelf + shelves->count; at++) {
        if (at->berth != berth || at->form != form || !at->count) continue;
        if (at->bytes == bytes) return at;
        if (little && form == ANY &&
            (!best || (best->bytes < bytes ? at->bytes > best->bytes : at->bytes > bytes && at->bytes < best->bytes)))
            best = at;
    }
    return best;
}

/* Sets the form of each buffer. Only if buffers may be enlarged (LITTLE), messages need one. A receive waits for earlier
 * instructions of its rank, as all instructions do. A message that arrives before this is stored by StarPU-MPI, so that no rank
 * waits to send. */
static void find_forms(const struct sgrad__program *program, bool little, enum form *form) {
    for (int i = 0; i < program->instruction_count && little; i++)
        if (sgrad__is_message(program->instruction[i].call)) form[program->instruction[i].operand[0]] = MESSAGE;
    for (int b = 0; b < program->buffer_count; b++)
        if (program->buffer[b].counted) form[b] = COUNTED;
}

/* From now on, another buffer for micro-batch MICRO may have the memory of BUFFER. */
static void put_back(struct sharing *s, int buffer, int micro) {
    const struct sgrad__buffer *is = &s->p->buffer[buffer];
    const int home = is->follows < 0 ? buffer : is->follows;
    struct shelf *shelf = shelf_of(&s->shelves, s->p->buffer[home].room, micro % s->distance, s->form[buffer]);
    shelf->buffer = sgrad_array_grow(shelf->buffer, shelf->count, sizeof *shelf->buffer);
    shelf->buffer[shelf->count++] = home;
}

/* A message does not get the memory of one that was sent directly before it. Otherwise, in a ring (moves.c), each rank would
 * receive only when its own message has been sent, and StarPU-MPI would store the arriving message elsewhere and copy it. */
static void put_back_sent(struct sharing *s) {
    struct shelves *shelves = &s->shelves;
    for (int i = 0; i < shelves->sent_count; i++) put_back(s, shelves->sent[i].buffer, shelves->sent[i].micro);
    shelves->sent_count = 0;
}

/* Chooses the memory of the buffers that IN uses first. */
static void take_memory(struct sharing *s, const struct sgrad__instruction *in) {
    for (int j = 0; j < in->call->operands; j++) {
        const int b = in->operand[j];
        struct sgrad__buffer *buffer = b < 0 ? NULL : &s->p->buffer[b];
        if (!buffer || s->seen[b] || !buffer->rows || buffer->lifetime != SGRAD_TRANSIENT || buffer->copies > 1) continue;
        const size_t bytes = sgrad_view_bytes(&buffer->view);
        struct shelf *shelf = shelf_for(&s->shelves, bytes, in->micro % s->distance, s->little, s->form[b]);
        s->seen[b] = true;
        buffer->room = bytes;
        if (!shelf) continue;
        buffer->follows = shelf->buffer[--shelf->count];
        buffer->copies = 0;
        if (s->p->buffer[buffer->follows].room < bytes) s->p->buffer[buffer->follows].room = bytes;
    }
}

/* Frees the buffers that IN uses last, or keeps their memory for others. */
static void end_uses(struct sharing *s, struct sgrad__instruction *in) {
    struct shelves *shelves = &s->shelves;
    for (int j = 0; j < in->call->operands; j++) {
        if (!((in->last | in->else_last) >> j & 1)) continue;
        const struct sgrad__buffer *buffer = &s->p->buffer[in->operand[j]];
        const size_t bytes = sgrad_view_bytes(&buffer->view);
        if (!buffer->rows && bytes > SMALL && !s->for_good) continue;
        const bool ends = in->last >> j & 1;
        in->last &= ~(UINT64_C(1) << j), in->else_last &= ~(UINT64_C(1) << j);
        if (!ends || !buffer->rows || buffer->copies > 1) continue;
        if (sgrad__is_message(in->call)) {
            shelves->sent = sgrad_array_grow(shelves->sent, shelves->sent_count, sizeof *shelves->sent);
            shelves->sent[shelves->sent_count++] = (struct sent){ in->operand[j], in->micro };
        } else put_back(s, in->operand[j], in->micro);
    }
}

void sgrad__share_memory(struct sgrad__program *program, int distance, bool little, bool for_good) {
    const size_t count = (size_t)program->buffer_count;
    struct sharing s = { program, distance, little, for_good, sgrad_xcalloc(count, sizeof *s.seen),
                         sgrad_xcalloc(count, sizeof *s.form), { 0 } };
    find_forms(program, little, s.form);
    for (int i = 0; i < program->instruction_count; i++) {
        if (!sgrad__is_message(program->instruction[i].call)) put_back_sent(&s);
        take_memory(&s, &program->instruction[i]);
        end_uses(&s, &program->instruction[i]);
    }
    for (int i = 0; i < s.shelves.count; i++) free(s.shelves.shelf[i].buffer);
    free(s.shelves.shelf);
    free(s.shelves.sent);
    free(s.seen);
    free(s.form);
}

/* ---- amount of memory ---- */

/* Bytes of the largest workspace that a task needs. Each worker has one. */
struct workspaces {
    size_t of_cpus, of_gpus;
};

static struct workspaces workspaces(const struct sgrad__program *program) {
    struct workspaces w = { 0 };
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        const bool on_cpus = in->workers != SGRAD_GPU_WORKERS || !in->call->kernel->cuda;
        if (on_cpus) w.of_cpus = sgrad_larger(w.of_cpus, in->call->workspace);
        if (in->workers != SGRAD_CPU_WORKERS) w.of_gpus = sgrad_larger(w.of_gpus, in->call->gpu_workspace);
    }
    return w;
}

/* The first and the last instruction for which a buffer has memory. */
struct life {
    int first, last;
    bool seen, message, ends;           /* it is used; it is sent or received; its memory is freed */
};

/* Returns the buffer that has the memory of B: the whole of a chunk, or the buffer that it follows. */
static int home_of(const struct sgrad__program *program, int b) {
    const int whole = sgrad__whole_of(program, b);
    return program->buffer[whole].follows < 0 ? whole : program->buffer[whole].follows;
}

/* Flags of memory: its content is computed late; it is read late, so that the next write must wait. */
enum { MADE_LATE = 1, READ_LATE = 2 };

/* Returns the position of each instruction in time: the order of submission. If other ranks are LATE, instructions that wait for
 * their messages come after all others. */
static int *find_turns(const struct sgrad__program *program, bool late) {
    int *turn = sgrad_xcalloc((size_t)program->instruction_count + 1, sizeof *turn), next = 0;
    char *is = sgrad_xcalloc((size_t)program->buffer_count, sizeof *is);
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        const struct sgrad_bound_kernel *call = in->call;
        bool waits = late && sgrad__is_message(call) && call->access[0] != SGRAD_R;
        for (int j = 0; j < call->operands; j++) {
            const int behind = call->access[j] == SGRAD_R ? MADE_LATE : MADE_LATE | READ_LATE;
            waits |= in->operand[j] >= 0 && is[home_of(program, in->operand[j])] & behind;
        }
        for (int j = 0; j < call->operands && waits; j++)
            if (in->operand[j] >= 0) is[home_of(program, in->operand[j])] |= call->access[j] == SGRAD_R ? READ_LATE : MADE_LATE;
        turn[i] = waits ? -1 : next++;
    }
    for (int i = 0; i < program->instruction_count; i++)
        if (turn[i] < 0) turn[i] = next++;
    free(is);
    return turn;
}

/* Returns, by instruction, the turn until which a late receiver may leave a message that is sent there: the end of the step. If
 * messages wait (sgrad__add_wait), ranks need each other's messages all the time: the WAITS-th next wait. */
static int *find_ends(const struct sgrad__program *program, const int *turn) {
    /* Of the buckets in memory: each waits for memory, for gradients, and for its own gradient. */
    enum { WAITS = 3 * (SGRAD__BUCKETS_AHEAD + 1) };
    const int count = program->instruction_count;
    int *end = sgrad_xcalloc((size_t)count + 1, sizeof *end), next[WAITS];
    for (int w = 0; w < WAITS; w++) next[w] = count - 1;
    for (int i = count - 1; i >= 0; i--) {
        const struct sgrad_bound_kernel *call = program->instruction[i].call;
        end[i] = next[WAITS - 1] > turn[i] ? next[WAITS - 1] : turn[i];
        if (call->kernel != &sgrad_wait_kernel || call->access[0] != SGRAD_W) continue;     /* W: not the rest of a wait */
        memmove(&next[1], next, (WAITS - 1) * sizeof *next);
        next[0] = turn[i];
    }
    return end;
}

/* A received message has memory from the submission of the step on, unless a task before it uses its buffer. A sent one has
 * memory until its receiver, if LATE, receives it. */
static struct life *find_lives(const struct sgrad__program *program, bool late) {
    struct life *lives = sgrad_xcalloc((size_t)program->buffer_count, sizeof *lives);
    const int end = program->instruction_count - 1;
    int *turn = find_turns(program, late), *left = find_ends(program, turn);
    for (int i = 0; i < program->instruction_count; i++)
        for (int j = 0; j < program->instruction[i].call->operands; j++) {
            const struct sgrad__instruction *in = &program->instruction[i];
            const struct sgrad_kernel *kernel = in->call->kernel;
            if (in->operand[j] < 0) continue;
            struct life *l = &lives[in->operand[j]];
            const int first = kernel == &sgrad__receive_kernel && !l->seen ? 0 : turn[i];
            const int last = late && kernel == &sgrad__send_kernel ? left[i] : turn[i];
            if (!l->seen || first < l->first) l->first = first;
            if (last > l->last) l->last = last;
            l->seen = true;
            l->message |= sgrad__is_message(in->call);
            l->ends |= in->last >> j & 1;
        }
    for (int b = 0; b < program->buffer_count; b++)
        if (!lives[b].ends) lives[b].first = 0, lives[b].last = end;
    free(turn);
    free(left);
    return lives;
}

static double bytes_of(const struct sgrad__program *program, int b) {
    const struct sgrad__buffer *is = &program->buffer[b];
    return is->lent || is->placed ? 0 : (double)sgrad__buffer_bytes(is) * is->copies;
}

/* Returns the instruction at which the buffers have the most bytes. */
static int find_peak(const struct sgrad__program *program, const struct life *lives) {
    double *change = sgrad_xcalloc((size_t)program->instruction_count + 1, sizeof *change), now = 0, most = -1;
    int peak = 0;
    for (int b = 0; b < program->buffer_count; b++) {
        if (!lives[b].seen) continue;
        change[lives[b].first] += bytes_of(program, b);
        change[lives[b].last + 1] -= bytes_of(program, b);
    }
    for (int i = 0; i < program->instruction_count; i++) {
        now += change[i];
        if (now > most) most = now, peak = i;
    }
    free(change);
    return peak;
}

static struct sgrad__memory find_memory(const struct sgrad__program *program, int workers, bool late) {
    struct sgrad__memory m = { .workspaces = (double)workspaces(program).of_cpus * workers };
    struct life *lives = find_lives(program, late);
    const int peak = find_peak(program, lives);
    for (int b = 0; b < program->buffer_count; b++) {
        const struct sgrad__buffer *is = &program->buffer[b];
        if (!lives[b].seen || peak < lives[b].first || peak > lives[b].last) continue;
        double *part = is->rows ? &m.activations : &m.gradients;
        if (is->copies > 1) part = &m.inputs;
        else if (lives[b].message) part = &m.messages;
        *part += bytes_of(program, b);
    }
    m.activations += (double)program->arena_bytes;
    free(lives);
    return m;
}

struct sgrad__memory sgrad__program_memory(const struct sgrad__program *program, int workers, double *on_time) {
    const struct sgrad__memory early = find_memory(program, workers, false), late = find_memory(program, workers, true);
    const double least = sgrad__memory_all(&early), most = sgrad__memory_all(&late);
    if (on_time) *on_time = least;
    return most > least ? late : early;
}

static double tensor_bytes(const struct sgrad_tensor *tensor) { return tensor ? (double)sgrad_view_bytes(&tensor->view) : 0; }

size_t sgrad__program_gpu_workspace(const struct sgrad__program *program) { return workspaces(program).of_gpus; }

double sgrad__graph_memory(const struct sgrad_graph *graph) {
    double bytes = 0;
    for (int i = 0; i < graph->parameter_count; i++) bytes += tensor_bytes(graph->parameter[i].tensor);
    return bytes;
}

double sgrad__training_memory(const struct sgrad__training *training) {
    double bytes = sgrad__graph_memory(training->graph);
    for (int i = 0; i < training->graph->parameter_count; i++) {
        struct sgrad_tensor *const *state = training->update[i].state;
        for (int k = 0; state && state[k]; k++) bytes += tensor_bytes(state[k]);
    }
    for (int i = 0; i < training->kept_count; i++) bytes += tensor_bytes(training->kept[i].tensor);
    return bytes;
}

/* ---- allocation ---- */

/* Creates the tensors of the chunks of a buffer. FIRST is its first chunk; the others have larger indices. */
static void cut(struct sgrad__program *program, int first) {
    const struct sgrad__buffer *is = &program->buffer[first];
    struct sgrad_tensor **part = sgrad_xcalloc((size_t)is->parts, sizeof *part);
    sgrad_tensor_partition(program->buffer[is->whole].tensor[0], is->parts, part);
    for (int i = first; i < program->buffer_count; i++)
        if (program->buffer[i].parts && program->buffer[i].whole == is->whole)
            program->buffer[i].tensor[0] = part[program->buffer[i].part];
    free(part);
}

int sgrad__program_allocate(struct sgrad__program *program) {
    const struct workspaces w = workspaces(program);
    struct sgrad__spilling *s = &program->spilling;
    if (s->slots) SGRAD_TRY(sgrad_spill_reserve(s->file, s->bytes, s->slots, &s->first));
    SGRAD_TRY(sgrad_workspace_create(w.of_cpus, w.of_gpus, &program->workspace));
    if (program->arena_bytes && program->on_gpu)
        SGRAD_TRY(sgrad_gpu_block_create("arena", program->arena_bytes, &program->arena));
    else if (program->arena_bytes)
        SGRAD_TRY(sgrad_tensor_create("arena", SGRAD_U8, (struct sgrad_shape){ 1, { (int64_t)program->arena_bytes } },
                                      SGRAD_PERSISTENT, &program->arena));
    for (int i = 0; i < program->buffer_count; i++) {
        struct sgrad__buffer *buffer = &program->buffer[i];
        struct sgrad_view is = buffer->view;
        if (sgrad__buffer_bytes(buffer) > sgrad_view_bytes(&is))
            is = (struct sgrad_view){ SGRAD_U8, { 1, { (int64_t)buffer->room } } };
        if (buffer->placed)
            SGRAD_TRY(sgrad_tensor_create_in(buffer->name, is.dtype, is.shape, program->arena, buffer->offset,
                                             &buffer->tensor[0]));
        for (int c = 0; c < buffer->copies && !buffer->lent && !buffer->placed; c++)
            SGRAD_TRY(sgrad_tensor_create(buffer->name, is.dtype, is.shape, buffer->lifetime, &buffer->tensor[c]));
        if (buffer->counted && buffer->tensor[0]) sgrad_tensor_set_counted(buffer->tensor[0]);
    }
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].follows >= 0) program->buffer[i].tensor[0] = program->buffer[program->buffer[i].follows].tensor[0];
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].parts && !program->buffer[i].part) cut(program, i);
    return 0;
}

