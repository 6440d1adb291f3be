/* rms_norm.c: divides every row by its root mean square, then multiplies it by a weight per feature:
 *
 *     h = x / sqrt(mean(x²) + eps)      y = weight·h
 *     g = weight·dy                     dx = (g - h·mean(g·h)) / sqrt(mean(x²) + eps)
 *
 * with x, y (N,…,C). A row consists of HEADS parts of D = C/heads features, each of which is normalized alone; weight (D). */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/rms_norm.h"

#include <math.h>

void sgrad__rms_norm_forward_cuda(const struct sgrad_args *args);
void sgrad__rms_norm_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_rms_norm *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (attrs->heads == 0) attrs->heads = 1;
    if (attrs->eps == 0) attrs->eps = 1e-5f;
    if (x->rank < 2 || attrs->heads < 0 || x->dim[x->rank - 1] % attrs->heads)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: rms_norm requires samples of features (N,…,C), with C a multiple of %d heads, not %s",
                               signature->layer, attrs->heads, sgrad_shape_text(x, text));
    const int64_t features = x->dim[x->rank - 1] / attrs->heads, rows = sgrad_shape_count(x) / features / x->dim[0];
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ONES, .shape = { 1, { features } } };
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, { 2, { x->dim[0], rows } } };
    return 0;
}

/* Returns D, the features that are normalized together. */
static int64_t features_of(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape;
    return x->dim[x->rank - 1] / ((const struct sgrad_rms_norm *)args->attrs)->heads;
}

/* x (N,…,C), weight (D), y (N,…,C), saved (N,rows·heads): 1 / sqrt(mean(x²) + eps) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const float eps = ((const struct sgrad_rms_norm *)args->attrs)->eps;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = features_of(args), rows = sgrad_shape_count(&args->view[0].shape) / features;
    const float *weight = args->data[1];
    float *keep = args->data[3], x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = r * features;
        keep[r] = 1 / sqrtf(sum_of_row(type, args->data[0], from, features, 0, true) / (float)features + eps);
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], from + i, n, x_room);
            float *y = sgrad_row_out(type, args->data[2], from + i, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = x[j] * keep[r] * weight[i + j];
            sgrad_row_done(type, args->data[2], from + i, n, y);
        }
    }
}

/* x, dy (N,…,C), weight (D), saved (N,rows·heads), dx (N,…,C) or absent, dweight (D) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = features_of(args), rows = sgrad_shape_count(&args->view[0].shape) / features;
    const float *weight = args->data[2], *keep = args->data[3];
    float *dweight = args->data[5], x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW], term[SGRAD_ROW];
    if (!sgrad_adds(args, 5)) memset(dweight, 0, sgrad_view_bytes(&args->view[5]));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = r * features;
        float product = 0;
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], from + i, n, x_room);
            const float *dy = sgrad_row(type, args->data[1], from + i, n, dy_room);
            for (int64_t j = 0; j < n; j++) term[j] = dy[j] * x[j] * keep[r];
            for (int64_t j = 0; j < n; j++) dweight[i + j] += term[j];
            product += sum_of_products(term, weight + i, n);
        }
        const float slope = product / (float)features * keep[r];
        for (int64_t i = 0, n; args->data[4] && (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], from + i, n, x_room);
            const float *dy = sgrad_row(type, args->data[1], from + i, n, dy_room);
            float *dx = sgrad_row_sum(type, args->data[4], from + i, n, sgrad_adds(args, 4), dx_room);
            for (int64_t j = 0; j < n; j++) dx[j] += keep[r] * (weight[i + j] * dy[j] - x[j] * slope);
            sgrad_row_done(type, args->data[4], from + i, n, dx);
        }
    }
}

static double forward_flops(const struct sgrad_args *args) { return 4.0 * (double)sgrad_shape_count(&args->view[0].shape); }
static double backward_flops(const struct sgrad_args *args) { return 10.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_rms_norm *attrs = attributes;
    if (attrs->heads > 1) snprintf(text, size, "%d heads", attrs->heads);
    else snprintf(text, size, "%s", "");
}

static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_rms_norm *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    const char *more = x->rank == 3 ? ", 0" : "";
    if (x->rank > 3) return;    /* images are (N,C,H,W) in ONNX */
    if (attrs->heads > 1) fprintf(to, "split = Constant <value = int64[%d] {0%s, %d, -1}> ()\nparts = Reshape (x, split)\n",
                                  x->rank + 1, more, attrs->heads);
    fprintf(to, "%s = RMSNormalization <axis = -1, epsilon = %#.9g> (%s, weight)", attrs->heads > 1 ? "scaled" : "y",
            (double)attrs->eps, attrs->heads > 1 ? "parts" : "x");
    if (attrs->heads > 1)
        fprintf(to, "\njoin = Constant <value = int64[%d] {0%s, -1}> ()\ny = Reshape (scaled, join)", x->rank, more);
}

const struct sgrad_op sgrad_rms_norm_op = {
    .name = "rms_norm",
    .summary = "root-mean-square normalisation of each row, or of each head of a row, then a scale",
    .source = "B. Zhang, R. Sennrich, Root mean square layer normalization, 2019",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_rms_norm),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "rms_norm forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__rms_norm_forward_cuda), .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0) } } },
    .backward = { { { .name = "rms_norm backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__rms_norm_backward_cuda), .accumulates = true, .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0),
                      SGRAD_OUT(DP, 0) } } },
    .tests = {
        { "one row of 5", { { 2, { 1, 5 } } } },
        { "3 samples of 4 rows of 17", { { 3, { 3, 4, 17 } } } },
        { "4 heads of 16, eps 0.1", { { 3, { 2, 3, 64 } } }, &(struct sgrad_rms_norm){ .heads = 4, .eps = 0.1f } },
        { "3 heads of 7", { { 3, { 2, 3, 21 } } }, &(struct sgrad_rms_norm){ .heads = 3 } },
        { "longer than a row", { { 2, { 3, 531 } } } },
        { "rows of 1,032", { { 2, { 2, 1032 } } } },
    },
};
