/* elementwise.c: reads ONNX's operators on each number of a value, and products of values. Nodes that are one layer of the graph
 * are read together: x·Sigmoid(x) is SiLU, x·HardSigmoid(x) is hard swish. */
#include "codelets/ops/clip.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/gelu.h"
#include "codelets/ops/hard_sigmoid.h"
#include "codelets/ops/hard_swish.h"
#include "codelets/ops/layer_scale.h"
#include "codelets/ops/leaky_relu.h"
#include "codelets/ops/multiply.h"
#include "codelets/ops/relu.h"
#include "codelets/ops/scale.h"
#include "codelets/ops/sigmoid.h"
#include "codelets/ops/silu.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* Reads an operator on each number of input 0, up to the node END. */
static int read_each(struct sgrad__reader *reader, const Onnx__Node *n, const Onnx__Node *end, const struct sgrad_op *op,
                     const void *attrs) {
    const struct sgrad__thing *t = sgrad__onnx_whole(reader, n, 0);
    if (!t) return reader->graph->error;
    SGRAD_TRY(sgrad__onnx_make_like(reader, end, sgrad__onnx_plain(reader, n, op, &t->view.value, 1, attrs), &t->view));
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return 0;
}

/* Returns the Mul by which N's output multiplies N's input, if it is the only consumer; else NULL. */
static const Onnx__Node *times_input(const struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Node *next = sgrad__onnx_next(reader, n, "Mul");
    if (!next || next->n_input != 2) return NULL;
    return !strcmp(next->input[0], n->input[0]) || !strcmp(next->input[1], n->input[0]) ? next : NULL;
}

int sgrad__onnx_read_relu(struct sgrad__reader *reader, const Onnx__Node *n) {
    return read_each(reader, n, n, &sgrad_relu_op, &(struct sgrad_relu){ 0 });
}

int sgrad__onnx_read_gelu(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *how = sgrad__onnx_attribute(n, "approximate");
    const struct sgrad_gelu is = { .approximate = sgrad__onnx_is_text(how, "tanh") };
    if (how && !is.approximate && !sgrad__onnx_is_text(how, "none"))
        return sgrad__onnx_refuse(reader, n, "approximate must be none or tanh");
    return read_each(reader, n, n, &sgrad_gelu_op, &is);
}

int sgrad__onnx_read_leaky_relu(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad_leaky_relu is = { .slope = sgrad__onnx_given(sgrad__onnx_float(n, "alpha", .01f)) };
    return read_each(reader, n, n, &sgrad_leaky_relu_op, &is);
}

int sgrad__onnx_read_hard_sigmoid(struct sgrad__reader *reader, const Onnx__Node *n) {
    const float alpha = sgrad__onnx_float(n, "alpha", .2f), beta = sgrad__onnx_float(n, "beta", .5f);
    const Onnx__Node *times = times_input(reader, n);
    if (fabsf(alpha - 1.f / 6) > 1e-6f || beta != .5f)
        return sgrad__onnx_refuse(reader, n, "alpha is %g and beta %g, but they must be 1/6 and 0.5", (double)alpha,
                                  (double)beta);
    return times ? read_each(reader, n, times, &sgrad_hard_swish_op, &(struct sgrad_hard_swish){ 0 })
                 : read_each(reader, n, n, &sgrad_hard_sigmoid_op, &(struct sgrad_hard_sigmoid){ 0 });
}

int sgrad__onnx_read_hard_swish(struct sgrad__reader *reader, const Onnx__Node *n) {
    return read_each(reader, n, n, &sgrad_hard_swish_op, &(struct sgrad_hard_swish){ 0 });
}

/* Reads Clip. Before opset 11, the bounds are attributes. */
int sgrad__onnx_read_clip(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad_clip is = { .low = sgrad__onnx_float(n, "min", -INFINITY), .high = sgrad__onnx_float(n, "max", INFINITY) };
    if ((sgrad__onnx_input(reader, n, 1) && !sgrad__onnx_number(reader, n, 1, &is.low)) ||
        (sgrad__onnx_input(reader, n, 2) && !sgrad__onnx_number(reader, n, 2, &is.high)))
        return sgrad__onnx_refuse(reader, n, "its bounds must be constants");
    if (!(is.low < is.high))
        return sgrad__onnx_refuse(reader, n, "its bounds are %g and %g, but the first must be less", (double)is.low,
                                  (double)is.high);
    return read_each(reader, n, n, &sgrad_clip_op, &is);
}

/* Reads Max or Min of a value and a number. */
int sgrad__onnx_read_bound(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad_clip is = { .low = -INFINITY, .high = INFINITY };
    if (!sgrad__onnx_number(reader, n, 1, !strcmp(n->op_type, "Max") ? &is.low : &is.high))
        return sgrad__onnx_refuse(reader, n, "its second input must be a constant number");
    return read_each(reader, n, n, &sgrad_clip_op, &is);
}

int sgrad__onnx_read_dropout(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *training = sgrad__onnx_input(reader, n, 2);
    struct sgrad_dropout is = { .p = sgrad__onnx_float(n, "ratio", .5f) };
    int64_t trains = 0;
    int count;
    if (sgrad__onnx_input(reader, n, 1) && !sgrad__onnx_number(reader, n, 1, &is.p))
        return sgrad__onnx_refuse(reader, n, "its ratio must be one constant number");
    if (training && (!training->tensor || !sgrad__onnx_ints(training->tensor, &trains, 1, &count) || count != 1 || trains))
        return sgrad__onnx_refuse(reader, n, "training_mode must be false; call model.eval() before the export");
    return is.p == 0 ? sgrad__onnx_pass(reader, n, 0) : read_each(reader, n, n, &sgrad_dropout_op, &is);
}

int sgrad__onnx_read_identity(struct sgrad__reader *reader, const Onnx__Node *n) { return sgrad__onnx_pass(reader, n, 0); }

/* A softmax is omitted at the end, because the loss computes it, and rejected elsewhere. */
int sgrad__onnx_read_softmax(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t;
    if (sgrad__onnx_thing(reader, n->output[0]) != reader->last)
        return sgrad__onnx_refuse(reader, n,
                                  "is supported only in attention and at the end of the network, where the loss computes it");
    if (!(t = sgrad__onnx_whole(reader, n, 0))) return reader->graph->error;
    const int rank = t->view.rank, channels = sgrad__view_channels(reader, &t->view);
    if (channels < 0 || sgrad__onnx_softmax_axis(reader, n, rank) != channels)
        return sgrad__onnx_refuse(reader, n, "axis is %lld (opset %lld), but must be the axis of classes, %d of %d dimensions",
                                  (long long)sgrad__onnx_int(n, "axis", reader->opset >= 13 ? -1 : 1), (long long)reader->opset,
                                  sgrad__onnx_channels(rank), rank);
    reader->imported->softmax = true;
    return sgrad__onnx_pass(reader, n, 0);
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Returns true if N multiplies its output by a value of the same shape: it is the first factor of a product of values. */
static bool is_factor(const struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *view) {
    const Onnx__Node *next = sgrad__onnx_next(reader, n, "Mul");
    for (size_t i = 0; next && i < next->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, next, i);
        if (!t || t->tensor || (t->known && !(sgrad__onnx_is_view(t) && sgrad__view_alike(reader, &t->view, view)))) return false;
    }
    return next;
}

/* Reads Sigmoid, or SiLU, x·σ(x). Another value may be multiplied by it, which is one layer. */
int sgrad__onnx_read_sigmoid(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Node *times = times_input(reader, n);
    const struct sgrad__thing *t = sgrad__onnx_whole(reader, n, 0);
    if (!t) return reader->graph->error;
    if (!times) return read_each(reader, n, n, &sgrad_sigmoid_op, &(struct sgrad_sigmoid){ 0 });
    if (!is_factor(reader, times, &t->view)) return read_each(reader, n, times, &sgrad_silu_op, &(struct sgrad_silu){ 0 });
    if (!sgrad__onnx_step(reader, times, SILU_PRODUCT, &t->view)) return reader->graph->error;
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return 0;
}

/* Returns true if ONE is (N,C,1,1), also as a view of (N,C), and OTHER (N,C,H,W): each pixel of the latter is multiplied by the
 * former. */
static bool is_of_pixels(const struct sgrad__reader *reader, const struct sgrad__view *one, const struct sgrad__view *other) {
    const struct sgrad_shape a = sgrad_graph_shape(reader->graph, one->value), b = sgrad_graph_shape(reader->graph, other->value);
    if (sgrad__view_is_pixel(reader, one))
        return sgrad__view_is_plain(reader, other) && one->rank == b.rank && a.dim[1] == b.dim[b.rank - 1];
    if (a.rank != b.rank || !sgrad__view_is_plain(reader, one) || !sgrad__view_is_plain(reader, other)) return false;
    for (int i = 1; i < a.rank; i++)
        if (a.dim[i] != (i == a.rank - 1 ? b.dim[i] : 1)) return false;
    return true;
}

/* Reads the product of two values. The first may pass through SiLU. */
static int multiply_values(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *one = sgrad__onnx_input(reader, n, 0), *other = sgrad__onnx_input(reader, n, 1);
    if (other && other->step == SILU_PRODUCT) {
        const struct sgrad__thing *first = one;
        one = other, other = first;
    }
    const bool silu = one && one->step == SILU_PRODUCT;
    if ((!silu && !sgrad__onnx_whole(reader, n, 0)) || !sgrad__onnx_whole(reader, n, other == sgrad__onnx_input(reader, n, 1)))
        return reader->graph->error;
    if (!silu && is_of_pixels(reader, &one->view, &other->view)) {
        const struct sgrad__thing *first = one;
        one = other, other = first;
    }
    if (!sgrad__view_alike(reader, &one->view, &other->view) && !is_of_pixels(reader, &other->view, &one->view))
        return sgrad__onnx_refuse(reader, n,
                                  "its inputs must have the same shape, with their dimensions in the same order, or one of them "
                                  "must have shape (N,C,1,1)");
    const int x[] = { one->view.value, other->view.value };
    const int y = sgrad__onnx_plain(reader, n, &sgrad_multiply_op, x, 2, &(struct sgrad_multiply){ .silu = silu });
    return sgrad__onnx_make_like(reader, n, y, &one->view);
}

/* Multiplies each pixel, or row, of FROM by input I, a constant with one number per channel, or per feature. */
static int scale_channels(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *from, size_t i) {
    char *name = sgrad__onnx_name(reader, n, (int)i);
    sgrad__onnx_bind_part(reader, name, "weight", sgrad__onnx_input(reader, n, i), 0, 1);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_layer_scale_op, &from->value, 1, &(struct sgrad_layer_scale){ 0 });
    free(name);
    return sgrad__onnx_make_like(reader, n, y, from);
}

/* Reads a multiplication by a constant, or by another value. */
int sgrad__onnx_read_mul(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad_scale is;
    for (size_t i = 0; i < 2; i++) {
        const struct sgrad__thing *by = sgrad__onnx_input(reader, n, i), *t;
        if (!by || !by->tensor) continue;
        if (!(t = sgrad__onnx_whole(reader, n, 1 - i))) return reader->graph->error;
        if (!sgrad__onnx_number(reader, n, i, &is.factor) && sgrad__onnx_is_per_channel(reader, by, &t->view))
            return scale_channels(reader, n, &t->view, i);
        if (!sgrad__onnx_number(reader, n, i, &is.factor))
            return sgrad__onnx_refuse(reader, n, "'%s' must be one number, or one per channel or feature", by->name);
        const int y = sgrad__onnx_plain(reader, n, &sgrad_scale_op, &t->view.value, 1, &is);
        return sgrad__onnx_make_like(reader, n, y, &t->view);
    }
    return multiply_values(reader, n);
}
