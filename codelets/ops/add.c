/* add.c: y = x0 + x1, the end of a residual block; with relu, y = max(x0 + x1, 0) in the same pass. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/add.h"

void sgrad__add_forward_cuda(const struct sgrad_args *a);
void sgrad__add_backward_cuda(const struct sgrad_args *a);

/* x0, x1, y of any shape */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_add *attrs = args->attrs;
    enum sgrad_dtype type = args->view[0].dtype;
    float x0_room[SGRAD_ROW], x1_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x0 = sgrad_row(type, args->data[0], i, n, x0_room), *x1 = sgrad_row(type, args->data[1], i, n, x1_room);
        float *y = sgrad_row_out(type, args->data[2], i, y_room);
        if (attrs->relu)
            for (int64_t j = 0; j < n; j++) y[j] = x0[j] + x1[j] < 0 ? 0 : x0[j] + x1[j];
        else
            for (int64_t j = 0; j < n; j++) y[j] = x0[j] + x1[j];
        sgrad_row_done(type, args->data[2], i, n, y);
    }
}

/* y (read only with relu), dy, dx0, dx1 of any shape. Both inputs get the same gradient. */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_add *attrs = args->attrs;
    enum sgrad_dtype type = args->view[1].dtype;
    float y_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[1].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *dy = sgrad_row(type, args->data[1], i, n, dy_room);
        const float *y = attrs->relu ? sgrad_row(type, args->data[0], i, n, y_room) : NULL;
        for (int input = 2; input <= 3; input++) {
            if (!args->data[input]) continue;
            float *dx = sgrad_row_sum(type, args->data[input], i, n, sgrad_adds(args, input), dx_room);
            if (y)
                for (int64_t j = 0; j < n; j++) dx[j] += y[j] <= 0 ? 0 : dy[j];
            else
                for (int64_t j = 0; j < n; j++) dx[j] += dy[j];
            sgrad_row_done(type, args->data[input], i, n, dx);
        }
    }
}

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "%s", ((const struct sgrad_add *)attrs)->relu ? "relu" : "");
}

/* x1 is small compared with x0, so that the sum is not near relu's kink. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    float *x = data;
    sgrad_fill_nonzero(test, input, data);
    if (input == 1)
        for (int64_t i = 0, n = sgrad_shape_count(&test->x[1]); i < n; i++) x[i] *= 0.025f;
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature;
    fputs(((const struct sgrad_add *)attrs)->relu ? "sum = Add (x, x1)\ny = Relu (sum)" : "y = Add (x, x1)", to);
}

const struct sgrad_op sgrad_add_op = {
    .name = "add",
    .summary = "sum of two inputs with optional ReLU: the end of a residual block",
    .source = "He, Zhang, Ren, Sun, Deep residual learning for image recognition, 2015",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_add),
    .infer = sgrad_infer_same,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "add forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__add_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "add backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__add_backward_cuda) },
                    .use = { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DX, 1) } } },
    .fill = fill,
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } }, { 4, { 1, 5, 3, 3 } } } },
        { "relu, one image of 5x3x17", .x = { { 4, { 1, 5, 3, 17 } }, { 4, { 1, 5, 3, 17 } } },
          &(struct sgrad_add){ .relu = true } },
        { "relu, longer than a row", .x = { { 2, { 3, 577 } }, { 2, { 3, 577 } } }, &(struct sgrad_add){ .relu = true } },
    },
};
