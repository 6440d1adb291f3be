/* global_average_pool.c: the mean of every channel over an image, (N,H,W,C) to (N,C). */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/global_average_pool.h"

void sgrad__global_average_pool_forward_cuda(const struct sgrad_args *a);
void sgrad__global_average_pool_backward_cuda(const struct sgrad_args *a);

static int infer(struct sgrad_signature *s, void *attrs) {
    (void)attrs;
    const struct sgrad_shape *x = &s->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 4)
        return sgrad_fail(SGRAD_ESHAPE, "%s: global_average_pool takes images (N,H,W,C), not %s", s->layer,
                          sgrad_shape_text(x, text));
    s->y.shape = (struct sgrad_shape){ 2, { x->dim[0], x->dim[3] } };
    return 0;
}

/* x (N,H,W,C), y (N,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *a) {
    enum sgrad_dtype type = a->view[0].dtype;
    const int64_t *dim = a->view[0].shape.dim, pixels = dim[1] * dim[2], channels = dim[3];
    float x_room[SGRAD_ROW], sum[SGRAD_ROW], y_room[SGRAD_ROW], scale = 1.0f / (float)pixels;
    for (int64_t s = 0; s < dim[0]; s++)
        for (int64_t c = 0, n; (n = sgrad_piece(c, channels)); c += n) {
            memset(sum, 0, sizeof sum);
            for (int64_t p = 0; p < pixels; p++) {
                const float *x = sgrad_row(type, a->data[0], (s * pixels + p) * channels + c, n, x_room);
                for (int64_t j = 0; j < n; j++) sum[j] += x[j];
            }
            float *y = sgrad_row_out(type, a->data[1], s * channels + c, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = sum[j] * scale;
            sgrad_row_done(type, a->data[1], s * channels + c, n, y);
        }
}

/* dy (N,C), dx (N,H,W,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *a) {
    enum sgrad_dtype type = a->view[1].dtype;
    const int64_t *dim = a->view[1].shape.dim, pixels = dim[1] * dim[2], channels = dim[3];
    float dy_room[SGRAD_ROW], dx_room[SGRAD_ROW], scale = 1.0f / (float)pixels;
    for (int64_t s = 0; s < dim[0]; s++)
        for (int64_t c = 0, n; (n = sgrad_piece(c, channels)); c += n) {
            const float *dy = sgrad_row(type, a->data[0], s * channels + c, n, dy_room);
            for (int64_t p = 0; p < pixels; p++) {
                int64_t from = (s * pixels + p) * channels + c;
                float *dx = sgrad_row_sum(type, a->data[1], from, n, sgrad_adds(a, 1), dx_room);
                for (int64_t j = 0; j < n; j++) dx[j] += dy[j] * scale;
                sgrad_row_done(type, a->data[1], from, n, dx);
            }
        }
}

const struct sgrad_op sgrad_global_average_pool_op = {
    .name = "global_average_pool",
    .summary = "mean of every channel over the image: (N,H,W,C) to (N,C)",
    .source = "Lin, Chen, Yan, Network in network, 2013",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_global_average_pool),
    .infer = infer,
    .forward = { { { .name = "global_average_pool forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__global_average_pool_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "global_average_pool backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__global_average_pool_backward_cuda) },
                    .use = { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one image of 5x3x17", .x = { { 4, { 1, 5, 3, 17 } } } },
        { "3 images of 7x7x1", .x = { { 4, { 3, 7, 7, 1 } } } },
        { "2 images of 1x2x515", .x = { { 4, { 2, 1, 2, 515 } } } },
    },
};
