/* attention.c: reads attention, which is one layer of the graph: a dozen nodes, as codelets/ops/attention.c writes it, or ONNX's
 * operator, as PyTorch exports it. An intermediate result is not a value of the graph. Its thing records its state, which is its
 * position in these drawings, and the input of the layer:
 *
 *     x (N,T,3C) ─ Reshape (0,T,3,heads,C/heads) ─ Transpose ─┬ Gather 0: query ─────────────┐
 *                                                             ├ Gather 1: key ─── Transpose ─┴ MatMul ─ Mul 1/√(C/heads) ─┐
 *                                                             └ Gather 2: value ──────────────────────────┐               │
 *              ConstantOfShape (T,T) of -inf ─ Trilu above the diagonal: if it exists, causal ────────────│────────── Add ┤
 *     y (N,T,C) ─ Reshape (0,T,C) ─ Transpose ─────────────────────────────────────────────────── MatMul ─┴───── Softmax ─┘
 *
 *     x (N,T,3C) ─ Split ─┬ Reshape (·,T,heads,C/heads) ─ Transpose: query ─┐
 *                         ├ Reshape ─ Transpose: key ───────────────────────┼ Attention ─ Transpose ─ Reshape (·,T,C) ─ y (N,T,C)
 *                         └ Reshape ─ Transpose: value ─────────────────────┘
 *
 * Without that operator, PyTorch multiplies both query and key by the root of 1/√(C/heads), transposes the key as one large
 * batch, and computes the mask that is added from ones:
 *
 *     key ─ Reshape (·,T,C/heads) ─ Transpose ─ Reshape (·,heads,C/heads,T) ─ Mul ─┐
 *     query ─ Mul ─────────────────────────────────────────────────────────────────┴ MatMul ─ Add ─ Softmax ─ …
 *     1 ─ Expand (T,T) ─ Trilu up to the diagonal ─ Equal 0 ─ Where -inf, else 0 ─────────────┘
 *
 * heads.c reads attention with separate queries, keys and values. */
#include "codelets/ops/attention.h"
#include "graphs/networks/onnx/reader.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The states, each named after the intermediate result. */
enum { NOWHERE, PARTS, TURNED, QUERY, KEY, WORTH, COLUMN, PRODUCT, SCORE, SHARE, MEAN, ROWS, NEVER, LATER,
       BATCHED, BATCHED_COLUMN, ROOT_QUERY, ROOT_COLUMN, ONES, EARLIER, NOT_EARLIER,
       THIRD, HEADS = THIRD + 3 };          /* three of each: for query, key and value */

static bool is(const Onnx__Node *n, const char *operator) { return strcmp(n->op_type, operator) == 0; }

static int refuse(struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_refuse(reader, n, "is not a supported step of attention");
}

bool sgrad__onnx_attends(const struct sgrad__reader *reader, const Onnx__Node *n) {
    bool any = false;
    for (size_t i = 0; i < n->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        any |= t && t->attends;
    }
    return any;
}

/* Gives output I of N the state PLACE, in the layer of FROM. */
static int go_to(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, const struct sgrad__thing *from, int place) {
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[i]);
    if (!to) return sgrad__onnx_refuse(reader, n, "has no output");
    to->attends = place;
    to->of = from->of, to->heads = from->heads, to->causal = from->causal;
    to->known = true;
    return 0;
}

static int go(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, int place) {
    return go_to(reader, n, 0, from, place);
}

/* Returns true if THING is a tensor of the file with one number, and sets *NUMBER. */
static bool is_one(const struct sgrad__thing *thing, float *number) {
    int count;
    return thing && thing->tensor && sgrad__onnx_floats(thing->tensor, number, 1, &count) && count == 1;
}

static bool has_order(const Onnx__Node *n, const int64_t *order, size_t count) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "perm");
    return a && a->n_ints == count && !memcmp(a->ints, order, count * sizeof *order);
}

static int turn(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from) {
    if (from->attends == PARTS && has_order(n, (int64_t[]){ 2, 0, 3, 1, 4 }, 5)) return go(reader, n, from, TURNED);
    if (from->attends == KEY && has_order(n, (int64_t[]){ 0, 1, 3, 2 }, 4)) return go(reader, n, from, COLUMN);
    if (from->attends == BATCHED && has_order(n, (int64_t[]){ 0, 2, 1 }, 3)) return go(reader, n, from, BATCHED_COLUMN);
    if (!has_order(n, (int64_t[]){ 0, 2, 1, 3 }, 4)) return refuse(reader, n);
    if (from->attends >= HEADS) return go(reader, n, from, QUERY + from->attends - HEADS);
    return from->attends == MEAN ? go(reader, n, from, ROWS) : refuse(reader, n);
}

static int choose(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from) {
    int64_t which[SGRAD__NUMBERS];
    int count;
    if (from->attends != TURNED || sgrad__onnx_int(n, "axis", 0) || !sgrad__onnx_numbers(reader, n, 1, which, &count) ||
        count != 1 || which[0] < 0 || which[0] > 2)
        return refuse(reader, n);
    return go(reader, n, from, QUERY + (int)which[0]);
}

static int multiply(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *one,
                    const struct sgrad__thing *other) {
    if (!other || one->of != other->of || one->heads != other->heads) return refuse(reader, n);
    if (one->attends == QUERY && other->attends == COLUMN) return go(reader, n, one, PRODUCT);
    if (one->attends == ROOT_QUERY && other->attends == ROOT_COLUMN) return go(reader, n, one, SCORE);
    if (one->attends == SHARE && other->attends == WORTH) return go(reader, n, one, MEAN);
    return refuse(reader, n);
}

static int64_t rows_of(const struct sgrad__reader *reader, const struct sgrad__thing *thing) {
    return sgrad_graph_shape(reader->graph, thing->of).dim[1];
}
static int64_t width_of(const struct sgrad__reader *reader, const struct sgrad__thing *thing) {
    return sgrad_graph_shape(reader->graph, thing->of).dim[2] / 3;
}

/* Reads the Reshape of a third of the features to heads. */
static int take_heads(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, const int64_t *to) {
    const int64_t width = width_of(reader, from);
    if (to[1] != rows_of(reader, from) || to[2] < 1 || to[3] < 1 || to[2] > width || to[3] > width || to[2] * to[3] != width)
        return refuse(reader, n);
    SGRAD_TRY(go(reader, n, from, HEADS + from->attends - THIRD));
    sgrad__onnx_thing(reader, n->output[0])->heads = (int)to[2];
    return 0;
}

static double features_of_head(const struct sgrad__reader *reader, const struct sgrad__thing *thing) {
    return (double)width_of(reader, thing) / thing->heads;
}

static bool is_near(double x, double wanted) { return fabs(x - wanted) <= 1e-5 * wanted; }

/* Reads a scaling: of the product, or of query and key, each by the root. */
static int scale(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from,
                 const struct sgrad__thing *by) {
    const bool product = from->attends == PRODUCT;
    float number;
    if ((!product && from->attends != QUERY && from->attends != COLUMN) || !is_one(by, &number)) return refuse(reader, n);
    const double features = features_of_head(reader, from);
    if (!is_near(number, product ? 1 / sqrt(features) : 1 / sqrt(sqrt(features))))
        return sgrad__onnx_refuse(
            reader, n, "scales by %g, but attention must be scaled by 1/√C for the C = %g features of a head", number, features);
    if (product) return go(reader, n, from, SCORE);
    return go(reader, n, from, from->attends == QUERY ? ROOT_QUERY : ROOT_COLUMN);
}

/* Reads the addition of the mask that leaves out later rows. Its side must be the number of rows. */
static int leave_out(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from,
                     const struct sgrad__thing *later) {
    if (from->attends != SCORE || from->causal || !later || later->attends != LATER || later->count != rows_of(reader, from))
        return refuse(reader, n);
    SGRAD_TRY(go(reader, n, from, SCORE));
    sgrad__onnx_thing(reader, n->output[0])->causal = true;
    return 0;
}

/* Reads the Reshape of the key to one batch with the heads of all samples, and the one back, with rows and features exchanged. */
static int reshape_key(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, const int64_t *to,
                       int count) {
    const int64_t rows = rows_of(reader, from), features = width_of(reader, from) / from->heads;
    if (from->attends == KEY && count == 3 && to[0] == -1 && to[1] == rows && to[2] == features)
        return go(reader, n, from, BATCHED);
    if (from->attends == BATCHED_COLUMN && count == 4 && to[1] == from->heads && to[2] == features && to[3] == rows)
        return go(reader, n, from, COLUMN);
    return refuse(reader, n);
}

/* Reads a Reshape of features to heads, or of heads to features, which ends the layer. It must not change the number of samples,
 * which may be specified in several forms. */
static int reshape(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from) {
    int64_t to[SGRAD__NUMBERS];
    int count;
    if (!sgrad__onnx_numbers(reader, n, 1, to, &count) || !sgrad__onnx_is_batch(to[0])) return refuse(reader, n);
    if (from->attends >= THIRD && from->attends < HEADS && count == 4) return take_heads(reader, n, from, to);
    if (from->attends == KEY || from->attends == BATCHED_COLUMN) return reshape_key(reader, n, from, to, count);
    if (from->attends != ROWS || count != 3 || to[1] != rows_of(reader, from) || to[2] != width_of(reader, from))
        return refuse(reader, n);
    const struct sgrad_attention how = { .heads = from->heads, .causal = from->causal };
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_attention_op, &from->of, 1, &how));
}

int sgrad__onnx_attend(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    if (!a || !a->attends) return refuse(reader, n);
    if (is(n, "Transpose")) return turn(reader, n, a);
    if (is(n, "Gather")) return choose(reader, n, a);
    if (is(n, "MatMul")) return multiply(reader, n, a, b);
    if (is(n, "Mul")) return scale(reader, n, a, b);
    if (is(n, "Add")) return leave_out(reader, n, a, b);
    if (is(n, "Softmax") && a->attends == SCORE && sgrad__onnx_softmax_axis(reader, n, 4) == 3) return go(reader, n, a, SHARE);
    if (is(n, "Reshape")) return reshape(reader, n, a);
    return refuse(reader, n);
}

/* Reads N if it is the first node, a Reshape of rows (N,T,3C); otherwise returns false. */
bool sgrad__onnx_attention_begins(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t to[SGRAD__NUMBERS];
    int count;
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    if (!t || t->value < 0 || sgrad__onnx_rank(reader, t->value) != 3 || !sgrad__onnx_numbers(reader, n, 1, to, &count) ||
        count != 5)
        return false;
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, t->value);
    const bool fits = to[0] == 0 && to[1] == x.dim[1] && to[2] == 3 && to[3] > 0 && to[3] <= x.dim[2] && to[4] > 0 &&
                      to[4] <= x.dim[2] && 3 * to[3] * to[4] == x.dim[2];
    const struct sgrad__thing from = { .of = t->value, .heads = fits ? (int)to[3] : 0 };
    return fits && !go(reader, n, &from, PARTS);
}

/* ---- the mask that leaves out later rows: (T,T) ----------------------------------------------------------------------- */

/* Some tools use the lowest float instead of -inf. */
static bool is_never(float score) { return score <= -FLT_MAX; }

/* Makes output 0 of N a square of SIDE rows, in state PLACE. */
static int make_square(struct sgrad__reader *reader, const Onnx__Node *n, int place, int64_t side) {
    SGRAD_TRY(go(reader, n, &(struct sgrad__thing){ .of = -1 }, place));
    sgrad__onnx_thing(reader, n->output[0])->count = (int)side;
    return 0;
}

/* Returns true if input I is the shape of a square, and sets *SIDE. */
static bool is_square(const struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int64_t *side) {
    int64_t sides[SGRAD__NUMBERS];
    int count;
    if (!sgrad__onnx_numbers(reader, n, i, sides, &count) || count != 2 || sides[0] != sides[1]) return false;
    *side = sides[0];
    return sides[0] >= 1 && sides[0] <= INT32_MAX;
}

int sgrad__onnx_read_constant_of_shape(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *value = sgrad__onnx_attribute(n, "value");
    int64_t side;
    float number = 0;
    int count;
    const bool known = value && value->t && !sgrad__onnx_check_tensor(reader->path, n->output[0], value->t) &&
                       sgrad__onnx_floats(value->t, &number, 1, &count) && count == 1;
    return known && is_square(reader, n, 0, &side) && is_never(number) ? make_square(reader, n, NEVER, side) : refuse(reader, n);
}

int sgrad__onnx_read_expand(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t side;
    float number;
    if (sgrad__onnx_counts(reader, n)) return 0;
    return is_one(sgrad__onnx_input(reader, n, 0), &number) && number == 1 && is_square(reader, n, 1, &side)
               ? make_square(reader, n, ONES, side) : refuse(reader, n);
}

/* Reads Trilu: the elements above the diagonal, or up to it. */
int sgrad__onnx_read_trilu(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    const bool upper = sgrad__onnx_int(n, "upper", 1);
    int64_t from[SGRAD__NUMBERS] = { 0 };
    int count = 1;
    const bool known = !sgrad__onnx_input(reader, n, 1) || sgrad__onnx_numbers(reader, n, 1, from, &count);
    if (!t || !known || count != 1 || t->attends != (upper ? NEVER : ONES) || from[0] != upper) return refuse(reader, n);
    return make_square(reader, n, upper ? LATER : EARLIER, t->count);
}

int sgrad__onnx_read_equal(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    float number;
    return t && t->attends == EARLIER && is_one(sgrad__onnx_input(reader, n, 1), &number) && number == 0
               ? make_square(reader, n, NOT_EARLIER, t->count) : refuse(reader, n);
}

int sgrad__onnx_read_where(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    float there, elsewhere;
    return t && t->attends == NOT_EARLIER && is_one(sgrad__onnx_input(reader, n, 1), &there) && is_never(there) &&
                   is_one(sgrad__onnx_input(reader, n, 2), &elsewhere) && elsewhere == 0
               ? make_square(reader, n, LATER, t->count) : refuse(reader, n);
}

/* (N,heads,T,C/heads) */
bool sgrad__onnx_attention_shape(const struct sgrad__reader *reader, const struct sgrad__thing *thing, int64_t number[4]) {
    if (!thing || thing->attends < QUERY || thing->attends > WORTH) return false;
    number[0] = SGRAD__BATCH, number[1] = thing->heads, number[2] = rows_of(reader, thing),
    number[3] = width_of(reader, thing) / thing->heads;
    return true;
}

/* ---- thirds, and the operator ------------------------------------------------------------------------------------- */

/* Reads the Split of the features of rows in three. */
int sgrad__onnx_read_split(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, false);
    if (x < 0) return reader->graph->error;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const int64_t axis = sgrad__onnx_int(n, "axis", 0), third = shape.dim[2] / 3;
    int64_t size[SGRAD__NUMBERS] = { third, third, third };
    int count = 3;
    const bool sizes = !sgrad__onnx_input(reader, n, 1) || sgrad__onnx_numbers(reader, n, 1, size, &count);
    if (shape.rank != 3 || (axis != 2 && axis != -1) || n->n_output != 3 || !sizes || count != 3 || size[0] != third ||
        size[1] != third || size[2] != third || 3 * third != shape.dim[2])
        return sgrad__onnx_refuse(reader, n, "must split the features of rows into three equal parts, for attention");
    const struct sgrad__thing from = { .of = x };
    for (int i = 0; i < 3; i++)
        if (*n->output[i]) SGRAD_TRY(go_to(reader, n, (size_t)i, &from, THIRD + i));
    return 0;
}

/* Sets *THIRDS to true if query, key and value of the operator are thirds of the features of the same rows. */
static int check_thirds(struct sgrad__reader *reader, const Onnx__Node *n, bool *thirds) {
    const struct sgrad__thing *in[3];
    *thirds = false;
    for (int i = 0; i < 3; i++) *thirds |= (in[i] = sgrad__onnx_input(reader, n, (size_t)i)) && in[i]->attends;
    for (int i = 0; i < 3 && *thirds; i++)
        if (!in[i] || in[i]->attends != QUERY + i || in[i]->of != in[0]->of || in[i]->heads != in[0]->heads)
            return sgrad__onnx_refuse(reader, n,
                                      "query, key and value must be thirds of the features of the same rows");
    return 0;
}

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

int sgrad__onnx_read_attention(struct sgrad__reader *reader, const Onnx__Node *n) {
    static const char *const names[] = { "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen" };
    struct sgrad_attention how = { 0 };
    double features;
    int x[3];
    bool thirds;
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
    how.causal = causal;
    SGRAD_TRY(check_thirds(reader, n, &thirds));
    if (thirds) features = features_of_head(reader, sgrad__onnx_input(reader, n, 0));
    else SGRAD_TRY(sgrad__onnx_take_rows(reader, n, &how, x, &features));
    SGRAD_TRY(check_formula(reader, n, features));
    if (!thirds) return sgrad__onnx_make_rows(reader, n, &how, x);
    SGRAD_TRY(go(reader, n, sgrad__onnx_input(reader, n, 0), MEAN));
    sgrad__onnx_thing(reader, n->output[0])->causal = how.causal;
    return 0;
}
