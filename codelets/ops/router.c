/* router.c: the weight of each expert of a mixture, from one number per expert. The experts with the largest scores are active:
 *
 *     p = softmax(x), or 1 / (1 + e⁻ˣ) (sigmoid)
 *     y = p of an active expert, or p / Σ p over the active experts (normalize); 0 of the others
 *
 * with x, y (N,…,E). ACTIVE experts of each row are active. Scores are x; of equal ones, that of the expert with the smaller
 * number is first. An active expert whose p is less than the smallest float has y = 0, as the others.
 *
 * With a rate, scores are p plus a bias per expert. The bias has no gradient. After each step, it is increased by the rate for
 * experts that had fewer rows of the batch than the mean, and decreased for those that had more.
 *
 * Sources: N. Shazeer et al., Outrageously large neural networks, 2017; A. Q. Jiang et al., Mixtral of experts, 2024; the bias:
 * L. Wang et al., Auxiliary-loss-free load balancing strategy for mixture-of-experts, 2024. */
#include "config.h"
#include "codelets/ops/mixture.h"
#include "codelets/ops/router.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_router *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2 || x->dim[x->rank - 1] > SGRAD_ROW)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: router requires rows of 1 to %d experts (N,…,E), not %s", signature->layer,
                               SGRAD_ROW, sgrad_shape_text(x, text));
    const int experts = (int)x->dim[x->rank - 1];
    if (attrs->active < 1 || attrs->active > experts)
        return sgrad_log_error(SGRAD_EINVAL, "%s: router: active=%d must be from 1 to the number of experts, %d",
                               signature->layer, attrs->active, experts);
    signature->y.shape = *x;
    if (attrs->rate <= 0) return 0;
    signature->s[0] = (struct sgrad_parameter){ .name = "e_score_correction_bias", .shape = sgrad_shape(1, experts),
                                                .init = SGRAD_ZEROS };
    signature->stat[0] = sgrad_shape(1, experts);
    return 0;
}

static int64_t experts_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }

/* Computes p of the COUNT numbers X. */
SGRAD_ALWAYS_INLINE void probabilities(bool sigmoids, const float *x, int64_t count, float *p) {
    if (!sigmoids) softmax_of_row(x, count, p);
    else for (int64_t e = 0; e < count; e++) p[e] = sigmoid(x[e]);
}

/* x (N,…,E), bias (E) or absent, y (N,…,E) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_router *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t experts = experts_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / experts;
    const float *bias = args->data[1];
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW], p[SGRAD_ROW], score[SGRAD_ROW];
    bool chosen[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = sgrad_row(type, args->data[0], r * experts, experts, x_room);
        float *y = sgrad_row_out(type, args->data[2], r * experts, y_room);
        probabilities(attrs->sigmoid, x, experts, p);
        for (int64_t e = 0; e < experts && bias; e++) score[e] = p[e] + bias[e];
        choose_largest(attrs->active, bias ? score : x, experts, chosen);
        for (int64_t e = 0; e < experts; e++) y[e] = chosen[e] ? p[e] : 0;
        const float scale = attrs->normalize ? 1 / sum_of(y, experts) : 1;
        for (int64_t e = 0; e < experts; e++) y[e] = chosen[e] ? y[e] * scale : 0;
        sgrad_row_done(type, args->data[2], r * experts, experts, y);
    }
}

/* x, y, dy, dx (N,…,E). With S = Σ dy·y:
 *     softmax   dx = p·(dy - S), in which dy counts as 0 if y is 0       normalize: dx = y·(dy - S)
 *     sigmoid   dx = dy·y·(1 - p)                                        normalize: dx = y·(1 - p)·(dy - S) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_router *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t experts = experts_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / experts;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW], p[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = r * experts;
        const float *x = sgrad_row(type, args->data[0], from, experts, x_room);
        const float *y = sgrad_row(type, args->data[1], from, experts, y_room);
        const float *dy = sgrad_row(type, args->data[2], from, experts, dy_room);
        const float sum = attrs->sigmoid && !attrs->normalize ? 0 : sum_of_products(dy, y, experts);
        float *dx = sgrad_row_sum(type, args->data[3], from, experts, sgrad_adds(args, 3), dx_room);
        probabilities(attrs->sigmoid, x, experts, p);
        for (int64_t e = 0; e < experts; e++) {
            const float slope = attrs->sigmoid ? y[e] * (1 - p[e]) : y[e];
            const float all = p[e] * ((y[e] == 0 ? 0 : dy[e]) - sum), own = slope * (dy[e] - sum);
            dx[e] += attrs->sigmoid || attrs->normalize ? own : all;
        }
        sgrad_row_done(type, args->data[3], from, experts, dx);
    }
}

/* y (N,…,E) -> rows of each expert (E); absent without a bias */
static void count(const struct sgrad_args *args) {
    if (!args->data[1]) return;
    const int64_t experts = experts_of(&args->view[0]), rows = sgrad_shape_count(&args->view[0].shape) / experts;
    double *stat = args->data[1];
    if (!sgrad_adds(args, 1)) memset(stat, 0, (size_t)experts * sizeof *stat);
    for (int64_t i = 0; i < rows * experts; i++) stat[i % experts] += sgrad_get(args->view[0].dtype, args->data[0], i) != 0;
}

/* rows of each expert in the batch (E), bias (E); both may be absent */
static void finish(const struct sgrad_args *args) {
    if (!args->data[1]) return;
    const float rate = ((const struct sgrad_router *)args->attrs)->rate;
    const int64_t experts = args->view[0].shape.dim[0];
    const double *rows = args->data[0];
    float *bias = args->data[1];
    double mean = 0;
    for (int64_t e = 0; e < experts; e++) mean += rows[e] / (double)experts;
    for (int64_t e = 0; e < experts; e++) bias[e] += rate * (float)((rows[e] < mean) - (rows[e] > mean));
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_router *attrs = attributes;
    snprintf(text, size, "%d active%s%s", attrs->active, attrs->sigmoid ? ", sigmoid" : "",
             attrs->normalize ? ", normalized" : "");
}

/* an exponential counts as 20 operations */
static double flops(const struct sgrad_args *args) {
    const struct sgrad_router *attrs = args->attrs;
    return (25.0 + attrs->active) * (double)sgrad_shape_count(&args->view[0].shape);
}

/* The numbers of a row are far from each other, so that a small change activates no other expert. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    const int64_t experts = test->x[0].dim[test->x[0].rank - 1], elements = sgrad_shape_count(&test->x[0]);
    float *x = data;
    (void)input;
    for (int64_t i = 0; i < elements; i++)
        x[i] = 0.25f * (float)((i / experts + 5 * (i % experts)) % experts) - 0.1f * (float)experts;
}

#define FORWARD                                                                             \
    { { .name = "router forward", .kind = &sgrad_forward_kind, .cpu = forward, .flops = flops }, \
      { SGRAD_IN(X, 0), SGRAD_IN(S, 0), SGRAD_OUT(Y, 0) } }

const struct sgrad_op sgrad_router_op = {
    .name = "router",
    .summary = "weights of the experts of a mixture: softmax or sigmoid of the largest numbers of each row, 0 of the others",
    .source = "N. Shazeer et al., Outrageously large neural networks: the sparsely-gated mixture-of-experts layer, 2017",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_router),
    .infer = infer,
    .describe = describe,
    .forward = { FORWARD,
                 { { .name = "router count", .kind = &sgrad_forward_kind, .cpu = count, .accumulates = true },
                   { SGRAD_IN(Y, 0), SGRAD_OUT(STAT, 0) } } },
    .backward = { { { .name = "router backward", .kind = &sgrad_backward_kind, .cpu = backward, .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .inference = { FORWARD },
    .finish = { { { .name = "router finish", .kind = &sgrad_update_kind, .cpu = finish },
                  { SGRAD_IN(STAT, 0), SGRAD_INOUT(S, 0) }, SGRAD_STEP } },
    .fill = fill,
    .tests = {
        { "2 of 7", .x = { { 3, { 3, 5, 7 } } }, &(struct sgrad_router){ .active = 2 } },
        { "2 of 7, normalized", .x = { { 3, { 3, 5, 7 } } }, &(struct sgrad_router){ .active = 2, .normalize = true } },
        { "3 of 17, sigmoid", .x = { { 2, { 4, 17 } } }, &(struct sgrad_router){ .active = 3, .sigmoid = true } },
        { "3 of 17, sigmoid, normalized, bias", .x = { { 2, { 4, 17 } } },
          &(struct sgrad_router){ .active = 3, .sigmoid = true, .normalize = true, .rate = 0.01f } },
        { "one of one", .x = { { 2, { 3, 1 } } }, &(struct sgrad_router){ .active = 1 } },
        { "all of 8", .x = { { 2, { 2, 8 } } }, &(struct sgrad_router){ .active = 8 } },
    },
};
