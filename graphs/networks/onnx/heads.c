/* heads.c: reads rotary positions, and attention whose queries, keys and values are values (N,T,C) of the graph. In files they
 * have three dimensions, as in the graph, or four, as PyTorch exports them:
 *
 *     x (N,T,C) ─ Reshape (N,T,heads,D) ─ (RMSNormalization) ─ Transpose (N,heads,T,D) ─ (rotary) ─┐
 *     y (N,T,C) ─ Reshape (N,T,C) ────────────────────────────── Transpose ────────────── Attention ─┘
 *
 * Rotary positions are the operator RotaryEmbedding, or these nodes, by tables (1,1,T,D) whose halves are equal:
 *
 *     x ─┬─────────────────────────────────────── Mul cosine ─┐
 *        ├ Slice second half ─ Neg ─┬ Concat ─ Mul sine ───── Add ─ y
 *        └ Slice first half ────────┘
 *
 * An intermediate result is not a value of the graph. Its thing records one of the states below, and the value and the heads of
 * the graph. The frequencies of rotary positions are computed from the tables. */
#include "codelets/ops/attention.h"
#include "codelets/ops/rms_norm.h"
#include "codelets/ops/rotary.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOWHERE, PARTED, TURNED, FIRST, SECOND, NEGATED, SWAPPED, BY_COSINE, BY_SINE, POSITIONS };

static int refuse(struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_refuse(reader, n, "is not a supported step of attention or rotary positions");
}

bool sgrad__onnx_splits(const struct sgrad__reader *reader, const Onnx__Node *n) {
    bool any = false;
    for (size_t i = 0; i < n->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        any |= t && t->split;
    }
    return any;
}

/* Gives output 0 of N the state PLACE, with the value and the heads of FROM. */
static int go(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, int place) {
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    if (!to) return sgrad__onnx_refuse(reader, n, "has no output");
    to->split = place;
    to->of = from->of, to->heads = from->heads, to->factor = from->factor;
    to->known = true;
    return 0;
}

/* Makes VALUE the output of N, in the form of FROM. */
static int make_as(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, int heads, int value) {
    if (value < 0 || !from->split) return sgrad__onnx_make(reader, n, value);
    return go(reader, n, &(struct sgrad__thing){ .of = value, .heads = heads }, from->split);
}

/* Returns input I, rows (N,T,C) with or without heads, as a value of the graph; -1: it is not one, and the error is logged. */
static int rows_of(struct sgrad__reader *reader, const Onnx__Node *n, size_t i) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    if (t && t->split == TURNED) return t->of;
    const int x = sgrad__onnx_value(reader, n, i, false);
    if (x < 0 || sgrad__onnx_rank(reader, x) == 3) return x;
    return sgrad__onnx_refuse(reader, n, "input %zu, '%s', must have shape (N,T,C) or (N,heads,T,D)", i, n->input[i]), -1;
}

/* Reads the attribute NAME, the number of heads of input I, the rows X. An input (N,heads,T,D) does not need it. */
static bool take_heads(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, size_t i, int x, int *heads) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    const int64_t width = sgrad_graph_shape(reader->graph, x).dim[2];
    int64_t number;
    if (!sgrad__onnx_take_int(reader, n, name, t->split ? t->heads : 0, &number)) return false;
    *heads = (int)number;
    if (number >= 1 && number <= width && width % number == 0 && (!t->split || number == t->heads)) return true;
    sgrad__onnx_refuse(reader, n, "%s is %lld, but must be the number of heads of input %zu, which has %lld features", name,
                       (long long)number, i, (long long)width);
    return false;
}

/* ---- RMS norm ----------------------------------------------------------------------------------------------------- */

int sgrad__onnx_read_rms_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *from = sgrad__onnx_input(reader, n, 0);
    const bool parted = from && (from->split == PARTED || from->split == TURNED);
    const int x = parted ? from->of : sgrad__onnx_value(reader, n, 0, false);
    const struct sgrad__thing *weight = x < 0 ? NULL : sgrad__onnx_tensor(reader, n, 1, 1);
    if (!weight) return reader->graph->error;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const int rank = parted ? 4 : shape.rank, heads = parted ? from->heads : 1;
    const int64_t features = shape.dim[shape.rank - 1] / heads;
    int64_t axis, stash;
    float eps;
    if (!sgrad__onnx_take_int(reader, n, "axis", -1, &axis) ||
        !sgrad__onnx_take_int(reader, n, "stash_type", ONNX_FLOAT, &stash) ||
        !sgrad__onnx_take_float(reader, n, "epsilon", 1e-5f, &eps))
        return reader->graph->error;
    if (shape.rank > 3 || (axis != -1 && axis != rank - 1))
        return sgrad__onnx_refuse(reader, n, "axis is %lld, but rows must be normalised along their features, axis -1",
                                  (long long)axis);
    if (stash != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "stash_type is %lld, but must be 1 (FLOAT)", (long long)stash);
    if (!(eps >= 0) || isinf(eps)) return sgrad__onnx_refuse(reader, n, "epsilon is %g, but must be 0 or more", (double)eps);
    if (weight->tensor->dims[0] != features)
        return sgrad__onnx_refuse(reader, n, "'%s' has %lld numbers, but rows have %lld features", weight->name,
                                  (long long)weight->tensor->dims[0], (long long)features);
    char *name = sgrad__onnx_name(reader, n, 1);
    sgrad__onnx_bind(reader, name, "weight", weight);
    const struct sgrad_rms_norm is = { .heads = heads, .eps = sgrad__onnx_given(eps) };
    const int y = sgrad__onnx_layer(reader, n, name, &sgrad_rms_norm_op, &x, 1, &is);
    free(name);
    return make_as(reader, n, from, heads, y);
}

/* ---- rotary positions --------------------------------------------------------------------------------------------- */

/* A table has a row of COLUMNS numbers for each of ROWS positions. */
struct tables {
    int64_t rows, columns;
    float *cosine, *sine;
};

/* Copies the tensor of THING, whose dimensions before the last two are 1. Returns NULL if it is not a table. */
static float *table_of(const struct sgrad__thing *thing, int64_t rows, int64_t columns) {
    const Onnx__Tensor *t = thing ? thing->tensor : NULL;
    int count;
    if (!t || thing->turned || thing->spread || t->n_dims < 2 || t->dims[t->n_dims - 1] != columns ||
        t->dims[t->n_dims - 2] < rows || sgrad__onnx_count(t) != t->dims[t->n_dims - 2] * columns)
        return NULL;
    float *number = sgrad_xcalloc((size_t)sgrad__onnx_count(t) + 1, sizeof *number);
    if (sgrad__onnx_floats(t, number, INT32_MAX, &count)) return number;
    free(number);
    return NULL;
}

/* Returns the maximum distance of column I from the cosines and sines of FREQUENCY; INFINITY if it exceeds the rounding of angles
 * to F32, in which the tables of other programs may differ. */
static double distance(const struct tables *is, int64_t i, float frequency) {
    double most = 0;
    for (int64_t t = 0; t < is->rows; t++) {
        const double angle = (double)((float)t * frequency), limit = 1e-6 + 0x1p-22 * fabs(angle);
        const double cosine = fabs((float)cos(angle) - is->cosine[t * is->columns + i]);
        const double sine = fabs((float)sin(angle) - is->sine[t * is->columns + i]);
        if (!(cosine <= limit) || !(sine <= limit)) return INFINITY;
        most = fmax(most, fmax(cosine, sine));
    }
    return most;
}

/* Finds the frequency of column I: that of row 1, refined by rows that are further and further away, then the nearest of
 * neighbouring numbers. */
static bool find_frequency(const struct tables *is, int64_t i, float *frequency) {
    double f = 0, least = INFINITY;
    for (int64_t t = 1; t < is->rows; t *= 2) {
        const double angle = atan2(is->sine[t * is->columns + i], is->cosine[t * is->columns + i]);
        f = (angle + 2 * M_PI * round(((double)t * f - angle) / (2 * M_PI))) / (double)t;
    }
    for (int k = 0; k < 7; k++) {
        float near = (float)f;
        for (int steps = 0; steps < (k + 1) / 2; steps++) near = nextafterf(near, k % 2 ? INFINITY : -INFINITY);
        const double d = distance(is, i, near);
        if (d < least) least = d, *frequency = near;
    }
    return least < INFINITY;
}

/* Rotates X by the tables COSINE and SINE, which have the columns of the frequencies COPIES times, from N on. */
static int rotate(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, int x, int heads,
                  const struct sgrad__thing *cosine, const struct sgrad__thing *sine, int copies) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const int64_t pairs = shape.dim[2] / heads / 2;
    struct sgrad_rotary is = { .heads = heads, .listed = true };
    if (pairs * 2 * heads != shape.dim[2] || pairs > SGRAD_MAX_FREQUENCIES)
        return sgrad__onnx_refuse(reader, n, "%d heads of %lld features: a head must have an even number, at most %d", heads,
                                  (long long)shape.dim[2], 2 * SGRAD_MAX_FREQUENCIES);
    struct tables tables = { .rows = shape.dim[1], .columns = copies * pairs };
    tables.cosine = table_of(cosine, tables.rows, tables.columns), tables.sine = table_of(sine, tables.rows, tables.columns);
    bool known = tables.cosine && tables.sine;
    for (int64_t i = 0; i < tables.columns && known; i++) {
        float frequency = 0;
        known = find_frequency(&tables, i, &frequency) && (i < pairs || frequency == is.frequency[i - pairs]);
        if (i < pairs) is.frequency[i] = frequency;
    }
    free(tables.cosine), free(tables.sine);
    if (!known)
        return sgrad__onnx_refuse(reader, n,
                                  "its tables must be constants, cosines and sines of t·f without a factor, in float32, for the "
                                  "positions t from 0 to %lld of the samples and %lld frequencies f",
                                  (long long)shape.dim[1] - 1, (long long)pairs);
    return make_as(reader, n, from, heads, sgrad__onnx_plain(reader, n, &sgrad_rotary_op, &x, 1, &is));
}

/* Returns true if THING is the row of integers 0, 1, … ROWS - 1: (1,ROWS). */
static bool counts(const struct sgrad__thing *thing, int64_t rows) {
    const Onnx__Tensor *t = thing ? thing->tensor : NULL;
    if (!t || thing->turned || t->n_dims != 2 || t->dims[0] != 1 || t->dims[1] != rows || t->data_type != ONNX_INT64)
        return false;
    Onnx__Tensor *floats = sgrad__onnx_as_floats(t);
    bool same = true;
    for (int64_t i = 0; i < rows; i++) same &= ((const float *)floats->raw_data.data)[i] == (float)i;
    onnx__tensor__free_unpacked(floats, NULL);
    return same;
}

/* Reads the Expand of a row of positions to a batch, (N,T); otherwise returns false. */
bool sgrad__onnx_counts(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *row = sgrad__onnx_input(reader, n, 0);
    int64_t to[SGRAD__NUMBERS];
    int count;
    if (!sgrad__onnx_numbers(reader, n, 1, to, &count) || count != 2 || to[0] != SGRAD__BATCH || !counts(row, to[1]))
        return false;
    return !go(reader, n, row, POSITIONS);
}

int sgrad__onnx_read_rotary(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *at = sgrad__onnx_input(reader, n, 3);
    const int x = rows_of(reader, n, 0);
    int heads;
    int64_t interleaved, features;
    if (x < 0 || !take_heads(reader, n, "num_heads", 0, x, &heads) ||
        !sgrad__onnx_take_int(reader, n, "interleaved", 0, &interleaved) ||
        !sgrad__onnx_take_int(reader, n, "rotary_embedding_dim", 0, &features))
        return reader->graph->error;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    for (size_t i = 1; i < 3; i++)
        if (!sgrad__onnx_tensor(reader, n, i, at ? 2 : 3)) return reader->graph->error;
    if (interleaved)
        return sgrad__onnx_refuse(reader, n,
                                  "interleaved is %lld, but must be 0: order the features of a head so that pairs are half a "
                                  "head apart",
                                  (long long)interleaved);
    if (features && features != shape.dim[2] / heads)
        return sgrad__onnx_refuse(reader, n, "rotary_embedding_dim is %lld, but must be 0 or %lld, all features of a head",
                                  (long long)features, (long long)shape.dim[2] / heads);
    if (at && at->split != POSITIONS && !counts(at, shape.dim[1]))
        return sgrad__onnx_refuse(reader, n, "'%s', the positions, must be the constants 0 to %lld for each sample", at->name,
                                  (long long)shape.dim[1] - 1);
    return rotate(reader, n, sgrad__onnx_input(reader, n, 0), x, heads, sgrad__onnx_input(reader, n, 1),
                  sgrad__onnx_input(reader, n, 2), 1);
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

int sgrad__onnx_take_rows(struct sgrad__reader *reader, const Onnx__Node *n, struct sgrad_attention *how, int x[3],
                          double *features) {
    const char *const names[] = { "q_num_heads", "kv_num_heads", "kv_num_heads" };
    int heads[3];
    for (int i = 0; i < 3; i++)
        if ((x[i] = rows_of(reader, n, (size_t)i)) < 0 || !take_heads(reader, n, names[i], (size_t)i, x[i], &heads[i]))
            return reader->graph->error;
    const struct sgrad_shape q = sgrad_graph_shape(reader->graph, x[0]), k = sgrad_graph_shape(reader->graph, x[1]),
                             v = sgrad_graph_shape(reader->graph, x[2]);
    if (!sgrad_shape_equal(&k, &v) || heads[1] != heads[2] || heads[0] % heads[1] || q.dim[1] != k.dim[1] ||
        q.dim[2] / heads[0] != k.dim[2] / heads[1])
        return sgrad__onnx_refuse(reader, n,
                                  "q_num_heads is %d and kv_num_heads %d, but heads of queries, keys and values must have as "
                                  "many rows and features, and the heads of queries must be a multiple of those of keys",
                                  heads[0], heads[1]);
    how->heads = heads[0], how->kv_heads = heads[1];
    *features = (double)q.dim[2] / heads[0];
    return 0;
}

int sgrad__onnx_make_rows(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad_attention *how, const int x[3]) {
    const int y = sgrad__onnx_plain(reader, n, &sgrad_attention_op, x, 3, how);
    return make_as(reader, n, sgrad__onnx_input(reader, n, 0), how->heads, y);
}

/* ---- between them ------------------------------------------------------------------------------------------------- */

/* Reads N if it is a Reshape of rows (N,T,C) to heads (N,T,heads,D); otherwise returns false. */
bool sgrad__onnx_splitting_begins(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    int64_t to[SGRAD__NUMBERS];
    int count;
    if (!sgrad__onnx_is_value(t) || sgrad__onnx_rank(reader, t->value) != 3 || !sgrad__onnx_numbers(reader, n, 1, to, &count) ||
        count != 4 || !sgrad__onnx_is_batch(to[0]))
        return false;
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, t->value);
    const bool literal = sgrad__onnx_int(n, "allowzero", 0), rest = to[3] == -1 && to[0] != -1;
    if ((literal && (!to[0] || !to[1])) || (to[1] && to[1] != x.dim[1]) || to[2] < 1 || to[2] > x.dim[2] || x.dim[2] % to[2] ||
        (!rest && to[3] != x.dim[2] / to[2]))
        return false;
    return !go(reader, n, &(struct sgrad__thing){ .of = t->value, .heads = (int)to[2] }, PARTED);
}

/* Reads the Reshape of heads to rows (N,T,C). */
static int join(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from) {
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, from->of);
    const bool literal = sgrad__onnx_int(n, "allowzero", 0);
    int64_t to[SGRAD__NUMBERS];
    int count;
    if (from->split != PARTED || !sgrad__onnx_numbers(reader, n, 1, to, &count) || count != 3 || !sgrad__onnx_is_batch(to[0]) ||
        (literal && (!to[0] || !to[1])) || (to[1] && to[1] != x.dim[1]) || (to[2] != x.dim[2] && (to[2] != -1 || to[0] == -1)))
        return refuse(reader, n);
    return sgrad__onnx_make(reader, n, from->of);
}

static int turn(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "perm");
    const int64_t order[] = { 0, 2, 1, 3 };
    if (!a || a->n_ints != 4 || memcmp(a->ints, order, sizeof order) || from->split > TURNED) return refuse(reader, n);
    return go(reader, n, from, from->split == PARTED ? TURNED : PARTED);
}

/* Reads the Slice of the first or the second half of the features of heads. */
static int halve(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from) {
    const int64_t size = sgrad_graph_shape(reader->graph, from->of).dim[2] / from->heads;
    int64_t is[5][SGRAD__NUMBERS] = { { 0 }, { 0 }, { 0 }, { 0 }, { 1 } };
    bool known = from->split == TURNED;
    for (size_t i = 1; i < 5 && known; i++) {
        int count = 1;
        known = (i == 4 && !sgrad__onnx_input(reader, n, i)) || sgrad__onnx_numbers(reader, n, i, is[i], &count);
        known &= count == 1;
    }
    if (!known || (is[3][0] != 3 && is[3][0] != -1) || is[4][0] != 1) return refuse(reader, n);
    if (is[1][0] == 0 && is[2][0] == size / 2) return go(reader, n, from, FIRST);
    return is[1][0] == size / 2 && is[2][0] >= size ? go(reader, n, from, SECOND) : refuse(reader, n);
}

static bool are_of_one(const struct sgrad__thing *a, const struct sgrad__thing *b) {
    return a && b && a->of == b->of && a->heads == b->heads;
}

static int scale(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from,
                 const struct sgrad__thing *table) {
    if (!table || !table->tensor || (from->split != TURNED && from->split != SWAPPED)) return refuse(reader, n);
    const struct sgrad__thing is = { .of = from->of, .heads = from->heads, .factor = table };
    return go(reader, n, &is, from->split == TURNED ? BY_COSINE : BY_SINE);
}

int sgrad__onnx_split(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    const bool commutes = !strcmp(n->op_type, "Mul") || !strcmp(n->op_type, "Add");
    if (commutes && (!a || !a->split || a->split == BY_SINE)) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
    }
    if (!a || !a->split || a->split == POSITIONS) return refuse(reader, n);
    if (!strcmp(n->op_type, "Reshape")) return join(reader, n, a);
    if (!strcmp(n->op_type, "Transpose")) return turn(reader, n, a);
    if (!strcmp(n->op_type, "Slice")) return halve(reader, n, a);
    if (!strcmp(n->op_type, "Neg") && a->split == SECOND) return go(reader, n, a, NEGATED);
    if (!strcmp(n->op_type, "Concat") && a->split == NEGATED && are_of_one(a, b) && b->split == FIRST && n->n_input == 2 &&
        sgrad__onnx_axis(sgrad__onnx_int(n, "axis", 0), 4) == 3)
        return go(reader, n, a, SWAPPED);
    if (!strcmp(n->op_type, "Mul")) return scale(reader, n, a, b);
    if (strcmp(n->op_type, "Add") || a->split != BY_COSINE || !are_of_one(a, b) || b->split != BY_SINE) return refuse(reader, n);
    return rotate(reader, n, &(struct sgrad__thing){ .split = TURNED }, a->of, a->heads, a->factor, b->factor, 2);
}

int sgrad__onnx_read_neg(struct sgrad__reader *reader, const Onnx__Node *n) { return sgrad__onnx_split(reader, n); }
