/* arena.c: places the planned buffers in one block of memory, the arena, if memory is limited. Two buffers may have bytes in
 * common if one is used before the other:
 *
 *     offset
 *      160   ┌─────────┐
 *            │    c    │           ┌────────┐
 *      100   ├─────────┴────┐      │   e    │      e is placed on b and c; its claim waits for both
 *            │      b       │      │        │
 *       60   ├──────────────┴──┐   ├────────┴──┐
 *            │        a        │   │     d     │   d waits for a; a, in the next step, waits for d
 *        0   └─────────────────┘   └───────────┘
 *            time ─────────────────────────────>
 *
 * The largest buffers are placed first, each at the lowest free offset, in whole blocks of a file. StarPU does not detect that
 * two tensors have bytes in common. Therefore an instruction without work, the claim, precedes the first use of a buffer in a
 * step. It waits for the previous users of these bytes, which may belong to the previous step.
 *
 * sgrad__share_memory, by contrast, gives a buffer all of the memory of another one. It requires no claims, and the content is
 * often still in a cache; but buffers of many sizes require up to twice as much memory.
 *
 * (Y. Pisarchyk, J. Lee, Efficient memory management for deep neural net inference, 2020: "greedy by size for offset
 * calculation".) */
#include "graphs/compiler/builder.h"

#include <stdlib.h>

const struct sgrad_kernel sgrad__claim_kernel = { .name = "claim", .kind = &sgrad_input_kind, .flops = sgrad_no_flops,
                                                  .bytes = sgrad_no_flops };

/* Buffers, each of which has the memory of the one before it: the first and the last one. They have bytes FROM to TO - 1 during
 * the instructions from FIRST to END - 1. */
struct place {
    int buffer, last, first, end;
    size_t bytes, from, to;
};

struct range {
    size_t from, to;
};

static int largest_first(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->bytes != y->bytes) return (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return (x->first > y->first) - (x->first < y->first);
}

static int lowest_first(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* The places of the buffers of a program. */
struct places {
    int count, *of;                 /* of: by buffer, 1 + index of its place; 0: none */
    int *first;                     /* by buffer: its first use */
    struct place *place;            /* sorted later: OF does not follow */
};

static void use_at(const struct sgrad__program *p, struct places *places, int b, int i) {
    const struct sgrad__buffer *is = &p->buffer[b];
    if (!places->of[b]) {
        places->first[b] = i;
        if (is->over >= 0) {
            places->of[b] = places->of[is->over];
            places->place[places->of[b] - 1].last = b;
        } else {
            places->place[places->count] =
                (struct place){ .buffer = b, .last = b, .first = i, .bytes = sgrad_spill_blocks(sgrad_view_bytes(&is->view)) };
            places->of[b] = ++places->count;
        }
    }
    places->place[places->of[b] - 1].end = i < is->release ? is->release : i + 1;
}

/* Returns the places without offsets. The caller must free the arrays. */
static struct places find_places(const struct sgrad__program *p) {
    const size_t buffers = (size_t)p->buffer_count + 1;
    struct places places = { .of = sgrad_xcalloc(buffers, sizeof *places.of),
                             .first = sgrad_xcalloc(buffers, sizeof *places.first),
                             .place = sgrad_xcalloc(buffers, sizeof *places.place) };
    for (int i = 0; i < p->instruction_count; i++)
        for (int j = 0; j < p->instruction[i].call->operands; j++) {
            const int b = p->instruction[i].operand[j];
            if (b >= 0 && p->buffer[b].planned) use_at(p, &places, b, i);
        }
    return places;
}

/* Sets the lowest offset of PLACE[I] at which no earlier one is at the same time. */
static void put(struct place *place, int i, struct range *taken) {
    int count = 0;
    for (int j = 0; j < i; j++)
        if (place[j].first < place[i].end && place[i].first < place[j].end)
            taken[count++] = (struct range){ place[j].from, place[j].to };
    qsort(taken, (size_t)count, sizeof *taken, lowest_first);
    size_t at = 0;
    for (int j = 0; j < count && taken[j].from < at + place[i].bytes; j++)
        if (taken[j].to > at) at = taken[j].to;
    place[i].from = at;
    place[i].to = at + place[i].bytes;
}

/* ---- claims ---- */

/* Returns the time from the end of A to the first use of B; if A is used after B, that to the first use in the next step. */
static int distance_to(const struct place *a, const struct place *b, int steps) {
    return a->end <= b->first ? b->first - a->end : b->first - a->end + steps;
}

struct previous {
    int steps;
    const struct place *of;
};
static int nearest_first(const void *a, const void *b, void *arg) {
    const struct previous *how = arg;
    const struct place *const *x = a, *const *y = b;
    const int one = distance_to(*x, how->of, how->steps), other = distance_to(*y, how->of, how->steps);
    return (one > other) - (one < other);
}

/* Removes the bytes of BY from the COUNT ranges. Returns the new count, and sets *MET if it removed any. */
static int cut_off(struct range *range, int count, const struct place *by, bool *met) {
    int kept = count;
    *met = false;
    for (int i = 0; i < count; i++) {
        const struct range is = range[i];
        if (is.to <= by->from || by->to <= is.from) continue;
        *met = true;
        range[i] = (struct range){ is.from, is.from > by->from ? is.from : by->from };
        if (is.to > by->to) range[kept++] = (struct range){ by->to, is.to };
    }
    return kept;
}

/* Stores in WAITS the buffers that used the bytes of PLACE[I] before it. Returns their number. */
static int find_previous(const struct place *place, int count, int i, int steps, int *waits) {
    const struct place **other = sgrad_xcalloc((size_t)count, sizeof *other);
    struct range *range = sgrad_xcalloc((size_t)count + 1, sizeof *range);
    int others = 0, ranges = 1, found = 0;
    bool met;
    if (place[i].last != place[i].buffer) waits[found++] = place[i].last;
    for (int j = 0; j < count; j++)
        if (j != i && place[j].from < place[i].to && place[i].from < place[j].to)
            other[others++] = &place[j];
    struct previous how = { steps, &place[i] };
    qsort_r(other, (size_t)others, sizeof *other, nearest_first, &how);
    range[0] = (struct range){ place[i].from, place[i].to };
    for (int j = 0; j < others; j++) {
        ranges = cut_off(range, ranges, other[j], &met);
        if (met) waits[found++] = other[j]->last;
    }
    free(range);
    free(other);
    return found;
}

/* Adds claims of BUFFER, which is used by instruction FIRST. */
static void add_claims(struct sgrad_builder *builder, int buffer, int first, const int *waits, int count,
                       struct sgrad__insertion *before) {
    struct sgrad__program *p = builder->p;
    for (int from = 0; from < count; from += SGRAD_MAX_OPERANDS - 1) {
        int operand[SGRAD_MAX_OPERANDS] = { buffer };
        struct sgrad_bound_kernel call = { .kernel = &sgrad__claim_kernel, .operands = 1 };
        for (int i = from; i < count && call.operands < SGRAD_MAX_OPERANDS; i++) operand[call.operands++] = waits[i];
        for (int i = 0; i < call.operands; i++) call.view[i] = p->buffer[operand[i]].view, call.access[i] = SGRAD_W;
        sgrad__add_instruction(builder, sgrad__shared_call(builder, call), operand, p->instruction[first].micro,
                               SGRAD__PRIORITY_CHAIN, sgrad_format("%s claim", p->buffer[buffer].name));
        sgrad__insert(&before[first], p->instruction_count - 1);
    }
}

/* Nothing that is placed is freed after its last use. On a GPU, nothing at all: recorded launches need the same addresses in all
 * steps (runtime/recording.c). */
static void keep_memory(struct sgrad__program *p) {
    for (int i = 0; i < p->instruction_count; i++)
        for (int j = 0; j < p->instruction[i].call->operands; j++) {
            struct sgrad__instruction *in = &p->instruction[i];
            if (in->operand[j] < 0 || !(p->on_gpu || p->buffer[in->operand[j]].placed)) continue;
            in->last &= ~(UINT64_C(1) << j);
            in->else_last &= ~(UINT64_C(1) << j);
        }
}

/* Sets the offset of each buffer, and adds claims for those that have the memory of another one. */
static void place_buffers(struct sgrad_builder *builder, const struct places *places, const size_t *offset,
                          struct sgrad__insertion *before) {
    struct sgrad__program *p = builder->p;
    for (int b = 0, buffers = p->buffer_count; b < buffers; b++) {
        if (!places->of[b]) continue;
        p->buffer[b].placed = true;
        p->buffer[b].offset = offset[places->of[b] - 1];
        if (p->buffer[b].over >= 0) add_claims(builder, b, places->first[b], &p->buffer[b].over, 1, before);
    }
}

void sgrad__place_in_arena(struct sgrad_builder *builder) {
    struct sgrad__program *p = builder->p;
    struct places places = find_places(p);
    const int steps = p->instruction_count, count = places.count;
    struct place *place = places.place;
    struct range *taken = sgrad_xcalloc((size_t)count + 1, sizeof *taken);
    struct sgrad__insertion *before = sgrad_xcalloc((size_t)steps + 1, sizeof *before);
    int *waits = sgrad_xcalloc((size_t)count + 2, sizeof *waits);
    size_t *offset = sgrad_xcalloc((size_t)count + 1, sizeof *offset);
    qsort(place, (size_t)count, sizeof *place, largest_first);
    for (int i = 0; i < count; i++) {
        put(place, i, taken);
        offset[places.of[place[i].buffer] - 1] = place[i].from;
        if (place[i].to > p->arena_bytes) p->arena_bytes = place[i].to;
    }
    place_buffers(builder, &places, offset, before);
    for (int i = 0; i < count; i++)
        add_claims(builder, place[i].buffer, place[i].first, waits, find_previous(place, count, i, steps, waits), before);
    keep_memory(p);
    sgrad__put_in_order(p, steps, before, NULL);
    free(offset);
    free(waits);
    free(before);
    free(taken);
    free(places.of);
    free(places.first);
    free(place);
}
