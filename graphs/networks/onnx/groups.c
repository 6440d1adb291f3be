/* groups.c: reads group normalisation: ONNX's operator of opset 21, or the nodes that tools write without it:
 *
 *     x ─ Reshape (0,groups,-1) ─ InstanceNormalization by ones and zeros ─ Reshape (x's shape) ─ Mul weight ─ Add bias ─ y
 *
 * An intermediate result is not a value of the graph. Its thing records one of the states below, the input of the layer, and its
 * groups. */
#include "codelets/ops/group_norm.h"
#include "graphs/networks/onnx/reader.h"

#include <stdlib.h>
#include <string.h>

enum { NOWHERE, PARTS, NORMAL, WHOLE, SCALED };

/* Gives output 0 of N the state PLACE, in the layer of FROM. */
static int go(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, int place) {
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    if (!to) return sgrad__onnx_refuse(reader, n, "has no output");
    to->grouping = place;
    to->of = from->of, to->groups = from->groups, to->eps = from->eps, to->factor = from->factor;
    to->known = true;
    return 0;
}

static int refuse(struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_refuse(reader, n, "is not a supported step of group normalisation");
}

bool sgrad__onnx_groups(const struct sgrad__reader *reader, const Onnx__Node *n) {
    bool any = false;
    for (size_t i = 0; i < n->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        any |= t && t->grouping;
    }
    return any;
}

static int64_t channels_of(const struct sgrad__reader *reader, int value) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, value);
    return shape.dim[shape.rank - 1];
}

bool sgrad__onnx_grouping_begins(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t to[SGRAD__NUMBERS];
    int count;
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    if (!sgrad__onnx_is_value(t) || sgrad__onnx_rank(reader, t->value) == 3 ||
        !sgrad__onnx_next(reader, n, "InstanceNormalization") || !sgrad__onnx_numbers(reader, n, 1, to, &count) || count != 3 ||
        !sgrad__onnx_is_batch(to[0]) || to[0] == -1 || to[2] != -1)
        return false;
    const int64_t channels = channels_of(reader, t->value);
    if (to[1] < 1 || to[1] > channels || channels % to[1]) return false;
    return !go(reader, n, &(struct sgrad__thing){ .of = t->value, .groups = (int)to[1] }, PARTS);
}

/* Returns true if input I consists of COUNT numbers that are equal to NUMBER. */
static bool is_all(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int count, float number) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    float *x = sgrad_xcalloc((size_t)count + 1, sizeof *x);
    int has = 0;
    bool all = t && t->tensor && sgrad__onnx_floats(t->tensor, x, count, &has) && has == count;
    for (int k = 0; k < has && all; k++) all = x[k] == number;
    free(x);
    return all;
}

int sgrad__onnx_read_instance_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    if (!t || t->grouping != PARTS || !is_all(reader, n, 1, t->groups, 1) || !is_all(reader, n, 2, t->groups, 0))
        return sgrad__onnx_refuse(reader, n, "is supported only as a step of group normalisation, with scale 1 and bias 0");
    struct sgrad__thing from = *t;
    from.eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f));
    return go(reader, n, &from, NORMAL);
}

/* Returns true if THING has one number per channel, (C,1,1) for images. */
static bool is_of_channels(const struct sgrad__reader *reader, const struct sgrad__thing *thing, int value) {
    const int rank = sgrad__onnx_rank(reader, value),
              first = thing && thing->tensor && (int)thing->tensor->n_dims == rank ? 1 : 0;
    if (!thing || !thing->tensor || thing->turned || sgrad__onnx_count(thing->tensor) != channels_of(reader, value)) return false;
    if (thing->spread) return thing->tensor->n_dims == 1 && thing->spread == rank - 2;
    if ((int)thing->tensor->n_dims != rank && (int)thing->tensor->n_dims != rank - 1) return false;
    return thing->tensor->dims[first] == channels_of(reader, value);
}

static int make_layer(struct sgrad__reader *reader, const Onnx__Node *n, int x, const struct sgrad_group_norm *how,
                      const struct sgrad__thing *weight, const struct sgrad__thing *bias) {
    const Onnx__Node *relu = sgrad__onnx_next(reader, n, "Relu");
    const struct sgrad_group_norm is = { .groups = how->groups, .eps = how->eps, .relu = relu };
    char *name = sgrad__onnx_name(reader, n, -1);
    sgrad__onnx_bind_less(reader, name, "weight", weight, (int)weight->tensor->n_dims - 1);
    sgrad__onnx_bind_less(reader, name, "bias", bias, (int)bias->tensor->n_dims - 1);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_group_norm_op, &x, 1, &is);
    free(name);
    SGRAD_TRY(sgrad__onnx_make(reader, relu ? relu : n, y));
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return 0;
}

/* Returns true if N restores the shape of VALUE. */
static bool is_whole(const struct sgrad__reader *reader, const Onnx__Node *n, int value) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, value);
    int64_t to[SGRAD__NUMBERS];
    int count;
    if (!sgrad__onnx_numbers(reader, n, 1, to, &count) || count != shape.rank || !sgrad__onnx_is_batch(to[0]) || to[0] == -1)
        return false;
    for (int i = 1; i < count; i++)
        if (to[i] != (i == 1 ? shape.dim[shape.rank - 1] : shape.dim[i - 1])) return false;
    return true;
}

int sgrad__onnx_group(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    if (a && !a->grouping && strcmp(n->op_type, "Reshape")) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
    }
    if (!a || !a->grouping || !b) return refuse(reader, n);
    if (!strcmp(n->op_type, "Reshape") && a->grouping == NORMAL && is_whole(reader, n, a->of)) return go(reader, n, a, WHOLE);
    if (!is_of_channels(reader, b, a->of)) return refuse(reader, n);
    if (!strcmp(n->op_type, "Mul") && a->grouping == WHOLE) {
        struct sgrad__thing from = *a;
        from.factor = b;
        return go(reader, n, &from, SCALED);
    }
    if (strcmp(n->op_type, "Add") || a->grouping != SCALED) return refuse(reader, n);
    return make_layer(reader, n, a->of, &(struct sgrad_group_norm){ .groups = a->groups, .eps = a->eps }, a->factor, b);
}

int sgrad__onnx_read_group_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    const struct sgrad__thing *weight = x < 0 ? NULL : sgrad__onnx_tensor(reader, n, 1, 1);
    const struct sgrad__thing *bias = weight ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    const int64_t groups = sgrad__onnx_int(n, "num_groups", 0), channels = bias ? channels_of(reader, x) : 0;
    if (!bias) return reader->graph->error;
    if (sgrad__onnx_rank(reader, x) == 3 || groups < 1 || groups > channels || channels % groups)
        return sgrad__onnx_refuse(reader, n, "num_groups is %lld, but must divide the %lld channels of images",
                                  (long long)groups, (long long)channels);
    if (weight->tensor->dims[0] != channels || bias->tensor->dims[0] != channels)
        return sgrad__onnx_refuse(reader, n, "its scale and bias must have %lld numbers, one per channel (opset 21)",
                                  (long long)channels);
    if (sgrad__onnx_int(n, "stash_type", ONNX_FLOAT) != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "stash_type must be 1 (FLOAT)");
    return make_layer(reader, n, x, &(struct sgrad_group_norm){ .groups = (int)groups,
                                                           .eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f)) },
                      weight, bias);
}
