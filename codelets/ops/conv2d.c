/* conv2d.c: two-dimensional convolution (a cross-correlation, as usual in neural networks), channels-last:
 *
 *     y[n,p,q,k] = bias[k] + Σ_{r,s,c} weight[k,r,s,c] · x[n,h,w,c],   h = p·stride + r·dilation - padding,
 *                                                                      w = q·stride + s·dilation - padding
 *
 * With groups, the channels of x and of y are split into that number of equal ranges; each range of y depends only on its range
 * of x. A volume (N,D,H,W,C) is processed as N·D images. */
#include "config.h"
#include "codelets/ops/filter.h"
#include "codelets/ops/onnx.h"
#include "codelets/cpu/passes.h"
#include "codelets/ops/conv2d.h"

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

int sgrad__filter_infer(struct sgrad_signature *signature, const char *op, struct sgrad_conv2d *conv2d, int taps,
                        int depth_padding) {
    if (!conv2d->stride) conv2d->stride = 1;
    if (!conv2d->dilation) conv2d->dilation = 1;
    if (!conv2d->groups) conv2d->groups = 1;
    const struct sgrad_shape *x = &signature->x[0].shape;
    const int plane = x->rank - 3;      /* the dimension of H */
    char text[SGRAD_SHAPE_TEXT];
    sgrad_shape_text(x, text);
    if (x->rank != 5 && (taps || x->rank != 4))
        return sgrad_log_error(SGRAD_ESHAPE, "%s: %s: input %s is not %s", op, signature->layer, text,
                               taps ? "volumes (N,D,H,W,C)" : "images (N,H,W,C) or slices (N,D,H,W,C)");
    if (conv2d->channels < 1 || conv2d->kernel < 1 || conv2d->stride < 1 || conv2d->dilation < 1 || conv2d->groups < 1 ||
        conv2d->padding < 0)
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: %s: %d channels, kernel %d, stride %d, dilation %d and groups %d must be 1 or more, and "
                               "padding %d must be 0 or more",
                               op, signature->layer, conv2d->channels, conv2d->kernel, conv2d->stride, conv2d->dilation,
                               conv2d->groups, conv2d->padding);
    const int64_t inputs = x->dim[x->rank - 1], extent = (int64_t)(conv2d->kernel - 1) * conv2d->dilation + 1;
    if (inputs % conv2d->groups || conv2d->channels % conv2d->groups)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: %s: %d groups must divide both the channels of the input, %s, and those of the output, %d",
                               op, signature->layer, conv2d->groups, text, conv2d->channels);
    const int64_t height = x->dim[plane] + 2 * conv2d->padding - extent, width = x->dim[plane + 1] + 2 * conv2d->padding - extent;
    if (height < 0 || width < 0)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: %s: a filter of %dx%d pixels is larger than input %s with padding %d", op,
                               signature->layer, (int)extent, (int)extent, text, conv2d->padding);
    const int64_t slices = taps ? x->dim[1] + 2 * depth_padding - taps + 1 : x->dim[1];
    if (taps && slices < 1)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: %s: a filter of %d slices is larger than input %s", op, signature->layer, taps,
                               text);

    signature->y.shape = *x;
    signature->y.shape.dim[1] = slices;
    signature->y.shape.dim[plane] = height / conv2d->stride + 1;
    signature->y.shape.dim[plane + 1] = width / conv2d->stride + 1;
    signature->y.shape.dim[x->rank - 1] = conv2d->channels;
    const bool fan_in = !taps && conv2d->fan_in, zero_bias = !taps && conv2d->zero_bias;    /* conv3d has no such members */
    const double area = (double)conv2d->kernel * conv2d->kernel * (taps ? taps : 1);
    signature->p[0] = (struct sgrad_parameter){
        .name = "weight",
        .init = SGRAD_HE,
        .fan = area * (double)(fan_in ? inputs / conv2d->groups : conv2d->channels),     /* as torch.nn.init */
        .layout = SGRAD_OIHW,
        .shape = { 4, { conv2d->channels, conv2d->kernel, conv2d->kernel, inputs / conv2d->groups } },
    };
    if (taps)
        signature->p[0].shape =
            (struct sgrad_shape){ 5, { conv2d->channels, taps, conv2d->kernel, conv2d->kernel, inputs / conv2d->groups } };
    if (conv2d->bias)
        signature->p[1] = (struct sgrad_parameter){
            .name = "bias",
            .init = zero_bias ? SGRAD_ZEROS : SGRAD_UNIFORM,
            .fan = area * (double)inputs / conv2d->groups,
            .shape = { 1, { conv2d->channels } },
        };
    return 0;
}

/* Sets initial values other than He's: for whitening or Dirac. */
static int begin_otherwise(struct sgrad_signature *signature, const struct sgrad_conv2d *conv2d) {
    const int64_t *w = signature->p[0].shape.dim, patch = w[1] * w[2] * w[3];
    signature->p[0].init = conv2d->whitening ? SGRAD_WHITENING : SGRAD_DIRAC;
    signature->p[0].fan = (double)patch;
    if (!conv2d->whitening) return 0;
    signature->p[1].init = SGRAD_ZEROS;
    if (conv2d->groups == 1 && conv2d->channels % 2 == 0 && conv2d->channels <= 2 * patch) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "conv2d: %s: whitening requires one group and an even number of at most %lld filters, not %d",
                           signature->layer, (long long)(2 * patch), conv2d->channels);
}

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_conv2d *c = attributes;
    SGRAD_TRY(sgrad__filter_infer(signature, "conv2d", attributes, 0, 0));
    return c->dirac || c->whitening ? begin_otherwise(signature, c) : 0;
}

void sgrad__filter_describe(const struct sgrad_conv2d *conv2d, int taps, char *text, size_t size) {
    const struct {
        const char *name;
        int value, otherwise;
    } part[] = { { "stride", conv2d->stride, 1 },
                 { "pad", conv2d->padding, 0 },
                 { "dilation", conv2d->dilation, 1 },
                 { "groups", conv2d->groups, 1 } };
    int used = taps ? snprintf(text, size, "%dx%dx%d", taps, conv2d->kernel, conv2d->kernel)
                    : snprintf(text, size, "%dx%d", conv2d->kernel, conv2d->kernel);
    for (size_t i = 0; i < sizeof part / sizeof *part && used < (int)size; i++)
        if (part[i].value != part[i].otherwise) used += snprintf(text + used, size - used, " %s %d", part[i].name, part[i].value);
}

void sgrad__filter_onnx(const struct sgrad_conv2d *conv2d, int taps, int depth_padding, FILE *to) {
    sgrad__onnx_window(taps, depth_padding, conv2d->kernel, conv2d->stride, conv2d->padding, to);
    fprintf(to, taps ? ", dilations = [1, %d, %d], group = %d" : ", dilations = [%d, %d], group = %d", conv2d->dilation,
            conv2d->dilation, conv2d->groups);
}

static void describe(const void *attributes, char *text, size_t size) { sgrad__filter_describe(attributes, 0, text, size); }

static struct sgrad_patches patches(const void *attributes) {
    const struct sgrad_conv2d *c = attributes;
    return (struct sgrad_patches){ c->kernel, c->stride, c->padding, c->dilation, c->groups };
}

/* For volumes the filter gets a dimension D of size 1. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_conv2d *c = attrs;
    const bool volumes = signature->x[0].shape.rank == 5;
    if (volumes) fputs("depth = Constant <value = int64[1] {2}> ()\nfilter = Unsqueeze (weight, depth)\n", to);
    fputs("y = Conv <", to);
    sgrad__filter_onnx(c, volumes, 0, to);
    fprintf(to, "> (x, %s%s)", volumes ? "filter" : "weight", c->bias ? ", bias" : "");
}

/* ---- the record ------------------------------------------------------------------------------------------------ */

const struct sgrad_op sgrad_conv2d_op = {
    .name = "conv2d",
    .summary = "two-dimensional convolution with optional bias, stride, dilation and groups",
    .source = "K. He et al., Delving Deep into Rectifiers, 2015 (initial weights)",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_conv2d),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .patches = patches,
    .forward = { { { .cuda_fused = SGRAD_CUDA_WITH(sgrad__conv2d_forward_with_cuda),
                     SGRAD__PASS("conv2d forward", forward, forward, sgrad__conv2d_forward_cuda),
                     SGRAD__PACKS(forward) },
                   { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .inference = { { { SGRAD__PASS("conv2d inference", forward, inference, sgrad__conv2d_forward_cuda),
                       SGRAD__PACKS(inference) },
                     { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .cuda_fused = SGRAD_CUDA_WITH(sgrad__conv2d_backward_data_with_cuda),
                      SGRAD__PASS("conv2d backward-data", backward, backward_data, sgrad__conv2d_backward_data_cuda),
                      SGRAD__PACKS(backward_data) },
                    { SGRAD_IN(DY, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_OUT(DX, 0) } },
                  { { .accumulates = true,
                      SGRAD__PASS("conv2d backward-weight", backward, backward_weight, sgrad__conv2d_backward_weight_cuda) },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .tests = {
        { "3x3 of 3 channels", { { 4, { 2, 7, 6, 3 } } },
          &(struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 1 } },
        { "3x3 of 16 channels, bias", { { 4, { 2, 6, 6, 16 } } },
          &(struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 1, .bias = true } },
        { "3x3 of 32 channels, many tiles", { { 4, { 4, 16, 16, 32 } } },
          &(struct sgrad_conv2d){ .channels = 32, .kernel = 3, .padding = 1 } },
        { "3x3 of 16 to 48 channels, no padding", { { 4, { 2, 7, 9, 16 } } },
          &(struct sgrad_conv2d){ .channels = 48, .kernel = 3, .bias = true } },
        { "3x3 of 32 to 16 channels, padding 2", { { 4, { 1, 5, 6, 32 } } },
          &(struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 2 } },
        { "3x3, blocks of tiles", { { 4, { 5, 26, 25, 16 } } },
          &(struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 1, .bias = true } },
        { "3x3, chunks of channels", { { 4, { 3, 5, 6, 176 } } },
          &(struct sgrad_conv2d){ .channels = 192, .kernel = 3, .padding = 1, .bias = true } },
        { "3x3 of 24 to 41 channels, which fill no vectors, bias", { { 4, { 2, 7, 9, 24 } } },
          &(struct sgrad_conv2d){ .channels = 41, .kernel = 3, .padding = 1, .bias = true } },
        { "5x5 of 16 to 32 channels, bias", { { 4, { 2, 7, 6, 16 } } },
          &(struct sgrad_conv2d){ .channels = 32, .kernel = 5, .padding = 2, .bias = true } },
        { "5x5 of 32 to 16 channels, no padding", { { 4, { 3, 9, 8, 32 } } },
          &(struct sgrad_conv2d){ .channels = 16, .kernel = 5 } },
        { "3x3 stride 2, odd image and channels", { { 4, { 3, 7, 5, 5 } } },
          &(struct sgrad_conv2d){ .channels = 17, .kernel = 3, .stride = 2, .padding = 1 } },
        { "3x3 on 2x2 pixels, many samples and filters, bias", { { 4, { 37, 2, 2, 16 } } },
          &(struct sgrad_conv2d){ .channels = 300, .kernel = 3, .padding = 1, .bias = true } },
        { "3x3 stride 3, dilation 2: pixels that no tap reaches", { { 4, { 3, 8, 6, 48 } } },
          &(struct sgrad_conv2d){ .channels = 5, .kernel = 3, .stride = 3, .dilation = 2 } },
        { "1x1, odd channels, bias", { { 4, { 2, 3, 5, 17 } } },
          &(struct sgrad_conv2d){ .channels = 3, .kernel = 1, .bias = true } },
        { "1x1 of 32 to 24 channels, bias", { { 4, { 3, 8, 7, 32 } } },
          &(struct sgrad_conv2d){ .channels = 24, .kernel = 1, .bias = true } },
        { "1x1 stride 2", { { 4, { 2, 6, 5, 16 } } }, &(struct sgrad_conv2d){ .channels = 32, .kernel = 1, .stride = 2 } },
        { "5x5 dilation 2, one sample", { { 4, { 1, 10, 11, 2 } } },
          &(struct sgrad_conv2d){ .channels = 3, .kernel = 5, .dilation = 2, .padding = 1 } },
        { "3x3 in 2 groups, bias", { { 4, { 2, 5, 6, 6 } } },
          &(struct sgrad_conv2d){ .channels = 4, .kernel = 3, .padding = 1, .groups = 2, .bias = true } },
        { "3x3 depthwise, stride 2", { { 4, { 2, 7, 7, 5 } } },
          &(struct sgrad_conv2d){ .channels = 5, .kernel = 3, .stride = 2, .padding = 1, .groups = 5 } },
        { "filter as large as the padded image", { { 4, { 2, 3, 3, 4 } } },
          &(struct sgrad_conv2d){ .channels = 6, .kernel = 5, .padding = 1, .bias = true } },
        { "7x7 stride 2 pad 3", { { 4, { 1, 9, 11, 3 } } },
          &(struct sgrad_conv2d){ .channels = 8, .kernel = 7, .stride = 2, .padding = 3 } },
        { "3x3 on slices, bias", { { 5, { 2, 3, 6, 5, 16 } } },
          &(struct sgrad_conv2d){ .channels = 16, .kernel = 3, .padding = 1, .bias = true } },
    },
};
