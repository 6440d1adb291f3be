/* views.c: the dimensions of a value in a file. Reshape, Transpose, Squeeze, Unsqueeze, Flatten, Split, and many Slices and
 * Gathers move no number. They only change the view of a value, which its thing records: each dimension of the file is a list of
 * factors, and each factor is a number of steps along one axis of the value in the graph. For example, rows x (N,T,3C) become
 * queries of heads with D features by a Reshape to (N,T,3,heads,D), a Transpose to (3,N,heads,T,D) and a Gather of index 0:
 *
 *     [N] [T] [3C]   ->   [N] [T] [3·C] [heads·D] [D·1]   ->   [3·C] [N] [heads·D] [T] [D·1]   ->   [N] [heads·D] [T] [D·1]
 *
 * Here size·stride is a factor of the features. A layer then compares the view with the one that it requires, so it does not
 * matter by which nodes the view was made. */
#include "graphs/networks/onnx/reader.h"

#include <stdio.h>
#include <string.h>

/* ---- factors ------------------------------------------------------------------------------------------------------ */

/* Removes factors of size 1, also that of the samples in a file for one sample, and joins neighbours that are one factor. */
static void simplify(struct sgrad__view *view) {
    int count = 0;
    for (int i = 0; i < view->count; i++) {
        const struct sgrad__factor is = view->factor[i];
        struct sgrad__factor *last = count ? &view->factor[count - 1] : NULL;
        if (is.size == 1) continue;
        if (last && is.axis && last->axis == is.axis && last->dimension == is.dimension && last->stride == is.size * is.stride) {
            last->size *= is.size;
            last->stride = is.stride;
        } else
            view->factor[count++] = is;
    }
    view->count = count;
}

struct sgrad__view sgrad__view_of(const struct sgrad__reader *reader, int value) {
    struct sgrad__view view = { .value = value, .scale = 1 };
    if (value < 0) return view;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, value);
    view.rank = shape.rank;
    for (int i = 0; i < shape.rank; i++) {
        const int axis = sgrad__onnx_dimension(shape.rank, i);
        view.factor[view.count++] = (struct sgrad__factor){ i, axis, axis ? shape.dim[axis] : reader->samples, 1 };
    }
    simplify(&view);
    return view;
}

int64_t sgrad__view_size(const struct sgrad__view *view, int dimension) {
    int64_t size = 1;
    for (int i = 0; i < view->count; i++)
        if (view->factor[i].dimension == dimension) size *= view->factor[i].size;
    return size;
}

bool sgrad__view_equal(const struct sgrad__view *a, const struct sgrad__view *b) {
    if (a->rank != b->rank || a->count != b->count || a->scale != b->scale || memcmp(a->first, b->first, sizeof a->first))
        return false;
    for (int i = 0; i < a->count; i++) {
        const struct sgrad__factor *f = &a->factor[i], *g = &b->factor[i];
        if (f->dimension != g->dimension || f->axis != g->axis || f->size != g->size || f->stride != g->stride) return false;
    }
    return true;
}

bool sgrad__view_alike(const struct sgrad__reader *reader, const struct sgrad__view *a, const struct sgrad__view *b) {
    const struct sgrad_shape one = sgrad_graph_shape(reader->graph, a->value), other = sgrad_graph_shape(reader->graph, b->value);
    return sgrad_shape_equal(&one, &other) && sgrad__view_equal(a, b);
}

bool sgrad__view_is_plain(const struct sgrad__reader *reader, const struct sgrad__view *view) {
    const struct sgrad__view plain = sgrad__view_of(reader, view->value);
    return sgrad__view_equal(view, &plain);
}

bool sgrad__view_is_pixel(const struct sgrad__reader *reader, const struct sgrad__view *view) {
    struct sgrad__view plain = sgrad__view_of(reader, view->value);
    if (plain.rank != 2 || view->rank < 4) return false;
    plain.rank = view->rank;
    return sgrad__view_equal(view, &plain);
}

bool sgrad__view_is_whole(const struct sgrad__reader *reader, const struct sgrad__view *view) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, view->value);
    for (int axis = 1; axis < shape.rank; axis++) {
        int64_t size = 1;
        for (int i = 0; i < view->count; i++)
            if (view->factor[i].axis == axis) size *= view->factor[i].size;
        if (size != shape.dim[axis] || view->first[axis]) return false;
    }
    return view->scale == 1;
}

int sgrad__view_channels(const struct sgrad__reader *reader, const struct sgrad__view *view) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, view->value);
    const int axis = shape.rank - 1;
    const struct sgrad__factor *found = NULL;
    if (sgrad__view_is_plain(reader, view)) return sgrad__onnx_channels(view->rank);
    for (int i = 0; i < view->count; i++)
        if (view->factor[i].axis == axis) {
            if (found) return -1;
            found = &view->factor[i];
        }
    if (!found || found->size != shape.dim[axis] || found->stride != 1) return -1;
    for (int i = 0; i < view->count; i++)
        if (&view->factor[i] != found && view->factor[i].dimension == found->dimension) return -1;
    return found->dimension;
}

/* ---- operators on views ------------------------------------------------------------------------------------------- */

bool sgrad__view_reshape(struct sgrad__view *view, const int64_t *to, int count) {
    struct sgrad__view is = { .value = view->value, .rank = count, .scale = view->scale }, from = *view;
    int next = 0;
    if (count > SGRAD__DIMENSIONS) return false;
    memcpy(is.first, view->first, sizeof is.first);
    for (int d = 0; d < count; d++) {
        int64_t rest = to[d];
        while (next < from.count && rest != 1) {
            struct sgrad__factor *f = &from.factor[next];
            if (is.count == SGRAD__FACTORS || rest < 1 || (rest % f->size && f->size % rest)) return false;
            const int64_t size = rest % f->size ? rest : f->size, inner = f->size / size;
            is.factor[is.count++] = (struct sgrad__factor){ d, f->axis, size, f->stride * inner };
            rest /= size;
            f->size = inner;
            if (inner == 1) next++;
        }
        if (rest != 1) return false;
    }
    if (next < from.count) return false;
    simplify(&is);
    *view = is;
    return true;
}

bool sgrad__view_transpose(struct sgrad__view *view, const int64_t *order, int count) {
    struct sgrad__view is = { .value = view->value, .rank = view->rank, .scale = view->scale };
    if (count != view->rank) return false;
    memcpy(is.first, view->first, sizeof is.first);
    for (int d = 0; d < count; d++) {
        for (int e = 0; e < d; e++)
            if (order[e] == order[d]) return false;
        if (order[d] < 0 || order[d] >= count) return false;
        for (int i = 0; i < view->count; i++)
            if (view->factor[i].dimension == order[d]) {
                is.factor[is.count] = view->factor[i];
                is.factor[is.count++].dimension = d;
            }
    }
    *view = is;
    return true;
}

bool sgrad__view_select(struct sgrad__view *view, int dimension, int64_t from, int64_t size) {
    struct sgrad__factor *outer = NULL;
    int64_t inner = 1;
    for (int i = 0; i < view->count; i++)
        if (view->factor[i].dimension == dimension) {
            if (outer)
                inner *= view->factor[i].size;
            else
                outer = &view->factor[i];
        }
    if (from == 0 && size == sgrad__view_size(view, dimension)) return true;
    if (!outer || !outer->axis || from < 0 || size < 1 || from % inner || size % inner ||
        from / inner + size / inner > outer->size)
        return false;
    view->first[outer->axis] += from / inner * outer->stride;
    outer->size = size / inner;
    simplify(view);
    return true;
}

bool sgrad__view_squeeze(struct sgrad__view *view, int dimension) {
    if (dimension < 0 || dimension >= view->rank) return false;
    for (int i = 0; i < view->count; i++)
        if (view->factor[i].dimension == dimension) return false;
    for (int i = 0; i < view->count; i++)
        if (view->factor[i].dimension > dimension) view->factor[i].dimension--;
    view->rank--;
    return true;
}

bool sgrad__view_unsqueeze(struct sgrad__view *view, int dimension) {
    if (view->rank == SGRAD__DIMENSIONS || dimension < 0 || dimension > view->rank) return false;
    for (int i = 0; i < view->count; i++)
        if (view->factor[i].dimension >= dimension) view->factor[i].dimension++;
    view->rank++;
    return true;
}

/* ---- things ------------------------------------------------------------------------------------------------------- */

void sgrad__view_text(const struct sgrad__view *view, const struct sgrad__reader *reader, char *text, size_t size) {
    size_t at = (size_t)snprintf(text, size, "(");
    for (int d = 0; d < view->rank && at < size; d++) {
        const int64_t is = sgrad__view_size(view, d), of_samples = is / reader->samples;
        const char *comma = d ? "," : "";
        if (is % reader->samples || reader->samples == 1)
            at += (size_t)snprintf(text + at, size - at, "%s%lld", comma, (long long)is);
        else if (of_samples == 1)
            at += (size_t)snprintf(text + at, size - at, "%sN", comma);
        else
            at += (size_t)snprintf(text + at, size - at, "%sN·%lld", comma, (long long)of_samples);
    }
    if (at < size) snprintf(text + at, size - at, ")");
}
