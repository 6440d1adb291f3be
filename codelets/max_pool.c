/* max_pool.c: the largest value of every window, as torch.nn.MaxPool2d: padding never wins, the first of equals does, and
 * a NaN wins over everything. The forward pass keeps which tap won, so that the backward pass needs neither x nor y:
 *
 *     x  1 5 2 0     taps  0 1     y  5 7     kept  1 3     dx from dy (a b)   0 a 0 0
 *        3 4 6 7           2 3                                                 0 0 0 b
 *
 * Limits: windows of at most 16x16, whose taps fit a byte. */
#include "codelets/pool.h"

#include <math.h>

void sgrad__max_pool_forward_cuda(const struct sgrad_args *a);
void sgrad__max_pool_inference_cuda(const struct sgrad_args *a);
void sgrad__max_pool_backward_cuda(const struct sgrad_args *a);

enum { LARGEST_KERNEL = 16 };

int sgrad__pool_infer(struct sgrad_signature *s, int kernel, int *stride, int padding) {
    const struct sgrad_shape *x = &s->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (!*stride) *stride = kernel;
    if (x->rank != 4)
        return sgrad_fail(SGRAD_ESHAPE, "%s: pooling takes images (N,H,W,C), not %s", s->layer, sgrad_shape_text(x, text));
    if (kernel < 1 || *stride < 1 || padding < 0 || padding > kernel / 2)
        return sgrad_fail(SGRAD_EINVAL,
                          "%s: pooling takes a kernel and a stride of 1 or more, and a padding of at most half "
                          "the kernel, not kernel %d, stride %d, padding %d",
                          s->layer, kernel, *stride, padding);
    if (x->dim[1] + 2 * padding < kernel || x->dim[2] + 2 * padding < kernel)
        return sgrad_fail(SGRAD_ESHAPE, "%s: a %dx%d window with padding %d does not fit its input %s", s->layer, kernel, kernel,
                          padding, sgrad_shape_text(x, text));
    s->y.shape = (struct sgrad_shape){ 4,
                                       { x->dim[0], (x->dim[1] + 2 * padding - kernel) / *stride + 1,
                                         (x->dim[2] + 2 * padding - kernel) / *stride + 1, x->dim[3] } };
    return 0;
}

void sgrad__pool_describe(int kernel, int stride, int padding, char *text, size_t size) {
    snprintf(text, size, "%dx%d stride %d pad %d", kernel, kernel, stride, padding);
}

static int infer(struct sgrad_signature *s, void *attrs) {
    struct sgrad_max_pool *m = attrs;
    if (m->kernel > LARGEST_KERNEL)
        return sgrad_fail(SGRAD_EINVAL, "%s: max_pool takes kernels up to %d, not %d", s->layer, LARGEST_KERNEL, m->kernel);
    SGRAD_TRY(sgrad__pool_infer(s, m->kernel, &m->stride, m->padding));
    s->keep[0] = (struct sgrad_view){ SGRAD_U8, s->y.shape };
    return 0;
}

static struct sgrad__window window_of(const struct sgrad_args *a) {
    const struct sgrad_max_pool *m = a->attrs;
    return (struct sgrad__window){ m->kernel, m->stride, m->padding };
}

/* x (N,H,W,C), y (N,P,Q,C); KEEP (N,P,Q,C) or NULL gets the tap that won, r·kernel + s */
SGRAD_VECTOR static void run(const struct sgrad_args *a, uint8_t *keep) {
    const struct sgrad__window w = window_of(a);
    const enum sgrad_dtype type = a->view[0].dtype;
    const int64_t *in = a->view[0].shape.dim, *out = a->view[1].shape.dim, H = in[1], W = in[2], C = in[3];
    const int64_t P = out[1], Q = out[2];
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    int32_t winner[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < out[0] * P * Q; pixel++) {
        const int64_t i = pixel / (P * Q), h = pixel / Q % P * w.stride - w.padding, v = pixel % Q * w.stride - w.padding;
        const struct sgrad__range rows = sgrad__window_taps(w, h, H), columns = sgrad__window_taps(w, v, W);
        for (int64_t c = 0, n; (n = sgrad__piece(c, C)); c += n) {
            const int64_t to = pixel * C + c;
            float *y = sgrad__row_out(type, a->data[1], to, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = -INFINITY;
            for (int64_t j = 0; j < n; j++) winner[j] = (int32_t)(rows.begin * w.kernel + columns.begin);
            for (int64_t r = rows.begin; r < rows.end; r++)
                for (int64_t s = columns.begin; s < columns.end; s++) {
                    const float *x = sgrad__row(type, a->data[0], ((i * H + h + r) * W + v + s) * C + c, n, x_room);
                    const int32_t tap = (int32_t)(r * w.kernel + s);
                    for (int64_t j = 0; j < n; j++) {
                        bool wins = (x[j] > y[j]) | (x[j] != x[j]);
                        winner[j] = wins ? tap : winner[j];
                        y[j] = wins ? x[j] : y[j];
                    }
                }
            sgrad__row_done(type, a->data[1], to, n, y);
            if (keep)
                for (int64_t j = 0; j < n; j++) keep[to + j] = (uint8_t)winner[j];
        }
    }
}

/* x (N,H,W,C), y (N,P,Q,C), kept taps (N,P,Q,C) U8 */
static void forward(const struct sgrad_args *a) { run(a, a->data[2]); }

/* x (N,H,W,C), y (N,P,Q,C) */
static void inference(const struct sgrad_args *a) { run(a, NULL); }

/* dy (N,P,Q,C), kept taps (N,P,Q,C) U8, dx (N,H,W,C): every input asks the windows that hold it whether it won */
SGRAD_VECTOR static void backward(const struct sgrad_args *a) {
    const struct sgrad__window w = window_of(a);
    const enum sgrad_dtype type = a->view[0].dtype;
    const int64_t *out = a->view[0].shape.dim, *in = a->view[2].shape.dim, H = in[1], W = in[2], C = in[3];
    const int64_t P = out[1], Q = out[2];
    const uint8_t *keep = a->data[1];
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t pixel = 0; pixel < in[0] * H * W; pixel++) {
        const int64_t i = pixel / (H * W), h = pixel / W % H + w.padding, v = pixel % W + w.padding;
        const struct sgrad__range rows = sgrad__window_outputs(w, h, P), columns = sgrad__window_outputs(w, v, Q);
        for (int64_t c = 0, n; (n = sgrad__piece(c, C)); c += n) {
            const int64_t to = pixel * C + c;
            float *dx = sgrad__row_sum(type, a->data[2], to, n, sgrad__adds(a, 2), dx_room);
            for (int64_t p = rows.begin; p < rows.end; p++)
                for (int64_t q = columns.begin; q < columns.end; q++) {
                    const int64_t from = ((i * P + p) * Q + q) * C + c;
                    const float *dy = sgrad__row(type, a->data[0], from, n, dy_room);
                    const uint8_t tap = (uint8_t)((h - p * w.stride) * w.kernel + v - q * w.stride);
                    for (int64_t j = 0; j < n; j++) dx[j] += keep[from + j] == tap ? dy[j] : 0;
                }
            sgrad__row_done(type, a->data[2], to, n, dx);
        }
    }
}

static double flops(const struct sgrad_args *a) {
    const struct sgrad_max_pool *m = a->attrs;
    return (double)m->kernel * m->kernel * (double)sgrad_shape_count(&a->view[1].shape); /* of y, or its taps */
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_max_pool *m = attrs;
    sgrad__pool_describe(m->kernel, m->stride, m->padding, text, size);
}

/* Within a channel of an image all are different, 1/8 apart and exact in bf16: no small step changes which is the largest. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    const int64_t C = test->x[input].dim[3];
    float *x = data;
    for (int64_t i = 0, n = sgrad_shape_count(&test->x[input]); i < n; i++)
        x[i] = 0.125f * (float)((i / C * 19 + i % C * 7) % 97 - 48);
}

const struct sgrad_op sgrad_max_pool_op = {
    .name = "max_pool",
    .summary = "largest value of every window",
    .source = "Riesenhuber, Poggio, Hierarchical models of object recognition in cortex, 1999",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_max_pool),
    .infer = infer,
    .describe = describe,
    .forward = { { { .name = "max_pool forward", .kind = SGRAD_FORWARD, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__max_pool_forward_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(KEEP, 0) } } },
    .inference = { { { .name = "max_pool inference", .kind = SGRAD_FORWARD, .cpu = inference,
                       .cuda = SGRAD_ON_CUDA(sgrad__max_pool_inference_cuda), .flops = flops },
                     .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "max_pool backward", .kind = SGRAD_BACKWARD, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__max_pool_backward_cuda), .flops = flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_IN(KEEP, 0), SGRAD_OUT(DX, 0) } } },
    .fill = fill,
    .tests = {
        { "2x2 on one image of 5x7x3", .x = { { 4, { 1, 5, 7, 3 } } }, &(struct sgrad_max_pool){ .kernel = 2 } },
        { "3x3 stride 2 pad 1, 2 of 7x6x17", .x = { { 4, { 2, 7, 6, 17 } } },
          &(struct sgrad_max_pool){ .kernel = 3, .stride = 2, .padding = 1 } },
        { "3x3 stride 1, 3 of 5x4x1", .x = { { 4, { 3, 5, 4, 1 } } }, &(struct sgrad_max_pool){ .kernel = 3, .stride = 1 } },
        { "2x2 stride 3 pad 1, 2 of 7x5x3", .x = { { 4, { 2, 7, 5, 3 } } },
          &(struct sgrad_max_pool){ .kernel = 2, .stride = 3, .padding = 1 } },
    },
};
