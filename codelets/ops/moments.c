/* moments.c: mean and sum of squared differences from the mean of every row, for rows that are split over ranks. The moments of
 * all shards determine the mean and variance of the whole row (normalize.c). x (N,…,C), y (N,…,2):
 *
 *     mean = Σ x / C        square = Σ (x - mean)²        dx = dmean/C + 2·dsquare·(x - mean)                              */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/moments.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    (void)attributes;
    if (x->rank < 2)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: moments requires samples of features (N,…,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    signature->y.shape = *x;
    signature->y.shape.dim[x->rank - 1] = 2;
    return 0;
}

static int64_t features_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }

/* x (N,…,C), y (N,…,2) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = features_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / features;
    float room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float mean = sum_of_row(type, args->data[0], r * features, features, 0, false) / (float)features;
        float *y = sgrad_row_out(type, args->data[1], 2 * r, room);
        y[0] = mean;
        y[1] = sum_of_row(type, args->data[0], r * features, features, mean, true);
        sgrad_row_done(type, args->data[1], 2 * r, 2, y);
    }
}

/* x (N,…,C), y, dy (N,…,2), dx (N,…,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = features_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / features;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float mean = sgrad_row(type, args->data[1], 2 * r, 2, y_room)[0];
        const float *dy = sgrad_row(type, args->data[2], 2 * r, 2, dy_room);
        const float each = dy[0] / (float)features, slope = 2 * dy[1];
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room);
            float *dx = sgrad_row_sum(type, args->data[3], r * features + i, n, sgrad_adds(args, 3), dx_room);
            for (int64_t j = 0; j < n; j++) dx[j] += each + slope * (x[j] - mean);
            sgrad_row_done(type, args->data[3], r * features + i, n, dx);
        }
    }
}

static double flops(const struct sgrad_args *args) { return 4.0 * (double)sgrad_shape_count(&args->view[0].shape); }

const struct sgrad_op sgrad_moments_op = {
    .name = "moments",
    .summary = "mean and sum of squared deviations of each row: first part of a sharded layer_norm or rms_norm",
    .source = "T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample "
              "variances, 1979",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_moments),
    .infer = infer,
    .forward = { { { .name = "moments forward", .kind = &sgrad_forward_kind, .cpu = forward, .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "moments backward", .kind = &sgrad_backward_kind, .cpu = backward, .accumulates = true,
                      .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one row of 5", { { 2, { 1, 5 } } } },
        { "3 samples of 4 rows of 17", { { 3, { 3, 4, 17 } } } },
        { "longer than a row", { { 2, { 3, 531 } } } },
    },
};
