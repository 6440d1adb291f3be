/* conv_transpose.c: transposed convolution, which enlarges images. Its forward pass is the backward-data pass of conv2d.c and
 * its backward-data pass is the forward pass of conv2d.c, with the same kernels. With stride 2 and a kernel of 2 each pixel
 * becomes four:
 *
 *     x  a b      weight  1 2      y  1a 2a 1b 2b
 *                         3 4         3a 4a 3b 4b
 *
 * A volume (N,D,H,W,C) is processed as N·D images.
 *
 * Limits: no bias; the layer that follows has one. */
#include "config.h"
#include "codelets/cpu/passes.h"
#include "codelets/ops/filter.h"
#include "codelets/ops/conv_transpose.h"

/* The convolution of which this is the transpose maps y to x: its filters are (K,R,S,C), K channels of x and C channels of y. */
static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_conv_transpose *c = attributes;
    if (!c->stride) c->stride = c->kernel;
    if (!c->dilation) c->dilation = 1;
    if (!c->groups) c->groups = 1;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    sgrad_shape_text(x, text);
    if (x->rank != 5 && (c->volume || x->rank != 4))
        return sgrad_log_error(SGRAD_ESHAPE, "conv_transpose: %s: input %s is not %s", signature->layer, text,
                               c->volume ? "volumes (N,D,H,W,C)" : "images (N,H,W,C) or slices (N,D,H,W,C)");
    const int64_t last = x->rank - 1, extent = (int64_t)(c->kernel - 1) * c->dilation + 1;
    const int64_t height = (x->dim[last - 2] - 1) * c->stride - 2 * c->padding + extent;
    const int64_t width = (x->dim[last - 1] - 1) * c->stride - 2 * c->padding + extent;
    if (c->channels < 1 || c->kernel < 1 || c->stride < 1 || c->dilation < 1 || c->groups != 1 || c->padding < 0 || height < 1 ||
        width < 1)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "conv_transpose: %s: has %d channels, kernel %d, stride %d, dilation %d, groups %d and padding %d; groups must be "
            "1; padding must be 0 or more, but small enough that the output is not empty; the others must be 1 or more",
            signature->layer, c->channels, c->kernel, c->stride, c->dilation, c->groups, c->padding);
    signature->y.shape = *x;
    signature->y.shape.dim[last - 2] = height;
    signature->y.shape.dim[last - 1] = width;
    signature->y.shape.dim[last] = c->channels;
    signature->p[0] = (struct sgrad_parameter){
        .name = "weight",
        .init = SGRAD_HE,
        .fan = (double)c->kernel * c->kernel * (double)x->dim[last] / c->stride / c->stride,    /* terms of a pixel of y */
        .layout = SGRAD_OIHW,
        .shape = { 4, { x->dim[last], c->kernel, c->kernel, c->channels } },
    };
    if (c->volume) signature->p[0].shape = (struct sgrad_shape){ 5, { x->dim[last], 1, c->kernel, c->kernel, c->channels } };
    return 0;
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_conv_transpose *c = attributes;
    snprintf(text, size, "%dx%d stride %d", c->kernel, c->kernel, c->stride);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const bool volumes = signature->x[0].shape.rank == 5,
               whole = ((const struct sgrad_conv_transpose *)attrs)->volume || !volumes;
    if (!whole) fputs("depth = Constant <value = int64[1] {2}> ()\nfilter = Unsqueeze (weight, depth)\n", to);
    fputs("y = ConvTranspose <", to);
    sgrad__filter_onnx(attrs, volumes, 0, to);
    fprintf(to, "> (x, %s)", whole ? "weight" : "filter");
}

const struct sgrad_op sgrad_conv_transpose_op = {
    .name = "conv_transpose",
    .summary = "transposed convolution, which enlarges images or the slices of volumes",
    .source = "M. Zeiler et al., Deconvolutional networks, CVPR 2010",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_conv_transpose),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { SGRAD__PASS("conv_transpose forward", forward, backward_data, sgrad__conv2d_backward_data_cuda),
                     SGRAD__PACKS(backward_data) },
                   { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_OUT(Y, 0) } } },
    .inference = { { { SGRAD__PASS("conv_transpose inference", forward, transposed_inference, sgrad__conv2d_backward_data_cuda),
                       SGRAD__PACKS(transposed_inference) },
                     { SGRAD_IN(X, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { SGRAD__PASS("conv_transpose backward-data", backward, forward, sgrad__conv2d_forward_cuda),
                      SGRAD__PACKS(forward) },
                    { SGRAD_IN(DY, 0), SGRAD_IN_FACTOR(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(DX, 0) } },
                  { { .accumulates = true,
                      SGRAD__PASS("conv_transpose backward-weight", backward, backward_weight,
                                  sgrad__conv2d_backward_weight_cuda) },
                    { SGRAD_IN(DY, 0), SGRAD_IN(X, 0), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .tests = {
        { "2x2 stride 2 of 16 to 32 channels", { { 4, { 2, 3, 4, 16 } } },
          &(struct sgrad_conv_transpose){ .channels = 32, .kernel = 2 } },
        { "2x2 stride 2, odd channels", { { 4, { 3, 4, 3, 5 } } }, &(struct sgrad_conv_transpose){ .channels = 3, .kernel = 2 } },
        { "3x3 stride 2 pad 1", { { 4, { 1, 4, 5, 6 } } },
          &(struct sgrad_conv_transpose){ .channels = 4, .kernel = 3, .stride = 2, .padding = 1 } },
        { "3x3 stride 1 pad 1 of 16 channels", { { 4, { 2, 5, 6, 16 } } },
          &(struct sgrad_conv_transpose){ .channels = 16, .kernel = 3, .stride = 1, .padding = 1 } },
        { "2x2 stride 2 on slices", { { 5, { 2, 3, 4, 3, 6 } } }, &(struct sgrad_conv_transpose){ .channels = 4, .kernel = 2 } },
        { "2x2 stride 2 on volumes", { { 5, { 1, 2, 3, 4, 16 } } },
          &(struct sgrad_conv_transpose){ .channels = 16, .kernel = 2, .volume = true } },
    },
};
