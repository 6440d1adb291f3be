/* instructions.c: creates the elements of a program, buffers, calls and instructions, and destroys the program. */
#include "graphs/compiler/builder.h"
#include "runtime/partitions.h"

#include <stdlib.h>
#include <string.h>

struct sgrad__program *sgrad__program_create(void) {
    struct sgrad__program *p = sgrad_xcalloc(1, sizeof *p);
    *p = (struct sgrad__program){ .window = 1, .statistics = -1, .votes = -1, .records = -1 };
    return p;
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

int sgrad__add_buffer(struct sgrad_builder *builder, char *name, struct sgrad_view view) {
    struct sgrad__program *p = builder->p;
    p->buffer = sgrad_array_grow(p->buffer, p->buffer_count, sizeof *p->buffer);
    p->buffer[p->buffer_count] =
        (struct sgrad__buffer){ .name = name, .view = view, .lifetime = SGRAD_TRANSIENT, .copies = 1, .result_of = -1,
                                .follows = -1, .over = -1 };
    return p->buffer_count++;
}

int sgrad__add_lent(struct sgrad_builder *builder, const char *name, struct sgrad_view view) {
    int i = sgrad__add_buffer(builder, sgrad_format("%s", name), view);
    builder->p->buffer[i].lent = true;
    builder->p->buffer[i].lifetime = SGRAD_PERSISTENT;
    return i;
}

int sgrad__lend_buffer(struct sgrad_builder *builder, struct sgrad_tensor *tensor) {
    int i = sgrad__add_lent(builder, tensor->name, tensor->view);
    builder->p->buffer[i].tensor[0] = tensor;
    return i;
}

int sgrad__add_part(struct sgrad_builder *builder, int whole, int part, int parts) {
    const int64_t count = sgrad_shape_count(&builder->p->buffer[whole].view.shape);
    const int i = sgrad__add_lent(builder, builder->p->buffer[whole].name, sgrad_part_view(count, parts, part));
    builder->p->buffer[i].whole = whole, builder->p->buffer[i].part = part, builder->p->buffer[i].parts = parts;
    return i;
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

const struct sgrad_bound_kernel *sgrad__add_call(struct sgrad_builder *builder, struct sgrad_bound_kernel call) {
    struct sgrad__program *p = builder->p;
    struct sgrad_bound_kernel *kept = sgrad_xcalloc(1, sizeof *kept);
    call.batch = &p->batch;
    call.deterministic = builder->o->deterministic;
    call.tf32 = builder->o->tf32;
    sgrad_bound_kernel_prepare(&call);
    *kept = call;
    p->call = sgrad_array_grow(p->call, p->call_count, sizeof *p->call);
    p->call[p->call_count++] = kept;
    return kept;
}

/* Hashes member by member, because padding, and dimensions beyond the rank, may have any value. An absent operand has rank -1. */
static uint64_t hash_of(const struct sgrad_bound_kernel *call) {
    uint64_t hash = sgrad_hash(call->kernel->name, strlen(call->kernel->name));
    for (int i = 0; i < call->operands; i++) {
        const struct sgrad_shape *s = &call->view[i].shape;
        const size_t rank = s->rank > 0 ? (size_t)s->rank : 0;
        hash = 31 * hash + sgrad_hash(s->dim, rank * sizeof *s->dim) + call->view[i].dtype;
    }
    return hash;
}

static bool same_views(const struct sgrad_bound_kernel *one, const struct sgrad_bound_kernel *other) {
    if (one->operands != other->operands) return false;
    for (int i = 0; i < one->operands; i++)
        if (one->view[i].dtype != other->view[i].dtype ||
            !sgrad_shape_equal(&one->view[i].shape, &other->view[i].shape))
            return false;
    return true;
}

const struct sgrad_bound_kernel *sgrad__shared_call(struct sgrad_builder *builder, struct sgrad_bound_kernel call) {
    int *known = &builder->shared[hash_of(&call) % (sizeof builder->shared / sizeof *builder->shared)];
    const struct sgrad_bound_kernel *last = *known ? builder->p->call[*known - 1] : NULL;
    if (last && last->kernel == call.kernel && last->attrs == call.attrs && same_views(last, &call)) return last;
    const struct sgrad_bound_kernel *made = sgrad__add_call(builder, call);
    *known = builder->p->call_count;
    return made;
}

int sgrad__by_address(const void *a, const void *b) {
    const struct sgrad_bound_kernel *x = *(const struct sgrad_bound_kernel *const *)a,
                                    *y = *(const struct sgrad_bound_kernel *const *)b;
    return (x > y) - (x < y);
}

/* ---- instructions ---------------------------------------------------------------------------------------------- */

struct sgrad__instruction *sgrad__add_instruction(struct sgrad_builder *builder, const struct sgrad_bound_kernel *call,
                                                  const int *operand, int micro, int priority, char *name) {
    struct sgrad__program *p = builder->p;
    p->instruction = sgrad_array_grow(p->instruction, p->instruction_count, sizeof *p->instruction);
    struct sgrad__instruction *i = &p->instruction[p->instruction_count++];
    *i = (struct sgrad__instruction){ .call = call,
                                      .micro = micro,
                                      .when = builder->when,
                                      .outlives = builder->outlive,
                                      .name = name,
                                      .again = -1,
                                      .workers = sgrad__gpus_have_all(builder) ? SGRAD_GPU_WORKERS : SGRAD_ANY_WORKER };
    i->priority = builder->o->yields ? priority - SGRAD__PRIORITIES : priority;
    memset(i->operand, 0xff, sizeof i->operand);    /* -1: absent */
    memcpy(i->operand, operand, (size_t)call->operands * sizeof *operand);
    return i;
}

int sgrad__add_output(struct sgrad_builder *builder, int buffer) {
    struct sgrad__program *p = builder->p;
    p->output = sgrad_array_grow(p->output, p->outputs, sizeof *p->output);
    p->output[p->outputs] = (struct sgrad__output){ buffer, builder->when };
    p->buffer[buffer].lifetime = SGRAD_PERSISTENT;
    return p->outputs++;
}

void sgrad__insert(struct sgrad__insertion *at, int instruction) {
    at->instruction = sgrad_array_grow(at->instruction, at->count, sizeof *at->instruction);
    at->instruction[at->count++] = instruction;
}

/* Copies the instructions of IS to TO, and frees the list. Returns their number. */
static int put(const struct sgrad__program *program, struct sgrad__insertion *is, struct sgrad__instruction *to) {
    for (int j = 0; is && j < is->count; j++) to[j] = program->instruction[is->instruction[j]];
    const int count = is ? is->count : 0;
    if (is) free(is->instruction);
    return count;
}

void sgrad__put_in_order(struct sgrad__program *program, int count, struct sgrad__insertion *before,
                         struct sgrad__insertion *after) {
    struct sgrad__instruction *all = sgrad_xcalloc((size_t)program->instruction_count + 1, sizeof *all);
    int *place = sgrad_xcalloc((size_t)count + 1, sizeof *place), next = 0;
    for (int i = 0; i < count; i++) {
        next += put(program, before ? &before[i] : NULL, &all[next]);
        place[i] = next;
        all[next++] = program->instruction[i];
        next += put(program, after ? &after[i] : NULL, &all[next]);
    }
    place[count] = next;
    for (int b = 0; b < program->buffer_count; b++) program->buffer[b].release = place[program->buffer[b].release];
    memcpy(program->instruction, all, (size_t)program->instruction_count * sizeof *all);
    free(all);
    free(place);
}

/* ---- destruction ---------------------------------------------------------------------------------------------------- */

void *sgrad__own(struct sgrad__program *program, void *memory) {
    program->owned = sgrad_array_grow(program->owned, program->owned_count, sizeof *program->owned);
    return program->owned[program->owned_count++] = memory;
}

/* Joins the chunks of a buffer. FIRST is its first chunk; the others have larger indices. */
static void join(struct sgrad__program *program, int first) {
    const struct sgrad__buffer *is = &program->buffer[first];
    struct sgrad_tensor **part = sgrad_xcalloc((size_t)is->parts, sizeof *part);
    for (int i = first; i < program->buffer_count; i++)
        if (program->buffer[i].parts && program->buffer[i].whole == is->whole)
            part[program->buffer[i].part] = program->buffer[i].tensor[0];
    if (part[0]) sgrad_tensor_unpartition(program->buffer[is->whole].tensor[0], is->parts, part);
    free(part);
}

void sgrad__program_destroy(struct sgrad__program *program) {
    if (!program) return;
    const struct sgrad__spilling *s = &program->spilling;
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].parts && !program->buffer[i].part) join(program, i);
    for (int i = 0; i < program->buffer_count; i++) {
        for (int c = 0; c < program->buffer[i].copies && !program->buffer[i].lent; c++)
            sgrad_tensor_destroy(program->buffer[i].tensor[c]);
        free(program->buffer[i].name);
    }
    for (int i = 0; i < program->instruction_count; i++) free(program->instruction[i].name);
    for (int i = 0; i < program->call_count; i++) {
        sgrad_bound_kernel_release(program->call[i]);
        free(program->call[i]);
    }
    for (int i = 0; i < program->owned_count; i++) free(program->owned[i]);
    for (int i = 0; i < program->shards; i++) free(program->shard[i].parameter);
    sgrad_tensor_destroy(program->arena);
    sgrad_tensor_destroy(program->workspace);
    if (s->slots && s->first >= 0) sgrad_spill_free(s->file, s->first, s->slots);   /* its moves have ended with its tensors */
    free(s->bytes);
    free(program->note);
    free(program->micro);
    free(program->owned);
    free(program->shard);
    free(program->output);
    free(program->histogram);
    free(program->answer);
    free(program->buffer);
    free(program->call);
    free(program->instruction);
    free(program);
}
