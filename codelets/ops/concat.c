/* concat.c: concatenation of the inputs along the last dimension, which for images is the channels:
 *
 *     x0  a a    x1  b b b     ->    y  a a b b b
 *         a a        b b b              a a b b b        a row for every pixel */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/concat.h"

void sgrad__concat_forward_cuda(const struct sgrad_args *a);
void sgrad__concat_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_concat *concat = attrs;
    struct sgrad_shape y = signature->x[0].shape, like = signature->x[0].shape;
    const int last = y.rank - 1;
    y.dim[last] = 0;
    for (int i = 0; i < signature->inputs; i++) {
        const struct sgrad_shape *x = &signature->x[i].shape;
        char first[SGRAD_SHAPE_TEXT], other[SGRAD_SHAPE_TEXT];
        like.dim[last] = x->dim[last];
        if (x->rank < 2 || !sgrad_shape_equal(x, &like))
            return sgrad_log_error(SGRAD_ESHAPE,
                                   "%s: concat requires inputs that differ only in the last dimension, not %s and %s",
                                   signature->layer, sgrad_shape_text(&signature->x[0].shape, first), sgrad_shape_text(x, other));
        concat->channels[i] = (int)x->dim[last];
        y.dim[last] += x->dim[last];
    }
    signature->y.shape = y;
    return 0;
}

/* Forward: x0 … x7 (those after the last input are absent), y (…,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_concat *concat = args->attrs;
    const struct sgrad_view *y = &args->view[SGRAD_MAX_INPUTS];
    const int64_t rows = sgrad_shape_count(&y->shape) / y->shape.dim[y->shape.rank - 1];
    int64_t to = 0;
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < SGRAD_MAX_INPUTS && args->data[i]; to += concat->channels[i++])
            sgrad_row_move(y->dtype, args->data[i], row * concat->channels[i], args->data[SGRAD_MAX_INPUTS], to,
                           concat->channels[i], false);
}

/* Backward: dy (…,C), dx0 … dx7 (absent if the gradient is not needed) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_concat *concat = args->attrs;
    const struct sgrad_view *dy = &args->view[0];
    const int64_t rows = sgrad_shape_count(&dy->shape) / dy->shape.dim[dy->shape.rank - 1];
    void *const *dx = args->data + 1;
    int64_t from = 0;
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; from += concat->channels[i++])
            if (dx[i])
                sgrad_row_move(dy->dtype, args->data[0], from, dx[i], row * concat->channels[i], concat->channels[i],
                                sgrad_adds(args, 1 + i));
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_concat *concat = attrs;
    int used = snprintf(text, size, "channels %d", concat->channels[0]);
    for (int i = 1; i < SGRAD_MAX_INPUTS && concat->channels[i] && used < (int)size; i++)
        used += snprintf(text + used, size - (size_t)used, " + %d", concat->channels[i]);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const int rank = signature->x[0].shape.rank;
    (void)attrs;
    fprintf(to, "y = Concat <axis = %d> (x", rank > 3 ? 1 : rank - 1);
    for (int i = 1; i < signature->inputs; i++) fprintf(to, ", x%d", i);
    fputs(")", to);
}

const struct sgrad_op sgrad_concat_op = {
    .name = "concat",
    .summary = "concatenation of up to eight inputs along the channels",
    .inputs = 2,
    .optional_inputs = SGRAD_MAX_INPUTS - 2,
    .attrs_size = sizeof(struct sgrad_concat),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "concat forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__concat_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(X, 2), SGRAD_IN(X, 3), SGRAD_IN(X, 4), SGRAD_IN(X, 5),
                     SGRAD_IN(X, 6), SGRAD_IN(X, 7), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "concat backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__concat_backward_cuda) },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DX, 1), SGRAD_OUT(DX, 2), SGRAD_OUT(DX, 3),
                      SGRAD_OUT(DX, 4), SGRAD_OUT(DX, 5), SGRAD_OUT(DX, 6), SGRAD_OUT(DX, 7) } } },
    .tests = {
        { "3 and 17 channels, one image of 5x3", .x = { { 4, { 1, 5, 3, 3 } }, { 4, { 1, 5, 3, 17 } } } },
        { "1, 3 and 515, 2 samples", .x = { { 2, { 2, 1 } }, { 2, { 2, 3 } }, { 2, { 2, 515 } } } },
        { "eight inputs of 3 samples",
          .x = { { 2, { 3, 1 } }, { 2, { 3, 2 } }, { 2, { 3, 3 } }, { 2, { 3, 4 } },
                 { 2, { 3, 5 } }, { 2, { 3, 6 } }, { 2, { 3, 7 } }, { 2, { 3, 8 } } } },
    },
};
