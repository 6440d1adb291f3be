/* layer_scale.c: y = weight·x, with one learned factor per feature: x, y (N,…,C), weight (C), or (C,1,1) with .planes. At the end
 * of a residual branch, small initial factors let a deep network begin close to the identity. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/layer_scale.h"

void sgrad__layer_scale_forward_cuda(const struct sgrad_args *args);
void sgrad__layer_scale_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_layer_scale *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: layer_scale requires samples of features (N,…,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    if (attrs->start == 0) attrs->start = 1e-6f;
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ONES, .deviation = attrs->start,
                                                .shape = { attrs->planes ? 3 : 1, { x->dim[x->rank - 1], 1, 1 } } };
    return 0;
}

/* x, y (N,…,C), weight (C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = args->view[1].shape.dim[0], rows = sgrad_shape_count(&args->view[0].shape) / features;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room);
            const float *weight = (const float *)args->data[1] + i;
            float *y = sgrad_row_out(type, args->data[2], r * features + i, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = weight[j] * x[j];
            sgrad_row_done(type, args->data[2], r * features + i, n, y);
        }
}

/* x, dy (N,…,C), weight (C), dx (N,…,C) or absent, dweight (C): dx = weight·dy, dweight = Σ x·dy */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = args->view[2].shape.dim[0], rows = sgrad_shape_count(&args->view[0].shape) / features;
    float x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    if (!sgrad_adds(args, 4)) memset(args->data[4], 0, sgrad_view_bytes(&args->view[4]));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room);
            const float *dy = sgrad_row(type, args->data[1], r * features + i, n, dy_room);
            const float *weight = (const float *)args->data[2] + i;
            float *dweight = (float *)args->data[4] + i;
            for (int64_t j = 0; j < n; j++) dweight[j] += x[j] * dy[j];
            if (!args->data[3]) continue;
            float *dx = sgrad_row_sum(type, args->data[3], r * features + i, n, sgrad_adds(args, 3), dx_room);
            for (int64_t j = 0; j < n; j++) dx[j] += weight[j] * dy[j];
            sgrad_row_done(type, args->data[3], r * features + i, n, dx);
        }
}

static double backward_flops(const struct sgrad_args *args) { return 4.0 * (double)sgrad_shape_count(&args->view[0].shape); }

/* Of images, which are (N,C,H,W) in ONNX, the weight is (C,1,1) there. */
static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_layer_scale *attrs = attributes;
    const int rank = signature->x[0].shape.rank, axes = rank > 3 ? rank - 2 : 0;
    if (axes == (attrs->planes ? 2 : 0)) fputs("y = Mul (x, weight)", to);
    else
        fprintf(to, "shape = Constant <value = int64[%d] {-1%s}> ()\nfactor = Reshape (weight, shape)\ny = Mul (x, factor)",
                axes + 1, axes == 2 ? ", 1, 1" : axes == 3 ? ", 1, 1, 1" : "");
}

const struct sgrad_op sgrad_layer_scale_op = {
    .name = "layer_scale",
    .summary = "product of each row and a learned vector of one factor per feature",
    .source = "H. Touvron et al., Going deeper with image transformers, 2021",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_layer_scale),
    .infer = infer,
    .onnx = onnx,
    .forward = { { { .name = "layer_scale forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__layer_scale_forward_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "layer_scale backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__layer_scale_backward_cuda), .accumulates = true, .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0) } } },
    .tests = {
        { "7 samples of 5", { { 2, { 7, 5 } } } },
        { "rows longer than a piece", { { 3, { 2, 3, 531 } } }, &(struct sgrad_layer_scale){ .start = 0.1f } },
        { "images", { { 4, { 2, 3, 5, 8 } } }, &(struct sgrad_layer_scale){ .planes = true } },
    },
};
