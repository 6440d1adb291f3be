/* gelu.c: reads GELU without its operator: x (1 + erf(x/√2)) / 2, with the products in any order. An intermediate result is not a
 * value of the graph. Its thing records one of the steps GELU_…, and the input x of the layer. */
#include "codelets/ops/gelu.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <string.h>

#define ROOT_2 1.41421356f
/* After the last step of enum sgrad__step. */
enum { WHOLE = 1000 };

static bool is_number(const struct sgrad__thing *thing, float wanted) {
    float number;
    int count;
    return thing && thing->tensor && sgrad__onnx_floats(thing->tensor, &number, 1, &count) && count == 1 &&
           fabsf(number - wanted) <= 1e-5f * wanted;
}

/* Returns the step to which OPERATOR leads from ONE and OTHER, in this order; STEP_NONE: to none. */
static int step(const char *operator, const struct sgrad__thing *one, const struct sgrad__thing *other) {
    const bool times = !strcmp(operator, "Mul"), x = sgrad__onnx_is_view(one);
    if (!strcmp(operator, "Erf")) return one->step == GELU_ROOT ? GELU_ERF : STEP_NONE;
    if (!strcmp(operator, "Add")) return one->step == GELU_ERF && is_number(other, 1) ? GELU_SUM : STEP_NONE;
    if (!times && strcmp(operator, "Div")) return STEP_NONE;
    if (x && is_number(other, times ? 1 / ROOT_2 : ROOT_2)) return GELU_ROOT;
    if (x && is_number(other, times ? 0.5f : 2)) return GELU_HALF;
    if (is_number(other, times ? 0.5f : 2)) {
        if (one->step == GELU_SUM) return GELU_CHANCE;
        return one->step == GELU_TWICE ? WHOLE : STEP_NONE;
    }
    if (!times || !other || !other->step || one->view.value != other->view.value || !sgrad__view_equal(&one->view, &other->view))
        return STEP_NONE;
    if (x && other->step == GELU_SUM) return GELU_TWICE;
    if (x) return other->step == GELU_CHANCE ? WHOLE : STEP_NONE;
    return one->step == GELU_HALF && other->step == GELU_SUM ? WHOLE : STEP_NONE;
}

/* Returns true if the next node continues GELU. A product with a number may also be a separate layer. */
static bool goes_on(const struct sgrad__reader *reader, const Onnx__Node *n, int place) {
    const Onnx__Node *next = sgrad__onnx_next(reader, n, place == GELU_ROOT ? "Erf" : "Mul");
    if (place != GELU_HALF || !next) return next || (place != GELU_ROOT && place != GELU_HALF);
    for (size_t i = 0; i < next->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, next, i);
        if (!t || t->tensor || (t->known && t->step != GELU_SUM)) return false;
    }
    return true;
}

bool sgrad__onnx_takes_gelu(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    int place = a ? step(n->op_type, a, b) : STEP_NONE;
    if (!place && a && b && strcmp(n->op_type, "Div")) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
        place = step(n->op_type, a, b);
    }
    if (!place || !goes_on(reader, n, place) || !sgrad__view_is_whole(reader, &a->view)) return false;
    if (place != WHOLE)
        *status = sgrad__onnx_step(reader, n, (enum sgrad__step)place, &a->view) ? 0 : reader->graph->error;
    else {
        const int x = a->view.value;
        const int y = sgrad__onnx_plain(reader, n, &sgrad_gelu_op, &x, 1, &(struct sgrad_gelu){ 0 });
        *status = sgrad__onnx_make_like(reader, n, y, &a->view);
    }
    return true;
}

int sgrad__onnx_read_erf(struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_refuse(reader, n, "is supported only as a step of GELU");
}
