/* features.c: reads ONNX's operators on features: products, sums, normalisations, nonlinearities. Nodes that are one layer of the
 * graph are read together: a product and the bias after it; a normalisation, a sum and the ReLU. */
#include "codelets/ops/add.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/bias.h"
#include "codelets/ops/concat.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/embedding.h"
#include "codelets/ops/gelu.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/local_response_norm.h"
#include "codelets/ops/multiply.h"
#include "codelets/ops/position_embedding.h"
#include "codelets/ops/relu.h"
#include "codelets/ops/scale.h"
#include "codelets/ops/silu.h"
#include "graphs/networks/onnx/reader.h"

#include <stdlib.h>
#include <string.h>

/* Returns the ReLU after N, if it is the only consumer of N's output: then N's layer computes it. NULL: no such ReLU. */
static const Onnx__Node *relu_behind(const struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_next(reader, n, "Relu");
}

/* Makes Y the output of END or, if END is NULL, of N. */
static int make_with(struct sgrad__reader *reader, const Onnx__Node *n, const Onnx__Node *end, int y) {
    SGRAD_TRY(sgrad__onnx_make(reader, end ? end : n, y));
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return 0;
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Reads x (N,…,C) times the weight (K,C), or (C,K) if AS_TURNED. END: the node whose output the layer computes, N or one after
 * it. */
static int read_product(struct sgrad__reader *reader, const Onnx__Node *n, const Onnx__Node *end, int x, bool as_turned,
                        const struct sgrad__thing *bias) {
    const struct sgrad__thing *weight = sgrad__onnx_tensor(reader, n, 1, 2);
    if (!weight) return reader->graph->error;
    const bool turned = as_turned != weight->turned;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const int64_t *dim = weight->tensor->dims, features = dim[turned ? 1 : 0], takes = dim[turned ? 0 : 1];
    const struct sgrad_linear is = { .features = sgrad__onnx_outputs(reader, end, features), .bias = bias, .transposed = turned };
    if (shape.rank > 3) return sgrad__onnx_refuse(reader, n, "its input must be rows (N,C) or (N,T,C), not images");
    if (shape.dim[shape.rank - 1] != takes)
        return sgrad__onnx_refuse(reader, n,
                                  "requires %lld features, but its input has %lld: the file is for samples of another size",
                                  (long long)takes, (long long)shape.dim[shape.rank - 1]);
    char *name = sgrad__onnx_name(reader, n, 1);
    sgrad__onnx_bind(reader, name, "weight", weight);
    if (bias) sgrad__onnx_bind(reader, name, "bias", bias);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_linear_op, &x, 1, &is);
    free(name);
    return make_with(reader, n, end, y);
}

int sgrad__onnx_read_gemm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    const bool has_bias = sgrad__onnx_input(reader, n, 2) != NULL;
    const struct sgrad__thing *bias = x >= 0 && has_bias ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    if (x < 0 || (has_bias && !bias)) return reader->graph->error;
    if (sgrad__onnx_rank(reader, x) != 2 || sgrad__onnx_int(n, "transA", 0) || sgrad__onnx_float(n, "alpha", 1) != 1 ||
        (has_bias && sgrad__onnx_float(n, "beta", 1) != 1))
        return sgrad__onnx_refuse(reader, n,
                                  "requires rows (N,C), transA 0, alpha 1 and beta 1, but has transA %d, alpha %g and "
                                  "beta %g",
                                  (int)sgrad__onnx_int(n, "transA", 0), (double)sgrad__onnx_float(n, "alpha", 1),
                                  (double)sgrad__onnx_float(n, "beta", 1));
    return read_product(reader, n, n, x, !sgrad__onnx_int(n, "transB", 0), bias);
}

/* Reads a product, together with the addition of a bias: a vector of the length of a row. */
int sgrad__onnx_read_matmul(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    const int x = sgrad__onnx_value(reader, n, 0, false);
    const struct sgrad__thing *weight = x < 0 ? NULL : sgrad__onnx_tensor(reader, n, 1, 2), *bias = NULL;
    if (!weight) return reader->graph->error;
    const int64_t features = weight->tensor->dims[weight->turned ? 0 : 1];
    const Onnx__Node *sum = sgrad__onnx_next(reader, n, "Add");
    for (size_t i = 0; sum && i < sum->n_input && sum->n_input == 2; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, sum, i);
        if (t && t->tensor && !t->spread && t->tensor->n_dims == 1 && t->tensor->dims[0] == features) bias = t;
    }
    return read_product(reader, n, bias ? sum : n, x, true, bias);
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

/* Adds a value and a tensor of the file. The tensor has, for rows (N,T,C), one number per position (T,C), or one number per
 * feature. */
static int add_tensor(struct sgrad__reader *reader, const Onnx__Node *n, int x, size_t i) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    int ones = 0;               /* leading dimensions of 1, which are ignored: (1,T,C) is (T,C) */
    while (ones + 1 < (int)t->tensor->n_dims && t->tensor->dims[ones] == 1 && !t->turned) ones++;
    const int rank = (int)t->tensor->n_dims - ones;
    const int64_t *dim = t->tensor->dims + ones;
    const bool fits = (int)t->tensor->n_dims <= shape.rank && !t->spread;
    const bool position = shape.rank == 3 && rank == 2 && !t->turned && dim[0] == shape.dim[1] && dim[1] == shape.dim[2];
    if (!fits || (!position && (shape.rank > 3 || rank != 1 || dim[0] != shape.dim[shape.rank - 1])))
        return sgrad__onnx_refuse(reader, n, "'%s' must have a number per feature or, for rows, one per position and feature",
                                  t->name);
    char *name = sgrad__onnx_name(reader, n, position ? (int)i : -1);
    sgrad__onnx_bind_less(reader, name, position ? "weight" : "bias", t, ones);
    const struct sgrad_position_embedding is = { .context = (int)dim[0] };
    const int y = position ? sgrad__onnx_layer(reader, n, name, &sgrad_position_embedding_op, &x, 1, &is)
                           : sgrad__onnx_layer(reader, n, name, &sgrad_bias_op, &x, 1, &(struct sgrad_bias){ 0 });
    free(name);
    return sgrad__onnx_make(reader, n, y);
}

int sgrad__onnx_read_add(struct sgrad__reader *reader, const Onnx__Node *n) {
    int status;
    if (sgrad__onnx_is_normal(reader, n, &status)) return status;
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    if (sgrad__onnx_groups(reader, n)) return sgrad__onnx_group(reader, n);
    if (sgrad__onnx_splits(reader, n)) return sgrad__onnx_split(reader, n);
    for (size_t i = 0; i < 2; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        if (!t || !t->tensor) continue;
        const int x = sgrad__onnx_value(reader, n, 1 - i, false);
        return x < 0 ? reader->graph->error : add_tensor(reader, n, x, i);
    }
    const int x[] = { sgrad__onnx_value(reader, n, 0, false),
                      reader->graph->error ? -1 : sgrad__onnx_value(reader, n, 1, false) };
    const Onnx__Node *relu = relu_behind(reader, n);
    if (x[0] < 0 || x[1] < 0) return reader->graph->error;
    return make_with(reader, n, relu, sgrad__onnx_plain(reader, n, &sgrad_add_op, x, 2, &(struct sgrad_add){ .relu = relu }));
}

int sgrad__onnx_read_concat(struct sgrad__reader *reader, const Onnx__Node *n) {
    int x[SGRAD_MAX_INPUTS];
    int64_t number[SGRAD__NUMBERS];
    int count;
    if (sgrad__onnx_splits(reader, n)) return sgrad__onnx_split(reader, n);
    if (sgrad__onnx_numbers(reader, n, 0, number, &count)) {     /* lists of integers, for a Reshape */
        struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
        for (size_t i = 0; i < n->n_input; i++) {
            if (!sgrad__onnx_numbers(reader, n, i, number, &count) || to->count + count > SGRAD__NUMBERS)
                return sgrad__onnx_refuse(reader, n, "input %zu must be integers that are known when the file is read", i);
            memcpy(to->number + to->count, number, (size_t)count * sizeof *number);
            to->count += count;
        }
        to->known = to->is_numbers = true;
        return 0;
    }
    for (size_t i = 0; i < n->n_input; i++)
        if ((x[i] = sgrad__onnx_value(reader, n, i, false)) < 0) return reader->graph->error;
    const int rank = sgrad__onnx_rank(reader, x[0]);
    int64_t axis = sgrad__onnx_int(n, "axis", 1);
    if (axis < 0) axis += rank;
    if (axis != sgrad__onnx_channels(rank))
        return sgrad__onnx_refuse(reader, n, "axis is %lld, but must be %d, the axis of channels", (long long)axis,
                                  sgrad__onnx_channels(rank));
    return sgrad__onnx_make(reader, n,
                            sgrad__onnx_plain(reader, n, &sgrad_concat_op, x, (int)n->n_input, &(struct sgrad_concat){ { 0 } }));
}

/* ---- others ----------------------------------------------------------------------------------------------------- */

int sgrad__onnx_read_relu(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    if (x < 0) return reader->graph->error;
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_relu_op, &x, 1, &(struct sgrad_relu){ 0 }));
}

/* The states of SiLU: σ(x), and x·σ(x) that another value is multiplied by. */
enum { SIGMOID = 1, SILU };

static int go_to_gate(struct sgrad__reader *reader, const Onnx__Node *n, int gate, int x) {
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    to->gate = gate, to->of = x, to->known = true;
    return 0;
}

int sgrad__onnx_read_sigmoid(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    return x < 0 ? reader->graph->error : go_to_gate(reader, n, SIGMOID, x);
}

/* Returns true if N multiplies its output by another value: it is the first factor of a product of values. */
static bool is_factor(const struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Node *next = sgrad__onnx_next(reader, n, "Mul");
    for (size_t i = 0; next && i < next->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, next, i);
        if (!t || t->tensor) return false;
    }
    return next;
}

/* Reads the product of two values, or a step of SiLU. */
static int multiply_values(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *one = sgrad__onnx_input(reader, n, 0), *other = sgrad__onnx_input(reader, n, 1);
    if (other && other->gate) {
        const struct sgrad__thing *first = one;
        one = other, other = first;
    }
    if (!one || !other || !sgrad__onnx_is_value(other) || (!one->gate && !sgrad__onnx_is_value(one)))
        return sgrad__onnx_refuse(reader, n, "must multiply two values, a value by a single constant, or be a step of SiLU, GELU "
                                             "or attention");
    const int x[] = { one->gate ? one->of : one->value, other->value };
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x[0]), same = sgrad_graph_shape(reader->graph, x[1]);
    if (one->gate == SIGMOID && x[0] != x[1])
        return sgrad__onnx_refuse(reader, n, "multiplies a Sigmoid by another value, but only x·Sigmoid(x) is supported");
    if (!sgrad_shape_equal(&shape, &same)) return sgrad__onnx_refuse(reader, n, "its inputs must have the same shape");
    if (one->gate == SIGMOID && is_factor(reader, n)) return go_to_gate(reader, n, SILU, x[0]);
    if (one->gate == SIGMOID)
        return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_silu_op, x, 1, &(struct sgrad_silu){ 0 }));
    const struct sgrad_multiply is = { .silu = one->gate };
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_multiply_op, x, 2, &is));
}

/* Reads a multiplication by one number of the file, or by another value, or one within attention, GELU or SiLU. */
int sgrad__onnx_read_mul(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *by = sgrad__onnx_input(reader, n, 1);
    struct sgrad_scale is;
    int count, status;
    if (sgrad__onnx_is_normal(reader, n, &status)) return status;
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    if (sgrad__onnx_groups(reader, n)) return sgrad__onnx_group(reader, n);
    if (sgrad__onnx_splits(reader, n)) return sgrad__onnx_split(reader, n);
    if (!by || !by->tensor || !sgrad__onnx_floats(by->tensor, &is.factor, 1, &count) || count != 1)
        return multiply_values(reader, n);
    const int x = sgrad__onnx_value(reader, n, 0, false);
    return x < 0 ? reader->graph->error : sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_scale_op, &x, 1, &is));
}

int sgrad__onnx_read_gelu(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *how = sgrad__onnx_attribute(n, "approximate");
    const struct sgrad_gelu is = { .approximate = sgrad__onnx_is_text(how, "tanh") };
    if (how && !is.approximate && !sgrad__onnx_is_text(how, "none"))
        return sgrad__onnx_refuse(reader, n, "approximate must be none or tanh");
    const int x = sgrad__onnx_value(reader, n, 0, false);
    return x < 0 ? reader->graph->error : sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_gelu_op, &x, 1, &is));
}

/* Returns the sum after N's layer, whose output has SHAPE, if it is the only consumer, and *OTHER, the value that is added, is
 * known. */
static const Onnx__Node *sum_behind(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad_shape *shape,
                                    int *other) {
    const Onnx__Node *sum = sgrad__onnx_next(reader, n, "Add");
    for (size_t i = 0; sum && sum->n_input == 2 && i < 2; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, sum, i);
        if (!sgrad__onnx_is_value(t)) continue;
        const struct sgrad_shape is = sgrad_graph_shape(reader->graph, *other = t->value);
        if (sgrad_shape_equal(&is, shape)) return sum;
    }
    return NULL;
}

int sgrad__onnx_read_batchnorm(struct sgrad__reader *reader, const Onnx__Node *n) {
    static const char *const parameter[] = { "weight", "bias", "running_mean", "running_var" };
    int x[] = { sgrad__onnx_value(reader, n, 0, false), -1 };
    const struct sgrad__thing *t[4];
    if (x[0] < 0) return reader->graph->error;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x[0]);
    const Onnx__Node *sum = sum_behind(reader, n, &shape, &x[1]), *relu = relu_behind(reader, sum ? sum : n);
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
    return make_with(reader, n, relu ? relu : sum, y);
}

int sgrad__onnx_read_layer_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false), rank = x < 0 ? 0 : sgrad__onnx_rank(reader, x);
    const struct sgrad__thing *weight = x < 0 ? NULL : sgrad__onnx_tensor(reader, n, 1, 1);
    const struct sgrad__thing *bias = weight ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    const int64_t axis = sgrad__onnx_int(n, "axis", -1);
    if (!bias) return reader->graph->error;
    if (rank > 3 || (axis != -1 && axis != rank - 1))
        return sgrad__onnx_refuse(reader, n, "must normalise rows along their features, not along axis %lld of %d",
                                  (long long)axis, rank);
    if (sgrad__onnx_int(n, "stash_type", ONNX_FLOAT) != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "stash_type is %d, but must be 1 (FLOAT)",
                                  (int)sgrad__onnx_int(n, "stash_type", ONNX_FLOAT));
    char *name = sgrad__onnx_name(reader, n, 1);
    sgrad__onnx_bind(reader, name, "weight", weight);
    sgrad__onnx_bind(reader, name, "bias", bias);
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_layer_norm_op, &x, 1,
                                    &(struct sgrad_layer_norm){
                                        .eps = sgrad__onnx_given(sgrad__onnx_float(n, "epsilon", 1e-5f)) });
    free(name);
    return sgrad__onnx_make(reader, n, y);
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

int sgrad__onnx_read_dropout(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, true);
    const struct sgrad__thing *share = sgrad__onnx_input(reader, n, 1), *t = sgrad__onnx_input(reader, n, 0);
    float p = sgrad__onnx_float(n, "ratio", .5f);
    int count = 1;
    if (x < 0) return reader->graph->error;
    if (share && (!share->tensor || !sgrad__onnx_floats(share->tensor, &p, 1, &count) || count != 1))
        return sgrad__onnx_refuse(reader, n, "its ratio must be one constant number");
    const struct sgrad__thing *training = sgrad__onnx_input(reader, n, 2);
    int64_t trains = 0;
    if (training && (!training->tensor || !sgrad__onnx_ints(training->tensor, &trains, 1, &count) || count != 1 || trains))
        return sgrad__onnx_refuse(reader, n, "training_mode must be false; call model.eval() before the export");
    if (p == 0) return sgrad__onnx_pass(reader, n, 0);
    const int y = sgrad__onnx_plain(reader, n, &sgrad_dropout_op, &x, 1, &(struct sgrad_dropout){ .p = p });
    sgrad__onnx_thing(reader, n->output[0])->pixel = t->pixel;
    return sgrad__onnx_make(reader, n, y);
}

/* A softmax is omitted at the end, because the loss computes it, and rejected elsewhere. */
int sgrad__onnx_read_softmax(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    if (sgrad__onnx_thing(reader, n->output[0]) != reader->last)
        return sgrad__onnx_refuse(reader, n,
                                  "is supported only in attention and at the end of the network, where the loss computes it");
    if (sgrad__onnx_value(reader, n, 0, true) < 0) return reader->graph->error;
    const int rank = sgrad__onnx_file_rank(reader, sgrad__onnx_input(reader, n, 0));
    if (sgrad__onnx_softmax_axis(reader, n, rank) != sgrad__onnx_channels(rank))
        return sgrad__onnx_refuse(reader, n, "axis is %lld (opset %lld), but must be the axis of classes, %d of %d dimensions",
                                  (long long)sgrad__onnx_int(n, "axis", reader->opset >= 13 ? -1 : 1), (long long)reader->opset,
                                  sgrad__onnx_channels(rank), rank);
    reader->imported->softmax = true;
    return sgrad__onnx_pass(reader, n, 0);
}

int sgrad__onnx_read_identity(struct sgrad__reader *reader, const Onnx__Node *n) { return sgrad__onnx_pass(reader, n, 0); }
