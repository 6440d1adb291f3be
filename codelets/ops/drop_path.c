/* drop_path.c: stochastic depth: in training, a whole sample is 0 with probability p, else multiplied by 1/(1-p); outside
 * training, y = x. It is the last layer of a residual branch, which is thereby skipped for some samples. Whether a sample is
 * dropped is a function of (seed, step, layer, sample), see draw.h. The backward pass repeats the draws of the forward pass. */
#include "config.h"
#include "codelets/ops/draw.h"
#include "codelets/kernels.h"
#include "codelets/ops/drop_path.h"

void sgrad__drop_path_forward_cuda(const struct sgrad_args *args);
void sgrad__drop_path_inference_cuda(const struct sgrad_args *args);
void sgrad__drop_path_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_drop_path *d = attrs;
    if (!(d->p > 0 && d->p <= 1))
        return sgrad_log_error(SGRAD_EINVAL, "%s: drop_path: p must be above 0 and at most 1, not %g", signature->layer, d->p);
    d->stream = (uint32_t)sgrad_hash(signature->layer, strlen(signature->layer));
    signature->y.shape = signature->x[0].shape;
    return 0;
}

/* x, y (N,…) or dy, dx (N,…) */
SGRAD_VECTOR(drop)(const struct sgrad_args *args) {
    const struct sgrad_drop_path *d = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t samples = args->view[0].shape.dim[0], size = sgrad_shape_count(&args->view[0].shape) / samples;
    const int64_t first = args->step->first + args->first;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t s = 0; s < samples; s++) {
        const struct sgrad_random draw = sgrad__dropout_draw(args->step->seed, args->step->number, d->stream, first + s, 0);
        const float factor = sgrad__dropout_factor(draw.word[0], d->p);
        for (int64_t i = s * size, end = i + size, n; (n = sgrad_chunk(i, end)); i += n) {
            const float *x = sgrad_row(type, args->data[0], i, n, x_room);
            float *y = sgrad_row_sum(type, args->data[1], i, n, sgrad_adds(args, 1), y_room);
            for (int64_t j = 0; j < n; j++) y[j] += factor * x[j];
            sgrad_row_done(type, args->data[1], i, n, y);
        }
    }
}

/* x, y (N,…) */
static void copy(const struct sgrad_args *args) { memcpy(args->data[1], args->data[0], sgrad_view_bytes(&args->view[0])); }

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "p %g", ((const struct sgrad_drop_path *)attrs)->p);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Identity (x)", to);
}

const struct sgrad_op sgrad_drop_path_op = {
    .name = "drop_path",
    .summary = "stochastic depth: sets random samples of a branch to zero in training",
    .source = "G. Huang et al., Deep networks with stochastic depth, 2016",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_drop_path),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "drop_path forward", .kind = &sgrad_forward_kind, .cpu = drop,
                     .cuda = SGRAD_ON_CUDA(sgrad__drop_path_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .inference = { { { .name = "drop_path inference", .kind = &sgrad_forward_kind, .cpu = copy,
                       .cuda = SGRAD_ON_CUDA(sgrad__drop_path_inference_cuda) },
                     .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "drop_path backward", .kind = &sgrad_backward_kind, .cpu = drop,
                      .cuda = SGRAD_ON_CUDA(sgrad__drop_path_backward_cuda) },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "9 samples of 17", .x = { { 2, { 9, 17 } } }, &(struct sgrad_drop_path){ .p = 0.5f } },
        { "4 images of 5x7x4, p 0.25", .x = { { 4, { 4, 5, 7, 4 } } }, &(struct sgrad_drop_path){ .p = 0.25f } },
        { "3 samples of 1027", .x = { { 2, { 3, 1027 } } }, &(struct sgrad_drop_path){ .p = 0.4f } },
    },
};
