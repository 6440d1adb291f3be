/* attention.c: reads attention, which is one layer of the graph: ONNX's operator, or products of matrices. Queries, keys and
 * values are views of values (views.c): with heads of D features, they are seen as (N,heads,T,D) or (N·heads,T,D).
 *
 *     query ───────── (Mul) ─┐
 *     key ─ Transpose (Mul) ─┴ MatMul ─ (Mul) ─ (Add or Where: leaves out later rows) ─ Softmax ─┐
 *     value ──────────────────────────────────────────────────────────────────────────────────── MatMul ─ y, seen as the query
 *
 * The factors of all multiplications, or divisions, must have the product 1/√D. An intermediate result is not a value of the
 * graph. Its thing records one of the steps ATTENTION_…, the views of query and key, and the factor. */
#include "codelets/ops/attention.h"
#include "graphs/networks/onnx/reader.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is(const Onnx__Node *n, const char *operator) { return strcmp(n->op_type, operator) == 0; }
static bool is_near(double x, double wanted) { return fabs(x - wanted) <= 1e-5 * wanted; }

/* ---- heads -------------------------------------------------------------------------------------------------------- */

bool sgrad__onnx_heads(const struct sgrad__reader *reader, const struct sgrad__view *view, bool turned,
                       struct sgrad__heads *heads) {
    const int last = view->rank - 1;
    int64_t sizes[SGRAD__DIMENSIONS], all = 1;
    if (view->rank < 3 || sgrad__onnx_rank(reader, view->value) != 3) return false;
    for (int i = 0; i <= last; i++) {
        sizes[i] = sgrad__view_size(view, i);
        if (i < last - 1) all *= sizes[i];
    }
    const int64_t size = sizes[turned ? last - 1 : last], rows = sizes[turned ? last : last - 1], count = all / reader->samples;
    struct sgrad__view like = sgrad__view_of(reader, view->value);
    if (all % reader->samples || count < 1 || !sgrad__view_select(&like, 2, view->first[2], count * size) ||
        !sgrad__view_reshape(&like, (int64_t[]){ reader->samples, rows, count, size }, 4) ||
        !sgrad__view_transpose(&like, turned ? (int64_t[]){ 0, 2, 3, 1 } : (int64_t[]){ 0, 2, 1, 3 }, 4) ||
        !sgrad__view_reshape(&like, sizes, view->rank))
        return false;
    like.scale = view->scale;
    *heads = (struct sgrad__heads){ view->value, (int)count, size, view->first[2] };
    return sgrad__view_equal(&like, view);
}

bool sgrad__onnx_split_heads(struct sgrad__view *view, int64_t heads) {
    const int64_t width = view->rank == 3 ? sgrad__view_size(view, 2) : 0;
    if (heads < 1 || heads > width || width % heads) return false;
    const int64_t to[] = { sgrad__view_size(view, 0), sgrad__view_size(view, 1), heads, width / heads };
    return sgrad__view_reshape(view, to, 4) && sgrad__view_transpose(view, (int64_t[]){ 0, 2, 1, 3 }, 4);
}

/* ---- the layer ---------------------------------------------------------------------------------------------------- */

/* Adds the layer. OF: query, key and value. Returns its value, or -1. */
static int add_layer(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__heads of[3], bool causal) {
    const struct sgrad_attention how = { .heads = of[0].heads, .kv_heads = of[1].heads, .causal = causal };
    const int64_t queries = of[0].heads * of[0].size, keys = of[1].heads * of[1].size;
    int x[3];
    bool thirds = of[0].value == of[1].value && of[0].value == of[2].value, whole = true;
    for (int i = 0; i < 3; i++) {
        const int64_t width = sgrad_graph_shape(reader->graph, x[i] = of[i].value).dim[2];
        thirds &= width == queries + 2 * keys && of[i].first == (i ? queries + (i - 1) * keys : 0);
        whole &= width == (i ? keys : queries);
    }
    if (thirds || whole) return sgrad__onnx_plain(reader, n, &sgrad_attention_op, x, thirds ? 1 : 3, &how);
    sgrad__onnx_refuse(reader, n,
                       "query, key and value must be three values, or thirds of the features of the same rows, in this "
                       "order");
    return -1;
}

/* Checks that the heads of query, key and value fit. */
static int check_heads(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__heads of[3]) {
    const int64_t rows = sgrad_graph_shape(reader->graph, of[0].value).dim[1];
    bool fits =
        of[1].heads == of[2].heads && of[0].heads % of[1].heads == 0 && of[0].size == of[1].size && of[1].size == of[2].size;
    for (int i = 1; i < 3; i++) fits &= sgrad_graph_shape(reader->graph, of[i].value).dim[1] == rows;
    if (fits) return 0;
    return sgrad__onnx_refuse(reader, n,
                              "q_num_heads is %d and kv_num_heads %d, but heads of queries, keys and values must have as "
                              "many rows and features, and the heads of queries must be a multiple of those of keys",
                              of[0].heads, of[1].heads);
}

/* Makes the layer, seen as the query, the output of N. */
static int make_layer(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__heads of[3], bool causal,
                      const struct sgrad__view *query) {
    struct sgrad__view view = *query;
    SGRAD_TRY(check_heads(reader, n, of));
    view.value = add_layer(reader, n, of, causal);
    view.first[2] = 0;
    view.scale = 1;
    return sgrad__onnx_set(reader, n, 0, &view);
}

/* ---- products of matrices ----------------------------------------------------------------------------------------- */

/* Reads the product of query and key. */
static bool multiply(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *q,
                     const struct sgrad__thing *k, int *status) {
    struct sgrad__heads of[2];
    if (!sgrad__onnx_is_view(q) || !sgrad__onnx_is_view(k) || !sgrad__onnx_heads(reader, &q->view, false, &of[0]) ||
        !sgrad__onnx_heads(reader, &k->view, true, &of[1]) || of[0].heads != of[1].heads)
        return false;
    struct sgrad__thing *to = sgrad__onnx_step(reader, n, ATTENTION_SCORES, &q->view);
    if (to) to->key = k->view, to->view.scale *= k->view.scale;
    *status = reader->graph->error;
    return true;
}

/* Reads the product of weights and values, which ends the layer. */
static int mix(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, const struct sgrad__thing *v) {
    struct sgrad__heads of[3];
    if (!sgrad__onnx_is_view(v) || !sgrad__onnx_heads(reader, &v->view, false, &of[2]) || v->view.scale != 1)
        return sgrad__onnx_refuse(reader, n, "the values of attention must have shape (N,heads,T,D)");
    sgrad__onnx_heads(reader, &from->view, false, &of[0]);
    sgrad__onnx_heads(reader, &from->key, true, &of[1]);
    if (!is_near(from->view.scale, 1 / sqrt((double)of[0].size)))
        return sgrad__onnx_refuse(reader, n,
                                  "scales by %g, but attention must be scaled by 1/√C for the C = %lld features of a head",
                                  from->view.scale, (long long)of[0].size);
    return make_layer(reader, n, of, from->causal, &from->view);
}

/* Returns true if T is a square of ROWS that marks the later rows of each row: by -inf, others by 0, or, if KEEPS, by false,
 * others by true. Some tools use the lowest float instead of -inf. */
static bool is_later(const struct sgrad__thing *t, int64_t rows, bool keeps) {
    const Onnx__Tensor *mask = t ? t->tensor : NULL;
    if (!mask || t->turned || mask->n_dims < 2 || mask->dims[mask->n_dims - 1] != rows || mask->dims[mask->n_dims - 2] != rows ||
        sgrad__onnx_count(mask) != rows * rows || (keeps && mask->data_type != ONNX_BOOL))
        return false;
    double *x = sgrad_xcalloc((size_t)(rows * rows), sizeof *x);
    bool all = true;
    sgrad__onnx_doubles(mask, x);
    for (int64_t i = 0; i < rows * rows && all; i++) {
        const bool later = i % rows > i / rows;
        all = keeps ? x[i] == !later : later ? x[i] <= -FLT_MAX : x[i] == 0;
    }
    free(x);
    return all;
}

/* Reads the operators on the scores A. */
static int step(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *a, const struct sgrad__thing *mask,
                float factor) {
    const int64_t rows = sgrad_graph_shape(reader->graph, a->view.value).dim[1];
    const bool where = is(n, "Where");
    SGRAD_TRY(sgrad__onnx_pass(reader, n, where ? 1 : a == sgrad__onnx_input(reader, n, 0) ? 0 : 1));
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    if (factor != 0)
        to->view.scale *= factor;
    else if (is(n, "Softmax"))
        to->step = ATTENTION_WEIGHTS;
    else if (!is_later(mask, rows, where))
        return sgrad__onnx_refuse(reader, n, "the mask of attention must be a constant that leaves out all later rows");
    else
        to->causal = true;
    return 0;
}

bool sgrad__onnx_takes_attention(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1), *mask = NULL;
    float factor = 0, never;
    const bool times = is(n, "Mul");
    size_t by = 1;
    *status = 0;
    if (is(n, "MatMul") && a && a->step == ATTENTION_WEIGHTS) return *status = mix(reader, n, a, b), true;
    if (is(n, "MatMul")) return multiply(reader, n, a, b, status);
    if ((times || is(n, "Add")) && a && a->tensor) a = b, by = 0;
    if ((times || is(n, "Div")) && a && sgrad__onnx_number(reader, n, by, &factor)) factor = times ? factor : 1 / factor;
    if (factor != 0 && sgrad__onnx_is_view(a) && a->view.rank >= 3 && sgrad__onnx_rank(reader, a->view.value) == 3 &&
        !sgrad__view_is_plain(reader, &a->view)) {
        if (!(*status = sgrad__onnx_pass(reader, n, 1 - by))) sgrad__onnx_thing(reader, n->output[0])->view.scale *= factor;
        return true;
    }
    if (is(n, "Where") && b && b->step == ATTENTION_SCORES) {
        if (!sgrad__onnx_number(reader, n, 2, &never) || never > -FLT_MAX) return false;
        mask = a, a = b;
    } else if (is(n, "Add"))
        mask = sgrad__onnx_input(reader, n, by);
    else if (!factor && (!is(n, "Softmax") || sgrad__onnx_softmax_axis(reader, n, a && a->step ? a->view.rank : 0) < 0 ||
                         sgrad__onnx_softmax_axis(reader, n, a->view.rank) != a->view.rank - 1))
        return false;
    if (!a || a->step != ATTENTION_SCORES) return false;
    *status = step(reader, n, a, mask, factor);
    return true;
}

/* ---- the operator ------------------------------------------------------------------------------------------------- */

/* Checks the attributes that must have the values that Stargrad's attention has. FEATURES: of a head. */
static int check_formula(struct sgrad__reader *reader, const Onnx__Node *n, double features) {
    const double root = 1 / sqrt(features);
    int64_t precision, mode;
    float softcap, by;
    if (!sgrad__onnx_take_float(reader, n, "softcap", 0, &softcap) ||
        !sgrad__onnx_take_float(reader, n, "scale", (float)root, &by) ||
        !sgrad__onnx_take_int(reader, n, "softmax_precision", ONNX_FLOAT, &precision) ||
        !sgrad__onnx_take_int(reader, n, "qk_matmul_output_mode", 0, &mode))
        return reader->graph->error;
    if (softcap != 0) return sgrad__onnx_refuse(reader, n, "softcap is %g, but must be 0: scores cannot be capped", softcap);
    if (!is_near(by, root))
        return sgrad__onnx_refuse(reader, n, "scale is %g, but must be %g, 1/√C for the C = %g features of a head", by, root,
                                  features);
    if (precision != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "softmax_precision is %lld, but must be 1 (FLOAT)", (long long)precision);
    return 0;
}

/* Reads input I, (N,T,C) or (N,heads,T,D), with the attribute NAME, its number of heads. The second form does not need it. */
static int take_heads(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, const char *name, struct sgrad__view *view,
                      struct sgrad__heads *heads) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (!sgrad__onnx_is_view(t)) return sgrad__onnx_whole(reader, n, i) ? 0 : reader->graph->error;
    *view = t->view;
    const bool parted = view->rank == 4 && sgrad__onnx_heads(reader, view, false, heads);
    const int64_t width = sgrad__view_size(view, view->rank - 1) * (parted ? heads->heads : 1);
    int64_t number;
    if (!sgrad__onnx_take_int(reader, n, name, parted ? heads->heads : 0, &number)) return reader->graph->error;
    if (!parted && (view->rank != 3 || view->scale != 1))
        return sgrad__onnx_refuse(reader, n, "input %zu, '%s', must have shape (N,T,C) or (N,heads,T,D)", i, n->input[i]);
    if ((parted && number != heads->heads) || number < 1 || number > width || width % number ||
        (!parted && (!sgrad__onnx_split_heads(view, number) || !sgrad__onnx_heads(reader, view, false, heads))))
        return sgrad__onnx_refuse(reader, n, "%s is %lld, but must be the number of heads of input %zu, which has %lld features",
                                  name, (long long)number, i, (long long)width);
    return 0;
}

int sgrad__onnx_read_attention(struct sgrad__reader *reader, const Onnx__Node *n) {
    static const char *const names[] = { "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen" };
    struct sgrad__heads of[3];
    struct sgrad__view view[3];
    int64_t causal;
    for (size_t i = 3; i < n->n_input; i++)
        if (*n->input[i])
            return sgrad__onnx_refuse(reader, n,
                                      "input %s, '%s', is not supported; export the network without it; for causal attention, "
                                      "set is_causal to 1",
                                      names[i - 3], n->input[i]);
    if (!sgrad__onnx_take_int(reader, n, "is_causal", 0, &causal)) return reader->graph->error;
    if (causal != 0 && causal != 1)
        return sgrad__onnx_refuse(reader, n, "is_causal is %lld, but must be 0 or 1", (long long)causal);
    for (size_t i = 0; i < 3; i++) SGRAD_TRY(take_heads(reader, n, i, i ? "kv_num_heads" : "q_num_heads", &view[i], &of[i]));
    SGRAD_TRY(check_heads(reader, n, of));
    SGRAD_TRY(check_formula(reader, n, (double)of[0].size));
    SGRAD_TRY(make_layer(reader, n, of, causal, &view[0]));
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    if (sgrad__onnx_input(reader, n, 0)->view.rank == 3) to->view = sgrad__view_of(reader, to->view.value);
    return 0;
}
