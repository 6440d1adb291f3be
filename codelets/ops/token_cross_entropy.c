/* token_cross_entropy.c: the loss of a language model, from logits and the tokens that follow:
 *
 *     -log p_t,  p = softmax(x)           of each row; perplexity is exp of the mean; bits per byte is the mean / log 2
 *
 * A target below 0 is excluded from the metrics and from the gradient. The gradient is that of the sum over the batch divided by
 * the number of all targets, including the excluded ones. The softmax is never stored: log Σ exp(x) of each row is saved, and
 * p = exp(x - log Σ exp(x)). */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/token_cross_entropy.h"

#include <math.h>

void sgrad__token_cross_entropy_forward_cuda(const struct sgrad_args *args);
void sgrad__token_cross_entropy_backward_cuda(const struct sgrad_args *args);

enum { BYTES = 256 };       /* number of classes if tokens are bytes */

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_shape *x = &signature->x[0].shape, *targets = &signature->x[1].shape;
    char text[2][SGRAD_SHAPE_TEXT];
    (void)attrs;
    bool fits = x->rank >= 2 && targets->rank == x->rank - 1;
    for (int i = 0; i < targets->rank && fits; i++) fits = targets->dim[i] == x->dim[i];
    if (!fits)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: token_cross_entropy requires logits (N,…,C) and targets (N,…), not %s and %s",
                               signature->layer, sgrad_shape_text(x, text[0]), sgrad_shape_text(targets, text[1]));
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, *targets };
    signature->stat[0] = (struct sgrad_shape){ 1, { x->dim[x->rank - 1] == BYTES ? 4 : 3 } };
    return 0;
}

static int64_t classes_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }

/* log Σ exp(x) of the COUNT logits from FROM on; NaN if a logit is NaN */
SGRAD_ALWAYS_INLINE double log_sum(enum sgrad_dtype type, const void *data, int64_t from, int64_t count) {
    float room[SGRAD_ROW], exps[SGRAD_ROW], max = -INFINITY;
    double sum = 0;
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n)
        max = fmaxf(max, largest(sgrad_row(type, data, from + i, n, room), n));
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, data, from + i, n, room);
        for (int64_t j = 0; j < n; j++) exps[j] = exp_of(x[j] - max);
        sum += sum_of(exps, n);
    }
    return max + log(sum);
}

/* x (N,…,C), targets (N,…), saved (N,…): log Σ exp(x), stat (3 or 4): Σ loss, twice; Σ loss / log 2 if classes are bytes; number
 * of rows that are not excluded. A target that is not a class makes the loss NaN. */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t rows = sgrad_shape_count(&args->view[1].shape), classes = classes_of(&args->view[0]);
    const int32_t *target = args->data[1];
    float *keep = args->data[2];
    double *stat = args->data[3], loss = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double log_z = log_sum(type, args->data[0], r * classes, classes);
        keep[r] = (float)log_z;
        if (target[r] < 0) continue;
        loss += log_z - (target[r] < classes ? sgrad_get(type, args->data[0], r * classes + target[r]) : NAN);
        count++;
    }
    stat[0] = stat[1] = loss;
    if (classes == BYTES) stat[2] = loss / M_LN2;
    stat[2 + (classes == BYTES)] = (double)count;
}

/* x (N,…,C), targets (N,…), saved (N,…), dx (N,…,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t rows = sgrad_shape_count(&args->view[1].shape), classes = classes_of(&args->view[0]);
    const int64_t per_sample = rows / args->view[1].shape.dim[0];
    const int32_t *target = args->data[1];
    const float *keep = args->data[2], scale = 1.0f / (float)(args->batch->averaged * per_sample);
    float x_room[SGRAD_ROW], dx_room[SGRAD_ROW], p[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, n; (n = sgrad_chunk(i, classes)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * classes + i, n, x_room), weight = target[r] < 0 ? 0 : scale;
            for (int64_t j = 0; j < n; j++) p[j] = exp_of(x[j] - keep[r]) * weight;    /* dx may have the memory of x */
            float *dx = sgrad_row_sum(type, args->data[3], r * classes + i, n, sgrad_adds(args, 3), dx_room);
            for (int64_t j = 0; j < n; j++) dx[j] += p[j];
            if (target[r] >= i && target[r] < i + n) dx[target[r] - i] -= scale;
            sgrad_row_done(type, args->data[3], r * classes + i, n, dx);
        }
}

/* the exponential counts as 20 operations */
static double flops(const struct sgrad_args *args) { return 24.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static double perplexity(double loss) { return exp(loss); }

/* Every fifth target is excluded. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    int32_t *target = data;
    if (input == 0) sgrad_fill_nonzero(test, 0, data);
    else
        for (int64_t r = 0; r < sgrad_shape_count(&test->x[1]); r++)
            target[r] = r % 5 == 4 ? -1 : (int32_t)(5 * r % test->x[0].dim[test->x[0].rank - 1]);
}

const struct sgrad_op sgrad_token_cross_entropy_op = {
    .name = "token_cross_entropy",
    .summary = "mean over all tokens of -log softmax(x) at the next token; negative targets are ignored",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_token_cross_entropy),
    .no_gradient = 1u << 1,
    .input_dtype = { [1] = SGRAD_I32 },
    .infer = infer,
    .forward = { { { .name = "token_cross_entropy forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__token_cross_entropy_forward_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(SAVED, 0), SGRAD_OUT(STAT, 0) } } },
    .backward = { { { .name = "token_cross_entropy backward", .kind = &sgrad_backward_kind, .cpu = backward, .in_place = true,
                     .cuda = SGRAD_ON_CUDA(sgrad__token_cross_entropy_backward_cuda), .flops = flops },
                    .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0) } } },
    .metrics = { { "loss", "loss", "loss", false },
                 { "perplexity", "perplexity", "perplexity", false, .transform = perplexity, .unprefixed = true },
                 { "bits_per_byte", "bits/byte", "bits per byte", false, .unprefixed = true } },
    .fill = fill,
    .tests = {
        { "one sample of 3", .x = { { 2, { 1, 3 } }, { 1, { 1 } } } },
        { "3 samples of 4 rows of 17", .x = { { 3, { 3, 4, 17 } }, { 2, { 3, 4 } } } },
        { "2 samples of 5 bytes", .x = { { 3, { 2, 5, 256 } }, { 2, { 2, 5 } } } },
        { "longer than a row", .x = { { 3, { 2, 3, 1003 } }, { 2, { 2, 3 } } } },
    },
};
