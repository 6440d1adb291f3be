/* linear.c: fully connected layer: y = x · weightᵀ + bias, with x (N,C), weight (K,C), bias (K), y (N,K). */
#include "codelets/onednn.h"
#include "codelets/ops/linear.h"

void sgrad__linear_forward_cuda(const struct sgrad_args *args);
void sgrad__linear_backward_data_cuda(const struct sgrad_args *args);
void sgrad__linear_backward_weight_cuda(const struct sgrad_args *args);
size_t sgrad__linear_workspace_cuda(const struct sgrad_args *args);

static void run(enum sgrad__pass pass, const struct sgrad_args *args) {
    const struct sgrad__layer l = sgrad__layer_of(pass, args);
    sgrad__layer_run(&l, args);
}

static size_t workspace(enum sgrad__pass pass, const struct sgrad_args *args) {
    const struct sgrad__layer l = sgrad__layer_of(pass, args);
    size_t bytes = sgrad__layer_workspace(&l);
#ifdef SGRAD_HAVE_CUDA
    size_t cuda = sgrad__linear_workspace_cuda(args);
    if (bytes < cuda) bytes = cuda;
#endif
    return bytes;
}

static double flops(enum sgrad__pass pass, const struct sgrad_args *args) {
    const struct sgrad__layer l = sgrad__layer_of(pass, args);
    return sgrad__layer_flops(&l);
}

static void forward(const struct sgrad_args *a) { run(SGRAD__FORWARD, a); }
static void backward_data(const struct sgrad_args *a) { run(SGRAD__BACKWARD_DATA, a); }
static void backward_weight(const struct sgrad_args *a) { run(SGRAD__BACKWARD_WEIGHT, a); }
static size_t forward_workspace(const struct sgrad_args *a) { return workspace(SGRAD__FORWARD, a); }
static size_t backward_data_workspace(const struct sgrad_args *a) { return workspace(SGRAD__BACKWARD_DATA, a); }
static size_t backward_weight_workspace(const struct sgrad_args *a) { return workspace(SGRAD__BACKWARD_WEIGHT, a); }
static double forward_flops(const struct sgrad_args *a) { return flops(SGRAD__FORWARD, a); }
static double backward_data_flops(const struct sgrad_args *a) { return flops(SGRAD__BACKWARD_DATA, a); }
static double backward_weight_flops(const struct sgrad_args *a) { return flops(SGRAD__BACKWARD_WEIGHT, a); }

static int infer(struct sgrad_signature *s, void *attributes) {
    const struct sgrad_linear *attrs = attributes;
    const struct sgrad_shape *x = &s->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 2)
        return sgrad_fail(SGRAD_ESHAPE, "linear: %s: input %s is not samples of features (N,C); flatten it first", s->layer,
                          sgrad_shape_text(x, text));
    if (attrs->features < 1) return sgrad_fail(SGRAD_EINVAL, "linear: %s: %d features: out of range", s->layer, attrs->features);
    s->y.shape = (struct sgrad_shape){ 2, { x->dim[0], attrs->features } };
    s->p[0] = (struct sgrad_parameter){
        .name = "weight",
        .init = SGRAD_UNIFORM,
        .fan = (double)x->dim[1],
        .shape = { 2, { attrs->features, x->dim[1] } },
    };
    if (attrs->bias)
        s->p[1] = (struct sgrad_parameter){
            .name = "bias",
            .init = SGRAD_UNIFORM,
            .fan = (double)x->dim[1],
            .shape = { 1, { attrs->features } },
        };
    return 0;
}

const struct sgrad_op sgrad_linear_op = {
    .name = "linear",
    .summary = "fully connected layer, optionally with bias",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_linear),
    .infer = infer,
    .forward = { { { .name = "linear forward", .kind = SGRAD_FORWARD, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__linear_forward_cuda), .workspace = forward_workspace, .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "linear backward-data", .kind = SGRAD_BACKWARD, .cpu = backward_data,
                      .cuda = SGRAD_ON_CUDA(sgrad__linear_backward_data_cuda),
                      .workspace = backward_data_workspace, .flops = backward_data_flops },
                    { SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_OUT(DX, 0) } },
                  { { .name = "linear backward-weight", .kind = SGRAD_BACKWARD, .adds = true, .cpu = backward_weight,
                      .cuda = SGRAD_ON_CUDA(sgrad__linear_backward_weight_cuda),
                      .workspace = backward_weight_workspace, .flops = backward_weight_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .tests = {
        { "64 to 10, bias", { { 2, { 8, 64 } } }, &(struct sgrad_linear){ .features = 10, .bias = true } },
        { "odd, bias", { { 2, { 3, 17 } } }, &(struct sgrad_linear){ .features = 5, .bias = true } },
        { "one sample, no bias", { { 2, { 1, 33 } } }, &(struct sgrad_linear){ .features = 7 } },
        { "one feature to one", { { 2, { 5, 1 } } }, &(struct sgrad_linear){ .features = 1, .bias = true } },
        { "96 to 80", { { 2, { 16, 96 } } }, &(struct sgrad_linear){ .features = 80 } },
    },
};
