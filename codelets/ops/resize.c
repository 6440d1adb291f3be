/* resize.c: images (N,H,W,C), or the slices of volumes, resized to (N,height,width,C), as torch.nn.functional.interpolate does
 * with align_corners=False:
 *
 *     nearest      y[p] = x[floor(p·H/height)]
 *     bilinear     y[p] is interpolated between the two pixels nearest to position (p + 1/2)·H/height - 1/2
 *     area         y[p] is the mean of the pixels floor(p·H/height) to ceil((p + 1)·H/height) - 1, as in AdaptiveAvgPool2d */
#include "config.h"
#include "codelets/ops/pool.h"
#include "codelets/ops/resize.h"
#include "codelets/ops/resize_weights.h"

void sgrad__resize_forward_cuda(const struct sgrad_args *args);
void sgrad__resize_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_resize *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 4 && x->rank != 5)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: resize requires images (N,H,W,C) or volumes (N,D,H,W,C), not %s",
                               signature->layer, sgrad_shape_text(x, text));
    if (attrs->height < 1 || attrs->width < 1 || (attrs->bilinear && attrs->area))
        return sgrad_log_error(SGRAD_EINVAL, "%s: resize requires a size of 1x1 or more, not %dx%d, and at most one of bilinear "
                               "and area",
                               signature->layer, attrs->height, attrs->width);
    signature->y.shape = *x;
    signature->y.shape.dim[x->rank - 3] = attrs->height;
    signature->y.shape.dim[x->rank - 2] = attrs->width;
    return 0;
}

/* x (N,H,W,C), y (N,P,Q,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_resize *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images x_is = sgrad__images_of(&args->view[0]), y_is = sgrad__images_of(&args->view[1]);
    const int64_t H = x_is.dim[1], W = x_is.dim[2], C = x_is.dim[3], P = y_is.dim[1], Q = y_is.dim[2];
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < y_is.dim[0] * P * Q; pixel++) {
        const struct sgrad__taps rows = sgrad__resize_taps(attrs, (int)(pixel / Q % P), (int)H, (int)P);
        const struct sgrad__taps columns = sgrad__resize_taps(attrs, (int)(pixel % Q), (int)W, (int)Q);
        for (int64_t c = 0, n; (n = sgrad_chunk(c, C)); c += n) {
            float *y = sgrad_row_sum(type, args->data[1], pixel * C + c, n, false, y_room);
            for (int h = rows.begin; h < rows.end; h++)
                for (int w = columns.begin; w < columns.end; w++) {
                    const float weight = sgrad__resize_weight(attrs, rows, h) * sgrad__resize_weight(attrs, columns, w);
                    const float *x = sgrad_row(type, args->data[0], ((pixel / (P * Q) * H + h) * W + w) * C + c, n, x_room);
                    for (int64_t j = 0; j < n; j++) y[j] += weight * x[j];
                }
            sgrad_row_done(type, args->data[1], pixel * C + c, n, y);
        }
    }
}

/* dy (N,P,Q,C), dx (N,H,W,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_resize *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images y_is = sgrad__images_of(&args->view[0]), x_is = sgrad__images_of(&args->view[1]);
    const int64_t H = x_is.dim[1], W = x_is.dim[2], C = x_is.dim[3], P = y_is.dim[1], Q = y_is.dim[2];
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < x_is.dim[0] * H * W; pixel++) {
        const int h = (int)(pixel / W % H), w = (int)(pixel % W);
        const struct sgrad__taps rows = sgrad__resize_outputs(h, (int)H, (int)P);
        const struct sgrad__taps columns = sgrad__resize_outputs(w, (int)W, (int)Q);
        for (int64_t c = 0, n; (n = sgrad_chunk(c, C)); c += n) {
            float *dx = sgrad_row_sum(type, args->data[1], pixel * C + c, n, sgrad_adds(args, 1), dx_room);
            for (int p = rows.begin; p < rows.end; p++) {
                const float row = sgrad__resize_weight(attrs, sgrad__resize_taps(attrs, p, (int)H, (int)P), h);
                for (int q = columns.begin; row != 0 && q < columns.end; q++) {
                    const float weight = row * sgrad__resize_weight(attrs, sgrad__resize_taps(attrs, q, (int)W, (int)Q), w);
                    if (weight == 0) continue;
                    const float *dy = sgrad_row(type, args->data[0], ((pixel / (H * W) * P + p) * Q + q) * C + c, n, dy_room);
                    for (int64_t j = 0; j < n; j++) dx[j] += weight * dy[j];
                }
            }
            sgrad_row_done(type, args->data[1], pixel * C + c, n, dx);
        }
    }
}

/* Forward: x, y; backward: dy, dx. */
static double flops(const struct sgrad_args *args) {
    const struct sgrad_resize *attrs = args->attrs;
    const double one = (double)sgrad_shape_count(&args->view[0].shape), other = (double)sgrad_shape_count(&args->view[1].shape);
    return attrs->area ? 2 * (one > other ? one : other) : attrs->bilinear ? 8 * (one < other ? one : other) : 0;
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_resize *attrs = attributes;
    snprintf(text, size, "%dx%d %s", attrs->height, attrs->width,
             attrs->bilinear ? "bilinear" : attrs->area ? "area" : "nearest");
}

/* Writes the matrix NAME (OUT,IN), or its transpose, with the weights of each pixel of IN in each of OUT. */
static void write_weights(const struct sgrad_resize *attrs, const char *name, int in, int out, bool transposed, FILE *to) {
    const int rows = transposed ? in : out, columns = transposed ? out : in;
    fprintf(to, "%s = Constant <value = float[%d, %d] {", name, rows, columns);
    for (int i = 0; i < rows * columns; i++) {
        const int row = i / columns, column = i % columns, p = transposed ? column : row;
        const float weight = sgrad__resize_weight(attrs, sgrad__resize_taps(attrs, p, in, out), transposed ? row : column);
        fprintf(to, "%s%.9g", i ? ", " : "", weight);
    }
    fputs("}> ()\n", to);
}

/* ONNX has no form of area; it is written as products with the weights of rows and of columns. */
static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_resize *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    const int height = (int)x->dim[x->rank - 3], width = (int)x->dim[x->rank - 2];
    if (attrs->area) {
        write_weights(attrs, "of_rows", height, attrs->height, false, to);
        write_weights(attrs, "of_columns", width, attrs->width, true, to);
        fputs("rows = MatMul (of_rows, x)\ny = MatMul (rows, of_columns)", to);
        return;
    }
    fprintf(to, "sizes = Constant <value = int64[2] {%d, %d}> ()\ny = Resize <axes = [%d, %d], ", attrs->height, attrs->width,
            x->rank - 2, x->rank - 1);
    fputs(attrs->bilinear ? "mode = \"linear\", coordinate_transformation_mode = \"half_pixel\""
                          : "mode = \"nearest\", coordinate_transformation_mode = \"asymmetric\", nearest_mode = \"floor\"", to);
    fputs("> (x, , , sizes)", to);
}

const struct sgrad_op sgrad_resize_op = {
    .name = "resize",
    .summary = "images resized to a given size: nearest pixel, bilinear, or mean of an area",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_resize),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "resize forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__resize_forward_cuda), .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "resize backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__resize_backward_cuda), .flops = flops },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "nearest, 3x5 to 7x10", { { 4, { 2, 3, 5, 3 } } }, &(struct sgrad_resize){ .height = 7, .width = 10 } },
        { "nearest, 7x8 to 3x2", { { 4, { 1, 7, 8, 4 } } }, &(struct sgrad_resize){ .height = 3, .width = 2 } },
        { "bilinear, 3x4 to 6x11", { { 4, { 2, 3, 4, 5 } } },
          &(struct sgrad_resize){ .height = 6, .width = 11, .bilinear = true } },
        { "bilinear, 9x7 to 2x5", { { 4, { 1, 9, 7, 4 } } },
          &(struct sgrad_resize){ .height = 2, .width = 5, .bilinear = true } },
        { "bilinear, 1x1 to 3x2, slices", { { 5, { 2, 2, 1, 1, 517 } } },
          &(struct sgrad_resize){ .height = 3, .width = 2, .bilinear = true } },
        { "area, 5x7 to 2x3", { { 4, { 2, 5, 7, 3 } } }, &(struct sgrad_resize){ .height = 2, .width = 3, .area = true } },
        { "area, 2x1 to 7x7", { { 4, { 1, 2, 1, 8 } } }, &(struct sgrad_resize){ .height = 7, .width = 7, .area = true } },
    },
};
