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

int sgrad__add_buffer(struct sgrad_builder *b, char *name, struct sgrad_view view) {
    struct sgrad__program *p = b->p;
    p->buffer = sgrad_array_grow(p->buffer, p->buffer_count, sizeof *p->buffer);
    p->buffer[p->buffer_count] =
        (struct sgrad__buffer){ .name = name, .view = view, .lifetime = SGRAD_TRANSIENT, .copies = 1, .follows = -1 };
    return p->buffer_count++;
}

int sgrad__add_lent(struct sgrad_builder *b, const char *name, struct sgrad_view view) {
    int i = sgrad__add_buffer(b, sgrad_format("%s", name), view);
    b->p->buffer[i].lent = true;
    b->p->buffer[i].lifetime = SGRAD_PERSISTENT;
    return i;
}

int sgrad__lend_buffer(struct sgrad_builder *b, struct sgrad_tensor *tensor) {
    int i = sgrad__add_lent(b, tensor->name, tensor->view);
    b->p->buffer[i].tensor[0] = tensor;
    return i;
}

int sgrad__add_part(struct sgrad_builder *b, int whole, int part, int parts) {
    const int64_t count = sgrad_shape_count(&b->p->buffer[whole].view.shape);
    const int i = sgrad__add_lent(b, b->p->buffer[whole].name, sgrad_part_view(count, parts, part));
    b->p->buffer[i].whole = whole, b->p->buffer[i].part = part, b->p->buffer[i].parts = parts;
    return i;
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

const struct sgrad_bound_kernel *sgrad__add_call(struct sgrad_builder *b, struct sgrad_bound_kernel call) {
    struct sgrad__program *p = b->p;
    struct sgrad_bound_kernel *kept = sgrad_xcalloc(1, sizeof *kept);
    call.batch = &p->batch;
    call.deterministic = b->o->deterministic;
    call.tf32 = b->o->tf32;
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

static bool same_views(const struct sgrad_bound_kernel *a, const struct sgrad_bound_kernel *b) {
    if (a->operands != b->operands) return false;
    for (int i = 0; i < a->operands; i++)
        if (a->view[i].dtype != b->view[i].dtype || !sgrad_shape_equal(&a->view[i].shape, &b->view[i].shape)) return false;
    return true;
}

const struct sgrad_bound_kernel *sgrad__shared_call(struct sgrad_builder *b, struct sgrad_bound_kernel call) {
    int *known = &b->shared[hash_of(&call) % (sizeof b->shared / sizeof *b->shared)];
    const struct sgrad_bound_kernel *last = *known ? b->p->call[*known - 1] : NULL;
    if (last && last->kernel == call.kernel && last->attrs == call.attrs && same_views(last, &call)) return last;
    const struct sgrad_bound_kernel *made = sgrad__add_call(b, call);
    *known = b->p->call_count;
    return made;
}

int sgrad__by_address(const void *a, const void *b) {
    const struct sgrad_bound_kernel *x = *(const struct sgrad_bound_kernel *const *)a,
                                    *y = *(const struct sgrad_bound_kernel *const *)b;
    return (x > y) - (x < y);
}

/* ---- instructions ---------------------------------------------------------------------------------------------- */

struct sgrad__instruction *sgrad__add_instruction(struct sgrad_builder *b, const struct sgrad_bound_kernel *call,
                                                  const int *operand, int micro, int priority, char *name) {
    struct sgrad__program *p = b->p;
    p->instruction = sgrad_array_grow(p->instruction, p->instruction_count, sizeof *p->instruction);
    struct sgrad__instruction *i = &p->instruction[p->instruction_count++];
    *i = (struct sgrad__instruction){ .call = call, .micro = micro, .when = b->when, .outlives = b->outlive, .name = name,
                                      .again = -1, .workers = sgrad__gpus_have_all(b) ? SGRAD_GPU_WORKERS : SGRAD_ANY_WORKER };
    i->priority = b->o->yields ? priority - SGRAD__PRIORITIES : priority;
    memset(i->operand, 0xff, sizeof i->operand);    /* -1: absent */
    memcpy(i->operand, operand, (size_t)call->operands * sizeof *operand);
    return i;
}

int sgrad__add_output(struct sgrad_builder *b, int buffer) {
    struct sgrad__program *p = b->p;
    p->output = sgrad_array_grow(p->output, p->outputs, sizeof *p->output);
    p->output[p->outputs] = (struct sgrad__output){ buffer, b->when };
    p->buffer[buffer].lifetime = SGRAD_PERSISTENT;
    return p->outputs++;
}

/* ---- destruction ---------------------------------------------------------------------------------------------------- */

void *sgrad__own(struct sgrad__program *p, void *memory) {
    p->owned = sgrad_array_grow(p->owned, p->owned_count, sizeof *p->owned);
    return p->owned[p->owned_count++] = memory;
}

/* Joins the chunks of a buffer. FIRST is its first chunk; the others have larger indices. */
static void join(struct sgrad__program *p, int first) {
    const struct sgrad__buffer *is = &p->buffer[first];
    struct sgrad_tensor **part = sgrad_xcalloc((size_t)is->parts, sizeof *part);
    for (int i = first; i < p->buffer_count; i++)
        if (p->buffer[i].parts && p->buffer[i].whole == is->whole) part[p->buffer[i].part] = p->buffer[i].tensor[0];
    if (part[0]) sgrad_tensor_unpartition(p->buffer[is->whole].tensor[0], is->parts, part);
    free(part);
}

void sgrad__program_destroy(struct sgrad__program *p) {
    if (!p) return;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffer[i].parts && !p->buffer[i].part) join(p, i);
    for (int i = 0; i < p->buffer_count; i++) {
        for (int c = 0; c < p->buffer[i].copies && !p->buffer[i].lent; c++) sgrad_tensor_destroy(p->buffer[i].tensor[c]);
        free(p->buffer[i].name);
    }
    for (int i = 0; i < p->instruction_count; i++) free(p->instruction[i].name);
    for (int i = 0; i < p->call_count; i++) {
        sgrad_bound_kernel_release(p->call[i]);
        free(p->call[i]);
    }
    for (int i = 0; i < p->owned_count; i++) free(p->owned[i]);
    for (int i = 0; i < p->shards; i++) free(p->shard[i].parameter);
    sgrad_tensor_destroy(p->workspace);
    free(p->note);
    free(p->micro);
    free(p->owned);
    free(p->shard);
    free(p->output);
    free(p->histogram);
    free(p->answer);
    free(p->buffer);
    free(p->call);
    free(p->instruction);
    free(p);
}
