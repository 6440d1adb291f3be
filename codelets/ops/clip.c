/* clip.c: y = min(max(x, low), high). ReLU6 is low 0, high 6. Either bound may be infinite. A NaN remains a NaN. */
#include "config.h"
#include "codelets/ops/activation.h"
#include "codelets/ops/clip.h"

void sgrad__clip_forward_cuda(const struct sgrad_args *args);
void sgrad__clip_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_clip *clip = attrs;
    if (!(clip->low < clip->high))
        return sgrad_log_error(SGRAD_EINVAL, "%s: clip: low must be less than high, but they are %g and %g", signature->layer,
                               clip->low, clip->high);
    return sgrad_infer_same(signature, attrs);
}

SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) {
    const struct sgrad_clip *clip = attrs;
    return x < clip->low ? clip->low : x > clip->high ? clip->high : x;
}
SGRAD_ALWAYS_INLINE float gradient(float y, float dy, const void *attrs) {
    const struct sgrad_clip *clip = attrs;
    return y <= clip->low || y >= clip->high ? 0 : dy;
}

/* Returns the bounds, rounded as y is, so that backward recognises them. */
static struct sgrad_clip bounds(const struct sgrad_args *args) {
    struct sgrad_clip clip = *(const struct sgrad_clip *)args->attrs;
    if (args->view[0].dtype != SGRAD_BF16) return clip;
    clip.low = sgrad_bf16_to_f32(sgrad_f32_to_bf16(clip.low));
    clip.high = sgrad_bf16_to_f32(sgrad_f32_to_bf16(clip.high));
    return clip;
}

SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_clip clip = bounds(args);
    activate(args, value, &clip);
}
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_clip clip = bounds(args);
    activate_backward(args, gradient, &clip);
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_clip *clip = attrs;
    snprintf(text, size, "%g to %g", clip->low, clip->high);
}

/* Min and Max accept infinite bounds in every runtime. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature;
    const struct sgrad_clip *clip = attrs;
    if (clip->low > -INFINITY) fprintf(to, "low = Constant <value = float {%.9g}> ()\n", clip->low);
    if (clip->high < INFINITY) fprintf(to, "high = Constant <value = float {%.9g}> ()\n", clip->high);
    if (clip->low == -INFINITY) fputs(clip->high == INFINITY ? "y = Identity (x)" : "y = Min (x, high)", to);
    else fputs(clip->high == INFINITY ? "y = Max (x, low)" : "y = Clip (x, low, high)", to);
}

const struct sgrad_op sgrad_clip_op = {
    .name = "clip",
    .summary = "y = min(max(x, low), high); ReLU6 is 0 to 6",
    .source = "A. Krizhevsky, Convolutional deep belief networks on CIFAR-10, 2010 (ReLU6)",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_clip),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "clip forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__clip_forward_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "clip backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__clip_backward_cuda) },
                    { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .fill = sgrad_fill_nonzero,
    .tests = {
        { "0 to 1, one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } } }, &(struct sgrad_clip){ .high = 1 } },
        { "-1.5 to 0.5, 7 samples of 17", .x = { { 2, { 7, 17 } } }, &(struct sgrad_clip){ .low = -1.5f, .high = 0.5f } },
        { "no upper bound, 3 samples of 5", .x = { { 2, { 3, 5 } } }, &(struct sgrad_clip){ .low = 1, .high = INFINITY } },
        { "0 to 6, longer than a row", .x = { { 2, { 2, 531 } } }, &(struct sgrad_clip){ .high = 6 } },
    },
};
