/* sums.c: adds sums over micro-batches in a fixed tree, so that the result does not depend on the order of execution.
 *
 * The tree is made by halving, sum(n) = sum(first ⌈n/2⌉) + sum(rest). A task adds up to eight operands, three levels of the tree:
 *
 *     five leaves   (0 + 1) + 2   │   3 + 4        one task, of five
 *     twenty        two tasks of five each for either half, then one that adds the four */
#include "graphs/compiler/builder.h"

#include <stdlib.h>
#include <string.h>

/* Adds a task that sums those of OPERAND[0 … 7] that exist, and returns the buffer of the sum, of VIEW. ATTRS: the first elements
 * of longer operands, or NULL. */
static int add_task(struct sgrad_builder *builder, int *operand, const struct sgrad_sum *attrs, struct sgrad_view view,
                    const char *name) {
    struct sgrad_bound_kernel call = { .kernel = &sgrad_sum_kernel, .attrs = attrs, .operands = SGRAD_SUM_INPUTS + 1 };
    const int sum = operand[SGRAD_SUM_INPUTS] = sgrad__add_buffer(builder, sgrad_format("%s sum", name), view);
    for (int i = 0; i <= SGRAD_SUM_INPUTS; i++) {
        call.view[i] = builder->p->buffer[operand[i] < 0 ? sum : operand[i]].view;
        call.access[i] = i < SGRAD_SUM_INPUTS ? SGRAD_R : SGRAD_W;
        if (operand[i] < 0) call.view[i].shape.rank = -1;
    }
    sgrad__add_instruction(builder, sgrad__shared_call(builder, call), operand, 0, sgrad__update_priority(builder),
                           sgrad_format("%s sum", name));
    return sum;
}

/* The operands of a sum: as many elements of each leaf as VIEW has, from FIRST on. */
struct sum {
    struct sgrad_builder *b;
    int64_t first;
    struct sgrad_view view;
    const char *name;
};

static int add_tree(const struct sum *s, const int *list, int count);

/* Halves LIST, COUNT leaves, LEVELS times, and sets the WIDTH operands at SLOT to the sums of the results. */
static void distribute(const struct sum *sum, const int *list, int count, int levels, int *slot, int width) {
    if (levels == 0 || count == 1) {
        *slot = add_tree(sum, list, count);
        return;
    }
    distribute(sum, list, count - count / 2, levels - 1, slot, width / 2);
    distribute(sum, list + count - count / 2, count / 2, levels - 1, slot + width / 2, width / 2);
}

/* Returns the first elements of leaves that are longer than the sum; NULL: no leaf is longer. */
static const struct sgrad_sum *firsts(const struct sum *sum, const int *operand) {
    struct sgrad_sum of = { 0 }, *attrs = NULL;
    for (int i = 0; i < SGRAD_SUM_INPUTS; i++) {
        if (operand[i] < 0 || sgrad_view_bytes(&sum->b->p->buffer[operand[i]].view) == sgrad_view_bytes(&sum->view)) continue;
        if (!attrs) attrs = sgrad__own(sum->b->p, sgrad_xcalloc(1, sizeof *attrs));
        of.first[i] = sum->first;
    }
    if (attrs) *attrs = of;
    return attrs;
}

/* A task adds three levels of the tree, up to eight operands; the topmost one adds the remaining levels. */
static int add_tree(const struct sum *sum, const int *list, int count) {
    int operand[SGRAD_SUM_INPUTS + 1], above = 0;
    if (count == 1) return list[0];
    for (int rest = count; rest > SGRAD_SUM_INPUTS; rest -= rest / 2) above++;
    memset(operand, 0xff, sizeof operand);
    distribute(sum, list, count, above ? (above - 1) % 3 + 1 : 3, operand, SGRAD_SUM_INPUTS);
    return add_task(sum->b, operand, firsts(sum, operand), sum->view, sum->name);
}

int sgrad__add_sum_of(struct sgrad_builder *builder, const int *buffer, int count, int64_t first, struct sgrad_view view,
                      const char *name) {
    const struct sum s = { builder, first, view, name };
    int *list = sgrad_xcalloc((size_t)count + 1, sizeof *list), n = 0;
    for (int i = 0; i < count; i++)
        if (buffer[i] >= 0) list[n++] = buffer[i];
    int result = n ? add_tree(&s, list, n) : -1;
    free(list);
    return result;
}

int sgrad__add_sum(struct sgrad_builder *builder, const int *buffer, int count, const char *name) {
    int one = 0;
    while (one < count && buffer[one] < 0) one++;
    return one < count ? sgrad__add_sum_of(builder, buffer, count, 0, builder->p->buffer[buffer[one]].view, name) : -1;
}

int sgrad__add_chain(struct sgrad_builder *builder, const struct sgrad__slice *slice, int count, struct sgrad_view view,
                     const char *name) {
    static const int leaf[SGRAD__CHAIN] = { 0, 1, 2, 4 };
    struct sgrad_sum *attrs = NULL, of = { 0 };
    int operand[SGRAD_SUM_INPUTS + 1];
    memset(operand, 0xff, sizeof operand);
    for (int i = 0; i < count; i++) {
        operand[leaf[i]] = slice[i].buffer;
        of.first[leaf[i]] = slice[i].first;
        if (sgrad_view_bytes(&builder->p->buffer[slice[i].buffer].view) == sgrad_view_bytes(&view) || attrs) continue;
        attrs = sgrad__own(builder->p, sgrad_xcalloc(1, sizeof *attrs));
    }
    if (attrs) *attrs = of;
    return add_task(builder, operand, attrs, view, name);
}
