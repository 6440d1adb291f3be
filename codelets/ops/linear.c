/* linear.c: fully connected layer: y = x · weightᵀ + bias, with x (N,…,C), weight (K,C), bias (K), y (N,…,K). Any number of
 * leading dimensions is allowed; all of their rows are treated equally. */
#include "config.h"
#include "codelets/cpu/passes.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/onnx.h"

void sgrad__linear_forward_cuda(const struct sgrad_args *args);
void sgrad__linear_backward_data_cuda(const struct sgrad_args *args);
void sgrad__linear_backward_weight_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_linear *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2)
        return sgrad_log_error(SGRAD_ESHAPE, "linear: %s: input %s is not samples of features (N,…,C)", signature->layer,
                               sgrad_shape_text(x, text));
    if (attrs->features < 1)
        return sgrad_log_error(SGRAD_EINVAL, "linear: %s: must have 1 or more features, not %d", signature->layer,
                               attrs->features);
    const int64_t features = x->dim[x->rank - 1];
    signature->y.shape = *x;
    signature->y.shape.dim[x->rank - 1] = attrs->features;
    signature->p[0] = (struct sgrad_parameter){
        .name = "weight",
        .init = SGRAD_UNIFORM,
        .fan = (double)features,
        .shape = { 2, { attrs->features, features } },
        .layout = attrs->transposed ? SGRAD_TRANSPOSED : SGRAD_AS_IS,
    };
    if (attrs->bias)
        signature->p[1] = (struct sgrad_parameter){
            .name = "bias",
            .init = SGRAD_UNIFORM,
            .fan = (double)features,
            .shape = { 1, { attrs->features } },
        };
    if (attrs->deviation > 0) {
        signature->p[0].init = SGRAD_NORMAL;
        signature->p[0].deviation = attrs->deviation;
        signature->p[1].init = SGRAD_ZEROS;
    }
    if (attrs->fan_out) {
        signature->p[0].fan = attrs->features;
        signature->p[1].init = SGRAD_ZEROS;
    }
    return 0;
}

static struct sgrad_patches patches(const void *attributes) {
    (void)attributes;
    return (struct sgrad_patches){ .groups = 1 };
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_linear *l = attrs;
    const int rank = signature->x[0].shape.rank;
    if (rank == 2) fprintf(to, "y = Gemm <transB = %d> (x, weight%s)", !l->transposed, l->bias ? ", bias" : "");
    if (rank != 3 && rank != 4) return;
    if (rank == 4) fputs(SGRAD__ONNX_CHANNELS_LAST, to);
    if (!l->transposed) fputs("transposed = Transpose <perm = [1, 0]> (weight)\n", to);
    const char *y = rank == 4 ? "z" : "y";
    fprintf(to, "%s = MatMul (%s, %s)", l->bias ? "product" : y, rank == 4 ? "last" : "x",
            l->transposed ? "weight" : "transposed");
    if (l->bias) fprintf(to, "\n%s = Add (product, bias)", y);
    if (rank == 4) fputs(SGRAD__ONNX_CHANNELS_FIRST, to);
}

const struct sgrad_op sgrad_linear_op = {
    .name = "linear",
    .summary = "fully connected layer with optional bias",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_linear),
    .infer = infer,
    .onnx = onnx,
    .patches = patches,
    .forward = { { { SGRAD__PASS("linear forward", forward, forward, sgrad__linear_forward_cuda), SGRAD__PACKS(forward) },
                   { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { SGRAD__PASS("linear backward-data", backward, backward_data, sgrad__linear_backward_data_cuda),
                      SGRAD__PACKS(backward_data) },
                    { SGRAD_IN(DY, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_OUT(DX, 0) } },
                  { { .accumulates = true,
                      SGRAD__PASS("linear backward-weight", backward, backward_weight, sgrad__linear_backward_weight_cuda) },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .tests = {
        { "64 to 10, bias", { { 2, { 8, 64 } } }, &(struct sgrad_linear){ .features = 10, .bias = true } },
        { "odd, bias", { { 2, { 3, 17 } } }, &(struct sgrad_linear){ .features = 5, .bias = true } },
        { "one sample, no bias", { { 2, { 1, 33 } } }, &(struct sgrad_linear){ .features = 7 } },
        { "one feature to one", { { 2, { 5, 1 } } }, &(struct sgrad_linear){ .features = 1, .bias = true } },
        { "rows of rows, bias", { { 3, { 2, 5, 19 } } }, &(struct sgrad_linear){ .features = 6, .bias = true } },
        { "on an image's pixels", { { 4, { 2, 3, 4, 8 } } }, &(struct sgrad_linear){ .features = 16, .bias = true } },
        { "many samples, 64 to 10, bias", { { 2, { 100, 64 } } }, &(struct sgrad_linear){ .features = 10, .bias = true } },
        { "96 to 80", { { 2, { 16, 96 } } }, &(struct sgrad_linear){ .features = 80 } },
        { "wide, bias", { { 2, { 60, 304 } } }, &(struct sgrad_linear){ .features = 288, .bias = true } },
    },
};
