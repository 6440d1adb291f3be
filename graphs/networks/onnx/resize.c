/* resize.c: reads images of another size: the operator Resize, and two products by which write.c's files have areas, because ONNX
 * has no operator for them:
 *
 *     weights of rows (P,H) ─┐
 *     x ─────────────────────┴ MatMul ─┐
 *     weights of columns (W,Q) ────────┴ MatMul ─ y
 *
 * ONNX has many formulas for the position in x of a pixel of y. A file may have any of them if the positions are those of the
 * layer for the size at hand. */
#include "codelets/ops/resize_weights.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the operator ------------------------------------------------------------------------------------------------- */

/* IN pixels of an axis become OUT; SCALE: as the file has it. */
struct axis {
    int64_t in, out;
    double scale;
};

/* Returns the position in x of pixel P of y; NAN: the mode is not supported. OLD: opset 10 has one mode. */
static double position(const struct axis *axis, const Onnx__Attribute *mode, bool old, int64_t p) {
    const double in = (double)axis->in, out = (double)axis->out, half = ((double)p + 0.5) / axis->scale - 0.5;
    if (old || sgrad__onnx_is_text(mode, "asymmetric")) return (double)p / axis->scale;
    if (!mode || sgrad__onnx_is_text(mode, "half_pixel")) return half;
    if (sgrad__onnx_is_text(mode, "pytorch_half_pixel")) return axis->out > 1 ? half : 0;
    if (sgrad__onnx_is_text(mode, "half_pixel_symmetric")) return in / 2 * (1 - out / (axis->scale * in)) + half;
    if (sgrad__onnx_is_text(mode, "align_corners")) return axis->out > 1 ? (double)p * (in - 1) / (out - 1) : 0;
    return NAN;
}

/* Returns the pixel nearest to position AT. For opset 10, programs differ in how smaller images are rounded: the layer, which
 * rounds down, is the same only if rounding up makes no difference. */
static double nearest(const struct axis *axis, const Onnx__Attribute *mode, bool old, double at) {
    if (old) return axis->scale < 1 ? ceil(at) : floor(at);
    if (!mode || sgrad__onnx_is_text(mode, "round_prefer_floor")) return ceil(at - 0.5);
    if (sgrad__onnx_is_text(mode, "round_prefer_ceil")) return floor(at + 0.5);
    if (sgrad__onnx_is_text(mode, "floor")) return floor(at);
    return sgrad__onnx_is_text(mode, "ceil") ? ceil(at) : NAN;
}

/* Returns true if N computes each pixel of AXIS from the same ones as the layer HOW, except for rounding in single precision. The
 * nearest pixel depends on whether a position is a whole number or a half, so positions are first rounded to multiples of
 * 1/grid, which these are. */
static bool is_axis(const struct sgrad__reader *reader, const Onnx__Node *n, const struct axis *axis,
                    const struct sgrad_resize *how) {
    const Onnx__Attribute *mode = sgrad__onnx_attribute(n, "coordinate_transformation_mode");
    const Onnx__Attribute *round = sgrad__onnx_attribute(n, "nearest_mode");
    const bool old = reader->opset < 11, corners = axis->out > 1 && sgrad__onnx_is_text(mode, "align_corners");
    const double in = (double)axis->in, end = in - 1, grid = 2 * (double)(axis->out - corners);
    for (int64_t p = 0; p < axis->out; p++) {
        const struct sgrad__taps taps = sgrad__resize_taps(how, (int)p, (int)axis->in, (int)axis->out);
        const double at = position(axis, mode, old, p), on_grid = rint(at * grid) / grid;
        const double exact = fabs(on_grid - at) <= 1e-6 * in ? on_grid : at;
        const double pixel = how->bilinear ? at : nearest(axis, round, old, exact);
        const double wanted = !how->bilinear ? (double)(p * axis->in / axis->out)
                                             : taps.begin + (taps.end > taps.begin + 1 ? taps.last : 0);
        if (isnan(pixel) || fabs(fmin(fmax(pixel, 0), end) - wanted) > (how->bilinear ? 1e-5 * in : 0)) return false;
    }
    return true;
}

/* Sets AXIS, one per dimension of VIEW, from the sizes or the scales of N. */
static bool take_axes(const struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *view,
                      struct axis *axis) {
    const bool old = reader->opset < 11;        /* without an input for the region */
    const struct sgrad__thing *scales = sgrad__onnx_input(reader, n, old ? 1 : 2);
    const Onnx__Attribute *listed = sgrad__onnx_attribute(n, "axes");
    const int wanted = listed ? (int)listed->n_ints : view->rank;
    int64_t size[SGRAD__NUMBERS];
    float scale[SGRAD__NUMBERS];
    int count;
    bool sized = sgrad__onnx_input(reader, n, 3) != NULL;
    if (sized ? !sgrad__onnx_numbers(reader, n, 3, size, &count)
              : !scales || !scales->tensor || !sgrad__onnx_floats(scales->tensor, scale, SGRAD__NUMBERS, &count))
        return false;
    if (count != wanted || wanted > view->rank) return false;
    for (int d = 0; d < view->rank; d++) {
        const int64_t in = sgrad__view_size(view, d);
        axis[d] = (struct axis){ in, in, 1 };
    }
    for (int i = 0; i < count; i++) {
        const int d = listed ? sgrad__onnx_axis(listed->ints[i], view->rank) : i;
        if (d < 0 || (!sized && !(scale[i] > 0 && scale[i] <= SGRAD__ONNX_LARGE))) return false;
        if (!sized && scale[i] != 1)
            axis[d].out = (int64_t)floorf((float)axis[d].in * scale[i]); /* as in ONNX Runtime, 5 times 1.4 is 7 */
        if (sized) axis[d].out = size[i];
        const double ratio = (double)axis[d].out / (double)axis[d].in;
        axis[d].scale = sized || fabs(ratio - (double)scale[i]) <= 1e-7 * ratio ? ratio : (double)scale[i];
    }
    return true;
}

int sgrad__onnx_read_resize(struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Attribute *mode = sgrad__onnx_attribute(n, "mode"), *keep = sgrad__onnx_attribute(n, "keep_aspect_ratio_policy");
    const int x = sgrad__onnx_value(reader, n, 0, false), rank = x < 0 ? 0 : sgrad__onnx_rank(reader, x);
    struct axis axis[SGRAD__DIMENSIONS];
    if (x < 0) return reader->graph->error;
    if (rank != 4 && rank != 5) return sgrad__onnx_refuse(reader, n, "its input must be images (N,C,H,W)");
    if (sgrad__onnx_int(n, "antialias", 0) || (keep && !sgrad__onnx_is_text(keep, "stretch")) ||
        !take_axes(reader, n, &sgrad__onnx_input(reader, n, 0)->view, axis))
        return sgrad__onnx_refuse(reader, n, "its sizes or scales must be constants, with antialias 0 and without a policy");
    struct sgrad_resize is = { .height = (int)axis[rank - 2].out, .width = (int)axis[rank - 1].out,
                               .bilinear = sgrad__onnx_is_text(mode, "linear") };
    bool same = true;
    for (int d = 0; d < rank; d++) {
        same &= axis[d].in == axis[d].out;
        if (d < rank - 2 ? axis[d].in != axis[d].out : axis[d].out < 1 || axis[d].out > SGRAD__ONNX_LARGE)
            return sgrad__onnx_refuse(reader, n, "must resize rows and columns only, to at most %d", SGRAD__ONNX_LARGE);
    }
    if (mode && !is.bilinear && !sgrad__onnx_is_text(mode, "nearest"))
        return sgrad__onnx_refuse(reader, n, "mode is '%.*s', but must be nearest or linear", (int)mode->s.len,
                                  (const char *)mode->s.data);
    for (int d = rank - 2; d < rank; d++)
        if (!is_axis(reader, n, &axis[d], &is))
            return sgrad__onnx_refuse(reader, n,
                                      "its positions must be those of torch.nn.functional.interpolate with align_corners False");
    return same ? sgrad__onnx_pass(reader, n, 0)
                : sgrad__onnx_make(reader, n, sgrad__onnx_plain(reader, n, &sgrad_resize_op, &x, 1, &is));
}

/* ---- areas -------------------------------------------------------------------------------------------------------- */

/* Returns true if THING is the matrix (OUT,IN), or (IN,OUT) if TURNED, of areas of IN pixels, and sets *OUT. */
static bool is_areas(const struct sgrad__thing *thing, int64_t in, bool turned, int *out) {
    static const struct sgrad_resize how = { .area = true };
    const Onnx__Tensor *t = thing ? thing->tensor : NULL;
    if (!t || thing->turned || t->n_dims != 2 || t->dims[turned ? 0 : 1] != in || in > SGRAD__ONNX_LARGE ||
        !sgrad__onnx_is_real(t->data_type))
        return false;
    const int64_t count = t->dims[turned ? 1 : 0];
    if (count < 1 || count > SGRAD__ONNX_LARGE) return false;
    double *x = sgrad_xcalloc((size_t)(in * count), sizeof *x);
    bool same = true;
    sgrad__onnx_doubles(t, x);
    for (int64_t p = 0; p < count; p++) {
        const struct sgrad__taps taps = sgrad__resize_taps(&how, (int)p, (int)in, (int)count);
        for (int64_t i = 0; i < in; i++)
            same &= fabs(x[turned ? i * count + p : p * in + i] - sgrad__resize_weight(&how, taps, (int)i)) <= 1e-6;
    }
    free(x);
    *out = (int)count;
    return same;
}

bool sgrad__onnx_takes_areas(struct sgrad__reader *reader, const Onnx__Node *n, int *status) {
    const struct sgrad__thing *rows = sgrad__onnx_input(reader, n, 0), *t = sgrad__onnx_input(reader, n, 1);
    const Onnx__Node *next = strcmp(n->op_type, "MatMul") ? NULL : sgrad__onnx_next(reader, n, "MatMul");
    const struct sgrad__thing *columns = next ? sgrad__onnx_input(reader, next, 1) : NULL;
    struct sgrad_resize is = { .area = true };
    if (!columns || strcmp(next->input[0], n->output[0]) || !sgrad__onnx_is_value(reader, t) || t->view.rank < 4 ||
        !is_areas(rows, sgrad__view_size(&t->view, t->view.rank - 2), false, &is.height) ||
        !is_areas(columns, sgrad__view_size(&t->view, t->view.rank - 1), true, &is.width))
        return false;
    *status = sgrad__onnx_make(reader, next, sgrad__onnx_plain(reader, n, &sgrad_resize_op, &t->view.value, 1, &is));
    sgrad__onnx_thing(reader, n->output[0])->known = true;
    return true;
}
