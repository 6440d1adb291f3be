/* dropout.c: in training, every element is 0 with probability p, else multiplied by 1/(1-p); outside training, y = x.
 * Whether an element is dropped is a function of (seed, step, layer, sample, element), see draw.h. The backward pass repeats the
 * draws of the forward pass; no mask is saved.
 *
 * If ranks have shards of a sample (T,C), an element is numbered by its index in the whole sample. All ranks together then drop
 * the same elements as a single rank.
 * J = 2 ranks along axis .rows have (T/J,C) each, K = 2 along axis .features (…,C/K); elements of T = 4, C = 4:
 *
 *     rank on rows, features      0, 0           0, 1           1, 0               1, 1
 *     elements                    0 1, 4 5       2 3, 6 7       8 9, 12 13         10 11, 14 15
 *     first, row                  0, 4           2, 4           8, 4               10, 4
 *
 * Along axis .context, rows are split as struct sgrad_zigzag describes, before they are split along .rows. */
#include "config.h"
#include "codelets/ops/draw.h"
#include "codelets/kernels.h"
#include "codelets/ops/dropout.h"
#include "codelets/ops/zigzag.h"

void sgrad__dropout_forward_cuda(const struct sgrad_args *a);
void sgrad__dropout_inference_cuda(const struct sgrad_args *a);
void sgrad__dropout_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_dropout *d = attrs;
    if (d->p == 0) d->p = 0.5f;
    if (!(d->p > 0 && d->p <= 1))
        return sgrad_log_error(SGRAD_EINVAL, "%s: dropout: p must be above 0 and at most 1, not %g", signature->layer, d->p);
    d->stream =
        (uint32_t)sgrad_hash(signature->layer, strlen(signature->layer)); /* layers of different names drop different elements */
    signature->y.shape = signature->x[0].shape;
    return 0;
}

static void set_rank(const struct sgrad_signature *signature, int rank, void *attrs) {
    struct sgrad_dropout *d = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape;
    const int64_t size = sgrad_shape_count(x) / x->dim[0], width = x->dim[x->rank - 1];
    int rows, features;
    const int64_t by_rows = sgrad__place_on(signature->mesh, d->rows, rank, &rows);
    const int64_t by_features = sgrad__place_on(signature->mesh, d->features, rank, &features);
    d->row = width * features;
    d->first = by_rows * size * features + by_features * width;
    d->zigzag = sgrad__zigzag_of(signature->mesh, d->context, rank, x->dim[1] * rows);
    d->zigzag.half -= (int)(by_rows * x->dim[1]);
}

/* Returns the number of elements that are adjacent in the whole sample. VIEW: that of x. */
static int64_t run_of(const struct sgrad_dropout *d, const struct sgrad_view *view) {
    const int64_t width = view->shape.dim[view->shape.rank - 1];
    return d->row > width || d->zigzag.early != d->zigzag.late ? width : sgrad_shape_count(&view->shape) / view->shape.dim[0];
}

/* x, y (N,…) or dy, dx (N,…). Loops run over runs of elements that are adjacent in the whole sample, too. */
SGRAD_VECTOR(drop)(const struct sgrad_args *args) {
    const struct sgrad_dropout *d = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t samples = args->view[0].shape.dim[0], size = sgrad_shape_count(&args->view[0].shape) / samples;
    const int64_t run = run_of(d, &args->view[0]);
    const uint64_t seed = args->step->seed;
    const uint32_t step = args->step->number;
    const int64_t first = args->step->first + args->first;
    const float p = d->p;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    uint32_t word[SGRAD_ROW + 8];
    for (int64_t r = 0; r < samples * size / run; r++)
        for (int64_t e = 0, n; (n = sgrad_chunk(e, run)); e += n) {
            const int64_t s = r * run / size, row = sgrad_zigzag_position(&d->zigzag, r % (size / run));
            const int64_t begin = d->first + row * d->row + e;
            const uint32_t *own = word + begin % 4;
            for (int64_t block = 0; 4 * block < begin % 4 + n; block++) {
                const struct sgrad_random four = sgrad__dropout_draw(seed, step, d->stream, first + s, begin / 4 + block);
                for (int k = 0; k < 4; k++) word[4 * block + k] = four.word[k];
            }
            const float *x = sgrad_row(type, args->data[0], r * run + e, n, x_room);
            float *y = sgrad_row_sum(type, args->data[1], r * run + e, n, sgrad_adds(args, 1), y_room);
            for (int64_t j = 0; j < n; j++) y[j] += sgrad__dropout_factor(own[j], p) * x[j];
            sgrad_row_done(type, args->data[1], r * run + e, n, y);
        }
}

/* x, y (N,…) */
static void copy(const struct sgrad_args *args) { memcpy(args->data[1], args->data[0], sgrad_view_bytes(&args->view[0])); }

/* Philox: ten rounds of about ten operations for four elements; and the product. */
static double flops(const struct sgrad_args *args) { return 26.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "p %g", ((const struct sgrad_dropout *)attrs)->p);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature;
    fprintf(to, "share = Constant <value = float {%.9g}> ()\ny = Dropout (x, share)", ((const struct sgrad_dropout *)attrs)->p);
}

const struct sgrad_op sgrad_dropout_op = {
    .name = "dropout",
    .summary = "dropout: sets random elements to zero in training",
    .source = "Srivastava et al., Dropout: a simple way to prevent neural networks from overfitting, JMLR 2014",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_dropout),
    .infer = infer,
    .set_rank = set_rank,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "dropout forward", .kind = &sgrad_forward_kind, .cpu = drop,
                     .cuda = SGRAD_ON_CUDA(sgrad__dropout_forward_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .inference = { { { .name = "dropout inference", .kind = &sgrad_forward_kind, .cpu = copy,
                       .cuda = SGRAD_ON_CUDA(sgrad__dropout_inference_cuda) },
                     .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "dropout backward", .kind = &sgrad_backward_kind, .cpu = drop,
                      .cuda = SGRAD_ON_CUDA(sgrad__dropout_backward_cuda), .flops = flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one sample of 17", .x = { { 2, { 1, 17 } } } },
        { "3 images of 5x7x3, p 0.25", .x = { { 4, { 3, 5, 7, 3 } } }, &(struct sgrad_dropout){ .p = 0.25f } },
        { "2 samples of 1027", .x = { { 2, { 2, 1027 } } } },
        { "parts 3x4 of 2 samples of 6x8", .x = { { 3, { 2, 3, 4 } } }, &(struct sgrad_dropout){ .first = 28, .row = 8 } },
        { "parts 2x5 of 2 samples of 4x10", .x = { { 3, { 2, 2, 5 } } }, &(struct sgrad_dropout){ .first = 25, .row = 10 } },
    },
};
