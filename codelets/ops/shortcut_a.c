/* shortcut_a.c: the shortcut without parameters, option A of He et al.: every STRIDE-th pixel, with zeros for the channels that
 * x does not have, half of them before and half after x's. Stride 2, from 1 to 3 channels:
 *
 *     x  a b c     ->     y  0a0 0c0
 *        d e f               0g0 0i0
 *        g h i */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/shortcut_a.h"

void sgrad__shortcut_a_forward_cuda(const struct sgrad_args *a);
void sgrad__shortcut_a_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_shortcut_a *m = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 4 || m->stride < 1 || m->channels < x->dim[3])
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: shortcut_a requires images (N,H,W,C), a stride of 1 or more and at least C channels, not %s, "
                               "stride %d and %d channels",
                               signature->layer, sgrad_shape_text(x, text), m->stride, m->channels);
    signature->y.shape =
        (struct sgrad_shape){ 4, { x->dim[0], (x->dim[1] - 1) / m->stride + 1, (x->dim[2] - 1) / m->stride + 1, m->channels } };
    return 0;
}

/* x (N,H,W,C), y (N,P,Q,K) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const int64_t stride = ((const struct sgrad_shortcut_a *)args->attrs)->stride;
    const int64_t *x = args->view[0].shape.dim, *y = args->view[1].shape.dim, before = (y[3] - x[3]) / 2;
    memset(args->data[1], 0, sgrad_view_bytes(&args->view[1]));
    for (int64_t i = 0; i < y[0]; i++)
        for (int64_t p = 0; p < y[1]; p++)
            for (int64_t q = 0; q < y[2]; q++)
                sgrad_row_move(args->view[0].dtype, args->data[0], ((i * x[1] + p * stride) * x[2] + q * stride) * x[3],
                               args->data[1], ((i * y[1] + p) * y[2] + q) * y[3] + before, x[3], false);
}

/* dy (N,P,Q,K), dx (N,H,W,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const int64_t stride = ((const struct sgrad_shortcut_a *)args->attrs)->stride;
    const int64_t *y = args->view[0].shape.dim, *x = args->view[1].shape.dim, before = (y[3] - x[3]) / 2;
    if (!sgrad_adds(args, 1)) memset(args->data[1], 0, sgrad_view_bytes(&args->view[1]));
    for (int64_t i = 0; i < y[0]; i++)
        for (int64_t p = 0; p < y[1]; p++)
            for (int64_t q = 0; q < y[2]; q++)
                sgrad_row_move(args->view[0].dtype, args->data[0], ((i * y[1] + p) * y[2] + q) * y[3] + before, args->data[1],
                                ((i * x[1] + p * stride) * x[2] + q * stride) * x[3], x[3], sgrad_adds(args, 1));
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_shortcut_a *m = attrs;
    snprintf(text, size, "channels %d stride %d", m->channels, m->stride);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_shortcut_a *m = attrs;
    const int64_t more = m->channels - signature->x[0].shape.dim[3], before = more / 2;
    fprintf(to, "first = Constant <value = int64[2] {0, 0}> ()\nend = Constant <value = int64[2] {%lld, %lld}> ()\n"
                "plane = Constant <value = int64[2] {2, 3}> ()\nsteps = Constant <value = int64[2] {%d, %d}> ()\n"
                "strided = Slice (x, first, end, plane, steps)\n",
            (long long)signature->x[0].shape.dim[1], (long long)signature->x[0].shape.dim[2], m->stride, m->stride);
    fprintf(to, "zeros = Constant <value = int64[8] {0, %lld, 0, 0, 0, %lld, 0, 0}> ()\ny = Pad (strided, zeros)",
            (long long)before, (long long)(more - before));
}

const struct sgrad_op sgrad_shortcut_a_op = {
    .name = "shortcut_a",
    .summary = "shortcut without parameters: subsampled pixels, zero-padded channels",
    .source = "He, Zhang, Ren, Sun, Deep residual learning for image recognition, 2015, section 3.3, option A",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_shortcut_a),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "shortcut_a forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__shortcut_a_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "shortcut_a backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__shortcut_a_backward_cuda) },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x7x3, to 8 channels", .x = { { 4, { 1, 5, 7, 3 } } },
          &(struct sgrad_shortcut_a){ .channels = 8, .stride = 2 } },
        { "3 of 4x6x17, to 34", .x = { { 4, { 3, 4, 6, 17 } } }, &(struct sgrad_shortcut_a){ .channels = 34, .stride = 2 } },
        { "2 of 3x3x1, zeros alone", .x = { { 4, { 2, 3, 3, 1 } } }, &(struct sgrad_shortcut_a){ .channels = 3, .stride = 1 } },
    },
};
