/* max_pool.c: the largest value of every window, as torch.nn.MaxPool2d with its ceil_mode. Padding never wins; of equal values
 * the first wins; a NaN wins over all numbers. A *tap* is an element of the window. The forward pass saves the index of the
 * winning tap, so that the backward pass needs neither x nor y:
 *
 *     x  1 5 2 0     taps  0 1     y  5 7     saved  1 3    dx from dy (a b)   0 a 0 0
 *        3 4 6 7           2 3                                                 0 0 0 b
 *
 * With few channels, adjacent windows of a row are processed together. Forward computes the maximum of the window that begins at
 * each pixel and stores every stride-th. Backward, if windows do not overlap, computes the gradients that each tap gets and
 * interleaves them:
 *
 *     x   1 5 2 0    largest  5 6 7    y  5 7      won by  tap 0: . .  tap 1: a .    dx  . a . .
 *         3 4 6 7                                          tap 2: . .  tap 3: . b        . . . b
 *
 * Of volumes (N,D,H,W,C) every slice is pooled, as by MaxPool3d with a kernel of 1 along D.
 *
 * Limits: windows of at most 16x16, so that the index of a tap fits in a byte. */
#include "config.h"
#include "codelets/ops/pool.h"
#include "codelets/ops/onnx.h"
#include "codelets/ops/max_pool.h"

#include <math.h>

void sgrad__max_pool_forward_cuda(const struct sgrad_args *a);
void sgrad__max_pool_inference_cuda(const struct sgrad_args *a);
void sgrad__max_pool_backward_cuda(const struct sgrad_args *a);

enum { LARGEST_KERNEL = 16 };

int sgrad__pool_infer(struct sgrad_signature *signature, int kernel, int *stride, int padding) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (!*stride) *stride = kernel;
    if (x->rank != 4 && x->rank != 5)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: pooling requires images (N,H,W,C) or slices (N,D,H,W,C), not %s",
                               signature->layer, sgrad_shape_text(x, text));
    const int plane = x->rank - 3;      /* the dimension of H */
    if (kernel < 1 || *stride < 1 || padding < 0 || padding > kernel / 2)
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: pooling requires a kernel and a stride of 1 or more, and a padding of at most half the "
                               "kernel, not kernel %d, stride %d, padding %d",
                               signature->layer, kernel, *stride, padding);
    if (x->dim[plane] + 2 * padding < kernel || x->dim[plane + 1] + 2 * padding < kernel)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: a %dx%d window with padding %d does not fit its input %s", signature->layer,
                               kernel, kernel, padding, sgrad_shape_text(x, text));
    signature->y.shape = *x;
    for (int i = plane; i < plane + 2; i++) signature->y.shape.dim[i] = (x->dim[i] + 2 * padding - kernel) / *stride + 1;
    return 0;
}

void sgrad__pool_describe(int kernel, int stride, int padding, char *text, size_t size) {
    snprintf(text, size, "%dx%d stride %d pad %d", kernel, kernel, stride, padding);
}

/* Returns whether there is one more window, which begins in an input of SIZE and ends after it (PyTorch's ceil_mode). */
static bool reaches_beyond(const struct sgrad_max_pool *pool, int64_t size) {
    const int64_t rest = size + 2 * pool->padding - pool->kernel, next = (rest / pool->stride + 1) * pool->stride;
    return rest % pool->stride && next < size + pool->padding;
}

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_max_pool *m = attrs;
    if (m->kernel > LARGEST_KERNEL)
        return sgrad_log_error(SGRAD_EINVAL, "%s: max_pool supports kernel sizes up to %d, not %d", signature->layer,
                               LARGEST_KERNEL, m->kernel);
    SGRAD_TRY(sgrad__pool_infer(signature, m->kernel, &m->stride, m->padding));
    const int plane = signature->x[0].shape.rank - 3;
    for (int d = plane; d < plane + 2 && m->ceil; d++)
        signature->y.shape.dim[d] += reaches_beyond(m, signature->x[0].shape.dim[d]);
    signature->saved[0] = (struct sgrad_view){ SGRAD_U8, signature->y.shape };
    return 0;
}

static struct sgrad__window window_of(const struct sgrad_args *args) {
    const struct sgrad_max_pool *m = args->attrs;
    return (struct sgrad__window){ m->kernel, m->stride, m->padding };
}

enum { FEW_CHANNELS = 64, LANES = 8, BLOCK = 64 };

/* Returns how many of the next WINDOWS are processed together: as many as fit in a row buffer if channels are few; at least 1. */
SGRAD_ALWAYS_INLINE int64_t together(struct sgrad__window w, int64_t C, int64_t windows) {
    const int64_t fit = C < FEW_CHANNELS ? SGRAD_ROW / (w.stride * C) : 1, count = windows < fit ? windows : fit;
    return count > 1 ? count : 1;
}

/* Rounds a number of lanes up to whole vectors of bytes, so that a loop over them has no remainder. */
SGRAD_ALWAYS_INLINE int64_t blocks(int64_t n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

/* Copies N lanes of SIZE bytes as vectors, which may overwrite lanes after the N-th, as far as the destination
 * has any. */
SGRAD_ALWAYS_INLINE void move(void *to, const void *from, size_t size, int64_t n, int64_t room) {
    for (int64_t j = 0; j < n; j += LANES) {
        char *y = (char *)to + (size_t)j * size;
        const char *x = (const char *)from + (size_t)j * size;
        if (j + LANES <= room) memcpy(y, x, LANES * size);
        else memcpy(y, x, (size_t)(n - j) * size);
    }
}

/* Compares X, the value of TAP, with *MOST, and replaces it if X is larger or a NaN. */
SGRAD_ALWAYS_INLINE void meet(float x, int32_t tap, float *most, int32_t *winner) {
    const int32_t wins = -(int32_t)((x > *most) | (x != x));
    *winner += (tap - *winner) & wins;      /* for a second selection by the same condition GCC would branch */
    *most = wins ? x : *most;
}

/* Computes the maximum of a window's taps, and which tap it is, for N adjacent lanes. FROM is the offset of tap 0 of the first
 * lane, which may be in the padding. Taps are processed in pairs, with an odd number the last one twice; this halves the reads
 * and writes of y and WINNER. */
SGRAD_ALWAYS_INLINE void largest(enum sgrad_dtype type, const void *data, int64_t from, struct sgrad__window w,
                                 struct sgrad__range rows, struct sgrad__range columns, int64_t W, int64_t C, int64_t n, float *y,
                                 int32_t *winner) {
    float x_room[SGRAD_ROW], z_room[SGRAD_ROW];
    for (int64_t r = rows.begin; r < rows.end; r++)
        for (int64_t s = columns.begin; s < columns.end; s += 2) {
            const int64_t next = s + 1 < columns.end ? s + 1 : s;
            const float *x = sgrad_row(type, data, from + (r * W + s) * C, n, x_room);
            const float *z = sgrad_row(type, data, from + (r * W + next) * C, n, z_room);
            const int32_t tap = (int32_t)(r * w.kernel + s), then = (int32_t)(r * w.kernel + next);
            if (r == rows.begin && s == columns.begin)
                for (int64_t j = 0; j < n; j++) {
                    float most = x[j];
                    int32_t who = tap;
                    meet(z[j], then, &most, &who);
                    y[j] = most, winner[j] = who;
                }
            else
                for (int64_t j = 0; j < n; j++) {
                    float most = y[j];
                    int32_t who = winner[j];
                    meet(x[j], tap, &most, &who);
                    meet(z[j], then, &most, &who);
                    y[j] = most, winner[j] = who;
                }
        }
}

/* x (N,H,W,C), y (N,P,Q,C). KEEP (N,P,Q,C), unless it is NULL, gets the index of the winning tap, r·kernel + s. */
SGRAD_ALWAYS_INLINE void run(const struct sgrad_args *args, uint8_t *keep) {
    const struct sgrad__window w = window_of(args);
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images x_is = sgrad__images_of(&args->view[0]), y_is = sgrad__images_of(&args->view[1]);
    const int64_t *in = x_is.dim, *out = y_is.dim, H = in[1], W = in[2], C = in[3];
    const int64_t P = out[1], Q = out[2];
    float y_room[SGRAD_ROW], most[SGRAD_ROW];
    int32_t winner[SGRAD_ROW] = { 0 };  /* initialised, because it is read in whole vectors */
    uint8_t tap[SGRAD_ROW];
    for (int64_t row = 0; row < out[0] * P; row++)
        for (int64_t q = 0, m; q < Q; q += m) {
            const int64_t i = row / P, h = row % P * w.stride - w.padding, v = q * w.stride - w.padding;
            const struct sgrad__range rows = sgrad__window_taps(w, h, H), columns = sgrad__window_taps(w, v, W);
            m = together(w, C, v < 0 ? 0 : (W - v - w.kernel) / w.stride + 1);
            for (int64_t c = 0, n; (n = sgrad_chunk(c, C)); c += n) {
                const int64_t from = ((i * H + h) * W + v) * C + c, to = (row * Q + q) * C + c;
                const int64_t wide = (m - 1) * w.stride * C + n;
                float *y = sgrad_row_out(type, args->data[1], to, y_room);
                if (m == 1) largest(type, args->data[0], from, w, rows, columns, W, C, n, y, winner);
                else {
                    largest(type, args->data[0], from, w, rows, columns, W, C, wide, most, winner);
                    for (int64_t k = 0; k < m; k++) move(y + k * C, most + k * w.stride * C, sizeof *y, C, (m - k) * C);
                }
                if (keep) {
                    for (int64_t j = 0; j < blocks(wide); j++) tap[j] = (uint8_t)winner[j];
                    for (int64_t k = 0; k < m; k++) move(keep + to + k * n, tap + k * w.stride * C, 1, n, (m - k) * n);
                }
                sgrad_row_done(type, args->data[1], to, m * n, y);
            }
        }
}

/* Forward: x (N,H,W,C), y (N,P,Q,C), saved taps (N,P,Q,C) U8 */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) { run(args, args->data[2]); }

/* Inference: x (N,H,W,C), y (N,P,Q,C). */
SGRAD_VECTOR(inference)(const struct sgrad_args *args) { run(args, NULL); }

/* Writes the gradients of row r of M adjacent windows to DISTRIBUTED (M,kernel,C), from DY (M,C) and the saved taps KEEP (M,C).
 * The windows must not overlap. */
SGRAD_ALWAYS_INLINE void distribute(const float *dy, const uint8_t *keep, struct sgrad__window w, int64_t r, int64_t m, int64_t C,
                                    float *distributed) {
    float dy_room[SGRAD_ROW], won[SGRAD_ROW + BLOCK];
    uint8_t kept[SGRAD_ROW];
    const int64_t n = m * C, whole = blocks(n);
    memcpy(dy_room, dy, (size_t)n * sizeof *dy);
    memset(dy_room + n, 0, (size_t)(whole - n) * sizeof *dy);
    memcpy(kept, keep, (size_t)n);
    memset(kept + n, 0, (size_t)(whole - n));
    for (int64_t s = 0; s < w.kernel; s++) {
        const uint8_t tap = (uint8_t)(r * w.kernel + s);
        for (int64_t j = 0; j < whole; j++) won[s * n + j] = kept[j] == tap ? dy_room[j] : 0;
    }
    for (int64_t q = 0; q < m; q++)
        for (int64_t s = 0; s < w.kernel; s++)
            move(distributed + (q * w.kernel + s) * C, won + s * n + q * C, sizeof *won, C, n - q * C);
}

/* dy (N,P,Q,C), saved taps (N,P,Q,C) U8, dx (N,H,W,C). For every input element the gradients of those windows are added in which
 * it won. */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad__window w = window_of(args);
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct sgrad__images y_is = sgrad__images_of(&args->view[0]), x_is = sgrad__images_of(&args->view[2]);
    const int64_t *out = y_is.dim, *in = x_is.dim, H = in[1], W = in[2], C = in[3];
    const int64_t P = out[1], Q = out[2];
    const uint8_t *keep = args->data[1];
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW], distributed[SGRAD_ROW];
    for (int64_t row = 0; row < in[0] * H; row++)
        for (int64_t x = 0, pixels; x < W; x += pixels) {
            const int64_t i = row / H, h = row % H + w.padding, v = x + w.padding;
            const struct sgrad__range rows = sgrad__window_outputs(w, h, P), columns = sgrad__window_outputs(w, v, Q);
            const bool begins = w.kernel == w.stride && rows.begin < rows.end && v % w.stride == 0;
            const int64_t m = begins ? together(w, C, (W - x) / w.kernel) : 1;
            pixels = m > 1 ? m * w.kernel : 1;
            for (int64_t c = 0, n; (n = sgrad_chunk(c, pixels * C)); c += n) {
                const int64_t to = (row * W + x) * C + c;
                float *dx = sgrad_row_sum(type, args->data[2], to, n, sgrad_adds(args, 2), dx_room);
                for (int64_t p = rows.begin; p < rows.end; p++)
                    for (int64_t q = columns.begin; q < columns.end; q++) {
                        const int64_t from = ((i * P + p) * Q + q) * C + c, r = h - p * w.stride;
                        const float *dy = sgrad_row(type, args->data[0], from, m > 1 ? m * C : n, dy_room);
                        if (m > 1) {
                            distribute(dy, keep + from, w, r, m, C, distributed);
                            for (int64_t j = 0; j < n; j++) dx[j] += distributed[j];
                            continue;
                        }
                        const uint8_t tap = (uint8_t)(r * w.kernel + v - q * w.stride);
                        for (int64_t j = 0; j < n; j++) dx[j] += keep[from + j] == tap ? dy[j] : 0;
                    }
                sgrad_row_done(type, args->data[2], to, n, dx);
            }
        }
}

static double flops(const struct sgrad_args *args) {
    const struct sgrad_max_pool *m = args->attrs;
    return (double)m->kernel * m->kernel * (double)sgrad_shape_count(&args->view[1].shape); /* of y, or of the saved taps */
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_max_pool *m = attrs;
    sgrad__pool_describe(m->kernel, m->stride, m->padding, text, size);
    if (m->ceil) snprintf(text + strlen(text), size - strlen(text), " ceil");
}

/* The values of a channel in an image are 1/8 apart, exact in bf16, and all different: small steps do not change the maximum. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    const int64_t C = test->x[input].dim[test->x[input].rank - 1];
    float *x = data;
    for (int64_t i = 0, n = sgrad_shape_count(&test->x[input]); i < n; i++)
        x[i] = 0.125f * (float)((i / C * 19 + i % C * 7) % 97 - 48);
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_max_pool *m = attrs;
    fputs("y = MaxPool <", to);
    sgrad__onnx_window(signature->x[0].shape.rank == 5, 0, m->kernel, m->stride, m->padding, to);
    fprintf(to, "%s> (x)", m->ceil ? ", ceil_mode = 1" : "");
}

const struct sgrad_op sgrad_max_pool_op = {
    .name = "max_pool",
    .summary = "largest value of each window",
    .source = "Riesenhuber, Poggio, Hierarchical models of object recognition in cortex, 1999",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_max_pool),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "max_pool forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__max_pool_forward_cuda), .flops = flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0) } } },
    .inference = { { { .name = "max_pool inference", .kind = &sgrad_forward_kind, .cpu = inference,
                       .cuda = SGRAD_ON_CUDA(sgrad__max_pool_inference_cuda), .flops = flops },
                     .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "max_pool backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__max_pool_backward_cuda), .flops = flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0) } } },
    .fill = fill,
    .tests = {
        { "2x2 on one image of 5x7x3", .x = { { 4, { 1, 5, 7, 3 } } }, &(struct sgrad_max_pool){ .kernel = 2 } },
        { "3x3 stride 2 pad 1, 2 of 7x6x17", .x = { { 4, { 2, 7, 6, 17 } } },
          &(struct sgrad_max_pool){ .kernel = 3, .stride = 2, .padding = 1 } },
        { "3x3 stride 1, 3 of 5x4x1", .x = { { 4, { 3, 5, 4, 1 } } }, &(struct sgrad_max_pool){ .kernel = 3, .stride = 1 } },
        { "2x2 stride 3 pad 1, 2 of 7x5x3", .x = { { 4, { 2, 7, 5, 3 } } },
          &(struct sgrad_max_pool){ .kernel = 2, .stride = 3, .padding = 1 } },
        { "2x2 on the slices of 2 volumes", .x = { { 5, { 2, 3, 4, 6, 5 } } }, &(struct sgrad_max_pool){ .kernel = 2 } },
        { "2x2, 2 of 9x11x6: a rest", .x = { { 4, { 2, 9, 11, 6 } } }, &(struct sgrad_max_pool){ .kernel = 2 } },
        { "3x3 pad 1, 2 of 10x13x17", .x = { { 4, { 2, 10, 13, 17 } } }, &(struct sgrad_max_pool){ .kernel = 3, .padding = 1 } },
        { "2x2, 1 of 4x1031x1: longer than a row", .x = { { 4, { 1, 4, 1031, 1 } } }, &(struct sgrad_max_pool){ .kernel = 2 } },
        { "3x3 stride 2, 1 of 5x89x6: longer than a row", .x = { { 4, { 1, 5, 89, 6 } } },
          &(struct sgrad_max_pool){ .kernel = 3, .stride = 2 } },
        { "3x3 stride 2 beyond the end, 2 of 8x6x5", .x = { { 4, { 2, 8, 6, 5 } } },
          &(struct sgrad_max_pool){ .kernel = 3, .stride = 2, .ceil = true } },
        { "2x2 beyond the end, 1 of 5x7x3", .x = { { 4, { 1, 5, 7, 3 } } },
          &(struct sgrad_max_pool){ .kernel = 2, .ceil = true } },
        { "2x2, ceil, on slices", { { 5, { 2, 3, 5, 3, 4 } } }, &(struct sgrad_max_pool){ .kernel = 2, .ceil = true } },
    },
};
