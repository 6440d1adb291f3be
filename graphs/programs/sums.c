/* sums.c: sums over micro-batches, in one fixed tree, so that the result does not depend on who ran when.
 *
 * The tree is made by halving, sum(n) = sum(first ⌈n/2⌉) + sum(rest), and a task adds up to eight, three of its levels:
 *
 *     five leaves   (0 + 1) + 2   │   3 + 4        one task, of five
 *     twenty        two tasks of five each for either half, then one that adds the four            */
#include "graphs/programs/builder.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad_call *sum_call(struct sgrad__builder *b, struct sgrad_view view, const int *operand) {
    struct sgrad_call call = { .kernel = &sgrad_sum_kernel, .operands = SGRAD_SUM_INPUTS + 1 };
    for (int i = 0; i <= SGRAD_SUM_INPUTS; i++) {
        call.view[i] = view;
        call.access[i] = i < SGRAD_SUM_INPUTS ? SGRAD_R : SGRAD_W;
        if (operand[i] < 0) call.view[i].shape.rank = -1;
    }
    return sgrad__shared_call(b, call);
}

static int add_tree(struct sgrad__builder *b, const int *list, int count, const char *name);

/* The leaves of LIST, halved LEVELS times, are dealt out to the WIDTH operands at SLOT. */
static void deal(struct sgrad__builder *b, const int *list, int count, int levels, int *slot, int width, const char *name) {
    if (levels == 0 || count == 1) {
        *slot = add_tree(b, list, count, name);
        return;
    }
    deal(b, list, count - count / 2, levels - 1, slot, width / 2, name);
    deal(b, list + count - count / 2, count / 2, levels - 1, slot + width / 2, width / 2, name);
}

/* A task adds eight, three levels of the tree; the topmost one what is left of the levels. */
static int add_tree(struct sgrad__builder *b, const int *list, int count, const char *name) {
    struct sgrad_view view = b->p->buffer[list[0]].view;
    int operand[SGRAD_SUM_INPUTS + 1], above = 0;
    if (count == 1) return list[0];
    for (int rest = count; rest > SGRAD_SUM_INPUTS; rest -= rest / 2) above++;
    memset(operand, 0xff, sizeof operand);
    deal(b, list, count, above ? (above - 1) % 3 + 1 : 3, operand, SGRAD_SUM_INPUTS, name);
    int sum = operand[SGRAD_SUM_INPUTS] = sgrad__add_buffer(b, sgrad_format("%s sum", name), view);
    sgrad__add_instruction(b, sum_call(b, view, operand), operand, 0, SGRAD__PRIORITY_UPDATE, sgrad_format("%s sum", name));
    return sum;
}

int sgrad__add_sum(struct sgrad__builder *b, const int *buffer, int count, const char *name) {
    int *list = sgrad_alloc((size_t)count, sizeof *list), n = 0;
    for (int i = 0; i < count; i++)
        if (buffer[i] >= 0) list[n++] = buffer[i];
    int result = n ? add_tree(b, list, n, name) : -1;
    free(list);
    return result;
}
