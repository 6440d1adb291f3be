/* features.c: reads ONNX's operators on features: products, sums, normalisations. Nodes that are one layer of the
 * graph are read together: a product and the bias after it; a normalisation, a sum and the ReLU. */
#include "codelets/ops/add.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/bias.h"
#include "codelets/ops/class_token.h"
#include "codelets/ops/concat.h"
#include "codelets/ops/embedding.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/local_response_norm.h"
#include "codelets/ops/position_embedding.h"
#include "graphs/networks/onnx/reader.h"

#include <stdlib.h>
#include <string.h>

/* Returns the ReLU after N, if it is the only consumer of N's output: then N's layer computes it. NULL: no such ReLU. */
static const Onnx__Node *relu_behind(const struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_next(reader, n, "Relu");
}

/* Makes Y, seen as VIEW, the output of END or, if END is NULL, of N. */
static int make_with(struct sgrad__reader *reader, const Onnx__Node *n, const Onnx__Node *end, int y,
                     const struct sgrad__view *view) {
    SGRAD_TRY(sgrad__onnx_make_like(reader, end ? end : n, y, view));
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return 0;
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Reads FROM (…,C) times the weight (K,C), or (C,K) if AS_TURNED. END: the node whose output the layer computes, N or one after
 * it. */
static int read_product(struct sgrad__reader *reader, const Onnx__Node *n, const Onnx__Node *end, const struct sgrad__view *from,
                        bool as_turned, const struct sgrad__thing *bias) {
    const struct sgrad__thing *weight = sgrad__onnx_tensor(reader, n, 1, 2);
    if (!weight) return reader->graph->error;
    const bool turned = as_turned != weight->turned;
    const int64_t *dim = weight->tensor->dims, features = dim[turned ? 1 : 0], takes = dim[turned ? 0 : 1];
    const struct sgrad_linear is = { .features = sgrad__onnx_outputs(reader, end, features), .bias = bias, .transposed = turned };
    if (sgrad__view_channels(reader, from) != from->rank - 1)
        return sgrad__onnx_refuse(reader, n, "the last dimension of its input must be the features of rows, or the channels");
    if (sgrad__view_size(from, from->rank - 1) != takes)
        return sgrad__onnx_refuse(reader, n,
                                  "requires %lld features, but its input has %lld: the file is for samples of another size",
                                  (long long)takes, (long long)sgrad__view_size(from, from->rank - 1));
    char *name = sgrad__onnx_name(reader, n, 1);
    sgrad__onnx_bind(reader, name, "weight", weight);
    if (bias) sgrad__onnx_bind(reader, name, "bias", bias);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_linear_op, &from->value, 1, &is);
    free(name);
    return make_with(reader, n, end, y, from);
}

int sgrad__onnx_read_gemm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_whole(reader, n, 0);
    const bool has_bias = sgrad__onnx_input(reader, n, 2) != NULL;
    const struct sgrad__thing *bias = t && has_bias ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    if (!t || (has_bias && !bias)) return reader->graph->error;
    if (t->view.rank != 2 || sgrad__onnx_int(n, "transA", 0) || sgrad__onnx_float(n, "alpha", 1) != 1 ||
        (has_bias && sgrad__onnx_float(n, "beta", 1) != 1))
        return sgrad__onnx_refuse(reader, n,
                                  "requires rows (N,C), transA 0, alpha 1 and beta 1, but has transA %d, alpha %g and "
                                  "beta %g",
                                  (int)sgrad__onnx_int(n, "transA", 0), (double)sgrad__onnx_float(n, "alpha", 1),
                                  (double)sgrad__onnx_float(n, "beta", 1));
    return read_product(reader, n, n, &t->view, !sgrad__onnx_int(n, "transB", 0), bias);
}

/* Reads a product, together with the addition of a bias: a vector of the length of a row. */
int sgrad__onnx_read_matmul(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *from = sgrad__onnx_whole(reader, n, 0), *bias = NULL;
    const struct sgrad__thing *weight = from ? sgrad__onnx_tensor(reader, n, 1, 2) : NULL;
    if (!weight) return reader->graph->error;
    const int64_t features = weight->tensor->dims[weight->turned ? 0 : 1];
    const Onnx__Node *sum = sgrad__onnx_next(reader, n, "Add");
    for (size_t i = 0; sum && i < sum->n_input && sum->n_input == 2; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, sum, i);
        if (t && t->tensor && t->tensor->n_dims == 1 && t->tensor->dims[0] == features) bias = t;
    }
    return read_product(reader, n, bias ? sum : n, &from->view, true, bias);
}

int sgrad__onnx_read_embedding(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 1, false);
    const struct sgrad__thing *weight = x < 0 ? NULL : sgrad__onnx_tensor(reader, n, 0, 2);
    if (!weight) return reader->graph->error;
    if (weight->turned) return sgrad__onnx_refuse(reader, n, "'%s' must not be transposed", weight->name);
    if (x == reader->x && reader->classes > weight->tensor->dims[0])
        return sgrad__onnx_refuse(reader, n, "'%s' has rows for tokens up to %lld, but the data set has tokens up to %d",
                                  weight->name, (long long)weight->tensor->dims[0] - 1, reader->classes - 1);
    const struct sgrad_embedding is = { .count = (int)weight->tensor->dims[0], .features = (int)weight->tensor->dims[1] };
    char *name = sgrad__onnx_name(reader, n, 0);
    sgrad__onnx_bind(reader, name, "weight", weight);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_embedding_op, &x, 1, &is);
    free(name);
    return sgrad__onnx_make(reader, n, y);
}

/* ---- sums and shapes of values ---------------------------------------------------------------------------------- */

/* Returns input I, for a value of RANK dimensions. If both have three, and input I is a constant with equal numbers for each
 * sample of a file with a fixed number of samples, has those of one sample: exporters store such a constant instead of its
 * Expand. */
static struct sgrad__thing of_one_sample(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int rank) {
    struct sgrad__thing is = *sgrad__onnx_input(reader, n, i);
    const Onnx__Tensor *all = is.tensor;
    if (is.turned || is.sliced || rank != 3 || all->n_dims != 3 || all->dims[0] != reader->samples || all->dims[0] < 2)
        return is;
    int count = 0;
    const int64_t has = sgrad__onnx_count(all), row = has / all->dims[0];
    float *x = sgrad_xcalloc((size_t)has + 1, sizeof *x);
    bool same = sgrad__onnx_floats(all, x, INT32_MAX, &count) && row;
    for (int64_t k = row; k < count && same; k += row) same = !memcmp(x, x + k, (size_t)row * sizeof *x);
    if (same) {
        const int64_t dim[] = { 1, all->dims[1], all->dims[2] };
        Onnx__Tensor *one = sgrad__onnx_new_tensor(reader, ONNX_FLOAT, dim, 3, (size_t)row * sizeof *x);
        memcpy(one->raw_data.data, x, (size_t)row * sizeof *x);
        is.tensor = one;
    }
    free(x);
    return is;
}

/* Adds the value of FROM and input I, a constant. It has one number per feature or, for rows (N,T,C), one number per position and
 * feature. */
static int add_tensor(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *from, size_t i) {
    const struct sgrad__thing one = of_one_sample(reader, n, i, from->rank), *t = &one;
    const int rank = (int)t->tensor->n_dims;
    const int64_t *dim = t->tensor->dims + (rank < 2 ? 0 : rank - 2); /* (1,T,C) is (T,C) */
    const bool position = from->rank == 3 && sgrad__view_is_plain(reader, from) && rank >= 2 && rank <= 3 && !t->turned &&
                          dim[0] == sgrad__view_size(from, 1) && dim[1] == sgrad__view_size(from, 2) &&
                          sgrad__onnx_count(t->tensor) == dim[0] * dim[1];
    if (!position && !sgrad__onnx_is_per_channel(reader, t, from))
        return sgrad__onnx_refuse(reader, n, "'%s' must have a number per feature or, for rows, one per position and feature",
                                  t->name);
    char *name = sgrad__onnx_name(reader, n, position ? (int)i : -1);
    sgrad__onnx_bind_part(reader, name, position ? "weight" : "bias", t, position ? rank - 2 : 0, position ? 2 : 1);
    const struct sgrad_position_embedding is = { .context = position ? (int)dim[0] : 1 };
    const int y = position ? sgrad__onnx_layer(reader, n, name, &sgrad_position_embedding_op, &from->value, 1, &is)
                           : sgrad__onnx_layer(reader, n, name, &sgrad_bias_op, &from->value, 1, &(struct sgrad_bias){ 0 });
    free(name);
    return sgrad__onnx_make_like(reader, n, y, from);
}

int sgrad__onnx_read_add(struct sgrad__reader *reader, const Onnx__Node *n) {
    for (size_t i = 0; i < 2; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i), *from;
        if (!t || !t->tensor) continue;
        return (from = sgrad__onnx_whole(reader, n, 1 - i)) ? add_tensor(reader, n, &from->view, i) : reader->graph->error;
    }
    const struct sgrad__thing *a = sgrad__onnx_whole(reader, n, 0), *b = a ? sgrad__onnx_whole(reader, n, 1) : NULL;
    const Onnx__Node *relu = relu_behind(reader, n);
    if (!b) return reader->graph->error;
    if (!sgrad__view_alike(reader, &a->view, &b->view))
        return sgrad__onnx_refuse(reader, n, "its inputs must have the same shape, with their dimensions in the same order");
    const int x[] = { a->view.value, b->view.value };
    const struct sgrad_add is = { .relu = relu };
    return make_with(reader, n, relu, sgrad__onnx_plain(reader, n, &sgrad_add_op, x, 2, &is), &a->view);
}

/* Returns the number of inputs of N that an earlier Concat along the same axis has as its inputs, and sets *VALUE to its output.
 * Networks that concatenate all earlier outputs again and again need only one more copy then. */
static size_t concatenated(const struct sgrad__reader *reader, const Onnx__Node *n, int *value) {
    size_t most = 0;
    for (size_t k = 0; k < reader->is->n_node && reader->is->node[k] != n; k++) {
        const Onnx__Node *o = reader->is->node[k];
        const struct sgrad__thing *t =
            strcmp(o->op_type, "Concat") || !o->n_output ? NULL : sgrad__onnx_thing(reader, o->output[0]);
        size_t same = 0;
        if (!sgrad__onnx_is_value(reader, t) || o->n_input <= most || o->n_input > n->n_input) continue;
        while (same < o->n_input && !strcmp(o->input[same], n->input[same])) same++;
        if (same == o->n_input) most = same, *value = t->view.value;
    }
    return most;
}

/* Adds layers for the COUNT values X, as many at a time as an operation has inputs. */
static int concatenate(struct sgrad__reader *reader, const Onnx__Node *n, int *x, size_t count) {
    while (count > 1) {
        const size_t now = count < SGRAD_MAX_INPUTS ? count : SGRAD_MAX_INPUTS;
        x[0] = sgrad__onnx_plain(reader, n, &sgrad_concat_op, x, (int)now, &(struct sgrad_concat){ { 0 } });
        if (x[0] < 0) return -1;
        memmove(x + 1, x + now, (count - now) * sizeof *x);
        count -= now - 1;
    }
    return x[0];
}

/* Reads the Concat of a constant row (1,1,C) and of rows (N,T,C). */
static int prepend(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_tensor(reader, n, 0, 3) ? sgrad__onnx_value(reader, n, 1, false) : -1;
    const int rank = x < 0 ? 0 : sgrad__onnx_rank(reader, x);
    if (x < 0) return reader->graph->error;
    const struct sgrad__thing token = of_one_sample(reader, n, 0, rank);
    const int64_t *dim = token.tensor->dims, width = sgrad_graph_shape(reader->graph, x).dim[rank - 1];
    if (n->n_input != 2 || rank != 3 || sgrad__onnx_axis(sgrad__onnx_int(n, "axis", 1), 3) != 1 || dim[0] != 1 || dim[1] != 1 ||
        dim[2] != width)
        return sgrad__onnx_refuse(reader, n, "a constant must be one row (1,1,C) before rows (N,T,C), with axis 1");
    char *name = sgrad__onnx_name(reader, n, 0);
    sgrad__onnx_bind(reader, name, "weight", &token);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_class_token_op, &x, 1, &(struct sgrad_class_token){ 0 });
    free(name);
    return sgrad__onnx_make(reader, n, y);
}

int sgrad__onnx_read_concat(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *token = sgrad__onnx_input(reader, n, 0);
    if (token && token->tensor) return prepend(reader, n);
    const struct sgrad__thing *first = sgrad__onnx_whole(reader, n, 0), *t = first;
    int *x = sgrad_xcalloc(n->n_input + 1, sizeof *x), before;
    size_t count = 0;
    for (size_t i = 0; i < n->n_input && t; i++) {
        if (!(t = sgrad__onnx_whole(reader, n, i))) break;
        x[count++] = t->view.value;
        const int rank = first->view.rank, axis = sgrad__onnx_axis(sgrad__onnx_int(n, "axis", 1), rank);
        bool same = t->view.rank == rank && axis >= 0 && axis == sgrad__view_channels(reader, &t->view);
        for (int d = 0; d < rank && same; d++)
            same = d == axis || sgrad__view_size(&t->view, d) == sgrad__view_size(&first->view, d);
        if (!same) {
            sgrad__onnx_refuse(reader, n, "axis is %d, but must be that of channels, and all other dimensions must be equal",
                               axis);
            t = NULL;
        }
    }
    const size_t done = t ? concatenated(reader, n, &before) : 0;
    if (done > 1) {
        x[0] = before;
        memmove(x + 1, x + done, (count - done) * sizeof *x);
        count -= done - 1;
    }
    const int status =
        t ? sgrad__onnx_make_like(reader, n, concatenate(reader, n, x, count), &first->view) : reader->graph->error;
    free(x);
    return status;
}

/* ---- normalisations --------------------------------------------------------------------------------------------- */

/* Returns the sum after N's layer, which is seen as VIEW, if it is the only consumer, and *OTHER, the value that is added, is
 * known. */
static const Onnx__Node *sum_behind(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *view,
                                    int *other) {
    const Onnx__Node *sum = sgrad__onnx_next(reader, n, "Add");
    for (size_t i = 0; sum && sum->n_input == 2 && i < 2; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, sum, i);
        if (!sgrad__onnx_is_view(t)) continue;
        *other = t->view.value;
        if (sgrad__view_alike(reader, &t->view, view)) return sum;
    }
    return NULL;
}

int sgrad__onnx_read_batchnorm(struct sgrad__reader *reader, const Onnx__Node *n) {
    static const char *const parameter[] = { "weight", "bias", "running_mean", "running_var" };
    const struct sgrad__thing *from = sgrad__onnx_whole(reader, n, 0), *t[4];
    if (!from) return reader->graph->error;
    int x[] = { from->view.value, -1 };
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x[0]);
    const Onnx__Node *sum = sum_behind(reader, n, &from->view, &x[1]), *relu = relu_behind(reader, sum ? sum : n);
    if (sgrad__onnx_int(n, "training_mode", 0))
        return sgrad__onnx_refuse(reader, n, "training_mode is 1, but must be 0; call model.eval() before the export");
    if (!sgrad__onnx_int(n, "spatial", 1))
        return sgrad__onnx_refuse(reader, n, "spatial is 0, but must be 1 (statistics per channel)");
    for (size_t i = 1; i < n->n_output; i++)
        if (*n->output[i])
            return sgrad__onnx_refuse(reader, n,
                                      "has output %zu, '%s', so it normalises with batch statistics; call model.eval() before "
                                      "the export",
                                      i, n->output[i]);
    if (sgrad__view_channels(reader, &from->view) != 1)
        return sgrad__onnx_refuse(reader, n, "dimension 1 of its input must be the channels, or the features");
    for (size_t i = 0; i < 4; i++) {
        if (!(t[i] = sgrad__onnx_tensor(reader, n, i + 1, 1))) return reader->graph->error;
        if (t[i]->tensor->dims[0] != shape.dim[shape.rank - 1])
            return sgrad__onnx_refuse(reader, n, "'%s' has %lld numbers, but there are %lld channels", t[i]->name,
                                      (long long)t[i]->tensor->dims[0], (long long)shape.dim[shape.rank - 1]);
    }
    const struct sgrad_batchnorm is = { .relu = relu, .eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f)),
                                        .momentum = sgrad__onnx_given(1 - sgrad__onnx_float(n, "momentum", 0.9f)) };
    char *name = sgrad__onnx_name(reader, n, 1);
    for (int i = 0; i < 4; i++) sgrad__onnx_bind(reader, name, parameter[i], t[i]);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_batchnorm_op, x, sum ? 2 : 1, &is);
    free(name);
    if (sum) sgrad__onnx_thing(reader, sum->output[0])->known = true;
    return make_with(reader, n, relu ? relu : sum, y, &from->view);
}

/* The layer has PARAMETER, COUNT numbers, which the file does not have: it begins with zeros. */
static void bind_zeros(struct sgrad__reader *reader, const char *name, const char *parameter, int64_t count) {
    const struct sgrad__thing zeros = {
        .name = "", .tensor = sgrad__onnx_new_tensor(reader, ONNX_FLOAT, &count, 1, (size_t)count * sizeof(float))
    };
    sgrad__onnx_bind(reader, name, parameter, &zeros);
}

int sgrad__onnx_read_layer_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *from = sgrad__onnx_whole(reader, n, 0);
    const struct sgrad__thing *weight = from ? sgrad__onnx_tensor(reader, n, 1, 1) : NULL;
    const bool has_bias = sgrad__onnx_input(reader, n, 2) != NULL;
    const struct sgrad__thing *bias = weight && has_bias ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    const int64_t axis = sgrad__onnx_int(n, "axis", -1);
    if (!weight || (has_bias && !bias)) return reader->graph->error;
    const int rank = from->view.rank;
    if (sgrad__view_channels(reader, &from->view) != rank - 1 || (axis != -1 && axis != rank - 1))
        return sgrad__onnx_refuse(reader, n, "must normalise along the features, or the channels, not along axis %lld of %d",
                                  (long long)axis, rank);
    if (sgrad__onnx_int(n, "stash_type", ONNX_FLOAT) != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "stash_type is %d, but must be 1 (FLOAT)",
                                  (int)sgrad__onnx_int(n, "stash_type", ONNX_FLOAT));
    char *name = sgrad__onnx_name(reader, n, 1);
    sgrad__onnx_bind(reader, name, "weight", weight);
    if (bias) sgrad__onnx_bind(reader, name, "bias", bias);
    else bind_zeros(reader, name, "bias", weight->tensor->dims[0]);
    const int y =
        sgrad__onnx_layer(reader, n, name, &sgrad_layer_norm_op, &from->view.value, 1,
                          &(struct sgrad_layer_norm){ .eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f)) });
    free(name);
    return sgrad__onnx_make_like(reader, n, y, &from->view);
}

int sgrad__onnx_read_lrn(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    const int64_t size = sgrad__onnx_int(n, "size", 0);
    if (x < 0) return reader->graph->error;
    if (sgrad__onnx_rank(reader, x) == 3)
        return sgrad__onnx_refuse(reader, n, "its input must be images, not rows");
    if (size < 1 || size > SGRAD__ONNX_LARGE || size % 2 == 0)
        return sgrad__onnx_refuse(reader, n, "size is %lld, but must be odd and at most %d", (long long)size, SGRAD__ONNX_LARGE);
    const struct sgrad_local_response_norm is = { .size = (int)size,
                                                  .alpha = sgrad__onnx_given(sgrad__onnx_float(n, "alpha", 1e-4f)),
                                                  .beta = sgrad__onnx_given(sgrad__onnx_float(n, "beta", .75f)),
                                                  .k = sgrad__onnx_given(sgrad__onnx_float(n, "bias", 1)) };
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_local_response_norm_op, &x, 1, &is));
}
