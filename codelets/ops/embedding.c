/* embedding.c: looks up a row of a table for each number: y = weight[x], with x I32 (N,…), weight (V,C), y (N,…,C). */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/embedding.h"

#include <math.h>

void sgrad__embedding_forward_cuda(const struct sgrad_args *args);
void sgrad__embedding_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_embedding *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    if (x->rank < 1 || x->rank >= SGRAD_MAX_RANK || attrs->count < 1 || attrs->features < 1)
        return sgrad_log_error(SGRAD_EINVAL, "%s: embedding of %d rows of %d features is invalid; both must be 1 or more",
                               signature->layer, attrs->count, attrs->features);
    if (attrs->deviation == 0) attrs->deviation = 1;
    signature->y.shape = *x;
    signature->y.shape.dim[signature->y.shape.rank++] = attrs->features;
    signature->p[0] = (struct sgrad_parameter){
        .name = "weight",
        .init = SGRAD_NORMAL,
        .deviation = attrs->deviation,
        .shape = { 2, { attrs->count, attrs->features } },
    };
    return 0;
}

/* x (N,…), weight (V,C), y (N,…,C). A number that is not the index of a row gives NaN, which ends the run. */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_embedding *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[2].dtype;
    const int32_t *x = args->data[0];
    const float *weight = args->data[1];
    const int64_t rows = sgrad_shape_count(&args->view[0].shape), features = attrs->features;
    float room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            float *y = sgrad_row_out(type, args->data[2], r * features + i, room);
            if (x[r] >= 0 && x[r] < attrs->count) memcpy(y, weight + x[r] * features + i, (size_t)n * sizeof *y);
            else
                for (int64_t j = 0; j < n; j++) y[j] = NAN;
            sgrad_row_done(type, args->data[2], r * features + i, n, y);
        }
}

/* x (N,…), dy (N,…,C), dweight (V,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_embedding *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[1].dtype;
    const int32_t *x = args->data[0];
    float *dweight = args->data[2], room[SGRAD_ROW];
    const int64_t rows = sgrad_shape_count(&args->view[0].shape), features = attrs->features;
    if (!sgrad_adds(args, 2)) memset(dweight, 0, sgrad_view_bytes(&args->view[2]));
    for (int64_t r = 0; r < rows; r++) {
        if (x[r] < 0 || x[r] >= attrs->count) continue;
        float *to = dweight + x[r] * features;
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *dy = sgrad_row(type, args->data[1], r * features + i, n, room);
            for (int64_t j = 0; j < n; j++) to[i + j] += dy[j];
        }
    }
}

/* Bytes read and written; of the table only the rows that are looked up count. */
static double forward_bytes(const struct sgrad_args *args) {
    return (double)(sgrad_view_bytes(&args->view[0]) + 2 * sgrad_view_bytes(&args->view[2]));
}

static double backward_flops(const struct sgrad_args *args) { return (double)sgrad_shape_count(&args->view[1].shape); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_embedding *attrs = attributes;
    snprintf(text, size, "%d rows", attrs->count);
}

static void fill(const struct sgrad_test *test, int input, void *data) {
    const struct sgrad_embedding *attrs = test->attrs;
    int32_t *x = data;
    for (int64_t i = 0; i < sgrad_shape_count(&test->x[input]); i++) x[i] = (int32_t)(7 * i % attrs->count);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Gather <axis = 0> (weight, x)", to);
}

const struct sgrad_op sgrad_embedding_op = {
    .name = "embedding",
    .summary = "embedding: for each number, the row of a table with that index",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_embedding),
    .no_gradient = 1u << 0,
    .input_dtype = { SGRAD_I32 },
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "embedding forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__embedding_forward_cuda), .flops = sgrad_no_flops,
                     .bytes = forward_bytes },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "embedding backward", .kind = &sgrad_backward_kind, .cpu = backward,
                     .cuda = SGRAD_ON_CUDA(sgrad__embedding_backward_cuda), .flops = backward_flops, .accumulates = true },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DP, 0) } } },
    .fill = fill,
    .tests = {
        { "one sample of 5, 3 rows", { { 2, { 1, 5 } } }, &(struct sgrad_embedding){ .count = 3, .features = 7 } },
        { "3 samples of 4, 11 rows", { { 2, { 3, 4 } } }, &(struct sgrad_embedding){ .count = 11, .features = 16 } },
        { "longer than a row", { { 2, { 2, 3 } } }, &(struct sgrad_embedding){ .count = 5, .features = 515 } },
        { "a number a sample", { { 1, { 4 } } }, &(struct sgrad_embedding){ .count = 6, .features = 8 } },
        { "1,100 of a number", { { 2, { 1, 1100 } } }, &(struct sgrad_embedding){ .count = 1, .features = 4 } },
    },
};
