/* mean_squared_error.c: the loss of a regression, from predictions y and targets t, and the mean absolute error.
 *
 * The loss of a batch is the mean of (y - t)² over all elements, as in torch.nn.MSELoss; its gradient is 2 (y - t) / count. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/mean_squared_error.h"

#include <math.h>

void sgrad__mean_squared_error_forward_cuda(const struct sgrad_args *a);
void sgrad__mean_squared_error_backward_cuda(const struct sgrad_args *a);

/* If y has one number per sample, targets may omit the last dimension. */
static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_shape *y = &signature->x[0].shape, *target = &signature->x[1].shape;
    struct sgrad_shape flat = *y;
    char text[2][SGRAD_SHAPE_TEXT];
    (void)attrs;
    if (flat.rank > 1 && flat.dim[flat.rank - 1] == 1) flat.rank--;
    if (!sgrad_shape_equal(y, target) && !sgrad_shape_equal(&flat, target))
        return sgrad_log_error(SGRAD_ESHAPE, "%s: mean_squared_error requires inputs of the same shape, not %s and %s",
                               signature->layer, sgrad_shape_text(y, text[0]), sgrad_shape_text(target, text[1]));
    signature->stat[0] = (struct sgrad_shape){ 1, { 3 } };
    return 0;
}

/* y and target of any shape, stat (3): Σ (y - t)², Σ |y - t|, number of elements */
static void forward(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t count = sgrad_shape_count(&args->view[0].shape);
    const float *target = args->data[1];
    double *stat = args->data[2], squares = 0, distance = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)sgrad_get(type, args->data[0], i) - target[i];
        squares += d * d;
        distance += fabs(d);
    }
    stat[0] = squares;
    stat[1] = distance;
    stat[2] = (double)count;
}

/* y, target, dy of any shape */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t count = sgrad_shape_count(&args->view[0].shape), per_sample = count / args->view[0].shape.dim[0];
    const float *target = args->data[1], scale = 2.0f / (float)(args->batch->averaged * per_sample);
    float y_room[SGRAD_ROW], dy_room[SGRAD_ROW];
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        const float *y = sgrad_row(type, args->data[0], i, n, y_room);
        float *dy = sgrad_row_sum(type, args->data[2], i, n, sgrad_adds(args, 2), dy_room);
        for (int64_t j = 0; j < n; j++) dy[j] += (y[j] - target[i + j]) * scale;
        sgrad_row_done(type, args->data[2], i, n, dy);
    }
}

const struct sgrad_op sgrad_mean_squared_error_op = {
    .name = "mean_squared_error",
    .summary = "mean over all elements of (y - t)^2; also reports the mean of |y - t|",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_mean_squared_error),
    .no_gradient = 1u << 1,
    .input_dtype = { [1] = SGRAD_F32 },
    .infer = infer,
    .forward = { { { .name = "mean_squared_error forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__mean_squared_error_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(STAT, 0) } } },
    .backward = { { { .name = "mean_squared_error backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__mean_squared_error_backward_cuda) },
                    .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(DX, 0) } } },
    .metrics = { { "loss", "loss", "loss", false },
                 { "mae", "mean absolute error", "mean absolute error", .in_target_units = true } },
    .tests = {
        { "one sample of 3", .x = { { 2, { 1, 3 } }, { 2, { 1, 3 } } } },
        { "7 samples of one number", .x = { { 2, { 7, 1 } }, { 1, { 7 } } } },
        { "3 samples of 4 rows of 173", .x = { { 3, { 3, 4, 173 } }, { 3, { 3, 4, 173 } } } },
    },
};
