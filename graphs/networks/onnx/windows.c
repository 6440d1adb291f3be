/* windows.c: reads ONNX's operators with windows over images or volumes, convolutions and pools, and means of all pixels. Windows
 * must be square, with one stride, one dilation and one padding; others are rejected. */
#include "codelets/ops/average_pool.h"
#include "codelets/ops/bias.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/conv3d.h"
#include "codelets/ops/conv_transpose.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/pad.h"
#include "graphs/networks/onnx/reader.h"

#include <stdlib.h>
#include <string.h>

struct window {
    int taps, depth_padding;            /* for volumes; taps (filter depth) 0: images */
    int kernel, stride, padding, dilation;
};

/* Copies the COUNT numbers of attribute NAME to NUMBER; without the attribute, each is OTHERWISE. Returns false if one is
 * invalid. */
static bool take_numbers(const Onnx__Node *n, const char *name, size_t count, int64_t otherwise, int64_t low, int64_t *number) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(n, name);
    if (a && a->n_ints != count) return false;
    for (size_t i = 0; i < count; i++) {
        number[i] = a ? a->ints[i] : otherwise;
        if (number[i] < low || number[i] > SGRAD__ONNX_LARGE) return false;
    }
    return true;
}

/* Sets the padding P that attribute auto_pad requests for X. */
static int pad_by_itself(struct sgrad__reader *reader, const Onnx__Node *n, int x, int plane, const int64_t *k, const int64_t *s,
                         const int64_t *d, int64_t *p) {
    const Onnx__Attribute *how = sgrad__onnx_attribute(n, "auto_pad");
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    const bool lower = sgrad__onnx_is_text(how, "SAME_LOWER");      /* has the larger half before the input */
    if (!how || !how->s.len || sgrad__onnx_is_text(how, "NOTSET")) return 0;
    const bool same = sgrad__onnx_is_text(how, "SAME_UPPER") || lower;
    if ((!same && !sgrad__onnx_is_text(how, "VALID")) || (same && !strcmp(n->op_type, "ConvTranspose")))
        return sgrad__onnx_refuse(reader, n, "auto_pad is '%.*s', which is not supported; export the model with explicit pads",
                                  (int)how->s.len, (const char *)how->s.data);
    for (int i = 0; i < plane; i++) {
        const int64_t size = shape.dim[i + 1], steps = (size + s[i] - 1) / s[i];
        const int64_t all = same ? (steps - 1) * s[i] + (k[i] - 1) * d[i] + 1 - size : 0;
        p[i] = all > 0 ? (all + lower) / 2 : 0;
        p[plane + i] = all > 0 ? all - p[i] : 0;
    }
    return 0;
}

/* Adds the padding P, unequal on the sides of images, as a layer, and sets *X to its value. */
static int pad_before(struct sgrad__reader *reader, const Onnx__Node *n, int *x, int64_t *p) {
    const struct sgrad_pad is = { .top = (int)p[0], .left = (int)p[1], .bottom = (int)p[2], .right = (int)p[3] };
    *x = sgrad__onnx_plain(reader, n, &sgrad_pad_op, x, 1, &is);
    memset(p, 0, 4 * sizeof *p);
    return *x < 0 ? reader->graph->error : 0;
}

/* Reads the window over PLANE dimensions of X, the last two of which must be square. KERNEL: the size of the weight's window;
 * NULL: only the attribute specifies it. PADS: the padding may be a layer before this one, whose value *X becomes. */
static int take_window(struct sgrad__reader *reader, const Onnx__Node *n, int *x, bool pads, int plane, const int64_t *kernel,
                       struct window *window) {
    int64_t k[3], s[3], d[3], p[6];
    const size_t dims = (size_t)plane;
    if (!kernel && !sgrad__onnx_attribute(n, "kernel_shape")) return sgrad__onnx_refuse(reader, n, "has no kernel_shape");
    if (!take_numbers(n, "kernel_shape", dims, 0, 0, k) || !take_numbers(n, "strides", dims, 1, 1, s) ||
        !take_numbers(n, "dilations", dims, 1, 1, d) || !take_numbers(n, "pads", 2 * dims, 0, 0, p))
        return sgrad__onnx_refuse(reader, n,
                                  "kernel_shape, strides and dilations must have %d numbers each, and pads %d; none may "
                                  "exceed %d, and strides and dilations must be positive",
                                  plane, 2 * plane, SGRAD__ONNX_LARGE);
    if (kernel && !sgrad__onnx_attribute(n, "kernel_shape"))
        for (int i = 0; i < plane; i++) k[i] = kernel[i] <= SGRAD__ONNX_LARGE ? kernel[i] : 0;
    const int h = plane - 2, v = plane - 1;
    SGRAD_TRY(pad_by_itself(reader, n, *x, plane, k, s, d, p));
    if (pads && plane == 2 && (p[0] != p[1] || p[0] != p[2] || p[0] != p[3])) SGRAD_TRY(pad_before(reader, n, x, p));
    if (k[h] != k[v] || s[h] != s[v] || d[h] != d[v] || k[h] < 1 || (kernel && (kernel[h] != k[h] || kernel[v] != k[v])))
        return sgrad__onnx_refuse(reader, n,
                                  "its window must be square, with equal strides and equal dilations, and have the size of its "
                                  "weight");
    for (int i = 0; i < plane; i++)
        if (p[i] != p[plane + i] || (i >= h && p[i] != p[h]))
            return sgrad__onnx_refuse(reader, n, "its padding must be equal on all sides");
    if (h && (s[0] != 1 || d[0] != 1 || k[0] < 1 || (kernel && kernel[0] != k[0])))
        return sgrad__onnx_refuse(reader, n,
                                  "along depth, its stride and dilation must be 1, and its window must have the size of its "
                                  "weight");
    *window = (struct window){ h ? (int)k[0] : 0, h ? (int)p[0] : 0, (int)k[h], (int)s[h], (int)p[h], (int)d[h] };
    return 0;
}

/* Returns the number of dimensions of images, or of volumes; 0: X is neither, and the error is logged. */
static int plane_of(struct sgrad__reader *reader, const Onnx__Node *n, int x) {
    const int rank = sgrad__onnx_rank(reader, x);
    if (rank == 4 || rank == 5) return rank - 2;
    sgrad__onnx_refuse(reader, n, "its input has %d dimensions, but must be images (N,C,H,W) or volumes (N,C,D,H,W)", rank);
    return 0;
}

/* Sets KERNEL to the size of WEIGHT's window, of PLANE dimensions. A filter that is applied to each slice of a volume has depth
 * 1. */
static void window_of(const struct sgrad__thing *weight, int plane, int64_t *kernel) {
    const int64_t *dim = weight->tensor->dims + 2;
    for (int i = 0; i < plane; i++)
        if (!weight->sliced) kernel[i] = dim[i];
        else kernel[i] = i ? dim[i - 1] : 1;
}

int sgrad__onnx_read_conv(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct window w;
    int x = sgrad__onnx_value(reader, n, 0, false);
    const int plane = x < 0 ? 0 : plane_of(reader, n, x);
    struct sgrad__thing *weight = plane ? sgrad__onnx_tensor(reader, n, 1, (size_t)plane + 2) : NULL;
    const bool has_bias = sgrad__onnx_input(reader, n, 2) != NULL;
    struct sgrad__thing *bias = weight && has_bias ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    if (!weight || (has_bias && !bias)) return reader->graph->error;
    int64_t kernel[3];
    window_of(weight, plane, kernel);
    SGRAD_TRY(take_window(reader, n, &x, true, plane, kernel, &w));
    if (weight->sliced && w.depth_padding)
        return sgrad__onnx_refuse(reader, n, "its padding along depth is %d, but must be 0 for a filter of depth 1",
                                  w.depth_padding);
    const int64_t groups = sgrad__onnx_int(n, "group", 1);
    if (groups < 1 || groups > weight->tensor->dims[0])
        return sgrad__onnx_refuse(reader, n, "group is %lld, but must be from 1 to %lld", (long long)groups,
                                  (long long)weight->tensor->dims[0]);
    if (w.taps && w.depth_padding != w.taps / 2 && w.depth_padding)
        return sgrad__onnx_refuse(reader, n, "its padding along depth is %d, but must be 0 or %d", w.depth_padding, w.taps / 2);
    const int channels = sgrad__onnx_outputs(reader, n, weight->tensor->dims[0]);
    char *name = sgrad__onnx_name(reader, n, 1);
    sgrad__onnx_bind(reader, name, "weight", weight);
    if (bias) sgrad__onnx_bind(reader, name, "bias", bias);
    const struct sgrad_conv2d flat = { .channels = channels, .kernel = w.kernel, .stride = w.stride, .padding = w.padding,
                                       .dilation = w.dilation, .groups = (int)groups, .bias = bias, .fan_in = bias };
    const struct sgrad_conv3d deep = { .channels = channels, .kernel = w.kernel, .stride = w.stride, .padding = w.padding,
                                       .dilation = w.dilation, .groups = (int)groups, .bias = bias, .depth = w.taps,
                                       .valid = w.taps > 1 && !w.depth_padding };
    const int y = w.taps && !weight->sliced ? sgrad__onnx_layer(reader, n, name, &sgrad_conv3d_op, &x, 1, &deep)
                         : sgrad__onnx_layer(reader, n, name, &sgrad_conv2d_op, &x, 1, &flat);
    free(name);
    return sgrad__onnx_make(reader, n, y);
}

/* The bias is a separate layer. */
int sgrad__onnx_read_conv_transpose(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct window w;
    int x = sgrad__onnx_value(reader, n, 0, false);
    const int plane = x < 0 ? 0 : plane_of(reader, n, x);
    struct sgrad__thing *weight = plane ? sgrad__onnx_tensor(reader, n, 1, (size_t)plane + 2) : NULL;
    const bool has_bias = sgrad__onnx_input(reader, n, 2) != NULL;
    struct sgrad__thing *bias = weight && has_bias ? sgrad__onnx_tensor(reader, n, 2, 1) : NULL;
    int64_t more[3] = { 0 }, kernel[3];
    if (!weight || (has_bias && !bias)) return reader->graph->error;
    window_of(weight, plane, kernel);
    SGRAD_TRY(take_window(reader, n, &x, false, plane, kernel, &w));
    if (sgrad__onnx_int(n, "group", 1) != 1 || !take_numbers(n, "output_padding", (size_t)plane, 0, 0, more) || more[0] ||
        more[1] || more[2] || w.taps > 1 || w.depth_padding)
        return sgrad__onnx_refuse(reader, n,
                                  "group must be 1, output_padding must be 0, and along depth its window must have size 1 and "
                                  "no padding");
    char *name = sgrad__onnx_name(reader, n, 1), *behind = sgrad_format("%s/bias", name);
    sgrad__onnx_bind(reader, name, "weight", weight);
    if (bias) sgrad__onnx_bind(reader, name, "bias", bias);
    int y = sgrad__onnx_layer(reader, n, name, &sgrad_conv_transpose_op, &x, 1,
                              &(struct sgrad_conv_transpose){ .channels = sgrad__onnx_outputs(reader, n, weight->tensor->dims[1]),
                                                              .kernel = w.kernel, .stride = w.stride, .padding = w.padding,
                                                              .dilation = w.dilation });
    if (bias && y >= 0) y = sgrad__onnx_layer(reader, n, behind, &sgrad_bias_op, &y, 1, &(struct sgrad_bias){ 0 });
    free(name);
    free(behind);
    return sgrad__onnx_make(reader, n, y);
}

/* Sets *CEIL if the last windows extend beyond the end (ceil_mode). Fails if a last window would begin in the padding at the end,
 * because programs differ in whether it exists. */
static int take_ceil(struct sgrad__reader *reader, const Onnx__Node *n, int x, int plane, bool max, const struct window *window,
                     bool *ceil) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, x);
    *ceil = max && sgrad__onnx_int(n, "ceil_mode", 0);
    if (!sgrad__onnx_int(n, "ceil_mode", 0)) return 0;
    for (int i = plane - 2; i < plane; i++) {
        const int64_t size = shape.dim[i + 1], room = size + 2 * window->padding - window->kernel;
        if (room < 0 || room % window->stride == 0) continue;
        if (!max)
            return sgrad__onnx_refuse(reader, n, "ceil_mode must be 0, because its last windows would extend beyond the input");
        if ((room / window->stride + 1) * window->stride >= size + window->padding)
            return sgrad__onnx_refuse(reader, n, "ceil_mode must be 0, because its last windows would begin after the input");
    }
    return 0;
}

static int read_pool(struct sgrad__reader *reader, const Onnx__Node *n, bool max) {
    struct window w;
    int x = sgrad__onnx_value(reader, n, 0, false);
    const int plane = x < 0 ? 0 : plane_of(reader, n, x);
    if (!plane) return reader->graph->error;
    bool ceil;
    SGRAD_TRY(take_window(reader, n, &x, false, plane, NULL, &w));
    if (w.dilation != 1)
        return sgrad__onnx_refuse(reader, n, "its dilations are %d, but must be 1", w.dilation);
    if (w.taps > 1 || w.depth_padding)
        return sgrad__onnx_refuse(reader, n, "along depth, its window must have size 1 and no padding");
    SGRAD_TRY(take_ceil(reader, n, x, plane, max, &w, &ceil));
    const struct sgrad_max_pool most = { .kernel = w.kernel, .stride = w.stride, .padding = w.padding, .ceil = ceil };
    const struct sgrad_average_pool mean = { .kernel = w.kernel, .stride = w.stride, .padding = w.padding,
                                             .exclude_padding = !sgrad__onnx_int(n, "count_include_pad", 0) && w.padding };
    return sgrad__onnx_make(reader, n, max ? sgrad__onnx_plain(reader, n, &sgrad_max_pool_op, &x, 1, &most)
                                      : sgrad__onnx_plain(reader, n, &sgrad_average_pool_op, &x, 1, &mean));
}
int sgrad__onnx_read_max_pool(struct sgrad__reader *reader, const Onnx__Node *n) { return read_pool(reader, n, true); }
int sgrad__onnx_read_average_pool(struct sgrad__reader *reader, const Onnx__Node *n) { return read_pool(reader, n, false); }

/* Returns true if the mean of VIEW over the dimensions OVER is VIEW itself: they have one element each. The exception is the mean
 * of images of one pixel that is (N,C), because the value of images is not. */
static bool is_unchanged(const struct sgrad__view *view, const bool *over, bool keeps, int rank) {
    int left = view->rank;
    for (int i = 0; i < view->count; i++)
        if (over[view->factor[i].dimension]) return false;
    for (int d = 0; d < view->rank; d++) left -= over[d];
    return keeps || rank == 2 || left != 2;
}

/* Makes the output of N the mean of FROM over the dimensions OVER, which must be all pixels of images, or all rows. */
static int read_mean(struct sgrad__reader *reader, const Onnx__Node *n, const struct sgrad__view *from, const bool *over,
                     bool keeps) {
    const struct sgrad_shape shape = sgrad_graph_shape(reader->graph, from->value);
    const int channels = shape.rank - 1;
    struct sgrad__view view = { .rank = from->rank, .scale = 1 };
    int64_t left = 1;
    if (is_unchanged(from, over, keeps, shape.rank)) {
        view = *from;
        for (int d = from->rank - 1; d >= 0 && !keeps; d--)
            if (over[d]) sgrad__view_squeeze(&view, d);
        return sgrad__onnx_set(reader, n, 0, &view);
    }
    for (int i = 0; i < from->count; i++) {
        struct sgrad__factor f = from->factor[i];
        if (over[f.dimension] != (f.axis > 0 && f.axis < channels))
            return sgrad__onnx_refuse(reader, n, "must be the mean over all pixels of images, or over all rows");
        if (over[f.dimension]) continue;
        if (f.axis) f.axis = 1, left *= f.size;
        view.factor[view.count++] = f;
    }
    if (shape.rank < 3 || left != shape.dim[channels])
        return sgrad__onnx_refuse(reader, n, "must be the mean over all pixels of images, or over all rows");
    for (int d = from->rank - 1; d >= 0 && !keeps; d--)
        if (over[d]) sgrad__view_squeeze(&view, d);
    /* As (N,1,1,C), it may be convolved, and multiplied by images: squeeze and excitation. Classifiers use (N,C). */
    const Onnx__Node *user = sgrad__onnx_thing(reader, n->output[0])->user;
    const struct sgrad_global_average_pool is = { .keep = keeps && user && sgrad__view_is_plain(reader, from) &&
                                                          (!strcmp(user->op_type, "Conv") || !strcmp(user->op_type, "Mul")) };
    const int y = sgrad__onnx_plain(reader, n, &sgrad_global_average_pool_op, &from->value, 1, &is);
    if (is.keep) return sgrad__onnx_make(reader, n, y);
    view.value = y;
    return sgrad__onnx_set(reader, n, 0, &view);
}

int sgrad__onnx_read_global_average_pool(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_whole(reader, n, 0);
    if (!t || (t->view.rank < 4 && !plane_of(reader, n, t->view.value))) return reader->graph->error;
    bool over[SGRAD__DIMENSIONS] = { false };
    for (int d = 2; d < t->view.rank; d++) over[d] = true;
    return read_mean(reader, n, &t->view, over, true);
}

int sgrad__onnx_read_reduce_mean(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_whole(reader, n, 0);
    int64_t axis[SGRAD__NUMBERS];
    int count;
    bool over[SGRAD__DIMENSIONS] = { false };
    if (!t) return reader->graph->error;
    if (!sgrad__onnx_axes(reader, n, 1, t->view.rank, axis, &count))
        return sgrad__onnx_refuse(reader, n, "its axes are not known");
    if (!count && sgrad__onnx_int(n, "noop_with_empty_axes", 0)) return sgrad__onnx_pass(reader, n, 0);
    for (int d = 0; d < t->view.rank && !count; d++) over[d] = true;
    for (int i = 0; i < count; i++) over[axis[i]] = true;
    return read_mean(reader, n, &t->view, over, sgrad__onnx_int(n, "keepdims", 1));
}
