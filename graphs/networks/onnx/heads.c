/* heads.c: reads RMS norms and rotary positions, of rows (N,T,C) or of their heads (N,heads,T,D). Rotary positions are the
 * operator RotaryEmbedding, or these nodes, by tables (1,1,T,D) whose halves are equal:
 *
 *     x ─┬─────────────────────────────────────── Mul cosine ─┐
 *        ├ Slice second half ─ Neg ─┬ Concat ─ Mul sine ───── Add ─ y
 *        └ Slice first half ────────┘
 *
 * An intermediate result is not a value of the graph. Its thing records one of the steps ROTARY_…, and a view of x. The
 * frequencies of rotary positions are computed from the tables. */
#include "codelets/ops/rms_norm.h"
#include "codelets/ops/rotary.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns input I, rows (N,T,C) or (N,heads,T,D), as a value of the graph; -1: it is not one, and the error is logged. *HEADS: 0
 * for (N,T,C). */
static int rows_of(struct sgrad__reader *reader, const Onnx__Node *n, size_t i, int *heads) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
    struct sgrad__heads is;
    *heads = 0;
    if (sgrad__onnx_is_view(t) && t->view.rank == 4 && sgrad__view_is_whole(reader, &t->view) &&
        sgrad__onnx_heads(reader, &t->view, false, &is))
        return *heads = is.heads, is.value;
    const int x = sgrad__onnx_value(reader, n, i, false);
    if (x < 0 || sgrad__onnx_rank(reader, x) == 3) return x;
    return sgrad__onnx_refuse(reader, n, "input %zu, '%s', must have shape (N,T,C) or (N,heads,T,D)", i, n->input[i]), -1;
}

/* Reads the attribute NAME, the number of heads of input I, the rows X. An input with HEADS, (N,heads,T,D), does not need it. */
static bool take_heads(struct sgrad__reader *reader, const Onnx__Node *n, const char *name, size_t i, int x, int *heads) {
    const int64_t width = sgrad_graph_shape(reader->graph, x).dim[2], has = *heads;
    int64_t number;
    if (!sgrad__onnx_take_int(reader, n, name, has, &number)) return false;
    *heads = (int)number;
    if (number >= 1 && number <= width && width % number == 0 && (!has || number == has)) return true;
    sgrad__onnx_refuse(reader, n, "%s is %lld, but must be the number of heads of input %zu, which has %lld features", name,
                       (long long)number, i, (long long)width);
    return false;
}

/* ---- RMS norm ----------------------------------------------------------------------------------------------------- */

/* Returns the number of heads that VIEW has if its last dimension is the features of a head; 1: of all of a row; 0: neither. */
static int heads_in(const struct sgrad__reader *reader, const struct sgrad__view *view) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, view->value);
    const struct sgrad__factor *last = view->count ? &view->factor[view->count - 1] : NULL;
    if (!last || shape.rank > 3 || last->axis != shape.rank - 1 || last->dimension != view->rank - 1 || last->stride != 1 ||
        sgrad__view_size(view, view->rank - 1) != last->size)
        return 0;
    return (int)(shape.dim[shape.rank - 1] / last->size);
}

int sgrad__onnx_read_rms_norm(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *from = sgrad__onnx_whole(reader, n, 0);
    const struct sgrad__thing *weight = from ? sgrad__onnx_tensor(reader, n, 1, 1) : NULL;
    if (!weight) return reader->graph->error;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, from->view.value);
    const int rank = from->view.rank, heads = heads_in(reader, &from->view), x = from->view.value;
    const int64_t features = shape.dim[shape.rank - 1] / (heads ? heads : 1);
    int64_t axis, stash;
    float eps;
    if (!sgrad__onnx_take_int(reader, n, "axis", -1, &axis) ||
        !sgrad__onnx_take_int(reader, n, "stash_type", ONNX_FLOAT, &stash) ||
        !sgrad__onnx_take_float(reader, n, "epsilon", 1e-5f, &eps))
        return reader->graph->error;
    if (!heads || (axis != -1 && axis != rank - 1))
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
    return sgrad__onnx_make_like(reader, n, y, &from->view);
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
    if (!t || thing->turned || t->n_dims < 2 || t->dims[t->n_dims - 1] != columns || t->dims[t->n_dims - 2] < rows ||
        sgrad__onnx_count(t) != t->dims[t->n_dims - 2] * columns)
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

/* Rotates X, seen as VIEW, by the tables COSINE and SINE, which have the columns of the frequencies COPIES times. */
static int rotate(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *view, int x, int heads,
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
    return sgrad__onnx_make_like(reader, n, sgrad__onnx_plain(reader, n, &sgrad_rotary_op, &x, 1, &is), view);
}

/* Returns true if THING is the row of integers 0, 1, … ROWS - 1: (1,ROWS). */
static bool counts(const struct sgrad__thing *thing, int64_t rows) {
    const Onnx__Tensor *t = thing ? thing->tensor : NULL;
    return t && !thing->turned && t->n_dims == 2 && t->dims[0] == 1 && t->dims[1] == rows && t->data_type == ONNX_INT64 &&
           sgrad__onnx_counts(t, rows);
}

int sgrad__onnx_read_rotary(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *at = sgrad__onnx_input(reader, n, 3);
    int heads;
    const int x = rows_of(reader, n, 0, &heads);
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
    if (at && !counts(at, shape.dim[1]))
        return sgrad__onnx_refuse(reader, n, "'%s', the positions, must be the constants 0 to %lld for each sample", at->name,
                                  (long long)shape.dim[1] - 1);
    return rotate(reader, n, &sgrad__onnx_input(reader, n, 0)->view, x, heads, sgrad__onnx_input(reader, n, 1),
                  sgrad__onnx_input(reader, n, 2), 1);
}

/* ---- rotary positions as several nodes ---------------------------------------------------------------------------- */

/* Reads the Concat of the negated second halves of heads and of their first halves. */
static bool swap(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *a, const struct sgrad__thing *b) {
    if (n->n_input != 2 || !a || a->step != ROTARY_NEGATED || !sgrad__onnx_is_view(b) || a->view.value != b->view.value ||
        a->view.rank != 4 || sgrad__onnx_rank(reader, a->view.value) != 3 ||
        sgrad__onnx_axis(sgrad__onnx_int(n, "axis", 0), 4) != 3)
        return false;
    const int64_t half = sgrad__view_size(&a->view, 3);
    struct sgrad__view heads = sgrad__view_of(reader, a->view.value), first, second;
    if (!sgrad__onnx_split_heads(&heads, sgrad__view_size(&a->view, 1)) || sgrad__view_size(&heads, 3) != 2 * half) return false;
    first = second = heads;
    if (!sgrad__view_select(&first, 3, 0, half) || !sgrad__view_select(&second, 3, half, half) ||
        !sgrad__view_equal(&second, &a->view) || !sgrad__view_equal(&first, &b->view))
        return false;
    return sgrad__onnx_step(reader, n, ROTARY_SWAPPED, &heads);
}

/* Reads the product of heads, or of those with halves exchanged, and a table. */
static bool scale(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from,
                  const struct sgrad__thing *table) {
    const Onnx__Tensor *t = table ? table->tensor : NULL;
    const bool swapped = from && from->step == ROTARY_SWAPPED;
    struct sgrad__heads heads;
    if (!t || t->n_dims < 2 || (!swapped && !sgrad__onnx_is_view(from)) ||
        !sgrad__onnx_heads(reader, &from->view, false, &heads) || !sgrad__view_is_whole(reader, &from->view) ||
        t->dims[t->n_dims - 1] != heads.size || sgrad__onnx_count(t) <= heads.size)
        return false;
    struct sgrad__thing *to = sgrad__onnx_step(reader, n, swapped ? ROTARY_SINE : ROTARY_COSINE, &from->view);
    if (to) to->factor = table;
    return true;
}

bool sgrad__onnx_takes_rotary(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *a = sgrad__onnx_input(reader, n, 0), *b = sgrad__onnx_input(reader, n, 1);
    struct sgrad__heads heads;
    *status = 0;
    if (a && (a->tensor || a->step == ROTARY_SINE)) {
        const struct sgrad__thing *first = b;
        b = a, a = first;
    }
    if (!strcmp(n->op_type, "Neg") && sgrad__onnx_is_view(a)) return sgrad__onnx_step(reader, n, ROTARY_NEGATED, &a->view);
    if (!strcmp(n->op_type, "Concat")) return swap(reader, n, a, b);
    if (!strcmp(n->op_type, "Mul")) return scale(reader, n, a, b);
    if (strcmp(n->op_type, "Add") || !a || !b || a->step != ROTARY_COSINE || b->step != ROTARY_SINE ||
        a->view.value != b->view.value || !sgrad__view_equal(&a->view, &b->view) ||
        !sgrad__onnx_heads(reader, &a->view, false, &heads))
        return false;
    *status = rotate(reader, n, &a->view, heads.value, heads.heads, a->factor, b->factor, 2);
    return true;
}

int sgrad__onnx_read_neg(struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_refuse(reader, n, "is supported only as a step of rotary positions");
}
