/* pad.c: images (N,H,W,C), or the slices of volumes, with a border of zeros or, with .reflect, of mirrored pixels:
 *
 *     x  a b c      left 2, right 1:      zeros  0 0 a b c 0      reflect  c b a b c b */
#include "config.h"
#include "codelets/ops/pad.h"
#include "codelets/ops/pool.h"

void sgrad__pad_forward_cuda(const struct sgrad_args *args);
void sgrad__pad_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_pad *p = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 4 && x->rank != 5)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: pad requires images (N,H,W,C) or volumes (N,D,H,W,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    const int64_t *dim = x->dim + x->rank - 3;
    const int lowest = p->top < p->bottom ? p->top : p->bottom, leftmost = p->left < p->right ? p->left : p->right;
    if (lowest < 0 || leftmost < 0)
        return sgrad_log_error(SGRAD_EINVAL, "%s: pad requires borders of 0 pixels or more, not %d,%d,%d,%d", signature->layer,
                               p->top, p->bottom, p->left, p->right);
    if (p->reflect && (p->top >= dim[0] || p->bottom >= dim[0] || p->left >= dim[1] || p->right >= dim[1]))
        return sgrad_log_error(SGRAD_ESHAPE, "%s: a mirrored border, of %d,%d,%d,%d pixels, must be narrower than the image %s",
                               signature->layer, p->top, p->bottom, p->left, p->right, sgrad_shape_text(x, text));
    signature->y.shape = *x;
    signature->y.shape.dim[x->rank - 3] += p->top + p->bottom;
    signature->y.shape.dim[x->rank - 2] += p->left + p->right;
    return 0;
}

/* Returns the pixel, of SIZE, that position P of the padded axis repeats; -1: zeros. */
SGRAD_ALWAYS_INLINE int64_t source(int64_t p, int64_t before, int64_t size, bool reflect) {
    const int64_t x = p - before;
    if (x >= 0 && x < size) return x;
    return !reflect ? -1 : x < 0 ? -x : 2 * (size - 1) - x;
}

/* Sets POSITION to those of the padded axis that repeat pixel X, of SIZE; returns their number, at most 3. */
SGRAD_ALWAYS_INLINE int positions(int64_t x, int64_t before, int64_t after, int64_t size, bool reflect, int64_t position[3]) {
    int count = 0;
    position[count++] = before + x;
    if (reflect && x > 0 && x <= before) position[count++] = before - x;
    if (reflect && x < size - 1 && size - 1 - x <= after) position[count++] = before + 2 * (size - 1) - x;
    return count;
}

/* x (N,H,W,C), y (N,P,Q,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_pad *a = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images x_is = sgrad__images_of(&args->view[0]), y_is = sgrad__images_of(&args->view[1]);
    const int64_t H = x_is.dim[1], W = x_is.dim[2], C = x_is.dim[3], P = y_is.dim[1], Q = y_is.dim[2];
    memset(args->data[1], 0, sgrad_view_bytes(&args->view[1]));
    for (int64_t pixel = 0; pixel < y_is.dim[0] * P * Q; pixel++) {
        const int64_t h = source(pixel / Q % P, a->top, H, a->reflect), w = source(pixel % Q, a->left, W, a->reflect);
        if (h < 0 || w < 0) continue;
        sgrad_row_move(type, args->data[0], ((pixel / (P * Q) * H + h) * W + w) * C, args->data[1], pixel * C, C, false);
    }
}

/* dy (N,P,Q,C), dx (N,H,W,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_pad *a = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images y_is = sgrad__images_of(&args->view[0]), x_is = sgrad__images_of(&args->view[1]);
    const int64_t H = x_is.dim[1], W = x_is.dim[2], C = x_is.dim[3], P = y_is.dim[1], Q = y_is.dim[2];
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < x_is.dim[0] * H * W; pixel++) {
        int64_t row[3], column[3];
        const int rows = positions(pixel / W % H, a->top, a->bottom, H, a->reflect, row);
        const int columns = positions(pixel % W, a->left, a->right, W, a->reflect, column);
        for (int64_t c = 0, n; (n = sgrad_chunk(c, C)); c += n) {
            float *dx = sgrad_row_sum(type, args->data[1], pixel * C + c, n, sgrad_adds(args, 1), dx_room);
            for (int i = 0; i < rows * columns; i++) {
                const int64_t from = (pixel / (H * W) * P + row[i / columns]) * Q + column[i % columns];
                const float *dy = sgrad_row(type, args->data[0], from * C + c, n, dy_room);
                for (int64_t j = 0; j < n; j++) dx[j] += dy[j];
            }
            sgrad_row_done(type, args->data[1], pixel * C + c, n, dx);
        }
    }
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_pad *p = attributes;
    snprintf(text, size, "%d,%d,%d,%d%s", p->top, p->bottom, p->left, p->right, p->reflect ? " reflect" : "");
}

static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_pad *p = attributes;
    const int rank = signature->x[0].shape.rank;
    const char *zeros = rank == 5 ? "0, 0, 0" : "0, 0";
    fprintf(to, "border = Constant <value = int64[%d] {%s, %d, %d, %s, %d, %d}> ()\ny = Pad <mode = \"%s\"> (x, border)",
            2 * rank, zeros, p->top, p->left, zeros, p->bottom, p->right, p->reflect ? "reflect" : "constant");
}

const struct sgrad_op sgrad_pad_op = {
    .name = "pad",
    .summary = "images with a border of zeros or of mirrored pixels",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_pad),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "pad forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__pad_forward_cuda), .flops = sgrad_no_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "pad backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__pad_backward_cuda), .flops = sgrad_no_flops },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "zeros, 3x5 to 6x8", { { 4, { 2, 3, 5, 3 } } },
          &(struct sgrad_pad){ .top = 1, .bottom = 2, .right = 3 } },
        { "reflect, 4x3 to 9x6", { { 4, { 2, 4, 3, 4 } } },
          &(struct sgrad_pad){ .top = 3, .bottom = 2, .left = 1, .right = 2, .reflect = true } },
        { "reflect, 2x5 to 4x6", { { 4, { 1, 2, 5, 1 } } },
          &(struct sgrad_pad){ .top = 1, .bottom = 1, .left = 1, .reflect = true } },
        { "slices, many channels", { { 5, { 1, 2, 2, 2, 517 } } },
          &(struct sgrad_pad){ .top = 1, .left = 1, .right = 1, .reflect = true } },
    },
};
