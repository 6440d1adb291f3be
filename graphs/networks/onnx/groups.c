/* groups.c: reads group normalisation: ONNX's operator of opset 21, or the nodes that tools write without it:
 *
 *     x ─ Reshape (N,groups,·) ─ InstanceNormalization by ones and zeros ─ Reshape (x's shape) ─ Mul weight ─ Add bias ─ y
 *
 * An intermediate result is not a value of the graph. Its thing records one of the steps GROUP_…, the input of the layer, and its
 * groups. */
#include "codelets/ops/group_norm.h"
#include "graphs/networks/onnx/reader.h"

#include <stdlib.h>
#include <string.h>

static int64_t channels_of(const struct sgrad__reader *reader, int value) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, value);
    return shape.dim[shape.rank - 1];
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

/* Returns the number of groups in which VIEW has the channels: (N,groups,the others); 0: it has none. */
static int groups_in(const struct sgrad__reader *reader, const struct sgrad__view *view) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, view->value);
    struct sgrad__view groups = sgrad__view_of(reader, view->value);
    const int64_t count = view->rank == 3 ? sgrad__view_size(view, 1) : 0;
    if (count < 1 || shape.rank == 3 || count > shape.dim[shape.rank - 1]) return 0;
    const int64_t to[] = { reader->samples, count, sgrad_shape_count(&shape) / count };
    return sgrad__view_reshape(&groups, to, 3) && sgrad__view_equal(&groups, view) ? (int)count : 0;
}

static int make_layer(struct sgrad__reader *reader, const Onnx__Node *n, int x, const struct sgrad_group_norm *how,
                      const struct sgrad__thing *weight, const struct sgrad__thing *bias) {
    const Onnx__Node *relu = sgrad__onnx_next(reader, n, "Relu");
    const struct sgrad_group_norm is = { .groups = how->groups, .eps = how->eps, .relu = relu };
    char *name = sgrad__onnx_name(reader, n, -1);
    sgrad__onnx_bind_part(reader, name, "weight", weight, 0, 1);
    sgrad__onnx_bind_part(reader, name, "bias", bias, 0, 1);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_group_norm_op, &x, 1, &is);
    free(name);
    SGRAD_TRY(sgrad__onnx_make(reader, relu ? relu : n, y));
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return 0;
}

/* Reads a normalisation of images by GROUPS groups of channels. SINCE: for messages, the opset since which the operator has a
 * scale per channel. */
static int read_group_norm(struct sgrad__reader *reader, const Onnx__Node *n, int64_t groups, const char *since) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    const struct sgrad__thing *weight = x < 0 ? NULL : sgrad__onnx_tensor(reader, n, 1, 1);
    const struct sgrad__thing *bias = weight ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    const int64_t channels = bias ? channels_of(reader, x) : 0;
    if (!bias) return reader->graph->error;
    if (sgrad__onnx_rank(reader, x) == 3 || groups < 1 || groups > channels || channels % groups)
        return sgrad__onnx_refuse(reader, n, "num_groups is %lld, but must divide the %lld channels of images",
                                  (long long)groups, (long long)channels);
    if (weight->tensor->dims[0] != channels || bias->tensor->dims[0] != channels)
        return sgrad__onnx_refuse(reader, n, "its scale and bias must have %lld numbers, one per channel%s",
                                  (long long)channels, since);
    if (sgrad__onnx_int(n, "stash_type", ONNX_FLOAT) != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "stash_type must be 1 (FLOAT)");
    return make_layer(reader, n, x, &(struct sgrad_group_norm){ .groups = (int)groups,
                                                           .eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f)) },
                      weight, bias);
}

/* Reads a step of group normalisation, or, of images (N,C,H,W), group normalisation with one group per channel. */
int sgrad__onnx_read_instance_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    const int groups = sgrad__onnx_is_view(t) ? groups_in(reader, &t->view) : 0;
    if (sgrad__onnx_is_value(reader, t) && t->view.rank > 3)
        return read_group_norm(reader, n, channels_of(reader, t->view.value), "");
    if (!groups || !is_all(reader, n, 1, groups, 1) || !is_all(reader, n, 2, groups, 0))
        return sgrad__onnx_refuse(reader, n,
                                  "must normalise images, or be a step of group normalisation, with scale 1 and bias 0");
    struct sgrad__thing *to = sgrad__onnx_step(reader, n, GROUP_NORMAL, &t->view);
    if (!to) return reader->graph->error;
    to->eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f));
    to->groups = groups;
    return 0;
}

bool sgrad__onnx_takes_group(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const bool times = !strcmp(n->op_type, "Mul");
    const enum sgrad__step from = times ? GROUP_NORMAL : GROUP_SCALED;
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    if (a && b && b->step == from) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
    }
    if ((!times && strcmp(n->op_type, "Add")) || !a || a->step != from || !sgrad__view_is_plain(reader, &a->view) ||
        !sgrad__onnx_is_per_channel(reader, b, &a->view))
        return false;
    if (times) {
        struct sgrad__thing *to = sgrad__onnx_step(reader, n, GROUP_SCALED, &a->view);
        if (to) to->eps = a->eps, to->groups = a->groups, to->factor = b;
        *status = reader->graph->error;
    } else
        *status =
            make_layer(reader, n, a->view.value, &(struct sgrad_group_norm){ .groups = a->groups, .eps = a->eps }, a->factor, b);
    return true;
}

int sgrad__onnx_read_group_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    return read_group_norm(reader, n, sgrad__onnx_int(n, "num_groups", 0), " (opset 21)");
}
