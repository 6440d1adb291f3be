/* multiply.c: y = x0·x1, element by element; with silu, y = x0·σ(x0)·x1 in the same pass: the gate of SwiGLU, where σ is the
 * logistic function (silu.c). x1 (N,1,…,1,C) or (N,C) has one row for all pixels of a sample of x0 (N,…,C): the channel weights
 * of squeeze and excitation (J. Hu et al., 2017). */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/multiply.h"

void sgrad__multiply_forward_cuda(const struct sgrad_args *args);
void sgrad__multiply_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_shape *x1 = &signature->x[1].shape;
    struct sgrad_shape one = signature->x[0].shape;
    const struct sgrad_shape row = sgrad_shape(2, (int)one.dim[0], (int)one.dim[one.rank - 1]);
    for (int i = 1; i < one.rank - 1; i++) one.dim[i] = 1;
    if (!sgrad_shape_equal(x1, &one) && !sgrad_shape_equal(x1, &row)) return sgrad_infer_same(signature, attrs);
    signature->y.shape = signature->x[0].shape;
    return 0;
}

/* x1 as ROWS rows of CHANNELS elements, each of which multiplies PIXELS rows of x0. Inputs of one shape are one long row. */
struct extent {
    int64_t rows, pixels, channels;
};
static struct extent extent_of(const struct sgrad_args *args) {
    const struct sgrad_shape *x0 = &args->view[0].shape, *x1 = &args->view[1].shape;
    const int64_t count = sgrad_shape_count(x0), channels = x0->dim[x0->rank - 1];
    if (sgrad_shape_equal(x0, x1)) return (struct extent){ 1, 1, count };
    return (struct extent){ x0->dim[0], count / x0->dim[0] / channels, channels };
}

SGRAD_ALWAYS_INLINE void forward_pass(const struct sgrad_args *args, bool silu) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct extent is = extent_of(args);
    float x0_room[SGRAD_ROW], x1_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t row = 0; row < is.rows; row++)
        for (int64_t c = 0, n; (n = sgrad_chunk(c, is.channels)); c += n) {
            const float *x1 = sgrad_row(type, args->data[1], row * is.channels + c, n, x1_room);
            for (int64_t p = 0; p < is.pixels; p++) {
                const int64_t i = (row * is.pixels + p) * is.channels + c;
                const float *x0 = sgrad_row(type, args->data[0], i, n, x0_room);
                float *y = sgrad_row_out(type, args->data[2], i, y_room);
                for (int64_t j = 0; j < n; j++) y[j] = x0[j] * x1[j] * (silu ? sigmoid(x0[j]) : 1);
                sgrad_row_done(type, args->data[2], i, n, y);
            }
        }
}

SGRAD_ALWAYS_INLINE void backward_pass(const struct sgrad_args *args, bool silu) {
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct extent is = extent_of(args);
    const bool has0 = args->data[3], has1 = args->data[4];
    float x0_room[SGRAD_ROW], x1_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx0_room[SGRAD_ROW] = { 0 }, dx1_room[SGRAD_ROW] = { 0 };
    for (int64_t row = 0; row < is.rows; row++)
        for (int64_t c = 0, n; (n = sgrad_chunk(c, is.channels)); c += n) {
            const int64_t i1 = row * is.channels + c;
            const float *x1 = sgrad_row(type, args->data[1], i1, n, x1_room);
            float *dx1 = has1 ? sgrad_row_sum(type, args->data[4], i1, n, sgrad_adds(args, 4), dx1_room) : dx1_room;
            for (int64_t p = 0; p < is.pixels; p++) {
                const int64_t i = (row * is.pixels + p) * is.channels + c;
                const float *x0 = sgrad_row(type, args->data[0], i, n, x0_room);
                const float *dy = sgrad_row(type, args->data[2], i, n, dy_room);
                float *dx0 = has0 ? sgrad_row_sum(type, args->data[3], i, n, sgrad_adds(args, 3), dx0_room) : dx0_room;
                for (int64_t j = 0; j < n; j++) {
                    const float s = silu ? sigmoid(x0[j]) : 1, slope = silu ? s * (1 + x0[j] * (1 - s)) : 1;
                    dx0[j] += dy[j] * x1[j] * slope;
                    dx1[j] += dy[j] * x0[j] * s;
                }
                if (has0) sgrad_row_done(type, args->data[3], i, n, dx0);
            }
            if (has1) sgrad_row_done(type, args->data[4], i1, n, dx1);
        }
}

/* x0, y of any shape, x1 of that shape, (N,1,…,1,C) or (N,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    if (((const struct sgrad_multiply *)args->attrs)->silu) forward_pass(args, true);
    else forward_pass(args, false);
}

/* x0, dy of any shape, x1 of that shape, (N,1,…,1,C) or (N,C), dx0, dx1 as x0, x1 or absent */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    if (((const struct sgrad_multiply *)args->attrs)->silu) backward_pass(args, true);
    else backward_pass(args, false);
}

/* the exponential counts as 20 operations */
static double flops(const struct sgrad_args *args, double plain, double silu) {
    return (((const struct sgrad_multiply *)args->attrs)->silu ? silu : plain) * (double)sgrad_shape_count(&args->view[0].shape);
}
static double forward_flops(const struct sgrad_args *args) { return flops(args, 1, 25); }
static double backward_flops(const struct sgrad_args *args) { return flops(args, 4, 32); }

static void describe(const void *attrs, char *text, size_t size) {
    snprintf(text, size, "%s", ((const struct sgrad_multiply *)attrs)->silu ? "silu" : "");
}

/* (N,C) becomes (N,C,1,1) for images, (N,1,C) for rows. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const int rank = signature->x[0].shape.rank, more = rank - signature->x[1].shape.rank;
    const char *const x1 = more ? "row" : "x1";
    if (more) {
        fprintf(to, "axes = Constant <value = int64[%d] {", more);
        for (int i = 0; i < more; i++) fprintf(to, "%s%d", i ? ", " : "", rank > 3 ? 2 + i : 1);
        fputs("}> ()\nrow = Unsqueeze (x1, axes)\n", to);
    }
    if (((const struct sgrad_multiply *)attrs)->silu)
        fprintf(to, "share = Sigmoid (x)\ngate = Mul (x, share)\ny = Mul (gate, %s)", x1);
    else
        fprintf(to, "y = Mul (x, %s)", x1);
}

const struct sgrad_op sgrad_multiply_op = {
    .name = "multiply",
    .summary = "product of two inputs; the first can pass through SiLU (SwiGLU), the second have one row per sample",
    .source = "N. Shazeer, GLU variants improve transformer, 2020",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_multiply),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "multiply forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__multiply_forward_cuda), .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "multiply backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__multiply_backward_cuda), .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DX, 1) } } },
    .tests = {
        { "one image of 5x3x3", .x = { { 4, { 1, 5, 3, 3 } }, { 4, { 1, 5, 3, 3 } } } },
        { "silu, 7 samples of 17", .x = { { 2, { 7, 17 } }, { 2, { 7, 17 } } }, &(struct sgrad_multiply){ .silu = true } },
        { "silu, longer than a row", .x = { { 2, { 2, 531 } }, { 2, { 2, 531 } } }, &(struct sgrad_multiply){ .silu = true } },
        { "3 images of 5x7x8 by channels", .x = { { 4, { 3, 5, 7, 8 } }, { 4, { 3, 1, 1, 8 } } } },
        { "3 images of 5x7x8 by rows", .x = { { 4, { 3, 5, 7, 8 } }, { 2, { 3, 8 } } } },
        { "silu, 2 samples of 3 rows by features, longer than a row", .x = { { 3, { 2, 3, 531 } }, { 3, { 2, 1, 531 } } },
          &(struct sgrad_multiply){ .silu = true } },
        { "one pixel, by channels", .x = { { 4, { 2, 1, 1, 5 } }, { 4, { 2, 1, 1, 5 } } } },
    },
};
