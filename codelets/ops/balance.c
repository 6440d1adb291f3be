/* balance.c: adds the gradient of a loss that balances the experts of mixtures; y = x0. The loss is
 *
 *     coefficient · E · Σ f_e P_e          over the experts e
 *
 * with x0, y (N,…,C), and x1 (N,…,L·E): the numbers that routers of L layers give E experts. f_e is the mean, over the rows and
 * layers of a group of samples, of 1 if e is one of the ACTIVE experts with the largest numbers and else 0. P_e is the mean of
 * e's softmax probability. f_e has no gradient. The group is that of batch norm: --bn-group. The loss is not reported.
 *
 * Sources: W. Fedus et al., Switch transformers, 2021, equation 4; load_balancing_loss_func of Hugging Face transformers. */
#include "config.h"
#include "codelets/ops/balance.h"
#include "codelets/ops/mixture.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_balance *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape, *numbers = &signature->x[1].shape;
    char text[2][SGRAD_SHAPE_TEXT];
    bool fits = x->rank >= 2 && numbers->rank == x->rank && attrs->experts > 0 && attrs->experts <= SGRAD_ROW;
    for (int i = 0; i < x->rank - 1 && fits; i++) fits = x->dim[i] == numbers->dim[i];
    if (!fits || numbers->dim[x->rank - 1] % attrs->experts)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: balance requires rows (N,…,C) and, for each row, numbers of 1 to %d experts, not %s and %s "
                               "with %d experts",
                               signature->layer, SGRAD_ROW, sgrad_shape_text(x, text[0]), sgrad_shape_text(numbers, text[1]),
                               attrs->experts);
    if (attrs->active < 1 || attrs->active > attrs->experts || attrs->coefficient < 0)
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: balance: active=%d must be from 1 to the number of experts, %d, and coefficient=%g 0 or more",
                               signature->layer, attrs->active, attrs->experts, (double)attrs->coefficient);
    signature->y.shape = *x;
    signature->partial[0] = sgrad_shape(1, 2 * attrs->experts);
    return 0;
}

/* x1 (N,…,L·E) -> Σ [active (E), p (E)] over rows and layers */
SGRAD_VECTOR(sums)(const struct sgrad_args *args) {
    const struct sgrad_balance *attrs = args->attrs;
    const int64_t experts = attrs->experts, rows = sgrad_shape_count(&args->view[0].shape) / experts;
    double *sum = args->data[1];
    float room[SGRAD_ROW], p[SGRAD_ROW];
    bool chosen[SGRAD_ROW];
    if (!sgrad_adds(args, 1)) memset(sum, 0, sgrad_view_bytes(&args->view[1]));
    for (int64_t r = 0; r < rows; r++) {
        const float *x = sgrad_row(args->view[0].dtype, args->data[0], r * experts, experts, room);
        softmax_of_row(x, experts, p);
        choose_largest(attrs->active, x, experts, chosen);
        for (int64_t e = 0; e < experts; e++) sum[e] += chosen[e];
        for (int64_t e = 0; e < experts; e++) sum[experts + e] += (double)p[e];
    }
}

/* from, to (N,…,C): x0 to y, or dy to dx0 */
SGRAD_VECTOR(move)(const struct sgrad_args *args) {
    sgrad_row_move(args->view[0].dtype, args->data[0], 0, args->data[1], 0, sgrad_shape_count(&args->view[0].shape),
                   sgrad_adds(args, 1));
}

/* x1, sum (2E), dx1 (N,…,L·E): with g_e = coefficient·E·f_e / (rows·layers of the batch), dx1 = p·(g - Σ g·p) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_balance *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t experts = attrs->experts, rows = sgrad_shape_count(&args->view[0].shape) / experts;
    const double per_sample = (double)rows / (double)args->view[0].shape.dim[0], *sum = args->data[1];
    const double scale = (double)attrs->coefficient * (double)experts / (per_sample * (double)args->batch->averaged);
    float x_room[SGRAD_ROW], dx_room[SGRAD_ROW], p[SGRAD_ROW], g[SGRAD_ROW];
    for (int64_t e = 0; e < experts; e++) g[e] = (float)(scale * sum[e] / (per_sample * (double)args->batch->group));
    for (int64_t r = 0; r < rows; r++) {
        softmax_of_row(sgrad_row(type, args->data[0], r * experts, experts, x_room), experts, p);
        const float mean = sum_of_products(g, p, experts);
        float *dx = sgrad_row_sum(type, args->data[2], r * experts, experts, sgrad_adds(args, 2), dx_room);
        for (int64_t e = 0; e < experts; e++) dx[e] += p[e] * (g[e] - mean);
        sgrad_row_done(type, args->data[2], r * experts, experts, dx);
    }
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_balance *attrs = attributes;
    snprintf(text, size, "%d experts, %d active, %g", attrs->experts, attrs->active, (double)attrs->coefficient);
}

/* an exponential counts as 20 operations */
static double flops(const struct sgrad_args *args) { return 25.0 * (double)sgrad_shape_count(&args->view[0].shape); }

#define MOVE(from, to)                                                                                                  \
    { { .name = "balance move", .kind = &sgrad_forward_kind, .cpu = move, .flops = sgrad_no_flops }, { from, to } }

const struct sgrad_op sgrad_balance_op = {
    .name = "balance",
    .summary = "y = x0; adds the gradient of a loss that balances the experts of mixtures, from the numbers of their routers",
    .source = "W. Fedus, B. Zoph, N. Shazeer, Switch transformers, 2021",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_balance),
    .infer = infer,
    .describe = describe,
    .forward = { { { .name = "balance sums", .kind = &sgrad_forward_kind, .cpu = sums, .accumulates = true, .flops = flops },
                   { SGRAD_IN(X, 1), SGRAD_OUT(PARTIAL, 0) } },
                 MOVE(SGRAD_IN(X, 0), SGRAD_OUT(Y, 0)) },
    .inference = { MOVE(SGRAD_IN(X, 0), SGRAD_OUT(Y, 0)) },
    .backward = { MOVE(SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0)),
                  { { .name = "balance backward", .kind = &sgrad_backward_kind, .cpu = backward, .flops = flops },
                    { SGRAD_IN(X, 1), SGRAD_IN(SUM, 0), SGRAD_OUT(DX, 1) } } },
    .not_differentiable = true,     /* as a function of x1: y is x0 */
    .tests = {
        { "2 of 5 experts, one layer", { { 3, { 2, 3, 4 } }, { 3, { 2, 3, 5 } } },
          &(struct sgrad_balance){ .experts = 5, .active = 2, .coefficient = 0.5f } },
        { "3 of 7 experts, two layers", { { 2, { 5, 17 } }, { 2, { 5, 14 } } },
          &(struct sgrad_balance){ .experts = 7, .active = 3, .coefficient = 2 } },
    },
};
