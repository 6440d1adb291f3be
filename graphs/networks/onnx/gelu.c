/* gelu.c: reads GELU without its operator: x (1 + erf(x/√2)) / 2, with the products in any order. An intermediate result is not a
 * value of the graph. Its thing records one of the states below, and the input x of the layer. */
#include "codelets/ops/gelu.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <string.h>

enum { NOWHERE, HALF, ROOT, ERF, SURE, TWICE, CHANCE, WHOLE };
/*              x/2   x/√2       1+erf x(1+erf) (1+erf)/2 */

#define ROOT_2 1.41421356f

static bool is_number(const struct sgrad__thing *thing, float wanted) {
    float number;
    int count;
    return thing && thing->tensor && sgrad__onnx_floats(thing->tensor, &number, 1, &count) && count == 1 &&
           fabsf(number - wanted) <= 1e-5f * wanted;
}

/* Returns the state of the result of OPERATOR on ONE and OTHER, in this order. */
static int step(const char *operator, const struct sgrad__thing *one, const struct sgrad__thing *other) {
    const bool times = !strcmp(operator, "Mul"), x = sgrad__onnx_is_value(one);
    const int of = x ? one->value : one->of;
    if (!strcmp(operator, "Erf")) return one->normal == ROOT ? ERF : NOWHERE;
    if (!strcmp(operator, "Add")) return one->normal == ERF && is_number(other, 1) ? SURE : NOWHERE;
    if (x && is_number(other, times ? 1 / ROOT_2 : ROOT_2)) return ROOT;
    if (x && is_number(other, times ? 0.5f : 2)) return HALF;
    if (is_number(other, times ? 0.5f : 2)) {
        if (one->normal == SURE) return CHANCE;
        return one->normal == TWICE ? WHOLE : NOWHERE;
    }
    if (!times || !other || !other->normal || other->of != of) return NOWHERE;
    if (x && other->normal == SURE) return TWICE;
    if (x) return other->normal == CHANCE ? WHOLE : NOWHERE;
    return one->normal == HALF && other->normal == SURE ? WHOLE : NOWHERE;
}

/* Returns true if the next node continues GELU. A product with a number may also be a separate layer. */
static bool goes_on(const struct sgrad__reader *reader, const Onnx__Node *n, int place) {
    const Onnx__Node *next = sgrad__onnx_next(reader, n, place == ROOT ? "Erf" : "Mul");
    if (place != HALF || !next) return next || (place != ROOT && place != HALF);
    for (size_t i = 0; i < next->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, next, i);
        if (t && t->tensor) return false;
    }
    return true;
}

bool sgrad__onnx_is_normal(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    int place = a && to ? step(n->op_type, a, b) : NOWHERE;
    if (!place && a && b && to && strcmp(n->op_type, "Div")) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
        place = step(n->op_type, a, b);
    }
    if (!place || !goes_on(reader, n, place)) return false;
    const int x = sgrad__onnx_is_value(a) ? a->value : a->of;
    *status = 0;
    if (place == WHOLE)
        *status = sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_gelu_op, &x, 1, &(struct sgrad_gelu){ 0 }));
    else
        to->normal = place, to->of = x, to->known = true;
    return true;
}

int sgrad__onnx_read_erf(struct sgrad__reader *reader, const Onnx__Node *n) {
    int status;
    return sgrad__onnx_is_normal(reader, n, &status) ? status
                                                     : sgrad__onnx_refuse(reader, n, "is supported only as a step of GELU");
}
