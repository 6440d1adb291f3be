/* context_rows.c: the rank's rows of integers (tokens, or indices of rows) of samples that all ranks along an axis have, as
 * struct sgrad_zigzag describes: x (N,T), y (N,T/ranks). */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/context_rows.h"
#include "codelets/ops/zigzag.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_context_rows *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    int ranks;
    sgrad__place_on(signature->mesh, attrs->axis, 0, &ranks);
    signature->y = (struct sgrad_view){ SGRAD_I32, *x };
    if (x->rank != 2 || (ranks > 1 && x->dim[1] % (2 * (int64_t)ranks)))
        return sgrad_log_error(SGRAD_ESHAPE, "%s: context_rows requires rows (N,T), where T is a multiple of %d, not %s",
                               signature->layer, 2 * ranks, sgrad_shape_text(x, text));
    signature->y.shape.dim[1] /= ranks;
    return 0;
}

static void set_rank(const struct sgrad_signature *signature, int rank, void *attributes) {
    struct sgrad_context_rows *attrs = attributes;
    attrs->rows = sgrad__zigzag_of(signature->mesh, attrs->axis, rank, signature->y.shape.dim[1]);
}

/* x (N,T), y (N,T/ranks) */
static void forward(const struct sgrad_args *args) {
    const struct sgrad_context_rows *attrs = args->attrs;
    const int64_t samples = args->view[1].shape.dim[0], all = args->view[0].shape.dim[1], rows = args->view[1].shape.dim[1];
    const int32_t *x = args->data[0];
    int32_t *y = args->data[1];
    for (int64_t n = 0; n < samples; n++)
        for (int64_t t = 0; t < rows; t++) y[n * rows + t] = x[n * all + sgrad_zigzag_position(&attrs->rows, t)];
}

static void fill(const struct sgrad_test *test, int input, void *data) {
    for (int64_t i = 0; i < sgrad_shape_count(&test->x[input]); i++) ((int32_t *)data)[i] = (int32_t)i;
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "over %s", ((const struct sgrad_context_rows *)attrs)->axis);
}

const struct sgrad_op sgrad_context_rows_op = {
    .name = "context_rows",
    .summary = "the rank's rows of integers, in samples whose rows are split over the ranks of a mesh axis",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_context_rows),
    .no_gradient = 1u << 0,
    .input_dtype = { SGRAD_I32 },
    .infer = infer,
    .set_rank = set_rank,
    .describe = describe,
    .forward = { { { .name = "context_rows forward", .kind = &sgrad_forward_kind, .cpu = forward, .flops = sgrad_no_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .fill = fill,
    .not_differentiable = true,
    .tests = { { "alone, 7 samples of 5", .x = { { 2, { 7, 5 } } }, &(struct sgrad_context_rows){ .axis = "context" } } },
};
