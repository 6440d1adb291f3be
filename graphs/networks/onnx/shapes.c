/* shapes.c: reads ONNX's operators that change no number: flattening, the shortcut of small residual networks, conversion of
 * bytes to activations. It also reads operators whose result is known without computation: tensors of the file, and the integers
 * of shapes. */
#include "codelets/ops/flatten.h"
#include "codelets/ops/image.h"
#include "codelets/ops/rows.h"
#include "codelets/ops/shortcut_a.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ----------------------------------------------------------------------------------------------------- */

static int flatten(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int x = sgrad__onnx_value(reader, n, 0, true), rank = x < 0 ? 0 : sgrad__onnx_rank(reader, x);
    if (x < 0) return reader->graph->error;
    if (rank != 2 && rank != 4) return sgrad__onnx_refuse(reader, n, "its input must be rows (N,C) or images (N,C,H,W)");
    if (rank == 2) return sgrad__onnx_make(reader, n, x);
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_flatten_op, &x, 1, &(struct sgrad_flatten){ 0 }));
}

int sgrad__onnx_read_flatten(struct sgrad__reader *reader, const Onnx__Node *n) {
    const int rank = sgrad__onnx_file_rank(reader, sgrad__onnx_input(reader, n, 0));
    const int64_t axis = sgrad__onnx_int(n, "axis", 1);
    if (axis != 1 && axis + rank != 1) return sgrad__onnx_refuse(reader, n, "axis is %lld, but must be 1", (long long)axis);
    return flatten(reader, n);
}

/* Returns true if TO is (N,C,H·W), for images. */
static bool are_columns(const struct sgrad_shape *shape, const int64_t *to, int count) {
    return shape->rank == 4 && count == 3 && sgrad__onnx_is_batch(to[0]) && to[1] == shape->dim[3] &&
           (to[2] == shape->dim[1] * shape->dim[2] || (to[2] == -1 && to[0] != -1));
}

/* Reads a Reshape to rows of all numbers of a sample, or to the columns of images. It must not change the number of samples,
 * which may be specified in several forms. */
int sgrad__onnx_read_reshape(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    if (sgrad__onnx_groups(reader, n)) return sgrad__onnx_group(reader, n);
    if (sgrad__onnx_splits(reader, n)) return sgrad__onnx_split(reader, n);
    if (sgrad__onnx_attention_begins(reader, n) || sgrad__onnx_grouping_begins(reader, n) ||
        sgrad__onnx_splitting_begins(reader, n))
        return 0;
    int64_t to[SGRAD__NUMBERS];
    int count = 0;
    const int x = sgrad__onnx_value(reader, n, 0, true);
    if (x < 0) return reader->graph->error;
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const bool known = sgrad__onnx_numbers(reader, n, 1, to, &count);
    if (known && are_columns(&shape, to, count)) {
        SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
        sgrad__onnx_thing(reader, n->output[0])->columns = true;
        return 0;
    }
    for (int i = 0; i < count && known && sgrad__onnx_int(n, "allowzero", 0); i++)
        if (!to[i]) return sgrad__onnx_refuse(reader, n, "allowzero 1 with a 0 in its shape is not supported");
    if (!known || count != 2 || (to[1] != -1 && to[1] != sgrad_shape_count(&shape)) ||
        (to[1] == -1 && (to[0] == -1 || (!sgrad__onnx_is_batch(to[0]) && to[0] != reader->samples))))
        return sgrad__onnx_refuse(reader, n, "its shape must be (N,C), where C is the %lld values of a sample, or (N,C,H·W)",
                                  (long long)sgrad_shape_count(&shape));
    return flatten(reader, n);
}

/* Reads a Squeeze of (N,C,1,1). */
int sgrad__onnx_read_squeeze(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t axis[SGRAD__NUMBERS];
    int count;
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    if (t && (t->is_numbers || t->tensor) && sgrad__onnx_numbers(reader, n, 0, axis, &count))
        return sgrad__onnx_pass(reader, n, 0);
    if (!t || !t->pixel) return sgrad__onnx_refuse(reader, n, "its input must have shape (N,C,1,1)");
    const Onnx__Attribute *axes = sgrad__onnx_attribute(n, "axes");
    count = 0;
    for (size_t i = 0; axes && i < axes->n_ints && i < 2; i++) axis[count++] = axes->ints[i];
    if (axes && axes->n_ints > 2) count = 3;
    if (!axes && n->n_input > 1 && !sgrad__onnx_numbers(reader, n, 1, axis, &count)) count = 3;
    if (count && (count != 2 || sgrad__onnx_axis(axis[0], 4) + sgrad__onnx_axis(axis[1], 4) != 5))
        return sgrad__onnx_refuse(reader, n, "its axes must be 2 and 3");
    return sgrad__onnx_make(reader, n, t->value);
}

/* ---- integers of shapes ----------------------------------------------------------------------------------------- */

static int make_numbers(struct sgrad__reader *reader, const Onnx__Node *n, const int64_t *number, int count) {
    struct sgrad__thing *t = sgrad__onnx_thing(reader, n->output[0]);
    if (!t) return sgrad__onnx_refuse(reader, n, "has no output");
    memcpy(t->number, number, (size_t)count * sizeof *number);
    t->count = count;
    t->known = t->is_numbers = true;
    return 0;
}

/* (N,C,H,W) */
int sgrad__onnx_read_shape(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t number[SGRAD__NUMBERS] = { SGRAD__BATCH };
    int rank = 4;
    if (!sgrad__onnx_attention_shape(reader, sgrad__onnx_input(reader, n, 0), number)) {
        const int x = sgrad__onnx_value(reader, n, 0, false);
        if (x < 0) return reader->graph->error;
        const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
        rank = shape.rank;
        for (int i = 1; i < rank; i++) number[i] = shape.dim[sgrad__onnx_dimension(rank, i)];
    }
    const int64_t start = sgrad__onnx_int(n, "start", 0), end = sgrad__onnx_int(n, "end", rank);
    if (start < 0 || end > rank || start >= end)
        return sgrad__onnx_refuse(reader, n, "start is %lld and end is %lld, but 0 <= start < end <= %d is required",
                                  (long long)start, (long long)end, rank);
    return make_numbers(reader, n, number + start, (int)(end - start));
}

int sgrad__onnx_read_gather(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    int64_t number[SGRAD__NUMBERS], at[SGRAD__NUMBERS];
    int count, places;
    if (sgrad__onnx_int(n, "axis", 0)) return sgrad__onnx_refuse(reader, n, "axis must be 0");
    if (!t || !t->is_numbers) return sgrad__onnx_read_embedding(reader, n);
    if (!sgrad__onnx_numbers(reader, n, 0, number, &count) || !sgrad__onnx_numbers(reader, n, 1, at, &places) || places != 1 ||
        at[0] < -count || at[0] >= count)
        return sgrad__onnx_refuse(reader, n, "must select one dimension of a shape");
    return make_numbers(reader, n, &number[at[0] < 0 ? at[0] + count : at[0]], 1);
}

/* Returns true if N's axes are the dimensions from 1 on, and sets *COUNT to their number. */
static bool is_behind(const struct sgrad__reader *reader, const Onnx__Node *n, int *count) {
    int64_t axis[SGRAD__NUMBERS];
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "axes");
    *count = a && a->n_ints <= SGRAD__NUMBERS ? (int)a->n_ints : 0;
    for (int i = 0; i < *count; i++) axis[i] = a->ints[i];
    if (!a && !sgrad__onnx_numbers(reader, n, 1, axis, count)) return false;
    for (int i = 0; i < *count; i++)
        if (axis[i] != i + 1) return false;
    return *count > 0;
}

int sgrad__onnx_read_unsqueeze(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    int64_t number[SGRAD__NUMBERS];
    int count;
    if (t && t->tensor && t->tensor->n_dims == 4 && !t->turned && !t->sliced &&
        sgrad__onnx_numbers(reader, n, 1, number, &count) && count == 1 && number[0] == 2) {
        SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
        sgrad__onnx_thing(reader, n->output[0])->sliced = true;
        return 0;
    }
    if (t && t->tensor && t->tensor->n_dims == 1 && sgrad__onnx_is_real(t->tensor->data_type) && is_behind(reader, n, &count)) {
        SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
        sgrad__onnx_thing(reader, n->output[0])->spread = count;
        return 0;
    }
    if (!t || !sgrad__onnx_numbers(reader, n, 0, number, &count))
        return sgrad__onnx_refuse(reader, n,
                                  "its input must be a shape, a vector, or a filter (K,C,h,w); for a filter, axes must be 2");
    return make_numbers(reader, n, number, count);
}

/* ---- bytes as activations --------------------------------------------------------------------------------------- */

/* As in image.c: a byte is divided by the largest possible value, the mean is subtracted, and the result is divided by the
 * standard deviation. A file with another divisor has another mean and standard deviation. The stages are named after the current
 * numbers. */
enum { BYTES = 1, NUMBERS, SHARES, DISTANCES };

static int make_stage(struct sgrad__reader *reader, const Onnx__Node *n, int stage) {
    if (reader->stages >= (stage ? stage : DISTANCES + 1))
        return sgrad__onnx_refuse(reader, n, "normalises pixels a second time, which is not supported");
    reader->stages = stage ? stage : DISTANCES + 1;
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    sgrad__onnx_thing(reader, n->output[0])->stage = stage;
    return 0;
}

/* Copies the tensor of the file with one number per channel, (1,C,1,1), to NUMBER. */
static bool take_channels(const struct sgrad__reader *reader, const Onnx__Node *n, float *number) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 1);
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, reader->x);
    int count;
    return t && t->tensor && sgrad__onnx_floats(t->tensor, number, SGRAD_MAX_CHANNELS, &count) &&
           count == x.dim[x.rank - 1] && t->tensor->n_dims == (size_t)x.rank && t->tensor->dims[1] == count;
}

static int stage_of(const struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    return t ? t->stage : 0;
}

/* Reads a Cast of known data. Integers of shapes must remain integers; tensors of the file become floats, or remain unchanged, if
 * no number would be lost. */
static int cast_known(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *thing, int32_t to) {
    if (thing->is_numbers && (to == ONNX_INT64 || to == ONNX_INT32)) return sgrad__onnx_pass(reader, n, 0);
    if (!thing->tensor)
        return sgrad__onnx_refuse(reader, n,
                                  "converts integers of a shape to type %d, but only types 6 (INT32) and 7 (INT64) are supported",
                                  to);
    const int32_t from = thing->tensor->data_type;
    const bool wider = sgrad__onnx_is_real(from) ? to == ONNX_DOUBLE
                                                 : to == ONNX_INT64 && from != ONNX_UINT64 && from != ONNX_BOOL;
    if (to == from || wider) return sgrad__onnx_pass(reader, n, 0);
    if (to != ONNX_FLOAT)
        return sgrad__onnx_refuse(reader, n, "a conversion from type %d to type %d is not supported; convert to FLOAT (type 1)",
                                  from, to);
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    reader->made = sgrad_array_grow(reader->made, reader->mades, sizeof *reader->made);
    sgrad__onnx_thing(reader, n->output[0])->tensor = reader->made[reader->mades++] = sgrad__onnx_as_floats(thing->tensor);
    return 0;
}

int sgrad__onnx_read_cast(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    const int32_t to = (int32_t)sgrad__onnx_int(n, "to", 0);
    if (t && (t->is_numbers || t->tensor)) return cast_known(reader, n, t, to);
    if (sgrad__onnx_is_value(t)) {
        const enum sgrad_dtype is = reader->graph->value[t->value].view.dtype;
        if (is == SGRAD_I32 ? to == ONNX_INT32 || to == ONNX_INT64 : to == ONNX_FLOAT) return sgrad__onnx_pass(reader, n, 0);
    }
    if (stage_of(reader, n) != BYTES || sgrad__onnx_int(n, "to", 0) != ONNX_FLOAT)
        return sgrad__onnx_refuse(
            reader, n, "converts to type %d, but only constants and pixels can be converted, and pixels only to FLOAT (1)", to);
    return make_stage(reader, n, NUMBERS);
}

int sgrad__onnx_read_sub(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (stage_of(reader, n) == SHARES && take_channels(reader, n, reader->imported->mean))
        return make_stage(reader, n, DISTANCES);
    return sgrad__onnx_refuse(reader, n, "must subtract the mean of each channel of the pixels, after Cast and Div");
}

int sgrad__onnx_read_div(struct sgrad__reader *reader, const Onnx__Node *n) {
    int status;
    if (sgrad__onnx_is_normal(reader, n, &status)) return status;
    const struct sgrad__thing *by = sgrad__onnx_input(reader, n, 1);
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, reader->x);
    const struct sgrad_image *image = sgrad__graph_image(reader->graph);
    float full;
    int count;
    if (stage_of(reader, n) == NUMBERS && by && by->tensor && sgrad__onnx_floats(by->tensor, &full, 1, &count) && count == 1) {
        if (!(full > 0) || isinf(full))
            return sgrad__onnx_refuse(reader, n, "divides pixels by %g; the divisor must be positive and finite", (double)full);
        reader->scale = image ? full / image->full_scale : 1;
        return make_stage(reader, n, SHARES);
    }
    if (stage_of(reader, n) != DISTANCES || !take_channels(reader, n, reader->imported->deviation))
        return sgrad__onnx_refuse(reader, n,
                                  "must divide pixels by the full scale or by standard deviations, or be a step of GELU");
    for (int c = 0; c < x.dim[x.rank - 1]; c++)
        if (!(reader->imported->deviation[c] > 0))
            return sgrad__onnx_refuse(reader, n, "the standard deviation of channel %d is %g, but must be positive", c,
                                      reader->imported->deviation[c]);
    for (int c = 0; c < x.dim[x.rank - 1]; c++)
        reader->imported->mean[c] *= reader->scale, reader->imported->deviation[c] *= reader->scale;
    reader->imported->channels = (int)x.dim[x.rank - 1];
    return make_stage(reader, n, 0);
}

/* ---- shortcuts without parameters ------------------------------------------------------------------------------- */

/* Reads a Slice of integers, from an index to before another one; a negative index counts from the end. */
static int slice_numbers(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__thing *thing) {
    int64_t first[SGRAD__NUMBERS] = { 0 }, end[SGRAD__NUMBERS] = { 0 }, axis[SGRAD__NUMBERS] = { 0 };
    int count, axes = 1;
    const bool known = sgrad__onnx_numbers(reader, n, 1, first, &count) && count == 1 &&
                       sgrad__onnx_numbers(reader, n, 2, end, &count) && count == 1 && !sgrad__onnx_input(reader, n, 4) &&
                       (!sgrad__onnx_input(reader, n, 3) || sgrad__onnx_numbers(reader, n, 3, axis, &axes));
    int64_t at[2] = { first[0], end[0] };
    for (int i = 0; i < 2; i++) {
        if (at[i] < 0) at[i] += thing->count;
        at[i] = sgrad_clamp(at[i], 0, thing->count);
    }
    if (!known || axes != 1 || axis[0] || at[0] >= at[1])
        return sgrad__onnx_refuse(reader, n, "must select a range of the dimensions of a shape, along axis 0");
    return make_numbers(reader, n, thing->number + at[0], (int)(at[1] - at[0]));
}

/* Reads a Slice that selects every n-th row, or column, or both. */
int sgrad__onnx_read_slice(struct sgrad__reader *reader, const Onnx__Node *n) {
    int64_t first[SGRAD__NUMBERS], end[SGRAD__NUMBERS], axis[SGRAD__NUMBERS], step[SGRAD__NUMBERS];
    int count[4] = { 0 };
    struct sgrad__thing *from = sgrad__onnx_input(reader, n, 0), *to = sgrad__onnx_thing(reader, n->output[0]);
    if (from && from->is_numbers) return slice_numbers(reader, n, from);
    if (sgrad__onnx_splits(reader, n)) return sgrad__onnx_split(reader, n);
    if (!from || from->value < 0 || from->pixel || from->stage || from->columns || sgrad__onnx_rank(reader, from->value) != 4)
        return sgrad__onnx_refuse(reader, n, "its input must be images (N,C,H,W)");
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, from->value);
    bool known = sgrad__onnx_numbers(reader, n, 1, first, &count[0]) && sgrad__onnx_numbers(reader, n, 2, end, &count[1]) &&
                 sgrad__onnx_numbers(reader, n, 3, axis, &count[2]) && sgrad__onnx_numbers(reader, n, 4, step, &count[3]) &&
                 count[0] == count[1] && count[0] == count[2] && count[0] == count[3];
    int strides[2] = { from->strides[0], from->strides[1] };
    for (int i = 0; i < count[0] && known; i++) {
        known = (axis[i] == 2 || axis[i] == 3) && first[i] == 0 && step[i] >= 1 && step[i] <= SGRAD__ONNX_LARGE;
        if (known) known = end[i] >= shape.dim[axis[i] - 1] && strides[axis[i] - 2] < 1;
        if (known) strides[axis[i] - 2] = (int)step[i];
    }
    if (!known || !to) return sgrad__onnx_refuse(reader, n, "must select every n-th row or column of whole images");
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    memcpy(to->strides, strides, sizeof strides);
    return 0;
}

/* Reads a Pad of channels with zeros, half of them before and half after the others. */
int sgrad__onnx_read_pad(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *mode = sgrad__onnx_attribute(n, "mode");
    const struct sgrad__thing *from = sgrad__onnx_input(reader, n, 0), *zero = sgrad__onnx_input(reader, n, 2);
    int64_t pad[SGRAD__NUMBERS];
    float value = 0;
    int count;
    if (!from || from->value < 0 || from->pixel || from->stage || from->columns || sgrad__onnx_rank(reader, from->value) != 4)
        return sgrad__onnx_refuse(reader, n, "its input must be images (N,C,H,W)");
    bool known = (!mode || (mode->s.len == 8 && !memcmp(mode->s.data, "constant", 8))) && !sgrad__onnx_input(reader, n, 3) &&
                 sgrad__onnx_numbers(reader, n, 1, pad, &count) && count == 8;
    if (zero) known &= zero->tensor && sgrad__onnx_floats(zero->tensor, &value, 1, &count) && value == 0;
    for (int i = 0; i < 8 && known; i++)
        known = i % 4 == 1 ? pad[i] >= 0 && pad[i] <= 1 << 20 : pad[i] == 0;
    if (!known || pad[1] != (pad[1] + pad[5]) / 2 || from->strides[0] != from->strides[1])
        return sgrad__onnx_refuse(
            reader, n,
            "must pad the channels only, with zeros, equally at both ends; a Slice before it must have equal strides");
    const struct sgrad_shortcut_a is = { .stride = from->strides[0] ? from->strides[0] : 1,
                                         .channels =
                                             (int)(sgrad_graph_shape(reader->graph, from->value).dim[3] + pad[1] + pad[5]) };
    return sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_shortcut_a_op, &from->value, 1, &is));
}

/* ---- tensors of the file ---------------------------------------------------------------------------------------- */

/* Returns a new tensor, which is freed after reading. */
static Onnx__Tensor *make_tensor(struct sgrad__reader *reader, const Onnx__Attribute *a) {
    const bool many = a->type == ONNX_OF_FLOATS || a->type == ONNX_OF_INTS, whole = a->has_i || a->type == ONNX_OF_INTS;
    const size_t listed = whole ? a->n_ints : a->n_floats, count = many ? listed : 1;
    const void *list = whole ? (const void *)a->ints : a->floats, *one = whole ? (const void *)&a->i : &a->f;
    const size_t bytes = count * (whole ? sizeof(int64_t) : sizeof(float));
    Onnx__Tensor *t = sgrad_xcalloc(1, sizeof *t);
    onnx__tensor__init(t);
    t->has_data_type = t->has_raw_data = true;
    t->data_type = whole ? ONNX_INT64 : ONNX_FLOAT;
    t->n_dims = many;
    t->dims = sgrad_xcalloc(1, sizeof *t->dims);
    t->dims[0] = (int64_t)count;
    t->raw_data.len = bytes;
    t->raw_data.data = sgrad_xcalloc(1, bytes + 1);
    if (bytes) memcpy(t->raw_data.data, many ? list : one, bytes);
    reader->made = sgrad_array_grow(reader->made, reader->mades, sizeof *reader->made);
    return reader->made[reader->mades++] = t;
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

/* Reads a Transpose of a product's weight, as PyTorch writes it, or one of image columns to rows. */
int sgrad__onnx_read_transpose(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (sgrad__onnx_attends(reader, n)) return sgrad__onnx_attend(reader, n);
    if (sgrad__onnx_splits(reader, n)) return sgrad__onnx_split(reader, n);
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, "perm");
    const struct sgrad__thing *from = sgrad__onnx_input(reader, n, 0);
    if (from && from->columns && a && a->n_ints == 3 && a->ints[0] == 0 && a->ints[1] == 2 && a->ints[2] == 1)
        return sgrad__onnx_make(reader, n,
                                sgrad__onnx_plain(reader, n, &sgrad_rows_op, &from->value, 1, &(struct sgrad_rows){ 0 }));
    if (!from || !from->tensor || from->tensor->n_dims != 2 || (a && (a->n_ints != 2 || a->ints[0] != 1 || a->ints[1] != 0)))
        return sgrad__onnx_refuse(reader, n,
                                  "must transpose a matrix of the file, or images (N,C,H·W) to rows (N,H·W,C)");
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    sgrad__onnx_thing(reader, n->output[0])->turned = !from->turned;
    return 0;
}
