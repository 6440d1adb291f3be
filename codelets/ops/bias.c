/* bias.c: y = x + bias, with the same bias for all rows. For layers whose product is a sum over ranks: the bias is added after
 * that sum. x, y are (N,…,C), bias is (C). */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/bias.h"

#include <string.h>

void sgrad__bias_forward_cuda(const struct sgrad_args *args);
void sgrad__bias_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    (void)attributes;
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){ .name = "bias", .init = SGRAD_ZEROS, .shape = { 1, { x->dim[x->rank - 1] } } };
    return 0;
}

/* x (N,…,C), bias (C), y (N,…,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = args->view[1].shape.dim[0], rows = sgrad_shape_count(&args->view[0].shape) / features;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room),
                        *bias = (const float *)args->data[1] + i;
            float *y = sgrad_row_out(type, args->data[2], r * features + i, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = x[j] + bias[j];
            sgrad_row_done(type, args->data[2], r * features + i, n, y);
        }
}

/* dy (N,…,C), dx (N,…,C) or absent, dbias (C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = args->view[2].shape.dim[0], rows = sgrad_shape_count(&args->view[0].shape) / features;
    float *dbias = args->data[2], room[SGRAD_ROW];
    if (args->data[1]) sgrad_row_move(type, args->data[0], 0, args->data[1], 0, rows * features, sgrad_adds(args, 1));
    if (!sgrad_adds(args, 2)) memset(dbias, 0, sgrad_view_bytes(&args->view[2]));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *dy = sgrad_row(type, args->data[0], r * features + i, n, room);
            for (int64_t j = 0; j < n; j++) dbias[i + j] += dy[j];
        }
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const int rank = signature->x[0].shape.rank;
    (void)attrs;
    if (rank < 4) {
        fputs("y = Add (x, bias)", to);
        return;
    }
    fprintf(to, "plane = Constant <value = int64[%d] {%s}> ()\ncolumn = Unsqueeze (bias, plane)\ny = Add (x, column)", rank - 2,
            rank == 4 ? "1, 2" : "1, 2, 3");
}

const struct sgrad_op sgrad_bias_op = {
    .name = "bias",
    .summary = "sum of each row and a vector of one number per feature",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_bias),
    .infer = infer,
    .onnx = onnx,
    .forward = { { { .name = "bias forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__bias_forward_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "bias backward", .kind = &sgrad_backward_kind, .cpu = backward,
                     .cuda = SGRAD_ON_CUDA(sgrad__bias_backward_cuda), .accumulates = true },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0) } } },
    .tests = {
        { "7 samples of 5", { { 2, { 7, 5 } } } },
        { "rows of samples, longer than a piece", { { 3, { 2, 3, 531 } } } },
    },
};
