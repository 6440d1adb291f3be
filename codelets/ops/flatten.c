/* flatten.c: flattens an image to a row, (N,H,W,C) to (N,C·H·W), in PyTorch's order, so that the weights of a following linear
 * layer are compatible with PyTorch. One image of 1x3 pixels and 2 channels:
 *
 *     x  a0 b0  a1 b1  a2 b2     ->     y  a0 a1 a2  b0 b1 b2
 *
 * With one pixel, or if x is not an image, the order does not change, and y is a view of x. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/flatten.h"

void sgrad__flatten_forward_cuda(const struct sgrad_args *a);
void sgrad__flatten_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    (void)attrs;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: flatten requires images (N,H,W,C) or arrays (N,…), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    signature->view_of_input = x->rank != 4 || x->dim[1] * x->dim[2] == 1;
    signature->y.shape = (struct sgrad_shape){ 2, { x->dim[0], sgrad_shape_count(x) / x->dim[0] } };
    return 0;
}

/* Writes to TO the transposes of the SAMPLES matrices of ROWS x COLUMNS in FROM, or adds them to TO. */
static void transpose(enum sgrad_dtype type, const void *from, void *to, int64_t samples, int64_t rows, int64_t columns,
                      bool add) {
    for (int64_t s = 0; s < samples; s++)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t r = 0; r < rows; r++) {
                const int64_t i = (s * columns + c) * rows + r;
                const float value = sgrad_get(type, from, (s * rows + r) * columns + c);
                sgrad_put(type, to, i, add ? sgrad_get(type, to, i) + value : value);
            }
}

/* x (N,H,W,C), y (N,C·H·W) */
static void forward(const struct sgrad_args *args) {
    const int64_t *dim = args->view[0].shape.dim;
    transpose(args->view[0].dtype, args->data[0], args->data[1], dim[0], dim[1] * dim[2], dim[3], false);
}

/* dy (N,C·H·W), dx (N,H,W,C) */
static void backward(const struct sgrad_args *args) {
    const int64_t *dim = args->view[1].shape.dim;
    transpose(args->view[1].dtype, args->data[0], args->data[1], dim[0], dim[3], dim[1] * dim[2], sgrad_adds(args, 1));
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Flatten <axis = 1> (x)", to);
}

const struct sgrad_op sgrad_flatten_op = {
    .name = "flatten",
    .summary = "images to rows, (N,H,W,C) to (N,C·H·W), in PyTorch's order",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_flatten),
    .infer = infer,
    .onnx = onnx,
    .forward = { { { .name = "flatten forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__flatten_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "flatten backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__flatten_backward_cuda) },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x17", .x = { { 4, { 1, 5, 3, 17 } } } },
        { "3 images of 7x7x3", .x = { { 4, { 3, 7, 7, 3 } } } },
    },
};
