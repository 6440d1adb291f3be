/* gelu.c: reads GELU without its operator: x (1 + erf(x/√2)) / 2, with the products in any order. An intermediate result is not a
 * value of the graph. Its thing records one of the states below, and the input x of the layer. */
#include "codelets/ops/gelu.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <string.h>

enum { NOWHERE, HALF, ROOT, ERF, SURE, TWICE, CHANCE, WHOLE };
/*              x/2   x/√2       1+erf x(1+erf) (1+erf)/2 */

#define ROOT_2 1.41421356f

static bool is_number(const struct sgrad__thing *t, float wanted) {
    float number;
    int count;
    return t && t->tensor && sgrad__onnx_floats(t->tensor, &number, 1, &count) && count == 1 &&
           fabsf(number - wanted) <= 1e-5f * wanted;
}

/* Returns the state of the result of OPERATOR on A and B, in this order. */
static int step(const char *operator, const struct sgrad__thing *a, const struct sgrad__thing *b) {
    const bool times = !strcmp(operator, "Mul"), x = sgrad__onnx_is_value(a);
    const int of = x ? a->value : a->of;
    if (!strcmp(operator, "Erf")) return a->normal == ROOT ? ERF : NOWHERE;
    if (!strcmp(operator, "Add")) return a->normal == ERF && is_number(b, 1) ? SURE : NOWHERE;
    if (x && is_number(b, times ? 1 / ROOT_2 : ROOT_2)) return ROOT;
    if (x && is_number(b, times ? 0.5f : 2)) return HALF;
    if (is_number(b, times ? 0.5f : 2)) {
        if (a->normal == SURE) return CHANCE;
        return a->normal == TWICE ? WHOLE : NOWHERE;
    }
    if (!times || !b || !b->normal || b->of != of) return NOWHERE;
    if (x && b->normal == SURE) return TWICE;
    if (x) return b->normal == CHANCE ? WHOLE : NOWHERE;
    return a->normal == HALF && b->normal == SURE ? WHOLE : NOWHERE;
}

/* Returns true if the next node continues GELU. A product with a number may also be a separate layer. */
static bool goes_on(const struct sgrad__reader *r, const Onnx__Node *n, int place) {
    const Onnx__Node *next = sgrad__onnx_next(r, n, place == ROOT ? "Erf" : "Mul");
    if (place != HALF || !next) return next || (place != ROOT && place != HALF);
    for (size_t i = 0; i < next->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(r, next, i);
        if (t && t->tensor) return false;
    }
    return true;
}

bool sgrad__onnx_is_normal(struct sgrad__reader *r, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *a = sgrad__onnx_input(r, n, 0), *b = sgrad__onnx_input(r, n, 1);
    struct sgrad__thing *to = sgrad__onnx_thing(r, n->output[0]);
    int place = a && to ? step(n->op_type, a, b) : NOWHERE;
    if (!place && a && b && to && strcmp(n->op_type, "Div")) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
        place = step(n->op_type, a, b);
    }
    if (!place || !goes_on(r, n, place)) return false;
    const int x = sgrad__onnx_is_value(a) ? a->value : a->of;
    *status = 0;
    if (place == WHOLE)
        *status = sgrad__onnx_make(r, n, sgrad__onnx_plain(r, n, &sgrad_gelu_op, &x, 1, &(struct sgrad_gelu){ 0 }));
    else
        to->normal = place, to->of = x, to->known = true;
    return true;
}

int sgrad__onnx_read_erf(struct sgrad__reader *r, const Onnx__Node *n) {
    int status;
    return sgrad__onnx_is_normal(r, n, &status) ? status : sgrad__onnx_refuse(r, n, "on the way to GELU alone it is known");
}
