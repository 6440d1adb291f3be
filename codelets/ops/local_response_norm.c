/* local_response_norm.c: normalisation over neighbouring channels, as torch.nn.LocalResponseNorm:
 *
 *     y_c = x_c s_c^-beta      s_c = k + alpha/size Σ x_d²,  d from c - size/2 to c + (size-1)/2, limited to existing channels
 *
 * and backward, over the d whose windows contain c (from c - (size-1)/2 to c + size/2):
 *
 *     dx_c = dy_c s_c^-beta - 2 beta alpha/size x_c Σ dy_d y_d / s_d */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/local_response_norm.h"

#include <math.h>

void sgrad__local_response_norm_forward_cuda(const struct sgrad_args *a);
void sgrad__local_response_norm_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_local_response_norm *norm = attrs;
    if (!norm->size) norm->size = 5;
    if (norm->alpha == 0) norm->alpha = 1e-4f;
    if (norm->beta == 0) norm->beta = 0.75f;
    if (norm->k == 0) norm->k = 1;
    if (norm->size < 0 || norm->k < 0)
        return sgrad_log_error(SGRAD_EINVAL, "%s: local_response_norm: size and k must be above 0, not %d and %g",
                               signature->layer, norm->size, norm->k);
    signature->y.shape = signature->x[0].shape;
    return 0;
}

/* Computes sum[c] = Σ v[d], d from c - before to c + after, limited to 0…count-1. */
SGRAD_ALWAYS_INLINE void window_sum(const float *restrict v, float *restrict sum, int64_t count, int64_t before, int64_t after) {
    memset(sum, 0, (size_t)count * sizeof *sum);
    for (int64_t offset = -before; offset <= after; offset++) {
        int64_t begin = offset < 0 ? -offset : 0, end = offset > 0 ? count - offset : count;
        for (int64_t c = begin; c < end; c++) sum[c] += v[c + offset];
    }
}

/* Computes scale[c] = s_c of a row x. SQUARES is a scratch buffer of COUNT numbers. */
SGRAD_ALWAYS_INLINE void scales(const struct sgrad_local_response_norm *norm, const float *x, float *restrict squares,
                                float *restrict scale, int64_t count) {
    const float k = norm->k, alpha = norm->alpha / (float)norm->size;
    for (int64_t c = 0; c < count; c++) squares[c] = x[c] * x[c];
    window_sum(squares, scale, count, norm->size / 2, (norm->size - 1) / 2);
    for (int64_t c = 0; c < count; c++) scale[c] = k + alpha * scale[c];
}

/* power[c] = scale[c]^-beta; for the usual beta of 0.75 two square roots suffice */
SGRAD_ALWAYS_INLINE void powers(const float *restrict scale, float beta, float *restrict power, int64_t count) {
    if (beta == 0.75f)
        for (int64_t c = 0; c < count; c++) power[c] = 1 / (sqrtf(scale[c]) * sqrtf(sqrtf(scale[c])));
    else
        for (int64_t c = 0; c < count; c++) power[c] = powf(scale[c], -beta);
}

/* Rows of the workspace, each with one number per channel: x, y, dy, dx converted to float; s; s^-beta; the terms of a window
 * sum; the window sums. */
enum { X_ROOM, Y_ROOM, DY_ROOM, DX_ROOM, SCALE, POWER, TERMS, SUMS, ROWS };
static size_t workspace(const struct sgrad_args *args) {
    return ROWS * (size_t)args->view[0].shape.dim[args->view[0].shape.rank - 1] * sizeof(float);
}

/* x, y (…,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_local_response_norm *norm = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t count = sgrad_shape_count(&args->view[0].shape), C = args->view[0].shape.dim[args->view[0].shape.rank - 1];
    float *rows = args->workspace, *scale = rows + SCALE * C, *power = rows + POWER * C;
    for (int64_t i = 0; i < count; i += C) {
        const float *x = sgrad_row(type, args->data[0], i, C, rows + X_ROOM * C);
        float *y = sgrad_row_out(type, args->data[1], i, rows + Y_ROOM * C);
        scales(norm, x, rows + TERMS * C, scale, C);
        powers(scale, norm->beta, power, C);
        for (int64_t c = 0; c < C; c++) y[c] = x[c] * power[c];
        sgrad_row_done(type, args->data[1], i, C, y);
    }
}

/* x, y, dy, dx (…,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_local_response_norm *norm = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t count = sgrad_shape_count(&args->view[0].shape), C = args->view[0].shape.dim[args->view[0].shape.rank - 1];
    const float slope = 2 * norm->beta * norm->alpha / (float)norm->size;
    float *rows = args->workspace, *scale = rows + SCALE * C, *power = rows + POWER * C, *terms = rows + TERMS * C,
          *sums = rows + SUMS * C;
    for (int64_t i = 0; i < count; i += C) {
        const float *x = sgrad_row(type, args->data[0], i, C, rows + X_ROOM * C);
        const float *y = sgrad_row(type, args->data[1], i, C, rows + Y_ROOM * C);
        const float *dy = sgrad_row(type, args->data[2], i, C, rows + DY_ROOM * C);
        float *dx = sgrad_row_sum(type, args->data[3], i, C, sgrad_adds(args, 3), rows + DX_ROOM * C);
        scales(norm, x, terms, scale, C);
        powers(scale, norm->beta, power, C);
        for (int64_t c = 0; c < C; c++) terms[c] = dy[c] * y[c] / scale[c];
        window_sum(terms, sums, C, (norm->size - 1) / 2, norm->size / 2);
        for (int64_t c = 0; c < C; c++) dx[c] += dy[c] * power[c] - slope * x[c] * sums[c];
        sgrad_row_done(type, args->data[3], i, C, dx);
    }
}

static double flops(const struct sgrad_args *args) {
    const struct sgrad_local_response_norm *norm = args->attrs;
    return (norm->size + 8.0) * (double)sgrad_shape_count(&args->view[0].shape);
}

static double backward_flops(const struct sgrad_args *args) { return 2 * flops(args); }

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_local_response_norm *norm = attrs;
    snprintf(text, size, "size %d alpha %g beta %g k %g", norm->size, norm->alpha, norm->beta, norm->k);
}

/* Writes nothing for an even size: in ONNX the window then extends further on the other side. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_local_response_norm *n = attrs;
    (void)signature;
    if (n->size % 2)
        fprintf(to, "y = LRN <size = %d, alpha = %#.9g, beta = %#.9g, bias = %#.9g> (x)", n->size, n->alpha, n->beta, n->k);
}

const struct sgrad_op sgrad_local_response_norm_op = {
    .name = "local_response_norm",
    .summary = "normalisation over neighbouring channels",
    .source = "Krizhevsky, Sutskever, Hinton, ImageNet classification with deep convolutional neural networks, 2012, section 3.3",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_local_response_norm),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "local_response_norm forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__local_response_norm_forward_cuda), .workspace = workspace, .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "local_response_norm backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__local_response_norm_backward_cuda), .workspace = workspace,
                      .flops = backward_flops },
                    .use = { SGRAD_IN(X, 0), SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x17", .x = { { 4, { 1, 5, 3, 17 } } }, &(struct sgrad_local_response_norm){ .alpha = 1 } },
        { "3 channels under a window of 7", .x = { { 4, { 2, 3, 3, 3 } } },
          &(struct sgrad_local_response_norm){ .size = 7, .alpha = 1 } },
        { "an even window, beta 0.5", .x = { { 4, { 2, 1, 3, 9 } } },
          &(struct sgrad_local_response_norm){ .size = 4, .alpha = 2, .beta = 0.5f, .k = 2 } },
    },
};
