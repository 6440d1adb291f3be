/* norms.c: reads layer normalisation without its operator, as files have it before opset 17:
 *
 *     x ─┬ ReduceMean ─ Sub ─┬ Pow 2 ─ ReduceMean ─ Add eps ─ Sqrt ─ Div ─ Mul weight ─ Add bias ─ y
 *        └──────────────┘    └───────────────────────────────────┘
 *
 * An intermediate result is not a value of the graph. Its thing records one of the steps NORM_…, and the view of x. */
#include "codelets/ops/layer_norm.h"
#include "graphs/networks/onnx/reader.h"

#include <stdlib.h>
#include <string.h>

/* Returns true if A and B are intermediate results, or A is the input, of the same layer, in these steps. */
static bool are(const struct sgrad__thing *a, enum sgrad__step one, const struct sgrad__thing *b, enum sgrad__step other) {
    return a && b && a->step == one && b->step == other && a->view.value == b->view.value &&
           sgrad__view_equal(&a->view, &b->view);
}

/* Returns true if the ReduceMean N is the mean over the features of each row of VIEW. */
static bool is_over_features(const struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *view) {
    int64_t axis[SGRAD__NUMBERS];
    int count;
    return sgrad__onnx_axes(reader, n, 1, view->rank, axis, &count) && count == 1 && axis[0] == view->rank - 1 &&
           sgrad__view_channels(reader, view) == axis[0] && sgrad__onnx_int(n, "keepdims", 1);
}

/* Returns the step to which N leads from A and B; STEP_NONE: to none. *EPS: set by the addition of a number. */
static enum sgrad__step step(const struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *a,
                             const struct sgrad__thing *b, float *eps) {
    float number = 0;
    const char *operator = n->op_type;
    const bool has_number = sgrad__onnx_number(reader, n, 1, &number), input = sgrad__onnx_is_view(a);
    if (!strcmp(operator, "ReduceMean") && (input || a->step == NORM_SQUARES) && is_over_features(reader, n, &a->view))
        return input ? NORM_MEAN : NORM_VARIANCE;
    if (!strcmp(operator, "Sub") && input && are(a, STEP_NONE, b, NORM_MEAN)) return NORM_CENTERED;
    if (!strcmp(operator, "Pow") && a->step == NORM_CENTERED && has_number && number == 2) return NORM_SQUARES;
    if (!strcmp(operator, "Mul") && are(a, NORM_CENTERED, b, NORM_CENTERED)) return NORM_SQUARES;
    if (!strcmp(operator, "Add") && a->step == NORM_VARIANCE && has_number) return *eps = number, NORM_VARIANCE;
    if (!strcmp(operator, "Sqrt") && a->step == NORM_VARIANCE) return NORM_DEVIATION;
    if (!strcmp(operator, "Div") && are(a, NORM_CENTERED, b, NORM_DEVIATION)) return *eps = b->eps, NORM_NORMAL;
    if (!strcmp(operator, "Mul") && a->step == NORM_NORMAL && sgrad__onnx_is_per_channel(reader, b, &a->view)) return NORM_SCALED;
    return STEP_NONE;
}

/* Makes the layer the output of N, which adds BIAS to A. */
static int make_layer(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *a,
                      const struct sgrad__thing *bias) {
    const int at = sgrad__onnx_input(reader, a->scaling, 0) == a->factor ? 0 : 1;
    char *name = sgrad__onnx_name(reader, a->scaling, at);
    sgrad__onnx_bind_part(reader, name, "weight", a->factor, 0, 1);
    sgrad__onnx_bind_part(reader, name, "bias", bias, 0, 1);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_layer_norm_op, &a->view.value, 1,
                                    &(struct sgrad_layer_norm){ .eps = sgrad__onnx_given(a->eps) });
    free(name);
    return sgrad__onnx_make_like(reader, n, y, &a->view);
}

bool sgrad__onnx_takes_norm(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    if (a && b && (a->tensor || b->step == NORM_NORMAL || b->step == NORM_SCALED) && strcmp(n->op_type, "Div") &&
        strcmp(n->op_type, "Sub")) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
    }
    if (!a || a->view.value < 0) return false;
    float eps = a->eps;
    if (!strcmp(n->op_type, "Add") && a->step == NORM_SCALED && sgrad__onnx_is_per_channel(reader, b, &a->view))
        return *status = make_layer(reader, n, a, b), true;
    const enum sgrad__step to = step(reader, n, a, b, &eps);
    if (!to) return false;
    struct sgrad__thing *made = sgrad__onnx_step(reader, n, to, &a->view);
    if (made) made->eps = eps, made->factor = b, made->scaling = n;
    *status = reader->graph->error;
    return true;
}
