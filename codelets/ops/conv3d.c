/* conv3d.c: convolution of volumes (a cross-correlation, as usual in neural networks), channels-last:
 *
 *     y[n,o,p,q,k] = bias[k] + Σ_{t,r,s,c} weight[k,t,r,s,c] · x[n,d,h,w,c],   d = o + t - (T - 1) / 2,
 *
 * where T is the size of the filter along D; h and w are as in conv2d.c. With .valid there is no padding along D, and d = o + t.
 * There is no stride along D, because stacks of slices are thin in that dimension. Filters with T = 1 are conv2d.c's, applied to
 * every slice, and use all of its algorithms. */
#include "config.h"
#include "codelets/ops/filter.h"
#include "codelets/cpu/passes.h"
#include "codelets/ops/conv3d.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_conv3d *c = attributes;
    if (!c->depth) c->depth = c->kernel;
    if (c->depth < 1 || (!c->valid && c->depth % 2 == 0))
        return sgrad_log_error(SGRAD_EINVAL, "conv3d: %s: kernel depth %d must be odd, or, without padding, at least 1",
                               signature->layer, c->depth);
    return sgrad__filter_infer(signature, "conv3d", attributes, c->depth, c->valid ? 0 : c->depth / 2);
}

static void describe(const void *attributes, char *text, size_t size) {
    sgrad__filter_describe(attributes, ((const struct sgrad_conv3d *)attributes)->depth, text, size);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_conv3d *c = attrs;
    (void)signature;
    fputs("y = Conv <", to);
    sgrad__filter_onnx((const struct sgrad_conv2d *)attrs, c->depth, c->valid ? 0 : c->depth / 2, to);
    fprintf(to, "> (x, weight%s)", c->bias ? ", bias" : "");
}

const struct sgrad_op sgrad_conv3d_op = {
    .name = "conv3d",
    .summary = "three-dimensional convolution with optional bias and groups; stride and dilation within slices",
    .source = "K. He et al., Delving Deep into Rectifiers, 2015 (initial weights)",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_conv3d),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { SGRAD__PASS("conv3d forward", forward, forward, sgrad__conv2d_forward_cuda),
                     SGRAD__PACKS(forward) },
                   { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .inference = { { { SGRAD__PASS("conv3d inference", forward, inference, sgrad__conv2d_forward_cuda),
                       SGRAD__PACKS(inference) },
                     { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { SGRAD__PASS("conv3d backward-data", backward, backward_data, sgrad__conv2d_backward_data_cuda),
                      SGRAD__PACKS(backward_data) },
                    { SGRAD_IN(DY, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_OUT(DX, 0) } },
                  { { .accumulates = true,
                      SGRAD__PASS("conv3d backward-weight", backward, backward_weight, sgrad__conv2d_backward_weight_cuda) },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .tests = {
        { "3x3x3 of one channel, bias", { { 5, { 2, 4, 5, 6, 1 } } },
          &(struct sgrad_conv3d){ .channels = 16, .kernel = 3, .padding = 1, .bias = true } },
        { "3x3x3 of 16 to 32 channels", { { 5, { 1, 5, 6, 4, 16 } } },
          &(struct sgrad_conv3d){ .channels = 32, .kernel = 3, .padding = 1 } },
        { "3x3x3 of 3 to 5 channels, no padding", { { 5, { 2, 4, 5, 5, 3 } } },
          &(struct sgrad_conv3d){ .channels = 5, .kernel = 3, .valid = true } },
        { "1x3x3 of 16 channels", { { 5, { 2, 3, 6, 6, 16 } } },
          &(struct sgrad_conv3d){ .channels = 16, .kernel = 3, .depth = 1, .padding = 1, .bias = true } },
        { "1x1x1, odd channels, bias", { { 5, { 2, 2, 3, 5, 17 } } },
          &(struct sgrad_conv3d){ .channels = 3, .kernel = 1, .bias = true } },
        { "3x5x5 stride 2 in the plane", { { 5, { 1, 3, 9, 8, 2 } } },
          &(struct sgrad_conv3d){ .channels = 4, .kernel = 5, .depth = 3, .stride = 2, .padding = 2 } },
        { "2x1x1, no padding", { { 5, { 1, 3, 4, 5, 4 } } },
          &(struct sgrad_conv3d){ .channels = 6, .kernel = 1, .depth = 2, .valid = true } },
        { "3x3x3 in 2 groups", { { 5, { 1, 3, 4, 5, 6 } } },
          &(struct sgrad_conv3d){ .channels = 4, .kernel = 3, .padding = 1, .groups = 2, .bias = true } },
    },
};
