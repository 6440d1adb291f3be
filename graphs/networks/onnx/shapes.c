/* shapes.c: reads ONNX's operators that compute nothing: those that change the view of a value (views.c), borders of images, the
 * shortcut of small residual networks. It also reads constants, and the shapes of values. */
#include "codelets/ops/crop.h"
#include "codelets/ops/flatten.h"
#include "codelets/ops/pad.h"
#include "codelets/ops/rows.h"
#include "codelets/ops/shortcut_a.h"
#include "graphs/networks/onnx/reader.h"

#include <stdio.h>
#include <string.h>

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Returns true if the readers of Reshape, Transpose and the like may change the view of THING. Scores of attention have none. */
static bool is_movable(const struct sgrad__thing *thing) {
    return thing && thing->view.value >= 0 && !thing->stage && !thing->strides[0] && !thing->strides[1] &&
           thing->step < ATTENTION_SCORES;
}

/* Returns the thing of input 0, if its view may change; NULL: it may not, and the error is logged. */
static struct sgrad__thing *movable(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    if (is_movable(t)) return t;
    if (!sgrad__onnx_whole(reader, n, 0)) return NULL;
    return t;
}

/* If VIEW, of FROM, has the pixels of images in rows (N,H·W,C) or (H·W,N,C), or all numbers of a sample in one row (N,C·H·W),
 * makes this layout the output of N, and sets *STATUS. Otherwise, returns false. */
static bool lay_out(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from,
                    const struct sgrad__view *view, int *status) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, view->value);
    struct sgrad__view rows = sgrad__view_of(reader, view->value), row = rows, turned;
    const int64_t all = sgrad_shape_count(&shape), channels = shape.dim[shape.rank - 1], plane = all / channels;
    if (from->step || shape.rank < 3) return false;
    sgrad__view_reshape(&rows, (int64_t[]){ reader->samples, channels, plane }, 3);
    sgrad__view_transpose(&rows, (int64_t[]){ 0, 2, 1 }, 3);
    turned = rows;
    sgrad__view_transpose(&turned, (int64_t[]){ 1, 0, 2 }, 3);
    sgrad__view_reshape(&row, (int64_t[]){ reader->samples, all }, 2);
    const bool as_row = sgrad__view_equal(view, &row) && shape.rank < 5, is_turned = sgrad__view_equal(view, &turned);
    if (!as_row && (shape.rank == 3 || (!is_turned && !sgrad__view_equal(view, &rows)))) return false;
    const int y = as_row ? sgrad__onnx_plain(reader, n, &sgrad_flatten_op, &view->value, 1, &(struct sgrad_flatten){ 0 })
                         : sgrad__onnx_plain(reader, n, &sgrad_rows_op, &view->value, 1, &(struct sgrad_rows){ 0 });
    turned = sgrad__view_of(reader, y);
    if (is_turned) sgrad__view_transpose(&turned, (int64_t[]){ 1, 0, 2 }, 3);
    *status = sgrad__onnx_set(reader, n, 0, &turned);
    return true;
}

static void sizes_of(const struct sgrad__view *view, int64_t *dim) {
    for (int i = 0; i < view->rank; i++) dim[i] = sgrad__view_size(view, i);
}

/* If VIEW has a part of the pixels of images, or of the rows, adds a layer for this part, and sets VIEW to its value. */
static int cut(struct sgrad__reader *reader, const Onnx__Node *n, struct sgrad__view *view) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, view->value);
    struct sgrad__view part = sgrad__view_of(reader, view->value);
    struct sgrad_crop is = { { 0 }, { 0 } };
    int64_t sizes[SGRAD__DIMENSIONS];
    bool less = false;
    for (int axis = 1; axis < shape.rank - 1; axis++) {
        const int dimension = shape.rank == 3 ? 1 : axis + 1, at = axis + 4 - shape.rank;     /* of D, H, W */
        int64_t size = 1;
        for (int i = 0; i < view->count; i++)
            if (view->factor[i].axis == axis) size *= view->factor[i].size;
        less |= size < shape.dim[axis];
        if (!sgrad__view_select(&part, dimension, view->first[axis], size)) return 0;
        is.size[at] = (int)size, is.from[at] = (int)view->first[axis];
    }
    sizes_of(view, sizes);
    if (!less || !sgrad__view_reshape(&part, sizes, view->rank) || !sgrad__view_equal(&part, view)) return 0;
    const int y = sgrad__onnx_plain(reader, n, &sgrad_crop_op, &view->value, 1, &is);
    if (y < 0) return reader->graph->error;
    *view = sgrad__view_of(reader, y);
    sgrad__view_reshape(view, sizes, part.rank);
    return 0;
}

/* Makes output 0 of N the thing of input 0, seen as VIEW. */
static int make_view(struct sgrad__reader *reader, const Onnx__Node *n, struct sgrad__view *view) {
    int status;
    if (!sgrad__onnx_input(reader, n, 0)->step) SGRAD_TRY(cut(reader, n, view));
    if (lay_out(reader, n, sgrad__onnx_input(reader, n, 0), view, &status)) return status;
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    sgrad__onnx_thing(reader, n->output[0])->view = *view;
    return 0;
}

bool sgrad__onnx_resolve(const int64_t *dim, int rank, int64_t *to, int count, bool literal) {
    int64_t all = 1, others = 1;
    int rest = -1;
    for (int i = 0; i < rank; i++) all *= dim[i];
    for (int i = 0; i < count; i++) {
        if (to[i] == 0 && !literal) to[i] = i < rank ? dim[i] : 0;
        if (to[i] == -1 && rest < 0)
            rest = i;
        else if (to[i] < 0 || (to[i] && others > INT64_MAX / to[i]))
            return false;
        else
            others *= to[i];
    }
    if (rest < 0) return others == all;
    if (others < 1 || all % others) return false;
    to[rest] = all / others;
    return true;
}

/* Writes COUNT dimensions, "(0,-1,64)". */
static const char *list_text(const int64_t *to, int count, char *text, size_t size) {
    size_t at = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < count && at < size; i++)
        at += to[i] == SGRAD__SAMPLES ? (size_t)snprintf(text + at, size - at, "%sN", i ? "," : "")
                                      : (size_t)snprintf(text + at, size - at, "%s%lld", i ? "," : "", (long long)to[i]);
    if (at < size) snprintf(text + at, size - at, ")");
    return text;
}

static int refuse_shape(struct sgrad__reader *reader, const Onnx__Node *n, const int64_t *to, int count) {
    char shape[128];
    return sgrad__onnx_refuse(reader, n, "its input cannot be reshaped to %s", list_text(to, count, shape, sizeof shape));
}

int sgrad__onnx_read_reshape(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t dim[SGRAD__DIMENSIONS], to[SGRAD__NUMBERS], wanted[SGRAD__NUMBERS];
    int count;
    const struct sgrad__thing *t = movable(reader, n);
    if (!t) return reader->graph->error;
    struct sgrad__view view = t->view;
    if (!sgrad__onnx_numbers(reader, n, 1, to, &count)) return sgrad__onnx_refuse(reader, n, "its shape is not known");
    memcpy(wanted, to, sizeof wanted);
    sizes_of(&view, dim);
    if (!sgrad__onnx_resolve(dim, view.rank, to, count, sgrad__onnx_int(n, "allowzero", 0)) ||
        !sgrad__view_reshape(&view, to, count))
        return refuse_shape(reader, n, wanted, count);
    return make_view(reader, n, &view);
}

int sgrad__onnx_read_flatten(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = movable(reader, n);
    if (!t) return reader->graph->error;
    struct sgrad__view view = t->view;
    const int64_t axis = sgrad__onnx_int(n, "axis", 1);
    int64_t to[2] = { 1, 1 };
    if (axis != 1 && axis + view.rank != 1) return sgrad__onnx_refuse(reader, n, "axis is %lld, but must be 1", (long long)axis);
    for (int i = 0; i < view.rank; i++) to[i > 0] *= sgrad__view_size(&view, i);
    if (!sgrad__view_reshape(&view, to, 2)) return refuse_shape(reader, n, to, 2);
    return make_view(reader, n, &view);
}

int sgrad__onnx_read_squeeze(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t axis[SGRAD__NUMBERS];
    int count;
    const struct sgrad__thing *t = movable(reader, n);
    if (!t) return reader->graph->error;
    struct sgrad__view view = t->view;
    if (!sgrad__onnx_axes(reader, n, 1, view.rank, axis, &count)) return sgrad__onnx_refuse(reader, n, "its axes are not known");
    const bool all = !count;
    for (int d = view.rank - 1; d >= 0; d--) {
        bool leave = all && sgrad__view_size(&view, d) == 1 && d; /* not the dimension of samples */
        for (int i = 0; i < count; i++) leave |= axis[i] == d;
        if (leave && !sgrad__view_squeeze(&view, d))
            return sgrad__onnx_refuse(reader, n, "removes dimension %d, which has %lld elements", d,
                                      (long long)sgrad__view_size(&view, d));
    }
    return make_view(reader, n, &view);
}

int sgrad__onnx_read_unsqueeze(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    int64_t axis[SGRAD__NUMBERS];
    int count;
    if (t && t->tensor) { /* constants.c does not read this one */
        SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
        sgrad__onnx_thing(reader, n->output[0])->sliced = true;
        return 0;
    }
    if (!(t = movable(reader, n))) return reader->graph->error;
    struct sgrad__view view = t->view;
    const Onnx__Attribute *axes = sgrad__onnx_attribute(n, "axes");
    const int more = axes ? (int)axes->n_ints : sgrad__onnx_numbers(reader, n, 1, axis, &count) ? count : SGRAD__NUMBERS;
    if (more > SGRAD__DIMENSIONS || !sgrad__onnx_axes(reader, n, 1, view.rank + more, axis, &count))
        return sgrad__onnx_refuse(reader, n, "its axes are not known");
    for (int d = 0; d < view.rank + more; d++)
        for (int i = 0; i < count; i++)
            if (axis[i] == d && !sgrad__view_unsqueeze(&view, d))
                return sgrad__onnx_refuse(reader, n, "has more than %d dimensions", SGRAD__DIMENSIONS);
    return make_view(reader, n, &view);
}

int sgrad__onnx_read_transpose(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "perm");
    struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    int64_t order[SGRAD__DIMENSIONS];
    if (t && t->tensor && t->tensor->n_dims == 2) { /* the weight of a product */
        const bool turns = !a || (a->n_ints == 2 && a->ints[0] == 1);
        SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
        sgrad__onnx_thing(reader, n->output[0])->turned = turns != t->turned;
        return 0;
    }
    if (!(t = movable(reader, n))) return reader->graph->error;
    struct sgrad__view view = t->view;
    for (int i = 0; i < view.rank; i++) order[i] = a && i < (int)a->n_ints ? a->ints[i] : view.rank - 1 - i;
    if ((a && (int)a->n_ints != view.rank) || !sgrad__view_transpose(&view, order, view.rank))
        return sgrad__onnx_refuse(reader, n, "perm must list its %d dimensions, each once", view.rank);
    return make_view(reader, n, &view);
}

int sgrad__onnx_read_shape(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    if (!is_movable(t) || !to) return movable(reader, n) ? 0 : reader->graph->error;
    const int rank = t->view.rank;
    int64_t start = sgrad__onnx_int(n, "start", 0), end = sgrad__onnx_int(n, "end", rank);
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    if (start < 0 || end > rank || start >= end)
        return sgrad__onnx_refuse(reader, n, "start is %lld and end is %lld, but 0 <= start < end <= %d is required",
                                  (long long)start, (long long)end, rank);
    const int64_t count = end - start;
    Onnx__Tensor *tensor = sgrad__onnx_new_tensor(reader, ONNX_INT64, &count, 1, (size_t)count * sizeof(int64_t));
    for (int64_t i = 0; i < count; i++) ((int64_t *)tensor->raw_data.data)[i] = sgrad__view_size(&t->view, (int)(start + i));
    to->tensor = tensor;
    to->known = true;
    return 0;
}

/* Makes TO the dimensions of INDICES, if they are 0, 1, 2, …, and as many as VIEW, a row of all samples, has elements: PyTorch
 * exports as_strided so. */
static bool takes_all(const struct sgrad__reader *reader, const struct sgrad__view *view, const struct sgrad__thing *indices,
                      struct sgrad__view *to) {
    const Onnx__Tensor *t = indices->tensor ? indices->tensor : indices->indices;
    int64_t dim[SGRAD__DIMENSIONS], size = view->rank == 1 ? sgrad__view_size(view, 0) : 0;
    if (!t || indices->turned || t->n_dims > SGRAD__DIMENSIONS || size < 1 || size % reader->samples) return false;
    if (!indices->tensor) size = 2 * (size / reader->samples);
    if (!sgrad__onnx_counts(t, size)) return false;
    for (int i = 0; i < (int)t->n_dims; i++) {
        dim[i] = t->dims[i];
        if (indices->tensor || i > indices->samples) continue;
        if (i < indices->samples && dim[i] != 1) return false;  /* another dimension before the samples */
        if (i == indices->samples) dim[i] = reader->samples;    /* instead of two */
    }
    struct sgrad__view all = *view;
    if (!sgrad__view_reshape(&all, dim, (int)t->n_dims)) return false;
    *to = all;
    return true;
}

/* Reads the choice of one index of a dimension, or of all elements, or an embedding. */
int sgrad__onnx_read_gather(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0), *of = sgrad__onnx_input(reader, n, 1);
    int64_t at[SGRAD__NUMBERS];
    int count;
    if (t && t->tensor && !sgrad__onnx_int(n, "axis", 0)) return sgrad__onnx_read_embedding(reader, n);
    if (!(t = movable(reader, n))) return reader->graph->error;
    struct sgrad__view view = t->view;
    const int axis = sgrad__onnx_axis(sgrad__onnx_int(n, "axis", 0), view.rank);
    if (axis == 0 && of && takes_all(reader, &t->view, of, &view)) return make_view(reader, n, &view);
    if (axis < 0 || !sgrad__onnx_numbers(reader, n, 1, at, &count) || count != 1)
        return sgrad__onnx_refuse(reader, n, "must select one index of a dimension, or the rows of a table for tokens");
    if (at[0] < 0) at[0] += sgrad__view_size(&view, axis);
    if (!sgrad__view_select(&view, axis, at[0], 1) || (!of->tensor->n_dims && !sgrad__view_squeeze(&view, axis)))
        return sgrad__onnx_refuse(reader, n, "cannot select index %lld of dimension %d", (long long)at[0], axis);
    return make_view(reader, n, &view);
}

/* Reads a Split along the dimension of features, or of a part of them. */
int sgrad__onnx_read_split(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t size[SGRAD__NUMBERS], from = 0;
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "split");
    const struct sgrad__thing *t = movable(reader, n);
    int count = 0;
    if (!t) return reader->graph->error;
    const int axis = sgrad__onnx_axis(sgrad__onnx_int(n, "axis", 0), t->view.rank);
    if (axis < 0 || n->n_output > SGRAD__NUMBERS) return sgrad__onnx_refuse(reader, n, "its axis is out of range");
    const int64_t all = sgrad__view_size(&t->view, axis), part = (all + (int64_t)n->n_output - 1) / (int64_t)n->n_output;
    for (size_t i = 0; a && i < a->n_ints && i < SGRAD__NUMBERS; i++) size[count++] = a->ints[i];
    if (!a && n->n_input > 1 && !sgrad__onnx_numbers(reader, n, 1, size, &count)) count = -1;
    for (; !a && n->n_input < 2 && count < (int)n->n_output; count++)
        size[count] = all - count * part < part ? all - count * part : part;
    for (size_t i = 0; i < n->n_output; i++) {
        struct sgrad__view view = t->view;
        if (count != (int)n->n_output || !sgrad__view_select(&view, axis, from, size[i]))
            return sgrad__onnx_refuse(reader, n, "cannot be split into %zu parts along dimension %d", n->n_output, axis);
        from += size[i];
        if (*n->output[i]) SGRAD_TRY(sgrad__onnx_set(reader, n, i, &view));
    }
    return 0;
}

/* Reads an Expand that changes nothing, of a value. */
int sgrad__onnx_read_expand(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = movable(reader, n);
    int64_t to[SGRAD__NUMBERS];
    int count;
    if (!t) return reader->graph->error;
    bool same = sgrad__onnx_numbers(reader, n, 1, to, &count) && count <= t->view.rank;
    for (int i = 0; i < count && same; i++) same = to[i] == 1 || to[i] == sgrad__view_size(&t->view, t->view.rank - count + i);
    return same ? sgrad__onnx_pass(reader, n, 0) : sgrad__onnx_refuse(reader, n, "repeats a value, which is not supported");
}

/* ---- shortcuts without parameters ------------------------------------------------------------------------------- */

bool sgrad__onnx_ranges(const struct sgrad__reader *reader, const Onnx__Node *n, const int64_t *dim, int rank,
                        struct sgrad__range *range) {
    static const char *const names[] = { "", "starts", "ends", "axes", "steps" };
    int64_t list[5][SGRAD__NUMBERS];
    int count[5] = { 0 };
    for (int i = 0; i < rank; i++) range[i] = (struct sgrad__range){ 0, dim[i], 1 };
    for (size_t k = 1; k < 5; k++) {
        const Onnx__Attribute *a = sgrad__onnx_attribute(n, names[k]); /* before opset 10 */
        for (size_t i = 0; a && i < a->n_ints && i < SGRAD__NUMBERS; i++) list[k][count[k]++] = a->ints[i];
        if (!a && sgrad__onnx_input(reader, n, k) && !sgrad__onnx_numbers(reader, n, k, list[k], &count[k])) return false;
        if (k < 3 && !count[k]) return false;
        for (; k > 2 && count[k] < count[1]; count[k]++) list[k][count[k]] = k == 3 ? count[k] : 1; /* defaults */
        if (count[k] != count[1]) return false;
    }
    for (int i = 0; i < count[1]; i++) {
        const int axis = sgrad__onnx_axis(list[3][i], rank);
        const int64_t step = list[4][i];
        int64_t at[2] = { list[1][i], list[2][i] };
        if (axis < 0 || !step || step < -INT32_MAX || step > INT32_MAX) return false;
        const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim[axis] : dim[axis] - 1;
        for (int k = 0; k < 2; k++) at[k] = sgrad_clamp(at[k] < 0 ? at[k] + dim[axis] : at[k], low, high);
        const int64_t length = step > 0 ? at[1] - at[0] : at[0] - at[1], by = step > 0 ? step : -step;
        range[axis] = (struct sgrad__range){ at[0], length > 0 ? (length + by - 1) / by : 0, step };
    }
    return true;
}

/* Reads a Slice: a part of a dimension, or, for the shortcut of small residual networks, every n-th row and column of images. */
int sgrad__onnx_read_slice(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad__range range[SGRAD__DIMENSIONS];
    int64_t dim[SGRAD__DIMENSIONS];
    struct sgrad__thing *from = sgrad__onnx_input(reader, n, 0), *to = sgrad__onnx_thing(reader, n->output[0]);
    if (!is_movable(from) && (!from || (!from->strides[0] && !from->strides[1])))
        return movable(reader, n) ? 0 : reader->graph->error;
    struct sgrad__view view = from->view;
    sizes_of(&view, dim);
    if (!sgrad__onnx_ranges(reader, n, dim, view.rank, range))
        return sgrad__onnx_refuse(reader, n, "its ranges must be known, with positive steps");
    int strides[2] = { from->strides[0], from->strides[1] };
    for (int i = 0; i < view.rank; i++) {
        const struct sgrad__range *r = &range[i];
        const bool pixels = view.rank == 4 && i > 1 && r->first == 0 && r->count == (dim[i] + r->step - 1) / r->step &&
                            r->step <= SGRAD__ONNX_LARGE && sgrad__view_is_plain(reader, &from->view) && !strides[i - 2];
        if (r->step < 1 || (r->step > 1 && !pixels))
            return sgrad__onnx_refuse(reader, n,
                                      "must select neighbouring elements, or every n-th row or column of whole images");
        if (r->step > 1)
            strides[i - 2] = (int)r->step;
        else if (!sgrad__view_select(&view, i, r->first, r->count))
            return sgrad__onnx_refuse(reader, n, "cannot select %lld elements of dimension %d, from index %lld on",
                                      (long long)r->count, i, (long long)r->first);
    }
    if (!strides[0] && !strides[1]) return make_view(reader, n, &view);
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    memcpy(to->strides, strides, sizeof strides);
    return 0;
}

/* Reads a Pad of channels with zeros, half of them before and half after the others: the shortcut of small residual networks. */
static int pad_channels(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *from, const int64_t *pad) {
    for (int i = 0; i < 8; i++)
        if (i % 4 == 1 ? pad[i] < 0 || pad[i] > 1 << 20 : pad[i])
            return sgrad__onnx_refuse(reader, n, "must pad the pixels, or the channels only, and not remove any");
    if (pad[1] != (pad[1] + pad[5]) / 2 || from->strides[0] != from->strides[1])
        return sgrad__onnx_refuse(reader, n, "must pad channels equally at both ends; a Slice before it must have equal strides");
    const int64_t channels = sgrad_graph_shape(reader->graph, from->view.value).dim[3] + pad[1] + pad[5];
    const struct sgrad_shortcut_a is = { .stride = from->strides[0] ? from->strides[0] : 1, .channels = (int)channels };
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_shortcut_a_op, &from->view.value, 1, &is));
}

/* Reads a Pad of images: of their channels or of their borders. */
int sgrad__onnx_read_pad(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *mode = sgrad__onnx_attribute(n, "mode");
    const bool reflect = sgrad__onnx_is_text(mode, "reflect");
    const struct sgrad__thing *from = sgrad__onnx_input(reader, n, 0);
    int64_t pad[SGRAD__NUMBERS];
    float value = 0;
    int count;
    bool border = true;
    if (!from || from->view.value < 0 || from->stage || from->step || from->view.rank != 4 ||
        !sgrad__view_is_plain(reader, &from->view))
        return sgrad__onnx_refuse(reader, n, "its input must be images (N,C,H,W)");
    if ((mode && !reflect && !sgrad__onnx_is_text(mode, "constant")) || sgrad__onnx_input(reader, n, 3) ||
        !sgrad__onnx_numbers(reader, n, 1, pad, &count) || count != 8 ||
        (sgrad__onnx_input(reader, n, 2) && (!sgrad__onnx_number(reader, n, 2, &value) || value != 0)))
        return sgrad__onnx_refuse(reader, n, "must pad all dimensions by constant numbers, with zeros or by reflection");
    for (int i = 0; i < 8; i++) border &= i % 4 > 1 ? pad[i] >= 0 && pad[i] <= SGRAD__ONNX_LARGE : pad[i] == 0;
    if (reflect && (!border || from->strides[0] || from->strides[1]))
        return sgrad__onnx_refuse(reader, n, "mirrors channels, or pixels after strides, which is not supported");
    if (!border || from->strides[0] || from->strides[1]) return pad_channels(reader, n, from, pad);
    const struct sgrad_pad is = { .top = (int)pad[2], .left = (int)pad[3], .bottom = (int)pad[6], .right = (int)pad[7],
                                  .reflect = reflect };
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_pad_op, &from->view.value, 1, &is));
}

/* ---- tensors of the file ---------------------------------------------------------------------------------------- */

static Onnx__Tensor *make_tensor(struct sgrad__reader *reader, const Onnx__Attribute *a) {
    const bool many = a->type == ONNX_OF_FLOATS || a->type == ONNX_OF_INTS, whole = a->has_i || a->type == ONNX_OF_INTS;
    const int64_t count = many ? (int64_t)(whole ? a->n_ints : a->n_floats) : 1;
    const void *list = whole ? (const void *)a->ints : a->floats, *one = whole ? (const void *)&a->i : &a->f;
    const size_t bytes = (size_t)count * (whole ? sizeof(int64_t) : sizeof(float));
    Onnx__Tensor *t = sgrad__onnx_new_tensor(reader, whole ? ONNX_INT64 : ONNX_FLOAT, &count, many, bytes);
    if (bytes) memcpy(t->raw_data.data, many ? list : one, bytes);
    return t;
}

int sgrad__onnx_read_constant(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad__thing *to = sgrad__onnx_thing(reader, n->output[0]);
    const Onnx__Attribute *a = n->n_attribute == 1 ? n->attribute[0] : NULL;
    if (!a || !to) return sgrad__onnx_refuse(reader, n, "has %zu attributes, but must have one, its value", n->n_attribute);
    if (strcmp(a->name, "value") == 0 && !a->t) return sgrad__onnx_refuse(reader, n, "its value must be a tensor");
    if (a->t && sgrad__onnx_check_tensor(reader->path, to->name, a->t)) return reader->graph->error = SGRAD_EFORMAT;
    to->tensor = a->t ? a->t : make_tensor(reader, a);
    to->known = true;
    return 0;
}

/* Reads an operator that is supported only if all of its inputs are known (constants.c). */
int sgrad__onnx_read_known(struct sgrad__reader *reader, const Onnx__Node *n) {
    return sgrad__onnx_refuse(reader, n, "is supported only for constants and shapes");
}
