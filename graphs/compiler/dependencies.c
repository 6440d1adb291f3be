/* dependencies.c: on which earlier instructions of a step each instruction depends, as StarPU finds it from their accesses:
 *
 *     writes a     reads a     reads a     writes a
 *        ↑────────────┘ │         │          │ │      a reader: on the last writer
 *        ↑──────────────┼─────────┘          │ │      a writer: on the readers since then, or on the last writer
 *                       ↑────────────────────┘ │
 *                                 ↑────────────┘
 *
 * Moves of one slot of the file depend on each other.
 *
 * Limits: parts of a buffer count as one operand. Dependencies on other steps are not found. */
#include "graphs/compiler/program.h"

#include <stdlib.h>

/* The accesses to a buffer so far. */
struct accesses {
    int writer;                             /* the last instruction that has written it; -1: none */
    struct sgrad__dependencies readers;     /* since then */
};

static void append(struct sgrad__dependencies *list, int i) {
    list->on = sgrad_array_grow(list->on, list->count, sizeof *list->on);
    list->on[list->count++] = i;
}

static void see(struct sgrad__dependencies *list, struct accesses *a, int i, bool writes) {
    if (a->writer >= 0 && a->writer != i && !(writes && a->readers.count)) append(list, a->writer);
    for (int j = 0; j < a->readers.count && writes; j++)
        if (a->readers.on[j] != i) append(list, a->readers.on[j]);
    if (!writes) {
        append(&a->readers, i);
        return;
    }
    a->writer = i;
    a->readers.count = 0;
}

bool sgrad__is_move(const struct sgrad_bound_kernel *call) {
    return call->kernel == &sgrad__store_kernel || call->kernel == &sgrad__fetch_kernel;
}

/* Returns the buffer that operand J of IN belongs to. Moves of different parts of a tensor in the file are independent. */
static int accessed(const struct sgrad__program *program, const struct sgrad__instruction *in, int j) {
    return sgrad__is_move(in->call) ? in->operand[j] : sgrad__whole_of(program, in->operand[j]);
}

struct sgrad__dependencies *sgrad__dependencies_find(const struct sgrad__program *program) {
    const int count = program->instruction_count;
    struct sgrad__dependencies *list = sgrad_xcalloc((size_t)count + 1, sizeof *list);
    struct accesses *buffer = sgrad_xcalloc((size_t)program->buffer_count + 1, sizeof *buffer);
    int *last = sgrad_xcalloc((size_t)program->spilling.slots + 1, sizeof *last);   /* by slot: 1 + the last move; 0: none */
    for (int b = 0; b < program->buffer_count; b++) buffer[b].writer = -1;
    for (int i = 0; i < count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] >= 0) see(&list[i], &buffer[accessed(program, in, j)], i, in->call->access[j] != SGRAD_R);
        if (!sgrad__is_move(in->call) || in->call->operands > 1) continue;
        if (last[in->tag]) append(&list[i], last[in->tag] - 1);
        last[in->tag] = i + 1;
    }
    for (int b = 0; b < program->buffer_count; b++) free(buffer[b].readers.on);
    free(buffer);
    free(last);
    return list;
}

void sgrad__dependencies_free(struct sgrad__dependencies *list, const struct sgrad__program *program) {
    for (int i = 0; i < program->instruction_count; i++) free(list[i].on);
    free(list);
}
