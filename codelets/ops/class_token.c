/* class_token.c: a learned row before the rows of each sample: x (N,T,C), weight (1,1,C), y (N,1+T,C). The output of a
 * transformer for this row is its prediction for the sample:
 *
 *     x  a b c      y  weight a b c
 *        d e f         weight d e f      rows of two samples */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/class_token.h"

void sgrad__class_token_forward_cuda(const struct sgrad_args *args);
void sgrad__class_token_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    (void)attrs;
    if (x->rank != 3)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: class_token requires samples of rows (N,T,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    signature->y.shape = (struct sgrad_shape){ 3, { x->dim[0], 1 + x->dim[1], x->dim[2] } };
    signature->p[0] =
        (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ZEROS, .shape = { 3, { 1, 1, x->dim[2] } } };
    return 0;
}

/* x (N,T,C), weight (1,1,C), y (N,1+T,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t *dim = args->view[0].shape.dim, features = dim[2], sample = dim[1] * features;
    float room[SGRAD_ROW];
    for (int64_t s = 0; s < dim[0]; s++) {
        const int64_t to = s * (sample + features);
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            float *y = sgrad_row_out(type, args->data[2], to + i, room);
            memcpy(y, (const float *)args->data[1] + i, (size_t)n * sizeof *y);
            sgrad_row_done(type, args->data[2], to + i, n, y);
        }
        sgrad_row_move(type, args->data[0], s * sample, args->data[2], to + features, sample, false);
    }
}

/* dy (N,1+T,C), dx (N,T,C) or absent, dweight (1,1,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t *dim = args->view[0].shape.dim, features = dim[2], sample = dim[1] * features;
    float *dweight = args->data[2], room[SGRAD_ROW];
    if (!sgrad_adds(args, 2)) memset(dweight, 0, sgrad_view_bytes(&args->view[2]));
    for (int64_t s = 0; s < dim[0]; s++) {
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *dy = sgrad_row(type, args->data[0], s * sample + i, n, room);
            for (int64_t j = 0; j < n; j++) dweight[i + j] += dy[j];
        }
        if (args->data[1])
            sgrad_row_move(type, args->data[0], s * sample + features, args->data[1], s * (sample - features), sample - features,
                           sgrad_adds(args, 1));
    }
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)attrs;
    fprintf(to, "samples = Shape <start = 0, end = 1> (x)\nrow = Constant <value = int64[2] {1, %lld}> ()\n"
                "shape = Concat <axis = 0> (samples, row)\ntoken = Expand (weight, shape)\ny = Concat <axis = 1> (token, x)",
            (long long)signature->x[0].shape.dim[2]);
}

const struct sgrad_op sgrad_class_token_op = {
    .name = "class_token",
    .summary = "a learned row before the rows of each sample",
    .source = "A. Dosovitskiy et al., An image is worth 16x16 words, 2021",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_class_token),
    .infer = infer,
    .onnx = onnx,
    .forward = { { { .name = "class_token forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__class_token_forward_cuda), .flops = sgrad_no_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "class_token backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__class_token_backward_cuda), .accumulates = true, .flops = sgrad_no_flops },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0) } } },
    .tests = {
        { "one sample of 5 rows", { { 3, { 1, 5, 7 } } } },
        { "3 samples of 4 rows", { { 3, { 3, 4, 16 } } } },
        { "longer than a row", { { 3, { 2, 1, 515 } } } },
    },
};
