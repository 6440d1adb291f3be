/* layer_norm.c: normalises every row to mean 0 and standard deviation 1, then scales and shifts it per feature:
 *
 *     h = (x - mean) / sqrt(variance + eps)        y = weight·h + bias
 *     g = weight·dy                                dx = (g - mean(g) - h·mean(g·h)) / sqrt(variance + eps)
 *
 * with x, y (N,…,C), weight, bias (C), and the population variance of a row. */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/layer_norm.h"
#include "codelets/ops/onnx.h"

#include <math.h>

void sgrad__layer_norm_forward_cuda(const struct sgrad_args *args);
void sgrad__layer_norm_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_layer_norm *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: layer_norm requires samples of features (N,…,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    if (attrs->eps == 0) attrs->eps = 1e-5f;
    const int64_t features = x->dim[x->rank - 1], rows = sgrad_shape_count(x) / features / x->dim[0];
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ONES, .shape = { 1, { features } } };
    signature->p[1] = (struct sgrad_parameter){ .name = "bias", .init = SGRAD_ZEROS, .shape = { 1, { features } } };
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, { 3, { x->dim[0], rows, 2 } } };
    return 0;
}

static int64_t features_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }

/* x (N,…,C), weight, bias (C), y (N,…,C), saved (N,rows,2): mean and 1/sqrt(variance + eps) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_layer_norm *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = features_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / features;
    const float *weight = args->data[1], *bias = args->data[2];
    float *keep = args->data[4], x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = r * features;
        const float mean = sum_of_row(type, args->data[0], from, features, 0, false) / (float)features;
        const float variance = sum_of_row(type, args->data[0], from, features, mean, true) / (float)features;
        const float scale = 1 / sqrtf(variance + attrs->eps);
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], from + i, n, x_room);
            float *y = sgrad_row_out(type, args->data[3], from + i, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * scale * weight[i + j] + bias[i + j];
            sgrad_row_done(type, args->data[3], from + i, n, y);
        }
        keep[2 * r] = mean;
        keep[2 * r + 1] = scale;
    }
}

/* x, dy (N,…,C), weight (C), saved (N,rows,2), dx (N,…,C) or absent, dweight, dbias (C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = features_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / features;
    const float *weight = args->data[2], *keep = args->data[3];
    float *dweight = args->data[5], *dbias = args->data[6], x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    float g[SGRAD_ROW], h[SGRAD_ROW];
    if (!sgrad_adds(args, 5)) memset(dweight, 0, sgrad_view_bytes(&args->view[5]));
    if (!sgrad_adds(args, 6)) memset(dbias, 0, sgrad_view_bytes(&args->view[6]));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = r * features;
        const float mean = keep[2 * r], scale = keep[2 * r + 1];
        float sum = 0, product = 0;
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], from + i, n, x_room);
            const float *dy = sgrad_row(type, args->data[1], from + i, n, dy_room);
            for (int64_t j = 0; j < n; j++) g[j] = dy[j] * weight[i + j], h[j] = (x[j] - mean) * scale;
            for (int64_t j = 0; j < n; j++) dweight[i + j] += dy[j] * h[j], dbias[i + j] += dy[j];
            sum += sum_of(g, n);
            product += sum_of_products(g, h, n);
        }
        const float first = sum / (float)features, second = product / (float)features;
        for (int64_t i = 0, n; args->data[4] && (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], from + i, n, x_room);
            const float *dy = sgrad_row(type, args->data[1], from + i, n, dy_room);
            float *dx = sgrad_row_sum(type, args->data[4], from + i, n, sgrad_adds(args, 4), dx_room);
            for (int64_t j = 0; j < n; j++)
                dx[j] += scale * (weight[i + j] * dy[j] - first - (x[j] - mean) * scale * second);
            sgrad_row_done(type, args->data[4], from + i, n, dx);
        }
    }
}

static double forward_flops(const struct sgrad_args *args) { return 8.0 * (double)sgrad_shape_count(&args->view[0].shape); }
static double backward_flops(const struct sgrad_args *args) { return 16.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const int rank = signature->x[0].shape.rank;
    if (rank > 4) return;
    if (rank == 4) fputs(SGRAD__ONNX_CHANNELS_LAST, to);
    fprintf(to, "%s = LayerNormalization <axis = -1, epsilon = %#.9g> (%s, weight, bias)", rank == 4 ? "z" : "y",
            ((const struct sgrad_layer_norm *)attrs)->eps, rank == 4 ? "last" : "x");
    if (rank == 4) fputs(SGRAD__ONNX_CHANNELS_FIRST, to);
}

const struct sgrad_op sgrad_layer_norm_op = {
    .name = "layer_norm",
    .summary = "layer normalisation of each row, then scale and shift",
    .source = "J. Ba, J. Kiros, G. Hinton, Layer normalization, 2016",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_layer_norm),
    .infer = infer,
    .onnx = onnx,
    .forward = { { { .name = "layer_norm forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__layer_norm_forward_cuda), .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0) } } },
    .backward = { { { .name = "layer_norm backward", .kind = &sgrad_backward_kind, .cpu = backward,
                     .cuda = SGRAD_ON_CUDA(sgrad__layer_norm_backward_cuda), .accumulates = true,
                      .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0),
                      SGRAD_OUT(DP, 1) } } },
    .tests = {
        { "one row of 5", { { 2, { 1, 5 } } } },
        { "3 samples of 4 rows of 17", { { 3, { 3, 4, 17 } } } },
        { "rows of 64, eps 0.1", { { 3, { 2, 3, 64 } } }, &(struct sgrad_layer_norm){ .eps = 0.1f } },
        { "longer than a row", { { 2, { 3, 531 } } } },
        { "rows of 768", { { 2, { 2, 768 } } } },
        { "rows of 1,032", { { 2, { 2, 1032 } } } },
    },
};
