/* crop.c: a window of images (N,H,W,C), of volumes (N,D,H,W,C) or of rows (N,T,C), with a given size and origin:
 *
 *     x  a b c      from 0 1, of 2x2      y  b c      dx  0 . .
 *        d e f                               e f          0 . .
 *        g h i                                            0 0 0
 */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/crop.h"

void sgrad__crop_forward_cuda(const struct sgrad_args *args);
void sgrad__crop_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_crop *c = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 3 || x->rank > 5)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: crop requires images (N,H,W,C), volumes (N,D,H,W,C) or rows (N,T,C), not %s",
                               signature->layer, sgrad_shape_text(x, text));
    signature->y.shape = *x;
    for (int d = 0; d < 3; d++) {
        const int64_t dim = d < 5 - x->rank ? 1 : x->dim[x->rank - 4 + d];
        if (!c->size[d]) c->size[d] = (int)(dim - c->from[d]);
        if (c->from[d] < 0 || c->size[d] < 1 || c->from[d] > dim - c->size[d])
            return sgrad_log_error(SGRAD_EINVAL, "%s: crop of %dx%dx%d from %d,%d,%d is outside %s", signature->layer, c->size[0],
                                   c->size[1], c->size[2], c->from[0], c->from[1], c->from[2], sgrad_shape_text(x, text));
        if (d >= 5 - x->rank) signature->y.shape.dim[x->rank - 4 + d] = c->size[d];
    }
    return 0;
}

/* Rows of the window, which are runs of adjacent elements; begin_of returns the offset in the whole tensor of the window's
 * row I. */
struct rows {
    int64_t count, width, depth, height, whole_row, slices, lines, from[3], channels;
};
static struct rows rows_of(const struct sgrad_args *args, const struct sgrad_shape *whole) {
    const struct sgrad_crop *c = args->attrs;
    const int64_t *end = whole->dim + whole->rank, channels = end[-1];
    return (struct rows){ .count = whole->dim[0] * c->size[0] * c->size[1], .width = c->size[2] * channels, .depth = c->size[0],
                          .height = c->size[1], .whole_row = end[-2] * channels, .slices = whole->rank > 4 ? end[-4] : 1,
                          .lines = whole->rank > 3 ? end[-3] : 1,
                          .from = { c->from[0], c->from[1], c->from[2] }, .channels = channels };
}
static int64_t begin_of(const struct rows *rows, int64_t i) {
    const int64_t sample = i / (rows->depth * rows->height), z = i / rows->height % rows->depth + rows->from[0],
                  y = i % rows->height + rows->from[1];
    return ((sample * rows->slices + z) * rows->lines + y) * rows->whole_row + rows->from[2] * rows->channels;
}

/* x (N,[[D,]H,]W,C), y (N,[[D,]P,]Q,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct rows r = rows_of(args, &args->view[0].shape);
    for (int64_t i = 0; i < r.count; i++)
        sgrad_row_move(args->view[0].dtype, args->data[0], begin_of(&r, i), args->data[1], i * r.width, r.width, false);
}

/* dy (N,[[D,]P,]Q,C), dx (N,[[D,]H,]W,C): zeros outside the window */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct rows r = rows_of(args, &args->view[1].shape);
    const bool add = sgrad_adds(args, 1);
    if (!add) memset(args->data[1], 0, sgrad_view_bytes(&args->view[1]));
    for (int64_t i = 0; i < r.count; i++)
        sgrad_row_move(args->view[0].dtype, args->data[0], i * r.width, args->data[1], begin_of(&r, i), r.width, add);
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_crop *c = attributes;
    snprintf(text, size, "%dx%dx%d from %d,%d,%d", c->size[0], c->size[1], c->size[2], c->from[0], c->from[1], c->from[2]);
}

static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_crop *c = attributes;
    const int rank = signature->x[0].shape.rank, skip = 5 - rank;
    static const char *const name[] = { "starts", "ends", "axes" };
    for (int which = 0; which < 3; which++) {
        fprintf(to, "%s = Constant <value = int64[%d] {", name[which], rank - 2);
        for (int d = skip; d < 3; d++) {
            const int number[] = { c->from[d], c->from[d] + c->size[d], rank == 3 ? 1 : d - skip + 2 };
            fprintf(to, "%s%d", d > skip ? ", " : "", number[which]);
        }
        fputs("}> ()\n", to);
    }
    fputs("y = Slice (x, starts, ends, axes)", to);
}

const struct sgrad_op sgrad_crop_op = {
    .name = "crop",
    .summary = "crop of images, volumes or rows",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_crop),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "crop forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__crop_forward_cuda), .flops = sgrad_no_flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "crop backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__crop_backward_cuda), .flops = sgrad_no_flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "3x4 of images of 5x6", { { 4, { 2, 5, 6, 3 } } }, &(struct sgrad_crop){ .size = { 0, 3, 4 }, .from = { 0, 1, 2 } } },
        { "the last slice's corner", { { 5, { 2, 3, 4, 5, 2 } } },
          &(struct sgrad_crop){ .size = { 1, 1, 1 }, .from = { 2, 3, 4 } } },
        { "2x4x3 of volumes", { { 5, { 3, 4, 5, 3, 17 } } }, &(struct sgrad_crop){ .size = { 2, 4, 3 }, .from = { 1, 0, 0 } } },
        { "the first of 5 rows", { { 3, { 3, 5, 7 } } }, &(struct sgrad_crop){ .size = { 0, 0, 1 } } },
        { "all", { { 4, { 1, 3, 2, 5 } } }, &(struct sgrad_crop){ .size = { 0 } } },
    },
};
